"""`Library`: index pictures and clips, and search them in any language.

    with polyglance.Library("my.polyglance") as library:
        library.add("photos")
        for hit in library.search("собака на пляже", k=20):
            print(hit.path, hit.score)

A library is a file, or on PostgreSQL (`polyglance.search.backends`). The model is loaded when
something has to be encoded.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Sequence
from dataclasses import replace

from polyglance.errors import PolyglanceError, printable
from polyglance.search.confirmed_folders import confirm_folders, confirmed_folders
from polyglance.search.indexing import Indexer, IndexReport, delete_in_batches
from polyglance.search.merge import merge_into
from polyglance.search.model_info import have_same_picture_vectors
from polyglance.search.query import (
    PathLike,
)
from polyglance.search.scan import is_within, resolve_path
from polyglance.search.searching import SearchableLibrary
from polyglance.search.store import (
    EXCLUDED,
    SCANNED,
    Store,
)
from polyglance.utils.progress import ProgressCallback

log = logging.getLogger(__name__)


class Library(SearchableLibrary):
    """Pictures and clips, searched by what they show. Threads may share a library."""

    def add(
        self,
        *folders: PathLike,
        thumbnails: bool = False,
        again: bool = False,
        quiet: bool = True,
        progress: ProgressCallback | None = None,
    ) -> IndexReport:
        """Index folders and files: add new and changed files, delete missing ones.

        From then on `update` does the same. A run that was killed is continued by the next.

        Args:
            folders: Folders or single files.
            thumbnails: Also store thumbnails.
            again: Also encode files that are unchanged, to replace their vectors.
            quiet: Show no progress bar.
            progress: Called with the number of files done and of all. What it raises ends the
                run; what was stored until then stays.

        Returns:
            How many files were added, changed, moved, removed and left unchanged, and which
            could not be read.
        """
        paths = self.include(*folders)
        return self._update_paths(
            self._store(), paths, thumbnails=thumbnails, again=again, quiet=quiet, progress=progress
        )

    def include(self, *folders: PathLike) -> list[str]:
        """Add folders and files for `update` to index, without indexing them now.

        Returns:
            Their paths, as the library stores them.
        """
        paths = [resolve_path(folder) for folder in folders]
        for path, folder in zip(paths, folders, strict=True):
            if not os.path.exists(path):  # noqa: PTH110 (unlike Path.exists it never raises)
                raise PolyglanceError(f"{printable(str(folder))}: no such file or folder")
        store = self._store(create=True)
        self._confirm(store, paths)
        for path in paths:
            store.drop_places(EXCLUDED, [path])
            if not any(is_within(path, folder) for folder in store.places(SCANNED)):
                store.add_place(SCANNED, path)
        return paths

    def update(
        self,
        *,
        thumbnails: bool = False,
        quiet: bool = True,
        progress: ProgressCallback | None = None,
    ) -> IndexReport:
        """Bring the library up to date with all folders that were added; see `add`."""
        store = self._store()
        return self._update_paths(
            store, store.places(SCANNED), thumbnails=thumbnails, quiet=quiet, progress=progress
        )

    def refresh(
        self,
        *paths: str,
        thumbnails: bool = False,
        quiet: bool = True,
        progress: ProgressCallback | None = None,
    ) -> IndexReport:
        """Bring some files and folders up to date; see `add`.

        Args:
            paths: As the library stores them. What lies in no folder that was added, or was
                removed, is left out.
            thumbnails: Also store thumbnails.
            quiet: Show no progress bar.
            progress: Called with the number of files done and of all.

        Returns:
            What was done.
        """
        store = self._store()
        folders, excluded = store.places(SCANNED), store.places(EXCLUDED)
        inside = [
            path
            for path in paths
            if any(is_within(path, folder) for folder in folders)
            and not any(is_within(path, other) for other in excluded)
        ]
        return self._update_paths(
            store, inside, thumbnails=thumbnails, quiet=quiet, progress=progress
        )

    def remove(self, *paths: PathLike) -> int:
        """Delete files and folders from the library, not from the disk; return how many files.

        What lies in a folder that stays in the library, or in none, is skipped from then on,
        until it is added itself.
        """
        store, removed = self._store(), 0
        for path in map(resolve_path, paths):
            recorded = list(store.paths(path))
            folders = store.places(SCANNED)
            inside = [folder for folder in folders if is_within(folder, path)]
            if not recorded and not inside:
                raise PolyglanceError(f"{printable(path)}: is not in the library")
            store.drop_places(SCANNED, inside)
            still_scanned = any(is_within(path, folder) for folder in folders if folder != path)
            if still_scanned or not inside:  # not inside: it came from a manifest or a merge
                store.add_place(EXCLUDED, path)
            removed += delete_in_batches(store, recorded)
        return removed

    def trust(self, *folders: PathLike, remember: bool = True) -> list[str]:
        """Confirm that files of these folders may be served; return the confirmed ones.

        This user's list is kept outside the library (`polyglance.search.confirmed_folders`);
        `add` confirms what it adds.

        Args:
            folders: Without any, the folders that the library names.
            remember: Confirm for good, or only while this library is open.

        Returns:
            The confirmed folders.
        """
        store = self._store()
        paths = [resolve_path(folder) for folder in folders] or store.places(SCANNED)
        if remember:
            confirm_folders(store.model_info.library, self.name, paths)
        else:
            self._confirmed_now |= set(paths)
        return sorted(self.confirmed)

    @property
    def confirmed(self) -> frozenset[str]:
        """The folders and files that this user confirmed, whose files may be served."""
        return confirmed_folders(self._store().model_info.library) | self._confirmed_now

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        """The folders that the library names and this user did not confirm."""
        confirmed = self.confirmed
        return tuple(
            folder
            for folder in self.folders
            if not any(is_within(folder, other) for other in confirmed)
        )

    def merge(self, other: PathLike | Library, *, trust: bool = False) -> int:
        """Add the items of another library, and return how many were new.

        Files that both have stay as they are here, and files that were removed here stay out.
        The other's folders are added, for `update` to scan, if this user confirmed them there
        (see `trust`).

        Args:
            other: The library to copy from.
            trust: Add its other folders, too; only for a library that you know.

        Returns:
            The number of items that are new.
        """
        opened = other if isinstance(other, Library) else Library(other)
        try:
            source = opened._store()
            info = replace(source.model_info, library=uuid.uuid4().hex)
            store = self._store(create=True, like=info)
            own = store.model_info
            if not have_same_picture_vectors(source.model_info, own):
                raise PolyglanceError(
                    f"{opened.name} was made with the model {source.model_info.model} and"
                    f" {self.name} with {own.model} ({own.fingerprint[:8]}), whose vectors of"
                    " pictures are others, or whose folder has moved: put it back, or index again"
                )
            folders = source.places(SCANNED) if trust else sorted(opened.confirmed)
            count = merge_into(store, source, folders)
            self._confirm(store, folders)
            self._after_indexing()
            return count
        finally:
            if opened is not other:
                opened.close()

    def import_shards(
        self, folder: PathLike, *, trust: bool = False, quiet: bool = True
    ) -> IndexReport:
        """Import the output of `polyglance encode`; may be repeated as more shards are made.

        The folders that were encoded are added, for `update` to scan, if this user confirmed
        them for this library (see `trust`).

        Args:
            folder: The folder of shards.
            trust: Confirm and add the other folders, too; only for shards that you know.
            quiet: Show no progress bar.

        Returns:
            How many files were added, changed and left unchanged, and which could not be read.
        """
        from polyglance.search.bulk.shard_import import import_shards, scanned_folders
        from polyglance.search.bulk.shards import ShardFolder

        shards = ShardFolder(folder)
        store = self._store(create=True, like=shards.new_model_info())
        named, confirmed = scanned_folders(shards), self.confirmed
        folders = [
            path for path in named if trust or any(is_within(path, other) for other in confirmed)
        ]
        report = import_shards(store, shards, self.name, folders=folders, quiet=quiet)
        if trust:
            self._confirm(store, folders)
        self._after_indexing(quiet=quiet)
        return report

    def verify(self, *, files: bool = False) -> list[str]:
        """Return a sentence for each damaged part.

        With ``files`` also for each item that is not what its file says: all files are read and
        encoded again, which takes as long as indexing did.
        """
        from polyglance.search.verification import changed_files

        store = self._store()
        changed = changed_files(store, self._encoder, self._limits) if files else ()
        return [*store.find_damage(), *changed]

    def _confirm(self, store: Store, paths: Sequence[str]) -> None:
        """Confirm folders if this user's list can be written; else `trust` says why not."""
        try:
            confirm_folders(store.model_info.library, self.name, paths)
        except PolyglanceError as error:
            log.warning("%s", error)

    def _update_paths(
        self,
        store: Store,
        paths: Sequence[str],
        *,
        thumbnails: bool,
        again: bool = False,
        quiet: bool,
        progress: ProgressCallback | None = None,
    ) -> IndexReport:
        report = Indexer(
            store,
            self._encoder,
            thumbnails=thumbnails,
            again=again,
            quiet=quiet,
            on_progress=progress,
            limits=self._limits,
        ).run(paths)
        self._after_indexing(quiet=quiet)
        return report
