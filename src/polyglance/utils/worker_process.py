"""The process in which `polyglance.utils.worker_pool` runs tasks on untrusted files.

A request on standard input is a pair of lengths, a JSON header and a payload of bytes; so is
each reply on standard output. Where both processes map a piece of memory, whose file descriptor
is the argument, payloads lie there: pipes copy them twice more. The kernel limits memory and CPU
time of each task before its payload is read. A task is a function of this package, named as
``module:function``: it takes the header's settings and the payload, and yields replies.
"""

from __future__ import annotations

import importlib
import json
import math
import mmap
import os
import select
import signal
import struct
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from polyglance.errors import DataError, error_reason

Reply = tuple[dict[str, Any], bytes | memoryview]
Task = Callable[[dict[str, Any], bytes], Iterator[Reply]]

LENGTHS = struct.Struct("<IQ")
"""Bytes of a message's header and of its payload."""
SHARED_SIZE = 16_000_000
"""Bytes of memory that both processes map; longer payloads go through the pipes."""
IDLE_SECONDS = 60.0
"""A process without a task ends itself after this time."""
MAX_GROWTH = 500_000_000
"""A process that keeps more memory than this from earlier tasks ends itself."""


def limit(memory: int, seconds: int, output: int) -> None:
    """Limit this process's memory, CPU time and output for good, where the system can."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    for kind, maximum in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, output),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        maximum = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
        try:
            resource.setrlimit(kind, (maximum, maximum))
        except (ValueError, OSError):  # macOS has no limit on memory
            continue


def allow_memory(size: int) -> None:
    """Limit the memory of this process to ``size`` bytes more than it has now."""
    in_use = memory_in_use()
    if in_use is not None:
        _set_soft_limit("RLIMIT_AS", in_use + size)


def allow_seconds(seconds: float) -> None:
    """Limit the CPU time of this process to ``seconds`` from now."""
    used = sum(os.times()[:2])
    _set_soft_limit("RLIMIT_CPU", math.ceil(used + seconds))


def memory_in_use() -> int | None:
    """Return the size of this process's address space in bytes; None where it is not known."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):  # only Linux has it
        return None


def peak_memory() -> int:
    """Return the largest size that this process's address space had; 0 where it is not known."""
    try:
        text = Path("/proc/self/status").read_text(encoding="ascii")
        return int(text.partition("VmPeak:")[2].split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        return 0


def _set_soft_limit(name: str, value: int) -> None:
    try:
        import resource

        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, hard))
    except (ImportError, ValueError, OSError):
        return


def write_message(
    out: IO[bytes], header: dict[str, Any], payload: bytes | memoryview = b""
) -> None:
    """Write a message to an unbuffered stream."""
    head = json.dumps(header).encode()
    _write(out, LENGTHS.pack(len(head), len(payload)) + head)
    _write(out, payload)


def _write(out: IO[bytes], content: bytes | memoryview) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[out.write(rest) :]


def read_exactly(source: IO[bytes], count: int) -> bytearray:
    """Read so many bytes from an unbuffered stream; raise EOFError where it ends before."""
    content = bytearray(count)
    rest = memoryview(content)
    while rest:
        size = source.readinto(rest)  # type: ignore[attr-defined]
        if not size:
            raise EOFError
        rest = rest[size:]
    return content


def main() -> None:
    """Run tasks until standard input ends or nothing is asked for a while."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    warnings.simplefilter("ignore")
    source = os.fdopen(os.dup(0), "rb", buffering=0)
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)  # what a decoder prints is no reply
    _set_soft_limit("RLIMIT_CORE", 0)
    shared = mmap.mmap(int(sys.argv[1]), SHARED_SIZE) if len(sys.argv) > 1 else None
    first: int | None = None
    write_message(out, {"ready": True})
    while _wait(source):
        try:
            lengths = LENGTHS.unpack(read_exactly(source, LENGTHS.size))
            header = json.loads(read_exactly(source, lengths[0]))
            module, _, function = header["task"].partition(":")
            task: Task = getattr(importlib.import_module(module), function)
            first = memory_in_use() if first is None else first
            in_shared = header["shared"]
            memory = header["memory"] + 2 * (lengths[1] + (in_shared or 0))
            allow_memory(memory)
            peak = (memory_in_use() or 0) + memory // 2, peak_memory()
            allow_seconds(header["seconds"])
            if shared is None or in_shared is None:
                payload = bytes(read_exactly(source, lengths[1]))
            else:
                payload = shared[:in_shared]
        except EOFError:
            return
        end = _run(task, header["settings"], payload, out, shared if header["one_reply"] else None)
        if end is not None:
            # FFmpeg does not say that memory was what it lacked.
            if end["end"] == "content" and peak_memory() > max(peak):
                end["end"] = "memory"
            write_message(out, end)
        del payload
        if first is not None and (memory_in_use() or 0) > first + MAX_GROWTH:
            return


def _run(
    task: Task, settings: dict[str, Any], payload: bytes, out: IO[bytes], shared: mmap.mmap | None
) -> dict[str, str] | None:
    """Write the replies of a task; return a last one without content that says how it ended.

    With ``shared``, the task has one reply, which lies there and says that it is the last.
    """
    try:
        if shared is not None:
            [(header, content)] = task(settings, payload)
            if len(content) <= SHARED_SIZE:
                shared[: len(content)] = content
                write_message(out, {**header, "end": "done", "shared": len(content)})
                return None
            write_message(out, header, content)
        else:
            for header, content in task(settings, payload):
                write_message(out, header, content)
        end = {"end": "done", "reason": ""}
    except DataError as error:
        end = {"end": "memory" if _is_memory_error(error) else "content", "reason": str(error)}
    except OSError as error:
        end = {"end": "read", "reason": error_reason(error)}
    except Exception as error:  # decoders raise anything on a mangled file
        end = {"end": "memory" if _is_memory_error(error) else "content"}
        end["reason"] = " ".join(str(error).split()) or type(error).__name__
    return end


def _is_memory_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _wait(source: IO[bytes]) -> bool:
    """Wait for a request; return False if none came in time."""
    if os.name == "nt":  # pipes cannot be waited for there
        return True
    return bool(select.select([source], [], [], IDLE_SECONDS)[0])


if __name__ == "__main__":
    main()
