"""Read many parts of files at once, without the interpreter.

A batch of a corpus on disk is a thousand reads. Made one by one in Python threads, each of them
waits for the interpreter that starts the accelerator's kernels, and takes it away in turn. The C
library makes a list of reads in threads of its own (POSIX asynchronous input, ``lio_listio``):
Python calls it once a batch. Where the C library is not glibc, reads are made one by one.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import sys
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

_NO_SIGNAL = 1  # SIGEV_NONE
_READ, _WAIT = 0, 0  # LIO_READ, LIO_WAIT
_THREADS = 16
_REQUEST = np.dtype(
    {
        # struct aiocb of glibc on 64-bit systems, where it is part of the binary interface.
        "names": ["file", "operation", "target", "size", "signal", "error", "count", "offset"],
        "formats": ["i4", "i4", "u8", "u8", "i4", "i4", "i8", "i8"],
        "offsets": [0, 4, 16, 24, 44, 112, 120, 128],
        "itemsize": 168,
    }
)


def read_parts(
    descriptors: Numbers, offsets: Numbers, sizes: Numbers, out: NDArray[Any], starts: Numbers
) -> Numbers:
    """Read parts of files into an array; other threads of Python go on meanwhile.

    Args:
        descriptors: Open files, one for each part.
        offsets: Where in its file each part begins, in bytes.
        sizes: The bytes of each part.
        out: A contiguous, writable array.
        starts: Where in ``out`` each part goes, in bytes.

    Returns:
        How many bytes of each part were read; fewer than its size at the end of a file.
    """
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError("parts are read into contiguous arrays")
    if len(sizes) and (int(starts.min()) < 0 or int((starts + sizes).max()) > out.nbytes):
        raise ValueError("a part does not fit into the array")
    if _library() is None:
        return _read_one_by_one(descriptors, offsets, sizes, out, starts)
    return _read_list(descriptors, offsets, sizes, out, starts)


def _read_list(
    descriptors: Numbers, offsets: Numbers, sizes: Numbers, out: NDArray[Any], starts: Numbers
) -> Numbers:
    library = _library()
    assert library is not None
    requests = np.zeros(len(sizes), _REQUEST)
    requests["file"], requests["operation"] = descriptors, _READ
    requests["offset"], requests["size"] = offsets, sizes
    requests["target"] = out.ctypes.data + starts
    requests["signal"] = _NO_SIGNAL
    places = requests.ctypes.data + _REQUEST.itemsize * np.arange(len(sizes), dtype=np.int64)
    # A signal ends the wait, not the reads, which write to both arrays until they are done: no
    # signal comes to this thread meanwhile, and should one come all the same, the wait goes on.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        failed = library.lio_listio(_WAIT, places.ctypes.data, len(places), None)
        error = ctypes.get_errno()
        while len(waiting := places[requests["error"] == errno.EINPROGRESS]):
            library.aio_suspend(waiting.ctypes.data, len(waiting), None)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    for code in set(requests["error"].tolist()) - {0}:
        raise OSError(code, os.strerror(code))
    if failed and error not in (0, errno.EINTR, errno.EIO):  # as when there is no memory
        raise OSError(error, os.strerror(error))
    return requests["count"].copy()


def _read_one_by_one(
    descriptors: Numbers, offsets: Numbers, sizes: Numbers, out: NDArray[Any], starts: Numbers
) -> Numbers:
    raw = out.reshape(-1).view(np.uint8).data
    parts = zip(
        descriptors.tolist(), offsets.tolist(), starts.tolist(), (starts + sizes).tolist(),
        strict=True,
    )  # fmt: skip
    counts = [os.preadv(file, [raw[begin:end]], offset) for file, offset, begin, end in parts]
    return np.array(counts, np.int64)


@cache
def _library() -> ctypes.CDLL | None:
    """Return glibc with its functions declared; None elsewhere."""
    if sys.maxsize < 2**32 or sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "lio_listio"):
        return None
    address, number = ctypes.c_void_p, ctypes.c_int
    library.lio_listio.argtypes = [number, address, number, address]
    library.aio_suspend.argtypes = [address, number, address]
    # struct aioinit: threads, expected requests, and six fields that stay as they are by default.
    settings = (number * 8)(_THREADS, 1024, 0, 0, 0, 0, 1, 0)
    library.aio_init.argtypes, library.aio_init.restype = [address], None
    library.aio_init(ctypes.addressof(settings))
    return library
