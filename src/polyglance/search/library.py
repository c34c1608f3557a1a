"""A library of pictures and clips that answers in your language.

    with polyglance.Library("my.polyglance") as library:
        library.add("photos")
        for hit in library.search("собака на пляже", k=20):
            print(hit.path, hit.score)

The library is a file; the model is opened when something has to be encoded.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from polyglance.encoders import Encoder, Picture
from polyglance.errors import PolyglanceError, printable
from polyglance.search.approximate import graph_path
from polyglance.search.indexing import Indexing, Report
from polyglance.search.models import Model, check_model, model_of, new_manifest, open_model
from polyglance.search.query import Hit, Text, as_filter, query_vector
from polyglance.search.showing import from_webp, picture_of
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import Counts, Manifest, NoLibrary, Store
from polyglance.search.vector_index import VectorIndex
from polyglance.search.walking import as_place, is_within

if TYPE_CHECKING:
    from datetime import date

    from PIL.Image import Image

T = TypeVar("T")
OneOrMore: TypeAlias = "T | Sequence[T] | None"
Place: TypeAlias = "str | Path"
Date: TypeAlias = "str | date | None"
"""``2024``, ``2024-07``, ``2024-07-31``, or an object of `datetime`."""

VARIABLE = "POLYGLANCE_LIBRARY"
"""The environment variable that names the library where none is given."""


def default_place() -> Path:
    """Where the library is that nobody named."""
    data = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()
    return Path(os.environ.get(VARIABLE) or data / "polyglance" / "library.polyglance")


@dataclass(frozen=True, slots=True)
class Info:
    """What a library is."""

    path: Path
    size: int
    """Bytes on disk."""
    manifest: Manifest
    counts: Counts
    folders: tuple[str, ...]
    left_out: tuple[str, ...]


class Library:
    """Pictures and clips, found by what they show. Threads may share one."""

    def __init__(
        self, path: Place | None = None, *, model: Model = None, threads: int | None = None
    ) -> None:
        """Open a library; one that does not exist yet is made by `add`.

        ``model`` is for a new library, and None for that which comes with Polyglance. One that
        exists says itself what it was made with. ``threads`` bounds the cores of the model.
        """
        self.path = Path(path).expanduser() if path is not None else default_place()
        self._model, self._threads = model, threads
        self._lock = threading.RLock()
        self._opened: Store | None = None
        self._loaded: Encoder | None = None
        self._vectors: VectorIndex | None = None
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
        picture: OneOrMore[Picture] = None,
        without: OneOrMore[Text] = None,
        without_picture: OneOrMore[Picture] = None,
        k: int = 20,
        folder: OneOrMore[Place] = None,
        kind: str | None = None,
        since: Date = None,
        until: Date = None,
        language: str | None = None,
        every_span: bool = False,
    ) -> list[Hit]:
        """What fits best, the best first.

        ``text`` may be in any language, or the same in several, by language: then what all say
        together counts. With a ``picture`` it is what looks like it, with both what is like
        both; ``without`` takes away. The rest restricts what is looked at. Of a clip the best
        span is found, or with ``every_span`` all that are good enough.
        """
        if k < 1:
            raise PolyglanceError(f"{k} hits cannot be found: ask for 1 or more")
        wanted = as_filter(folder, kind, since, until)
        store = self._store()
        vector = query_vector(
            self._encoder(),
            [] if text is None else [text],
            _listed(picture),
            without=_listed(without),
            without_pictures=_listed(without_picture),
            language=language,
        )
        with self._lock:
            nearest = self._index(store).nearest(vector, k, wanted, once=not every_span)
        found = store.found(nearest.ids.tolist())
        scored = zip(nearest.ids.tolist(), nearest.scores.tolist(), strict=True)
        hits = [Hit.of(*found[number], score) for number, score in scored if number in found]
        return sorted(hits, key=lambda hit: (-hit.score, hit.path))

    def picture(self, hit: Hit) -> Image:
        """What to show of a hit: its thumbnail, or else from its file."""
        small = None if hit.span else self._store().thumbnail(hit.path.as_posix())
        return from_webp(small) if small else picture_of(str(hit.path), hit.kind, hit.span)

    def remove(self, *paths: Place) -> int:
        """Delete files and folders from the library, not from the disk; how many that were.

        What lies in a folder that stays in the library is left out from then on, until it is
        added itself.
        """
        store, removed = self._store(), 0
        for place in map(as_place, paths):
            known = list(store.paths(place))
            walked = store.places("walked")
            inside = [folder for folder in walked if is_within(folder, place)]
            if not known and not inside:
                raise PolyglanceError(f"{printable(place)}: nothing of it is in the library")
            store.drop_places("walked", inside)
            if any(is_within(place, folder) for folder in walked if folder != place):
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
            store = self._store(create=True, like=theirs.manifest)
            if theirs.manifest.fingerprint != store.manifest.fingerprint:
                raise PolyglanceError(
                    f"{opened._name} is of the model {theirs.manifest.model} and {self._name} of"
                    f" {store.manifest.model} ({store.manifest.fingerprint[:8]}): only libraries of"
                    " one model can be merged"
                )
            before, left_out = store.counts(), store.places("left out")
            for batch in _blocks(theirs.entries(), 256):
                known = store.known([entry.item.path for entry in batch])
                here = {path for path, record in known.items() if record.bad is None}
                store.put(
                    entry
                    for entry in batch
                    if entry.item.path not in here
                    and not any(is_within(entry.item.path, out) for out in left_out)
                )
            for place in theirs.places("walked"):
                store.add_place("walked", place)
        finally:
            if opened is not other:
                opened.close()
        after = store.counts()
        return after.pictures + after.clips - before.pictures - before.clips

    def verify(self, *, files: bool = False) -> list[str]:
        """A sentence for each damage; with ``files``, also for each file that is not as indexed."""
        from polyglance.search.checking import changed_files

        store = self._store()
        return [*store.damage(), *(changed_files(store) if files else ())]

    def info(self) -> Info:
        """What the library is and how much it holds."""
        store = self._store()
        size = 0
        for path in (self.path, f"{self.path}-wal", graph_path(self.path)):
            with suppress(OSError):
                size += os.stat(path).st_size
        return Info(
            self.path,
            size,
            store.manifest,
            store.counts(),
            tuple(store.places("walked")),
            tuple(store.places("left out")),
        )

    def __len__(self) -> int:
        counts = self._store().counts()
        return counts.pictures + counts.clips

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
            self._opened = self._vectors = None

    def __enter__(self) -> Library:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _name(self) -> str:
        return printable(str(self.path))

    def _store(self, *, create: bool = False, like: Manifest | None = None) -> Store:
        with self._lock:
            if self._opened is None:
                try:
                    self._opened = SqliteStore(self.path)
                except NoLibrary:
                    if not create:
                        raise
                    encoder = None if like else open_model(self._model, self._threads)
                    manifest = new_manifest(self._model, encoder) if encoder else like
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                    self._opened = SqliteStore(self.path, manifest)
            return self._opened

    def _encoder(self) -> Encoder:
        """The model, which must be that of the library."""
        with self._lock:
            if self._loaded is None:
                manifest, model = self._store().manifest, self._model
                if model is None:
                    model = model_of(manifest, self._name)
                encoder = open_model(model, self._threads)
                check_model(manifest, encoder, self._name)
                self._loaded = encoder
            return self._loaded

    def _bring_in(
        self, store: Store, places: Sequence[str], *, thumbnails: bool, quiet: bool
    ) -> Report:
        report = Indexing(store, self._encoder, thumbnails=thumbnails, quiet=quiet).run(places)
        VectorIndex(store, graph_path(self.path)).build(quiet=quiet)
        return report

    def _index(self, store: Store) -> VectorIndex:
        if self._vectors is None:
            self._vectors = VectorIndex(store, graph_path(self.path))
        return self._vectors


def _listed(given: OneOrMore[T]) -> list[T]:
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]  # type: ignore[list-item]


def _blocks(items: Iterable[T], size: int) -> Iterable[list[T]]:
    block: list[T] = []
    for item in items:
        block.append(item)
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block
