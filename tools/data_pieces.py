"""Take a data folder to a machine that accepts files up to some size: pack, unpack, check.

    python -m tools.data_pieces pack DATA PIECES --manifest coco/train.jsonl --file text/pairs.tsv
    python -m tools.data_pieces unpack PIECE... DATA         (there, as pieces arrive)
    python -m tools.data_pieces check DATA --manifest coco/train.jsonl

A manifest goes with all pictures that it names. Pieces are zip archives of at most --megabytes;
what is named first is in the first of them, so that work on it can begin before the last arrives.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_HEADER = 256
"""Bytes that an archive adds to a file, with room for its name twice."""
_TEXTS = (".jsonl", ".json", ".tsv", ".txt", ".onnx")
"""Files that are compressed; others are already."""


_LEVEL = 6


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the steps; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    steps = parser.add_subparsers(dest="step", required=True)
    pack_step, unpack_step, check_step = (
        steps.add_parser(name) for name in ("pack", "unpack", "check")
    )
    pack_step.add_argument("data", type=Path)
    pack_step.add_argument("pieces", type=Path)
    pack_step.add_argument("--megabytes", type=float, default=55)
    unpack_step.add_argument("pieces", type=Path, nargs="+")
    unpack_step.add_argument("data", type=Path)
    check_step.add_argument("data", type=Path)
    for step in (pack_step, check_step):
        step.add_argument("--manifest", action="append", default=[], help="below DATA")
    pack_step.add_argument("--file", action="append", default=[], help="below DATA, or a folder")
    options = parser.parse_args(arguments)
    if options.step == "unpack":
        for piece in options.pieces:
            with zipfile.ZipFile(piece) as archive:
                archive.extractall(options.data)
        return 0
    named = named_files(options.data, options.manifest)
    if options.step == "check":
        missing = [name for name in named if not (options.data / name).exists()]
        print(f"{len(named):,} files are named, {len(missing):,} are missing")
        print("\n".join(missing[:10]), file=sys.stderr)
        return int(bool(missing))
    if options.pieces.is_dir() and any(options.pieces.iterdir()):
        raise SystemExit(f"{options.pieces} holds files already: give another folder, or empty it")
    named = [*options.file, *named]
    for piece in pack(options.data, named, options.pieces, int(1e6 * options.megabytes)):
        print(f"{piece}: {piece.stat().st_size / 1e6:.1f} MB")
    return 0


def named_files(data: Path, manifests: Iterable[str]) -> list[str]:
    """Return manifests and the pictures that they name, below the data folder, each once.

    A manifest that is not there yet is named alone.
    """
    names: dict[str, None] = {}
    for manifest in manifests:
        names[manifest] = None
        path = data / manifest
        if not path.exists():
            continue
        content = path.read_bytes()
        for line in (lzma.decompress(content) if path.suffix == ".xz" else content).splitlines():
            if image := json.loads(line).get("image"):
                picture = Path(os.path.normpath(path.parent / image))  # as it is linked
                names[picture.relative_to(data).as_posix()] = None
    return list(names)


def pack(data: Path, names: Iterable[str], pieces: Path, most: int) -> Iterator[Path]:
    """Write archives of at most so many bytes, in the order of the names; yield each one."""
    pieces.mkdir(parents=True, exist_ok=True)
    piece: list[Path] = []
    size, number = 0, 0
    for path in dict.fromkeys(_files(data, names)):
        added = _packed_size(path) + _HEADER
        if added > most:
            raise SystemExit(f"{path} is larger than a piece: give more --megabytes, or split it")
        if piece and size + added > most:
            yield _write(pieces / f"{number:02}.zip", data, piece)
            piece, size, number = [], 0, number + 1
        piece.append(path)
        size += added
    if piece:
        yield _write(pieces / f"{number:02}.zip", data, piece)


def _files(data: Path, names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        path = data / name
        if path.is_dir():
            for folder, _, found in sorted(os.walk(path, followlinks=True)):
                yield from (Path(folder) / file for file in sorted(found))
        else:
            yield path


def _write(piece: Path, data: Path, files: Sequence[Path]) -> Path:
    with zipfile.ZipFile(piece, "w", zipfile.ZIP_STORED) as archive:
        for file in files:
            kind = zipfile.ZIP_DEFLATED if file.suffix in _TEXTS else zipfile.ZIP_STORED
            archive.write(file, file.relative_to(data), kind, _LEVEL)
    return piece


def _packed_size(path: Path) -> int:
    if path.suffix in _TEXTS:
        return len(zlib.compress(path.read_bytes(), _LEVEL))
    return path.stat().st_size


if __name__ == "__main__":
    sys.exit(main())
