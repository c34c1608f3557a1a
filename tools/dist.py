"""Build the files of a release into ``dist/``, and check them before anyone installs them.

    python -m tools.dist                 # or: make dist
    python -m tools.dist --check dist    # only check what is there

The sdist is built first and the wheel from the unpacked sdist, so that a file that the sdist lacks
is missed here and not by whoever builds from it. Beside them: ``SHA256SUMS`` and, for what
`pip install polyglance` brings, a bill of materials. Times in the files are those of the commit:
the same commit gives the same bytes.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from packaging.metadata import Metadata
from packaging.utils import parse_sdist_filename, parse_wheel_filename

ROOT = Path(__file__).parent.parent
MAX_MB = 100
"""The largest file that the package index takes."""
ESSENTIAL = (
    "polyglance/py.typed",
    "polyglance/cli/__init__.py",
    "polyglance/demo/photos/SOURCES.json",
    "polyglance/encoders/polyglance-small/model.json",
    "polyglance/recipes/uc2/uc2-multi30k.yaml",
    "polyglance/serve/page/index.html",
)
"""Files that an installation cannot do without, one of each kind."""
_UNWANTED = re.compile(r"__pycache__|\.py[co]$|\.pkl$|\.pickle$|\.pt$|(^|/)\.|~$")
_TIME = re.compile(r"\d{9,}")


def main() -> int:
    """Build and check; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--check", type=Path, help="a folder to check and not to build")
    options = parser.parse_args()
    folder: Path = options.check or options.out
    if options.check is None:
        build(folder)
        write_bill(folder / "sbom.cdx.json")
        write_sums(folder)
    problems = [*check_versions(), *check_folder(folder)]
    for problem in problems:
        print(f"✗ {problem}", file=sys.stderr)
    if not problems:
        for file in sorted(folder.iterdir()):
            print(f"✓ {file} ({file.stat().st_size / 1e6:.1f} MB)")
    return 1 if problems else 0


def build(folder: Path) -> tuple[Path, Path]:
    """Build an sdist, and a wheel from it; return both. Files of earlier builds are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("polyglance-*.tar.gz"), *folder.glob("polyglance-*.whl")):
        old.unlink()
    _hatchling("sdist", ROOT, folder)
    [sdist] = folder.glob("polyglance-*.tar.gz")
    with tempfile.TemporaryDirectory() as temporary:
        with tarfile.open(sdist) as archive:
            archive.extractall(temporary, filter="data")
        [unpacked] = Path(temporary).iterdir()
        _hatchling("wheel", unpacked, folder)
    [wheel] = folder.glob("polyglance-*.whl")
    return sdist, wheel


def write_bill(path: Path) -> None:
    """Write the bill of materials of an installation without extras."""
    from tools.sbom import bill_of_materials

    text = json.dumps(bill_of_materials([]), indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def write_sums(folder: Path) -> None:
    """Write ``SHA256SUMS`` of all other files, as sha256sum reads it."""
    files = sorted(file for file in folder.iterdir() if file.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def check_versions() -> Iterator[str]:
    """Yield a sentence for each place that has another version than ``version.py``."""
    version = own_version()
    citation = re.search(r"^version: (\S+)$", _read("CITATION.cff"), re.MULTILINE)
    if citation is None or citation[1] != version:
        yield f"CITATION.cff has another version than {version}"
    if not re.search(rf"^## {re.escape(version)}\b", _read("CHANGELOG.md"), re.MULTILINE):
        yield f"CHANGELOG.md has no section '## {version}'"
    if not re.search(rf"^## {re.escape(version)}\b", _read("docs/release-notes.md"), re.MULTILINE):
        yield f"docs/release-notes.md has no section '## {version}'"


def own_version() -> str:
    """Return the version of the source."""
    found = re.search(r'__version__ = "([^"]+)"', _read("src/polyglance/version.py"))
    assert found is not None
    return found[1]


def check_folder(folder: Path) -> Iterator[str]:
    """Yield a sentence for each thing that is wrong with the files of a release."""
    sdists, wheels = sorted(folder.glob("*.tar.gz")), sorted(folder.glob("*.whl"))
    if len(sdists) != 1 or len(wheels) != 1:
        yield f"{folder} should have one sdist and one wheel, not {len(sdists)} and {len(wheels)}"
        return
    yield from check_sdist(sdists[0])
    yield from check_wheel(wheels[0])
    sums = folder / "SHA256SUMS"
    for line in sums.read_text(encoding="utf-8").splitlines() if sums.is_file() else ():
        digest, _, name = line.partition("  ")
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            yield f"{name} does not match SHA256SUMS"


def check_sdist(path: Path) -> Iterator[str]:
    """Yield what is wrong with an sdist."""
    name, version = parse_sdist_filename(path.name)
    top = f"polyglance-{version}/"
    yield from _check_size(path)
    with tarfile.open(path) as archive:
        members = {member.name: member for member in archive.getmembers()}
        if not all(member.isfile() for member in members.values()):
            yield f"{path.name} has links or devices"
        text = archive.extractfile(f"{top}PKG-INFO")
        assert text is not None
        yield from check_metadata(text.read(), str(version))
    for needed in ("pyproject.toml", "LICENSE", "README.md", *(f"src/{x}" for x in ESSENTIAL)):
        if top + needed not in members:
            yield f"{path.name} lacks {needed}"
    yield from _check_names(path, [member.removeprefix(top) for member in members])
    if name != "polyglance":
        yield f"{path.name} is no sdist of polyglance"


def check_wheel(path: Path) -> Iterator[str]:
    """Yield what is wrong with a wheel."""
    _, version, _, tags = parse_wheel_filename(path.name)
    if {str(tag) for tag in tags} != {"py3-none-any"}:
        yield f"{path.name} is not for every platform"
    yield from _check_size(path)
    info = f"polyglance-{version}.dist-info/"
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        for needed in (*ESSENTIAL, f"{info}METADATA", f"{info}RECORD", f"{info}licenses/LICENSE"):
            if needed not in names:
                yield f"{path.name} lacks {needed}"
        if strangers := [x for x in names if not x.startswith(("polyglance/", info))]:
            yield f"{path.name} would install {strangers[0]} outside of the package"
        yield from _check_names(path, [name for name in names if not name.startswith(info)])
        yield from check_metadata(archive.read(f"{info}METADATA"), str(version))
        if b"polyglance = polyglance.__main__:main" not in archive.read(f"{info}entry_points.txt"):
            yield f"{path.name} installs no command"
        yield from _check_record(archive, f"{info}RECORD")
        yield from _check_model(archive)


def check_metadata(text: bytes, version: str) -> Iterator[str]:
    """Yield what the package index would refuse, or show wrongly."""
    try:
        metadata = Metadata.from_email(text, validate=True)
    except ExceptionGroup as group:
        yield from (f"metadata: {error}" for error in group.exceptions)
        return
    if str(metadata.version) != version:
        yield f"metadata have version {metadata.version}, and the file name {version}"
    if version != own_version():
        yield f"the files are of version {version}, and the source of {own_version()}"
    if metadata.description_content_type != "text/markdown" or not metadata.description:
        yield "metadata have no description in Markdown"
    if not metadata.summary or not metadata.license_expression or not metadata.requires_python:
        yield "metadata lack a summary, a licence or the versions of Python"


def _check_size(path: Path) -> Iterator[str]:
    if path.stat().st_size > MAX_MB * 1e6:
        yield f"{path.name} has {path.stat().st_size / 1e6:.0f} MB, and {MAX_MB} are allowed"


def _check_names(path: Path, names: list[str]) -> Iterator[str]:
    for name in names:
        if _UNWANTED.search(name) and PurePosixPath(name).name != ".gitignore":
            yield f"{path.name} has {name}, which should not be there"
            return


def _check_record(archive: zipfile.ZipFile, record: str) -> Iterator[str]:
    """Yield files whose hashes differ from those that installers compare them with."""
    listed = {}
    for name, digest, _ in csv.reader(io.StringIO(archive.read(record).decode("utf-8"))):
        listed[name] = digest
    if missing := sorted(set(archive.namelist()) ^ set(listed)):
        yield f"RECORD and the files differ in {missing[0]}"
    for name, digest in listed.items():
        if name == record or name in missing:
            continue
        found = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest())
        if digest != f"sha256={found.decode().rstrip('=')}":
            yield f"RECORD has another hash of {name}"


def _check_model(archive: zipfile.ZipFile) -> Iterator[str]:
    """Yield files of the included model that its description does not match."""
    folder = "polyglance/encoders/polyglance-small/"
    description = json.loads(archive.read(f"{folder}model.json"))
    for name, expected in description["files"].items():
        content = archive.read(folder + name)
        if hashlib.sha256(content).hexdigest() != expected["sha256"]:
            yield f"the included model's {name} does not match its checksum"


def _hatchling(target: str, source: Path, out: Path) -> None:
    git = ["git", "log", "-1", "--format=%ct"]
    found = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    time = found.strip() if _TIME.fullmatch(found.strip()) else "1700000000"
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out.resolve())]
    if shutil.which("git") is None or "SOURCE_DATE_EPOCH" in os.environ:
        time = os.environ.get("SOURCE_DATE_EPOCH", time)
    environment = os.environ | {"SOURCE_DATE_EPOCH": time}
    subprocess.run(command, cwd=source, env=environment, check=True, stdout=subprocess.DEVNULL)


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
