"""Import the shards that `polyglance encode` made into a library."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from polyglance.errors import PolyglanceError
from polyglance.search.bulk.listing import is_manifest
from polyglance.search.bulk.shards import EncodedFile, ShardFolder
from polyglance.search.indexing import IndexReport
from polyglance.search.model_info import have_same_picture_vectors
from polyglance.search.scan import is_within
from polyglance.search.store import EXCLUDED, SCANNED, BadFile, Entry, FileRecord, Store
from polyglance.utils.progress import progress

BATCH_SIZE = 1024
"""Files written together."""


def import_shards(
    store: Store,
    shards: ShardFolder,
    library: str,
    *,
    folders: Sequence[str] = (),
    quiet: bool = True,
) -> IndexReport:
    """Import the shards that exist into a library.

    What is on record of a file stays, unless the shard has a version modified later; and what
    was removed from the library stays out. So the same shards may be imported again, by several
    processes at once, or while others are still being made.

    Args:
        store: The library.
        shards: The shards.
        library: The library's name, for error messages.
        folders: Those of the folders of the plan that are added to the library, too.
        quiet: Show no progress bar.

    Returns:
        How many files were added, changed and left unchanged, and which could not be read.
    """
    start = time.monotonic()
    plan, model_info = shards.plan, store.model_info
    if not have_same_picture_vectors(model_info, shards.new_model_info()):
        raise PolyglanceError(
            f"{shards.name} was made with the model {plan.model} and {library} with"
            f" {model_info.model} ({model_info.fingerprint[:8]}): only shards of a model"
            " with the library's vectors of pictures can be imported"
        )
    counts = dict.fromkeys(("added", "changed", "unchanged"), 0)
    bad: list[BadFile] = []
    pending = set(shards.pending())
    with progress("Importing", plan.files, quiet=quiet) as advance:
        for number in range(plan.shards):
            if number in pending:
                continue
            for batch in _batches(shards.read_shard(number)):
                # Read each time: another process may remove files meanwhile.
                excluded = store.places(EXCLUDED)
                files = {
                    path: file
                    for path, file in ((_path(file), file) for file in batch)
                    if not any(is_within(path, other) for other in excluded)
                }
                for outcome in _import_files(store, files):
                    counts[outcome] += 1
                bad += [file for file in files.values() if isinstance(file, BadFile)]
                advance(len(batch))
    known = store.places(SCANNED)
    for path in scanned_folders(shards):
        if path in folders and not any(is_within(path, folder) for folder in known):
            store.add_place(SCANNED, path)
    return IndexReport(**counts, seconds=time.monotonic() - start, bad=tuple(bad))


def scanned_folders(shards: ShardFolder) -> list[str]:
    """Return the folders and files of a plan that `polyglance encode` scanned."""
    return [path for path in shards.plan.places if not is_manifest(path)]


def _import_files(store: Store, files: dict[str, EncodedFile]) -> Iterator[str]:
    """Write the files that are newer than the library's; yield the outcome of each item."""
    records = store.records(list(files))
    newer = {path: file for path, file in files.items() if _is_newer(file, records.get(path))}
    if entries := [file for file in newer.values() if isinstance(file, Entry)]:
        store.put(entries)
    # A file without a signature could not be opened, which says nothing about its content.
    if bad := [file for file in newer.values() if isinstance(file, BadFile) and file.signature]:
        store.put_bad_files(bad)
    for path, file in files.items():
        if isinstance(file, Entry):
            record = records.get(path)
            is_recorded = record is not None and not record.error
            if path not in newer or (
                record and is_recorded and record.signature == file.item.signature
            ):
                yield "unchanged"  # except perhaps for a new thumbnail
            else:
                yield "changed" if is_recorded else "added"


def _is_newer(file: EncodedFile, record: FileRecord | None) -> bool:
    """Return whether a shard knows more about a file than the library."""
    signature = file.signature if isinstance(file, BadFile) else file.item.signature
    if record is None or signature is None:
        return record is None
    if isinstance(file, Entry):
        if record.error is not None:
            return signature.mtime_ns >= record.signature.mtime_ns
        if signature == record.signature:
            return file.thumbnail is not None and not record.thumbnail
    return signature.mtime_ns > record.signature.mtime_ns


def _path(file: EncodedFile) -> str:
    return file.path if isinstance(file, BadFile) else file.item.path


def _batches(files: Sequence[EncodedFile]) -> Iterator[Sequence[EncodedFile]]:
    return (files[start : start + BATCH_SIZE] for start in range(0, len(files), BATCH_SIZE))
