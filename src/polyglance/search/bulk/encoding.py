"""Encoding many pictures and clips by many workers (Ray Data), into shards.

The files are listed once. Each worker is a process that holds the model, takes a shard,
and writes it whole (`polyglance.search.bulk.shards`); only numbers of shards go through Ray.
So a run may be killed at any moment, here or on any machine: the same call goes on with
the shards that are missing. All machines must see the files and the shards at the same
paths, and have Polyglance installed.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from polyglance.encoders import Encoder
from polyglance.errors import PolyglanceError, printable
from polyglance.progress import Advance, progress
from polyglance.search.bulk.listing import listed, places_of, seen_from
from polyglance.search.bulk.ray_cluster import call, cluster, import_ray
from polyglance.search.bulk.shards import SHARD, Done, Listed, Plan, ShardFolder
from polyglance.search.encoding import FileEncoder, quiet_decoders
from polyglance.search.models import check_model, new_manifest, open_model
from polyglance.search.store import BadFile, Entry
from polyglance.search.walking import Candidate, is_gone, is_there

TOLD = 10
"""Bad files that are named; the others are only counted."""
BLOCKS = 10_000
"""Tasks that Ray keeps in mind: with more shards than that, each is several."""


@dataclass(frozen=True, slots=True)
class BulkReport:
    """What an encoding did."""

    files: int = 0
    """Pictures and clips that this run encoded."""
    bad: int = 0
    """Those it could not read."""
    told: tuple[str, ...] = ()
    """Some of the bad files, with the reason of each."""
    shards: int = 0
    """Shards there are now."""
    before: int = 0
    """Shards that earlier runs had made."""
    seconds: float = 0.0
    """From when workers were called, and Ray was there, to when the last had ended."""

    def __str__(self) -> str:
        rate = (
            f"{self.files:,} encoded in {self.seconds:.0f} s,"
            f" {self.files / self.seconds:.1f} a second"
            if self.files
            else "nothing to encode"
        )
        return f"{rate}; {self.shards:,} shards, {self.before:,} of them from before"


def encode(
    *sources: str | Path,
    out: str | Path,
    model: str | Path | None = None,
    thumbnails: bool = False,
    shard_size: int = SHARD,
    workers: int | None = None,
    threads: int = 1,
    ray: str | None = None,
    quiet: bool = True,
) -> BulkReport:
    """Encode the pictures and clips of folders, files and manifests into a folder of shards.

    Without sources, go on with what ``out`` was begun with. ``workers`` compute on ``threads``
    cores each, here or where the Ray at the address ``ray`` has room; None for as many as
    there is room for. ``polyglance.Library.import_shards`` takes the shards into a library.
    """
    import_ray(alone=ray is None)
    if ray is not None:
        call(ray)
    folder = ShardFolder(out)
    if not sources:
        plan = folder.plan
    else:
        plan = _planned(
            folder, sources, model, thumbnails=thumbnails, shard_size=shard_size, quiet=quiet
        )
    pending = folder.pending()
    before = plan.shards - len(pending)
    report = BulkReport(shards=plan.shards, before=before)
    if pending:
        done = plan.files - sum(_files_of(plan, number) for number in pending)
        with (
            cluster(ray, workers, threads) as size,
            progress("Encoding", plan.files, done=done, quiet=quiet) as advance,
        ):
            began = time.monotonic()
            for outcome in _outcomes(folder, pending, size, threads):
                if outcome["error"]:
                    raise PolyglanceError(outcome["error"])
                report = _added(report, outcome)
                advance(_files_of(plan, outcome["shard"]))
            report = replace(report, seconds=time.monotonic() - began)
    folder.tidy()
    return report


class Worker:
    """Encodes shards. A process of Ray's holds one of these, and so the model once."""

    def __init__(
        self,
        folder: str | Path,
        threads: int,
        load: Callable[[str, int], Encoder] = open_model,
    ) -> None:
        self._folder, self._threads, self._load = ShardFolder(folder), threads, load

    def __call__(self, batch: Mapping[str, Sequence[int]]) -> dict[str, list[Any]]:
        """What became of shards, as Ray Data passes batches: by column."""
        rows = [self.encode(int(number)) for number in batch["shard"]]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def encode(self, number: int) -> dict[str, Any]:
        """Make a shard, unless it is there: how many files that were, or an error to stop at."""
        outcome = {"shard": number, "files": 0, "bad": 0, "told": "", "error": ""}
        try:
            if not self._folder.has(number):  # a task is given again when its machine was lost
                outcome |= self._made(number)
        except PolyglanceError as error:
            outcome["error"] = f"{error} (on {socket.gethostname()})"
        return outcome

    def _made(self, number: int) -> dict[str, Any]:
        folder = self._folder
        files = folder.files(number)
        self._look_at_roots()
        done: dict[str, Done] = {file.path: file for file in files if isinstance(file, BadFile)}
        candidates = [file for file in files if isinstance(file, Candidate)]
        with quiet_decoders():
            for some in self._encoded(candidates):
                done |= {
                    one.path if isinstance(one, BadFile) else one.item.path: one for one in some
                }
        self._check([done[file.path] for file in candidates])
        # In the order of the list: the same files make the same shard.
        folder.write(number, [done[file.path] for file in files])
        bad = [one for one in done.values() if isinstance(one, BadFile)]
        told = [printable(f"{one.path}: {one.reason}") for one in bad[:TOLD]]
        return {"files": len(done) - len(bad), "bad": len(bad), "told": "\n".join(told)}

    def _look_at_roots(self) -> None:
        for root in self._folder.plan.roots:
            if not is_there(root):
                raise PolyglanceError(
                    f"{printable(root)}: nothing is there for a worker: all machines must see the"
                    " files at the same path"
                )

    def _encoded(self, candidates: Sequence[Candidate]) -> Iterator[list[Entry | BadFile]]:
        if candidates:
            encoder = self._encoder  # opened here, before threads ask for it together
            yield from FileEncoder(lambda: encoder, thumbnails=self._folder.plan.thumbnails).files(
                candidates
            )

    def _check(self, done: Sequence[Done]) -> None:
        """Stop where a file could not be read now but may be later: a shard is made only once."""
        unread = [one for one in done if isinstance(one, BadFile) and one.stamp is None]
        for one in unread:
            if not is_gone(one.path):
                raise PolyglanceError(
                    f"{printable(f'{one.path}: {one.reason}')}: see to that, or delete the file,"
                    " and run it again"
                )
        if unread:
            self._look_at_roots()  # again: the disk may have gone meanwhile
        if unread and len(unread) == len(done):
            raise PolyglanceError(
                f"{printable(unread[0].path)} and all other files of its shard are gone: bring them"
                " back, or encode what is left into a new folder"
            )

    @cached_property
    def _encoder(self) -> Encoder:
        plan = self._folder.plan
        encoder = self._load(plan.source, self._threads)
        check_model(self._folder.manifest(), encoder, self._folder.name)
        return encoder


def _planned(
    folder: ShardFolder,
    sources: Sequence[str | Path],
    model: str | Path | None,
    *,
    thumbnails: bool,
    shard_size: int,
    quiet: bool,
) -> Plan:
    """The plan, made by the first run and the same in all others."""
    if shard_size < 1:
        raise PolyglanceError(f"a shard holds one file or more, not {shard_size}")
    places = places_of(sources)
    made_by = new_manifest(model, open_model(model))
    plan = Plan(
        made_by.model, made_by.source, made_by.fingerprint, made_by.width,
        thumbnails, places, _roots(places), shard_size,
    )  # fmt: skip
    if not folder.begun:
        with progress("Listing files", None, quiet=quiet) as advance:
            folder.begin(plan, _counted(listed(places), advance))
    before = folder.plan.settings()
    for name, value in plan.settings().items():
        if before[name] != value:
            raise PolyglanceError(
                f"{folder.name} was begun with {name.replace('_', ' ')} {before[name]}, not"
                f" {value}: give the same, or another folder"
            )
    return folder.plan


def _roots(places: Sequence[str]) -> tuple[str, ...]:
    """Where workers must find something: not where there is nothing to begin with."""
    return tuple(sorted(filter(is_there, set(map(seen_from, places)))))


def _counted(files: Iterable[Listed], advance: Advance) -> Iterator[Listed]:
    for file in files:
        advance(1)
        yield file


def _files_of(plan: Plan, number: int) -> int:
    return min(plan.shard_size, plan.files - number * plan.shard_size)


def _added(report: BulkReport, outcome: Mapping[str, Any]) -> BulkReport:
    told = [*report.told, *outcome["told"].splitlines()]
    return replace(
        report,
        files=report.files + outcome["files"],
        bad=report.bad + outcome["bad"],
        told=tuple(told[:TOLD]),
    )


def _outcomes(
    folder: ShardFolder, pending: Sequence[int], workers: int, threads: int
) -> Iterator[dict[str, Any]]:
    """What became of each shard, as they are done."""
    ray = import_ray()
    ray.data.DataContext.get_current().enable_progress_bars = False
    shards = ray.data.from_items(
        [{"shard": number} for number in pending],
        override_num_blocks=min(len(pending), BLOCKS),
    )
    done = shards.map_batches(
        Worker,
        fn_constructor_args=(str(folder.path.resolve()), threads),
        batch_size=1,
        num_cpus=threads,
        # One shard at a time: none waits for a worker while another is free.
        compute=ray.data.ActorPoolStrategy(
            size=min(workers, len(pending)), max_tasks_in_flight_per_actor=1
        ),
    )
    try:
        yield from done.iter_rows()
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:
        raise PolyglanceError(
            f"Ray lost its workers ({str(error).splitlines()[0]}): the same command goes on with"
            " the shards that are missing"
        ) from error
