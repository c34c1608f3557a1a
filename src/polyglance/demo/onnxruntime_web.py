"""ONNX Runtime for browsers: the three files of the npm package that a static page needs.

They are 14 MB and not part of Polyglance: they come from a folder of the npm package, or are
fetched once from the registry, by the package's checksum, into the cache.
"""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import urllib.request
from pathlib import Path

from polyglance.errors import PolyglanceError, error_reason
from polyglance.weights.cache import cache_folder, make_once

VERSION = "1.30.0"
_URL = f"https://registry.npmjs.org/onnxruntime-web/-/onnxruntime-web-{VERSION}.tgz"
_SHA512 = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
"""As the registry publishes it, in base64."""
FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
_TIMEOUT = 60.0
"""Seconds without an answer of the registry."""


def runtime_folder(folder: Path | None = None) -> Path:
    """Return a folder with the runtime's files.

    Args:
        folder: Of the npm package, or its ``dist``; None to fetch it once.
    """
    if folder is not None:
        for place in (folder, folder / "dist", folder / "onnxruntime-web" / "dist"):
            if _is_complete(place):
                return place
        raise PolyglanceError(
            f"{folder} is not the package onnxruntime-web: it lacks {', '.join(FILES)}"
        )
    target = cache_folder() / f"onnxruntime-web-{VERSION}"
    return make_once(target, _is_complete, _fetch)


def _is_complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in FILES)


def _fetch(folder: Path) -> None:
    try:
        with urllib.request.urlopen(_URL, timeout=_TIMEOUT) as response:
            content = response.read()
    except OSError as error:
        raise PolyglanceError(
            f"onnxruntime-web cannot be fetched from {_URL} ({error_reason(error)}): give the"
            " folder of the npm package with --onnxruntime-web"
        ) from error
    if base64.b64encode(hashlib.sha512(content).digest()).decode() != _SHA512:
        raise PolyglanceError(f"{_URL} does not have its checksum: fetch it again")
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for name in FILES:
            member = archive.extractfile(f"package/dist/{name}")
            assert member is not None
            (folder / name).write_bytes(member.read())
