"""What `polyglance encode` made, taken into a library."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from polyglance.errors import PolyglanceError
from polyglance.progress import progress
from polyglance.search.bulk.listing import is_manifest
from polyglance.search.bulk.shards import Done, ShardFolder
from polyglance.search.indexing import Report
from polyglance.search.store import BadFile, Entry, Known, Store
from polyglance.search.walking import is_within

TOGETHER = 1024
"""Files that are written together."""


def import_shards(store: Store, shards: ShardFolder, library: str, *, quiet: bool = True) -> Report:
    """Take the shards that are there into a library, which is told by its name.

    What is on record of a file stays, unless the shards are of one that was written later; and
    what was removed from the library stays out. So the same shards may be imported again, by
    several processes at once, or while others are still being made.
    """
    began = time.monotonic()
    plan, manifest = shards.plan, store.manifest
    if manifest.fingerprint != plan.fingerprint:
        raise PolyglanceError(
            f"{shards.name} is of the model {plan.model} and {library} of {manifest.model}"
            f" ({manifest.fingerprint[:8]}): only shards of the library's model can be imported"
        )
    counts = dict.fromkeys(("added", "changed", "unchanged"), 0)
    bad: list[BadFile] = []
    missing = set(shards.pending())
    with progress("Importing", plan.files, quiet=quiet) as advance:
        for number in range(plan.shards):
            if number in missing:
                continue
            for block in _blocks(shards.read(number)):
                left_out = store.places("left out")  # again: somebody may remove files meanwhile
                done = {
                    path: one
                    for path, one in ((_path(one), one) for one in block)
                    if not any(is_within(path, out) for out in left_out)
                }
                for became in _take_in(store, done):
                    counts[became] += 1
                bad += [one for one in done.values() if isinstance(one, BadFile)]
                advance(len(block))
    walked = store.places("walked")
    for place in plan.places:
        if not is_manifest(place) and not any(is_within(place, folder) for folder in walked):
            store.add_place("walked", place)
    return Report(**counts, seconds=time.monotonic() - began, bad=tuple(bad))


def _take_in(store: Store, done: dict[str, Done]) -> Iterator[str]:
    """Write what is news; what became of each item."""
    known = store.known(list(done))
    news = {path: one for path, one in done.items() if _is_news(one, known.get(path))}
    if entries := [one for one in news.values() if isinstance(one, Entry)]:
        store.put(entries)
    # One without a stamp could not be opened then: that says nothing of the file.
    if bad := [one for one in news.values() if isinstance(one, BadFile) and one.stamp]:
        store.put_bad(bad)
    for path, one in done.items():
        if isinstance(one, Entry):
            record = known.get(path)
            if path not in news or (record and not record.bad and record.stamp == one.item.stamp):
                yield "unchanged"  # but for a thumbnail, perhaps
            else:
                yield "changed" if record and not record.bad else "added"


def _is_news(one: Done, record: Known | None) -> bool:
    """Whether a shard knows more of a file than the library."""
    stamp = one.stamp if isinstance(one, BadFile) else one.item.stamp
    if record is None or stamp is None:
        return record is None
    if isinstance(one, Entry):
        if record.bad is not None:
            return stamp.mtime_ns >= record.stamp.mtime_ns
        if stamp == record.stamp:
            return one.thumbnail is not None and not record.thumbnail
    return stamp.mtime_ns > record.stamp.mtime_ns


def _path(one: Done) -> str:
    return one.path if isinstance(one, BadFile) else one.item.path


def _blocks(done: Sequence[Done]) -> Iterator[Sequence[Done]]:
    return (done[start : start + TOGETHER] for start in range(0, len(done), TOGETHER))
