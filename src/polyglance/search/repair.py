"""Repair a library: keep what can be read, and index again exactly what is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polyglance.errors import PolyglanceError, printable
from polyglance.search.backends import FileBackend, backend_for, default_library
from polyglance.search.indexing import IndexReport
from polyglance.search.library import Library
from polyglance.search.library_files import find_damage, repair_file
from polyglance.search.model_info import Model
from polyglance.search.salvage import Salvage
from polyglance.search.scan import has_content, is_missing
from polyglance.search.store import SCANNED


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair found and did."""

    damage: tuple[str, ...] = ()
    """A sentence for each damaged part."""
    kept: int = 0
    """Items that were kept as they were."""
    report: IndexReport | None = None
    """What was indexed again."""
    lost: tuple[str, ...] = ()
    """A sentence for each thing that could not be restored."""
    damaged_file: Path | None = None
    """Where the damaged file is now."""


def repair(
    place: str | Path | None = None, *, model: Model = None, quiet: bool = True
) -> RepairReport:
    """Repair a library.

    Rows that match their checksums are kept, with their ids, in a new file; the damaged one
    stays beside it. Files whose rows are lost are indexed again. If it is not known which those
    are, the library's folders are scanned.

    Args:
        place: A file, or a PostgreSQL database; None for the default library.
        model: The library's model, if it has moved or was given as an object.
        quiet: Show no progress bar.

    Returns:
        What was found and done; without damage nothing is changed.
    """
    backend = backend_for(default_library() if place is None else place)
    if not isinstance(backend, FileBackend):
        return _repair_server(str(place), model, quiet=quiet)
    damage = tuple(find_damage(backend.path))
    if not damage:
        return RepairReport()
    kept, damaged_file = repair_file(backend.path)
    with Library(backend.path, model=model) as library:
        return _index_again(library, kept, damage, damaged_file, quiet=quiet)


def _repair_server(place: str, model: Model, *, quiet: bool) -> RepairReport:
    from polyglance.search.postgres.store import PostgresStore

    with Library(place, model=model) as library:
        store = library._store()
        damage = tuple(store.find_damage())
        if not damage or not isinstance(store, PostgresStore):
            return RepairReport(damage)
        return _index_again(library, store.drop_damage(), damage, None, quiet=quiet)


def _index_again(
    library: Library,
    kept: Salvage,
    damage: tuple[str, ...],
    damaged_file: Path | None,
    *,
    quiet: bool,
) -> RepairReport:
    """Index what is lost, or all folders if that is not known."""
    store = library._store()
    # Of a file that is not there all that is left stays.
    paths = {path for path in (*kept.lost, *kept.lost_thumbnails) if not is_missing(path)}
    if not kept.complete:
        paths |= {folder for folder in store.places(SCANNED) if _is_there(folder)}
    report = None
    if paths:
        report = library._update_paths(
            store, sorted(paths), thumbnails=kept.thumbnails, quiet=quiet
        )
    lost = _missing(library, kept.lost)
    lost += [
        f"{printable(path)}: is not there: its thumbnail is lost"
        for path in kept.lost_thumbnails
        if is_missing(path)
    ]
    if not kept.complete:
        lost.append(
            "rows of which nothing can be read are missing: files in the library's folders"
            " were indexed again, others were not; see `polyglance library info`, and add"
            " missing folders with `polyglance index FOLDER`"
        )
    if remaining := list(store.find_damage()):
        raise PolyglanceError(f"{library.name} could not be repaired: {remaining[0]}")
    return RepairReport(damage, kept.items, report, tuple(lost), damaged_file)


def _missing(library: Library, paths: Sequence[str]) -> list[str]:
    records = library._store().records(paths)
    return [
        f"{printable(path)}: is not there to be indexed again: its vectors are lost until it is"
        for path in paths
        if path not in records
    ]


def _is_there(folder: str) -> bool:
    try:
        return has_content(folder)
    except PolyglanceError:
        return False
