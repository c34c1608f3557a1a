"""Write constraints-hashed.txt: every package that may be installed, with the hashes of its files.

    make lock

Versions are those of constraints.txt; what it does not name, such as the CUDA libraries of torch
on Linux, gets the version that the resolver chooses, once. uv asks the package index for the
SHA-256 of each file. All wheels are kept that a supported Python can install, whatever the
platform, and source packages of what has no wheels. The wheels of torch for processors alone,
which carry a local version such as 2.13.0+cpu and satisfy the same pin, are asked for at
PyTorch's index; known ones are kept if it cannot be reached.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

from tools.requirements import ROOT, requirements

LOCK = ROOT / "constraints-hashed.txt"
EXCLUDES = ROOT / "tools" / "excludes.txt"
OVERRIDES = ROOT / "tools" / "overrides.txt"
OTHER_INDEXES = {"torch": "https://download.pytorch.org/whl/cpu/torch/"}
"""Indexes of packages that have files elsewhere, too."""
KNOWN_WHEELS = {
    "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl": (
        "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"
    ),
    "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_aarch64.whl": (
        "84453b69508ec79902f899c5ed9495acb9e2bbe9fda5f1d5d6f19e3c3842e1a7"
    ),
}
"""Hashes of their wheels that count where the index cannot be reached."""
HEADER = """\
# Written by `make lock` from constraints.txt and pyproject.toml: the SHA-256 of every file that
# pip may install. `make demo` and `make test` install nothing else.
"""
MIN_PYTHON = 311
"""Version 3.11 as tags write it."""
_LINK = re.compile(r'href="([^"#]*/)?([^"#/]+\.whl)#sha256=([0-9a-f]{64})"')


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "requirements.in"
        wanted.write_text("\n".join([*requirements(["dev", "ocr"]), "pip", "uv"]), encoding="utf-8")
        written = Path(folder) / "pylock.toml"
        subprocess.run(
            [
                *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-config"),
                *("--universal", "--python-version", "3.11", "--generate-hashes"),
                *("--constraint", str(ROOT / "constraints.txt"), "--format", "pylock.toml"),
                *("--excludes", str(EXCLUDES), "--overrides", str(OVERRIDES)),
                *(str(wanted), "--output-file", str(written)),
            ],
            check=True,
        )
        locked = tomllib.loads(written.read_text(encoding="utf-8"))
    others = {
        package["name"]: other_wheels(package["name"], package["version"])
        for package in locked["packages"]
        if package["name"] in OTHER_INDEXES
    }
    LOCK.write_text(HEADER + format_lock(locked["packages"], others), encoding="utf-8")
    print(f"wrote {LOCK.name}")


def format_lock(packages: list[dict[str, Any]], others: Mapping[str, Iterable[str]]) -> str:
    """Return the lines of a lock file.

    Args:
        packages: The packages as a lock file (PEP 751) describes them.
        others: Hashes of files of other indexes, by package.

    Returns:
        The text.
    """
    lines = []
    for package in packages:
        hashes = sorted({*file_hashes(package), *others.get(package["name"], ())})
        marker = f" ; {package['marker']}" if "marker" in package else ""
        parts = [f"{package['name']}=={package['version']}{marker}"]
        parts += [f"    --hash=sha256:{sha256}" for sha256 in hashes]
        lines.append(" \\\n".join(parts))
    return "\n".join(lines) + "\n"


def file_hashes(package: dict[str, Any]) -> list[str]:
    """Return the hashes of a package's wheels that count, else of its source."""
    wheels = [
        wheel["hashes"]["sha256"]
        for wheel in package.get("wheels", ())
        if is_supported(wheel["url"].rpartition("/")[2])
    ]
    return wheels or [package["sdist"]["hashes"]["sha256"]]


def other_wheels(name: str, version: str) -> set[str]:
    """Return the hashes of a package's wheels with a local version, from their index."""
    hashes = {
        sha256 for wheel, sha256 in KNOWN_WHEELS.items() if wheel.startswith(f"{name}-{version}+")
    }
    try:
        with urllib.request.urlopen(OTHER_INDEXES[name], timeout=30) as answer:
            hashes |= listed_wheels(answer.read().decode(), name, version)
    except OSError as error:
        print(f"{OTHER_INDEXES[name]} cannot be reached ({error}): {len(hashes)} known hashes")
    return hashes


def listed_wheels(page: str, name: str, version: str) -> set[str]:
    """Return the hashes of the supported wheels of a version with a local part, of a page."""
    return {
        sha256
        for _, quoted, sha256 in _LINK.findall(page)
        if (wheel := unquote(quoted)).startswith(f"{name}-{version}+") and is_supported(wheel)
    }


def is_supported(wheel: str) -> bool:
    """Return whether a wheel is for Python 3.11 or later, on any platform."""
    return any(_is_supported(tag) for tag in parse_wheel_filename(wheel)[3])


def _is_supported(tag: Tag) -> bool:
    match = re.fullmatch(r"([a-z]+)(\d+)", tag.interpreter)
    if match is None:
        return False
    if match[1] == "py" or tag.abi == "abi3":  # this version and all later ones
        return match[2].startswith("3")
    return int(match[2]) >= MIN_PYTHON


if __name__ == "__main__":
    main()
