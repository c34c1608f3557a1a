"""Write constraints-hashed.txt: every package that any platform installs, with all its hashes.

    make lock

Versions are those of constraints.txt; what it does not name, such as the CUDA libraries of torch
on Linux, gets the version that the resolver chooses, once. uv asks the package index for the
SHA-256 of each file. Wheels of another index, which carry a local version such as 2.13.0+cpu and
satisfy the same pin, are listed in `OTHER_WHEELS`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

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
_PACKAGE = re.compile(r"([A-Za-z0-9._-]+)==")


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "requirements.in"
        wanted.write_text("\n".join([*requirements(["dev"]), "pip", "uv"]), encoding="utf-8")
        written = Path(folder) / "locked.txt"
        subprocess.run(
            [
                *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-config"),
                *("--universal", "--python-version", "3.11", "--generate-hashes"),
                *("--no-header", "--no-annotate", "--strip-extras", "--no-emit-index-url"),
                *("--constraint", str(ROOT / "constraints.txt")),
                *(str(wanted), "--output-file", str(written)),
            ],
            check=True,
        )
        locked = written.read_text(encoding="utf-8")
    LOCK.write_text(HEADER + add_wheels(locked), encoding="utf-8")
    print(f"wrote {LOCK.name}")


def add_wheels(locked: str) -> str:
    """Return the lines with the hashes of `OTHER_WHEELS` behind those of their packages."""
    lines: list[str] = []
    for line in locked.splitlines():
        lines.append(line)
        match = _PACKAGE.match(line)
        for sha256 in sorted(OTHER_WHEELS.get(match[1], {}).values()) if match else ():
            lines.append(f"    --hash=sha256:{sha256} \\")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
