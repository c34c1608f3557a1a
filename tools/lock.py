"""Write constraints-hashed.txt: every package that may be installed, with the hashes of its files.

    make lock

Versions are those of constraints.txt; what it does not name, such as the CUDA libraries of torch
on Linux, gets the version that the resolver chooses, once. uv asks the package index for the
SHA-256 of each file; kept are those of common platforms and of CPython, and source packages of
what has no wheels. Wheels of another index, which carry a local version such as 2.13.0+cpu and
satisfy the same pin, are listed in `OTHER_WHEELS`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from packaging.utils import parse_wheel_filename

from tools.requirements import ROOT, requirements

LOCK = ROOT / "constraints-hashed.txt"
OTHER_WHEELS = {
    "torch": {
        "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl": (
            "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"
        ),
    },
}
HEADER = """\
# Written by `make lock` from constraints.txt and pyproject.toml: the SHA-256 of every file that
# pip may install. `make demo` and `make test` install nothing else.
"""
_PYTHON = re.compile(r"py3|cp31[1-4]")
_PLATFORM = re.compile(
    r"any|manylinux.*_(x86_64|aarch64)|linux_(x86_64|aarch64)|win_amd64"
    r"|macosx_.*_(arm64|x86_64|universal2)"
)


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "requirements.in"
        wanted.write_text("\n".join([*requirements(["dev"]), "pip", "uv"]), encoding="utf-8")
        written = Path(folder) / "pylock.toml"
        subprocess.run(
            [
                *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-config"),
                *("--universal", "--python-version", "3.11", "--generate-hashes"),
                *("--constraint", str(ROOT / "constraints.txt"), "--format", "pylock.toml"),
                *(str(wanted), "--output-file", str(written)),
            ],
            check=True,
        )
        locked = tomllib.loads(written.read_text(encoding="utf-8"))
    LOCK.write_text(HEADER + format_lock(locked["packages"]), encoding="utf-8")
    print(f"wrote {LOCK.name}")


def format_lock(packages: list[dict[str, Any]]) -> str:
    """Return the lines of packages as a lock file (PEP 751) describes them."""
    lines = []
    for package in packages:
        hashes = sorted({*file_hashes(package), *OTHER_WHEELS.get(package["name"], {}).values()})
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
        if is_common(wheel["url"].rpartition("/")[2])
    ]
    return wheels or [package["sdist"]["hashes"]["sha256"]]


def is_common(wheel: str) -> bool:
    """Return whether a wheel is for CPython 3.11 to 3.14 on a common platform."""
    tags = parse_wheel_filename(wheel)[3]
    return any(
        (_PYTHON.fullmatch(tag.interpreter) or tag.abi == "abi3")
        and not tag.abi.endswith("t")  # without the global lock
        and _PLATFORM.fullmatch(tag.platform)
        for tag in tags
    )


if __name__ == "__main__":
    main()
