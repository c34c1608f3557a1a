"""A library of pictures and clips that answers in your language.

    with polyglance.Library("my.polyglance") as library:
        library.add("photos")
        for hit in library.search("собака на пляже", k=20):
            print(hit.path, hit.score)

The library is a file, or on PostgreSQL (`polyglance.search.home`); the model is opened when
something has to be encoded.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from polyglance.encoders import Encoder, Picture
from polyglance.encoders.protocol import Vectors
from polyglance.errors import PolyglanceError, printable
from polyglance.search.home import FileHome, Index, home_of
from polyglance.search.indexing import Indexing, Report
from polyglance.search.merging import take_in
from polyglance.search.models import Model, check_model, model_of, new_manifest, open_model
from polyglance.search.query import Hit, Piece, Text, as_filter, in_languages, query_vector
from polyglance.search.reranking import CANDIDATES, AnyReranker, SecondLook, open_reranker
from polyglance.search.showing.pictures import from_webp, picture_of
from polyglance.search.store import Counts, Manifest, NoLibrary, Store
from polyglance.search.walking import as_place, is_within
from polyglance.text.translators import Translator

if TYPE_CHECKING:
    from datetime import date

    from PIL.Image import Image

T = TypeVar("T")
OneOrMore: TypeAlias = "T | Sequence[T] | None"
Place: TypeAlias = "str | Path"
Shown: TypeAlias = "Picture | Piece | Vectors"
"""A picture, one that is in the library, or the vector of one."""
Date: TypeAlias = "str | date | None"
"""``2024``, ``2024-07``, ``2024-07-31``, or an object of `datetime`."""

VARIABLE = "POLYGLANCE_LIBRARY"
"""The environment variable that names the library where none is given."""


def default_place() -> Place:
    """Where the library is that nobody named."""
    data = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()
    return os.environ.get(VARIABLE) or data / "polyglance" / "library.polyglance"


@dataclass(frozen=True, slots=True)
class Info:
    """What a library is."""

    name: str
    """Its file, or the address of its database without the password."""
    size: int
    """Bytes on disk."""
    manifest: Manifest
    counts: Counts
    folders: tuple[str, ...]
    left_out: tuple[str, ...]


class Library:
    """Pictures and clips, found by what they show. Threads may share one."""

    def __init__(
        self,
        path: Place | None = None,
        *,
        model: Model = None,
        reranker: AnyReranker | None = None,
        threads: int | None = None,
    ) -> None:
        """Open a library; one that does not exist yet is made by `add`.

        ``path`` is a file, or a database of PostgreSQL: ``postgresql://user@host/database``.
        ``model`` is for a new library, and None for that which comes with Polyglance. One that
        exists says itself what it was made with. ``reranker`` reads again what its vectors found:
        the folder of a trained UC2 or M3P. ``threads`` bounds the cores of the model.
        """
        self._home = home_of(default_place() if path is None else path)
        self.path = self._home.path if isinstance(self._home, FileHome) else None
        self._model, self._threads, self._reranker = model, threads, reranker
        self._lock = threading.RLock()
        self._opened: Store | None = None
        self._loaded: Encoder | None = None
        self._vectors: Index | None = None
        self._second: SecondLook | None = None
        with suppress(NoLibrary):
            self._store()
            if model is not None:
                self._encoder()

    def add(self, *folders: Place, thumbnails: bool = False, quiet: bool = True) -> Report:
        """Index folders and files: what is new or changed, and forget what vanished from them.

        From then on `update` does the same. A killed run is taken up by the next.
        """
        places = [as_place(folder) for folder in folders]
        for place, given in zip(places, folders, strict=True):
            if not os.path.exists(place):  # noqa: PTH110 (unlike Path.exists it never raises)
                raise PolyglanceError(f"{printable(str(given))}: no such file or folder")
        store = self._store(create=True)
        for place in places:
            store.drop_places("left out", [place])
            if not any(is_within(place, known) for known in store.places("walked")):
                store.add_place("walked", place)
        return self._bring_in(store, places, thumbnails=thumbnails, quiet=quiet)

    def update(self, *, thumbnails: bool = False, quiet: bool = True) -> Report:
        """Bring the library up to date with all folders that were added."""
        store = self._store()
        return self._bring_in(store, store.places("walked"), thumbnails=thumbnails, quiet=quiet)

    def search(
        self,
        text: Text | None = None,
        *,
        picture: OneOrMore[Shown] = None,
        without: OneOrMore[Text] = None,
        without_picture: OneOrMore[Shown] = None,
        k: int = 20,
        folder: OneOrMore[Place] = None,
        kind: str | None = None,
        since: Date = None,
        until: Date = None,
        language: str | None = None,
        translators: Sequence[Translator] = (),
        every_span: bool = False,
        candidates: int = CANDIDATES,
    ) -> list[Hit]:
        """What fits best, the best first.

        ``text`` may be in any language, or the same in several, by language: then what all say
        together counts; ``translators`` from its ``language`` say it in others. With a ``picture``
        it is what looks like it, with both what is like both; ``without`` takes away. The rest
        restricts what is looked at. Of a clip the best span is found, or with ``every_span`` all
        that are good enough. A reranker reads the ``text`` beside the best ``candidates``;
        pictures count by their vectors alone.
        """
        if k < 1:
            raise PolyglanceError(f"{k} hits cannot be found: ask for 1 or more")
        wanted = as_filter(folder, kind, since, until)
        if text is not None:
            text = in_languages(text, language, translators)
        vector = query_vector(
            self._encoder(),
            [] if text is None else [text],
            self._known(picture),
            without=_listed(without),
            without_pictures=self._known(without_picture),
            language=language,
        )
        second = self._second_look() if text is not None else None
        store, count = self._store(), max(k, candidates) if second else k
        with self._lock:
            nearest = self._index(store).nearest(vector, count, wanted, once=not every_span)
        found = store.found(nearest.ids.tolist())
        scored = zip(nearest.ids.tolist(), nearest.scores.tolist(), strict=True)
        hits = [Hit.of(n, *found[n], score=score) for n, score in scored if n in found]
        hits.sort(key=lambda hit: (-hit.score, hit.number))  # whatever k is, the same come first
        if second and text is not None:
            best, others = hits[:candidates], hits[candidates:]
            hits = [*second.sort(best, text, vector, language=language), *others]
        return hits[:k]

    def piece(self, number: int) -> Piece | None:
        """What goes by the number of a hit, if it is still there."""
        found = self._store().found([number]).get(number)
        return found and Piece.of(number, *found)

    def vector(self, picture: Picture | Piece) -> Vectors:
        """The unit vector of a picture, or of what is in the library; `search` takes it as well."""
        if not isinstance(picture, Piece):
            vector: Vectors = self._encoder().encode_pictures([picture])[0]
            return vector
        rows = self._store().rows(np.array([picture.number], np.int64))
        if not len(rows):
            raise PolyglanceError(f"{printable(str(picture.path))} is not in the library any more")
        return np.array(rows.vectors[0])

    def thumbnail(self, piece: Piece) -> bytes | None:
        """The small WebP that is kept of a file, where one is; of a clip, from its beginning."""
        return self._store().thumbnail(piece.path.as_posix())

    def picture(self, piece: Piece) -> Image:
        """What to show of a hit: its thumbnail, or else from its file."""
        small = None if piece.span else self.thumbnail(piece)
        return from_webp(small) if small else picture_of(str(piece.path), piece.kind, piece.span)

    def paths(self, folder: Place | None = None) -> Iterator[str]:
        """The files on record, those that could not be read included; all, or of a folder."""
        return self._store().paths(None if folder is None else as_place(folder))

    @property
    def folders(self) -> tuple[str, ...]:
        """Those that were added, from which `update` takes what is new."""
        return tuple(self._store().places("walked"))

    @property
    def manifest(self) -> Manifest:
        """Which model the library is of."""
        return self._store().manifest

    @property
    def revision(self) -> Hashable:
        """Another value when anything may have been written since, by anybody."""
        return self._store().revision()

    def remove(self, *paths: Place) -> int:
        """Delete files and folders from the library, not from the disk; how many that were.

        What lies in a folder that stays in the library, or in none, is left out from then on,
        until it is added itself.
        """
        store, removed = self._store(), 0
        for place in map(as_place, paths):
            known = list(store.paths(place))
            walked = store.places("walked")
            inside = [folder for folder in walked if is_within(folder, place)]
            if not known and not inside:
                raise PolyglanceError(f"{printable(place)}: nothing of it is in the library")
            store.drop_places("walked", inside)
            kept = any(is_within(place, folder) for folder in walked if folder != place)
            if kept or not inside:  # else only a manifest or another library has named it
                store.add_place("left out", place)
            removed += sum(store.forget(known[i : i + 1000]) for i in range(0, len(known), 1000))
        return removed

    def merge(self, other: Place | Library) -> int:
        """Take in what another library of the same model holds; how many items were new.

        What both have of a file stays as it is here, and what was removed here stays out.
        """
        opened = other if isinstance(other, Library) else Library(other)
        try:
            theirs = opened._store()
            own = replace(theirs.manifest, library=uuid.uuid4().hex)
            store = self._store(create=True, like=own)
            if theirs.manifest.fingerprint != store.manifest.fingerprint:
                raise PolyglanceError(
                    f"{opened.name} is of the model {theirs.manifest.model} and {self.name} of"
                    f" {store.manifest.model} ({store.manifest.fingerprint[:8]}): only libraries of"
                    " one model can be merged"
                )
            new = take_in(store, theirs)
            self._index(store).build()
            return new
        finally:
            if opened is not other:
                opened.close()

    def import_shards(self, folder: Place, *, quiet: bool = True) -> Report:
        """Take in what `polyglance encode` made; again for shards that were made since."""
        from polyglance.search.bulk.importing import import_shards
        from polyglance.search.bulk.shards import ShardFolder

        shards = ShardFolder(folder)
        store = self._store(create=True, like=shards.manifest())
        report = import_shards(store, shards, self.name, quiet=quiet)
        self._index(store).build(quiet=quiet)
        return report

    def verify(self, *, files: bool = False) -> list[str]:
        """A sentence for each damage; with ``files``, also for each file that is not as indexed."""
        from polyglance.search.checking import changed_files

        store = self._store()
        return [*store.damage(), *(changed_files(store) if files else ())]

    def info(self) -> Info:
        """What the library is and how much it holds."""
        store = self._store()
        return Info(
            self.name,
            self._home.size(),
            store.manifest,
            store.counts(),
            self.folders,
            tuple(store.places("left out")),
        )

    @property
    def name(self) -> str:
        """The file, or the address of the database without the password."""
        return self._home.name

    def __len__(self) -> int:
        counts = self._store().counts()
        return counts.pictures + counts.clips

    def close(self) -> None:
        """Let go of the file or database."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
            self._opened = self._vectors = self._second = None

    def __enter__(self) -> Library:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _store(self, *, create: bool = False, like: Manifest | None = None) -> Store:
        with self._lock:
            if self._opened is None:
                try:
                    self._opened, self._vectors = self._home.open()
                except NoLibrary:
                    if not create:
                        raise
                    encoder = None if like else open_model(self._model, self._threads)
                    manifest = new_manifest(self._model, encoder) if encoder else like
                    self._opened, self._vectors = self._home.open(manifest)
            return self._opened

    def _encoder(self) -> Encoder:
        """The model, which must be that of the library."""
        with self._lock:
            if self._loaded is None:
                manifest, model = self._store().manifest, self._model
                if model is None:
                    model = model_of(manifest, self.name)
                encoder = open_model(model, self._threads)
                check_model(manifest, encoder, self.name)
                self._loaded = encoder
            return self._loaded

    def _second_look(self) -> SecondLook | None:
        """What reads hits again, if there is to be one."""
        with self._lock:
            if self._second is None and self._reranker is not None:
                self._reranker = open_reranker(self._reranker)
                self._second = SecondLook(self._reranker, self._store())
            return self._second

    def _known(self, pictures: OneOrMore[Shown]) -> list[Picture | Vectors]:
        """Pictures, with the vectors of those that are in the library."""
        shown: list[Shown] = _listed(pictures)
        return [self.vector(one) if isinstance(one, Piece) else one for one in shown]

    def _bring_in(
        self, store: Store, places: Sequence[str], *, thumbnails: bool, quiet: bool
    ) -> Report:
        report = Indexing(store, self._encoder, thumbnails=thumbnails, quiet=quiet).run(places)
        self._index(store).build(quiet=quiet)
        return report

    def _index(self, store: Store) -> Index:
        if self._vectors is None:
            raise PolyglanceError(f"{self.name} was closed: open the library again")
        return self._vectors


def _listed(given: OneOrMore[T]) -> list[T]:
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]  # type: ignore[list-item]
