"""Encode many pictures and clips with many workers (Ray Data), into shards.

The files are listed once. Each worker is a process that holds the model, takes a shard and
writes it atomically (`polyglance.search.bulk.shards`); only shard numbers go through Ray. So a
run may be killed at any moment, here or on any machine: the same call continues with the
missing shards. All machines must see the files and the shards at the same paths, and have
Polyglance installed.
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
from polyglance.search.bulk.listing import list_files, resolve_sources, source_root
from polyglance.search.bulk.ray_cluster import check_address, cluster, import_ray
from polyglance.search.bulk.shards import (
    SHARD_SIZE,
    EncodedFile,
    ListedFile,
    ShardFolder,
    ShardPlan,
)
from polyglance.search.encoding import FileEncoder, quiet_decoders
from polyglance.search.model_info import check_model, new_model_info, open_model
from polyglance.search.scan import ScannedFile, has_content, is_missing
from polyglance.search.store import BadFile, Entry
from polyglance.utils.progress import Advance, progress
from polyglance.vision.limited_decoding import DecodeLimits

MAX_MESSAGES = 10
"""Bad files that are named; the others are only counted."""
MAX_RAY_BLOCKS = 10_000
"""Tasks that Ray keeps track of: with more shards than this, a task is several shards."""


@dataclass(frozen=True, slots=True)
class BulkReport:
    """What an encoding run did."""

    files: int = 0
    """Pictures and clips encoded by this run."""
    bad: int = 0
    """Files that could not be read."""
    messages: tuple[str, ...] = ()
    """Some of the bad files, each with the reason."""
    shards: int = 0
    """Shards there are now."""
    previous_shards: int = 0
    """Shards that earlier runs had made."""
    seconds: float = 0.0
    """Time of encoding, without Ray's start."""

    def __str__(self) -> str:
        rate = (
            f"{self.files:,} encoded in {self.seconds:.0f} s,"
            f" {self.files / self.seconds:.1f} a second"
            if self.files
            else "nothing to encode"
        )
        return f"{rate}; {self.shards:,} shards, {self.previous_shards:,} of them from before"


def encode(
    *sources: str | Path,
    out: str | Path,
    model: str | Path | None = None,
    thumbnails: bool = False,
    shard_size: int = SHARD_SIZE,
    workers: int | None = None,
    threads: int = 1,
    ray: str | None = None,
    limits: DecodeLimits | None = None,
    quiet: bool = True,
) -> BulkReport:
    """Encode pictures and clips into a folder of shards (see `Library.import_shards`).

    Args:
        sources: Folders, files and manifests; without any, continue what ``out`` was begun with.
        out: The folder of shards.
        model: A model's name or folder, or None for the default model.
        thumbnails: Also make thumbnails.
        shard_size: Files per shard.
        workers: Number of workers; None for as many as there are cores for.
        threads: Cores per worker.
        ray: The address of a Ray cluster; None for this machine alone.
        limits: What decoding a file may take.
        quiet: Show no progress bar.

    Returns:
        How many files were encoded, and which could not be read.
    """
    import_ray(alone=ray is None)
    if ray is not None:
        check_address(ray)
    folder = ShardFolder(out)
    if not sources:
        plan = folder.plan
    else:
        plan = _make_plan(
            folder, sources, model, thumbnails=thumbnails, shard_size=shard_size, quiet=quiet
        )
    pending = folder.pending()
    report = BulkReport(shards=plan.shards, previous_shards=plan.shards - len(pending))
    if pending:
        done = plan.files - sum(_num_files(plan, number) for number in pending)
        with (
            cluster(ray, workers, threads) as num_workers,
            progress("Encoding", plan.files, completed=done, quiet=quiet) as advance,
        ):
            start = time.monotonic()
            for outcome in _run_workers(folder, pending, num_workers, threads, limits):
                if outcome["error"]:
                    raise PolyglanceError(outcome["error"])
                report = _add_outcome(report, outcome)
                advance(_num_files(plan, outcome["shard"]))
            report = replace(report, seconds=time.monotonic() - start)
    folder.remove_partial_files()
    return report


class Worker:
    """Encodes shards. Each of Ray's processes holds one, and so loads the model once."""

    def __init__(
        self,
        folder: str | Path,
        threads: int,
        load: Callable[[str, int], Encoder] = open_model,
        limits: DecodeLimits | None = None,
    ) -> None:
        self._folder, self._threads, self._load = ShardFolder(folder), threads, load
        self._limits = limits

    def __call__(self, batch: Mapping[str, Sequence[int]]) -> dict[str, list[Any]]:
        """Encode shards; return their outcomes by column, as Ray Data passes batches."""
        rows = [self.encode(int(number)) for number in batch["shard"]]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def encode(self, number: int) -> dict[str, Any]:
        """Encode a shard unless it exists; return counts, or an error that stops the run."""
        outcome = {"shard": number, "files": 0, "bad": 0, "messages": "", "error": ""}
        try:
            # Ray repeats a task whose machine was lost, so the shard may exist already.
            if not self._folder.has_shard(number):
                outcome |= self._encode(number)
        except PolyglanceError as error:
            outcome["error"] = f"{error} (on {socket.gethostname()})"
        return outcome

    def _encode(self, number: int) -> dict[str, Any]:
        folder = self._folder
        files = folder.listed_files(number)
        self._check_roots()
        results: dict[str, EncodedFile] = {
            file.path: file for file in files if isinstance(file, BadFile)
        }
        scanned = [file for file in files if isinstance(file, ScannedFile)]
        with quiet_decoders():
            for batch in self._encode_files(scanned):
                results |= {
                    file.path if isinstance(file, BadFile) else file.item.path: file
                    for file in batch
                }
        self._check_results([results[file.path] for file in scanned])
        # In the order of the list: the same files make the same shard.
        folder.write_shard(number, [results[file.path] for file in files])
        bad = [file for file in results.values() if isinstance(file, BadFile)]
        messages = [printable(f"{file.path}: {file.reason}") for file in bad[:MAX_MESSAGES]]
        return {
            "files": len(results) - len(bad), "bad": len(bad), "messages": "\n".join(messages),
        }  # fmt: skip

    def _check_roots(self) -> None:
        for root in self._folder.plan.roots:
            if not has_content(root):
                raise PolyglanceError(
                    f"{printable(root)}: is empty or missing for a worker: all machines must see"
                    " the files at the same path"
                )

    def _encode_files(self, files: Sequence[ScannedFile]) -> Iterator[list[Entry | BadFile]]:
        if files:
            encoder = self._encoder  # loaded here, before several threads ask for it
            thumbnails = self._folder.plan.thumbnails
            yield from FileEncoder(
                lambda: encoder, thumbnails=thumbnails, limits=self._limits
            ).encode_files(files)

    def _check_results(self, results: Sequence[EncodedFile]) -> None:
        """Stop if a file that may be readable later could not be read: a shard is made once."""
        unread = [file for file in results if isinstance(file, BadFile) and file.signature is None]
        for file in unread:
            if not is_missing(file.path):
                raise PolyglanceError(
                    f"{printable(f'{file.path}: {file.reason}')}: mend this or move the file out"
                    " of the folder, and run the command again"
                )
        if unread:
            self._check_roots()  # again: the disk may have been unmounted meanwhile
        if unread and len(unread) == len(results):
            raise PolyglanceError(
                f"{printable(unread[0].path)} and all other files of its shard are gone: restore"
                " them, or encode what is left into a new folder"
            )

    @cached_property
    def _encoder(self) -> Encoder:
        plan = self._folder.plan
        encoder = self._load(plan.source, self._threads)
        check_model(self._folder.new_model_info(), encoder, self._folder.name)
        return encoder


def _make_plan(
    folder: ShardFolder,
    sources: Sequence[str | Path],
    model: str | Path | None,
    *,
    thumbnails: bool,
    shard_size: int,
    quiet: bool,
) -> ShardPlan:
    """List the files if this is the first run; else check that the settings are the same."""
    if shard_size < 1:
        raise PolyglanceError(f"a shard must hold at least one file, not {shard_size}")
    paths = resolve_sources(sources)
    info = new_model_info(model, open_model(model))
    plan = ShardPlan(
        info.model, info.source, info.fingerprint, info.width,
        thumbnails, paths, _roots(paths), shard_size,
    )  # fmt: skip
    if not folder.is_started:
        with progress("Listing files", None, quiet=quiet) as advance:
            folder.start(plan, _with_progress(list_files(paths), advance))
    existing = folder.plan.settings()
    for name, value in plan.settings().items():
        if existing[name] != value:
            raise PolyglanceError(
                f"{folder.name} was begun with {name.replace('_', ' ')} {existing[name]}, not"
                f" {value}: give the same, or another folder"
            )
    return folder.plan


def _roots(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the folders that must have content for workers: those that have some now."""
    return tuple(sorted(filter(has_content, set(map(source_root, paths)))))


def _with_progress(files: Iterable[ListedFile], advance: Advance) -> Iterator[ListedFile]:
    for file in files:
        advance(1)
        yield file


def _num_files(plan: ShardPlan, number: int) -> int:
    return min(plan.shard_size, plan.files - number * plan.shard_size)


def _add_outcome(report: BulkReport, outcome: Mapping[str, Any]) -> BulkReport:
    messages = [*report.messages, *outcome["messages"].splitlines()]
    return replace(
        report,
        files=report.files + outcome["files"],
        bad=report.bad + outcome["bad"],
        messages=tuple(messages[:MAX_MESSAGES]),
    )


def _run_workers(
    folder: ShardFolder,
    pending: Sequence[int],
    workers: int,
    threads: int,
    limits: DecodeLimits | None,
) -> Iterator[dict[str, Any]]:
    """Yield the outcome of each shard as it is done."""
    ray = import_ray()
    ray.data.DataContext.get_current().enable_progress_bars = False
    shards = ray.data.from_items(
        [{"shard": number} for number in pending],
        override_num_blocks=min(len(pending), MAX_RAY_BLOCKS),
    )
    outcomes = shards.map_batches(
        Worker,
        fn_constructor_args=(str(folder.path.resolve()), threads),
        fn_constructor_kwargs={"limits": limits},
        batch_size=1,
        num_cpus=threads,
        # One shard at a time: none waits for a worker while another is free.
        compute=ray.data.ActorPoolStrategy(
            size=min(workers, len(pending)), max_tasks_in_flight_per_actor=1
        ),
    )
    try:
        yield from outcomes.iter_rows()
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:
        raise PolyglanceError(
            f"Ray lost its workers ({str(error).splitlines()[0]}): the same command continues with"
            " the missing shards"
        ) from error
