"""The files of a release, and a search-only install of them in its own environment.

Commands run there without torch, without the repository, and with the network refused.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from importlib.metadata import Distribution, distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from polyglance.demo.photographs import FOLDER
from polyglance.version import __version__
from tools.dist import build, check_folder, check_metadata, check_versions, check_wheel

OFFLINE = """
import socket, sys
def refuse(*arguments, **options):
    raise RuntimeError("the network was asked")
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
sys.argv = ["polyglance", *sys.argv[1:]]
from polyglance.cli import main
main()
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    build(folder)
    return folder


@pytest.fixture(scope="module")
def bare(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with Polyglance and no extras."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    # `make test` installs what installs in a fraction of pip's time.
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-compile"]
    if find_spec("uv"):
        install = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--python", python]
    subprocess.run([*install, "--quiet", "--no-deps", *dist.glob("*.whl")], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    [metadata] = packages.glob("polyglance-*.dist-info")
    for needed in requirements(Distribution.at(metadata)).values():
        for name in {file.parts[0] for file in needed.files or ()} - {".."}:
            (packages / name).symlink_to(str(needed.locate_file(name)))
    return python


def requirements(package: Distribution) -> dict[str, Distribution]:
    """What pip would install for a package without extras, and for what that requires.

    All of it is installed here, by the same constraints: links take a fraction of the time.
    """
    found: dict[str, Distribution] = {}
    waiting = [package]
    while waiting:
        for line in waiting.pop().requires or ():
            requirement = Requirement(line)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            assert not requirement.extras, f"{line} asks for extras, which are not followed here"
            needed = distribution(requirement.name)
            assert needed.version in requirement.specifier, line
            if needed.name not in found:
                found[needed.name] = needed
                waiting.append(needed)
    return found


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, "-I", *arguments], capture_output=True, text=True, check=False)


def run_offline(python: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder, where the network raises an error."""
    return subprocess.run(
        [python, "-I", "-c", OFFLINE, *arguments],
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip


def test_the_files_of_a_release_pass_their_checks(dist: Path) -> None:
    assert [*check_versions(), *check_folder(dist)] == []
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = archive.getnames()
    assert not [name for name in names if "/tests/" in name or "/.venv/" in name]


def test_what_is_wrong_with_a_release_is_named(tmp_path: Path) -> None:
    assert "one sdist and one wheel" in next(check_folder(tmp_path))
    name = f"polyglance-{__version__}-py3-none-any.whl"
    info, model = f"polyglance-{__version__}.dist-info", "polyglance/encoders/polyglance-small"
    metadata = f"Metadata-Version: 2.4\nName: polyglance\nVersion: {__version__}\n"
    digest = urlsafe_b64encode(sha256(b"").digest()).decode().rstrip("=")
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("polyglance/a.pyc", "")
        archive.writestr("stranger.py", "")
        archive.writestr(f"{model}/text.onnx", "damaged")
        archive.writestr(f"{model}/model.json", '{"files": {"text.onnx": {"sha256": "00"}}}')
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/entry_points.txt", "")
        archive.writestr(f"{info}/RECORD", f"polyglance/a.pyc,sha256={digest},0\nstranger.py,x,0\n")
    problems = "\n".join(check_wheel(tmp_path / name))
    for expected in (
        "lacks polyglance/py.typed",
        "would install stranger.py outside of the package",
        "has polyglance/a.pyc, which should not be there",
        "metadata have no description in Markdown",
        "installs no command",
        "RECORD has another hash of stranger.py",
        "RECORD and the files differ in",
        "model's text.onnx does not match its checksum",
    ):
        assert expected in problems
    assert "hash of polyglance/a.pyc" not in problems
    assert list(check_metadata(b"Name: polyglance\n", __version__))


def test_torch_is_not_installed(bare: Path) -> None:
    script = (
        "from importlib.metadata import distributions; print(*(d.name for d in distributions()))"
    )
    packages = run(bare, "-c", script).stdout.lower().split()
    assert "onnxruntime" in packages
    for heavy in ("torch", "transformers", "safetensors"):
        assert heavy not in packages
    assert not [name for name in packages if name.startswith("nvidia")]


def test_the_command_line_and_the_lower_layers_work_without_extras(bare: Path) -> None:
    completed = subprocess.run(
        [bare.parent / "polyglance", "--help"], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0
    assert "features" in completed.stdout
    imports = (
        "import polyglance, polyglance.records, polyglance.config, polyglance.weights,"
        "polyglance.text, polyglance.vision.pictures, polyglance.vision.store,"
        "polyglance.data.import_dataset, polyglance.data.toy, polyglance.evaluation.retrieval,"
        "polyglance.search.render.html_page; import sys; assert 'torch' not in sys.modules"
    )
    imported = run(bare, "-c", imports)
    assert imported.returncode == 0, imported.stderr


def test_the_default_model_is_included(bare: Path) -> None:
    script = (
        "import polyglance; encoder = polyglance.load();"
        "vectors = encoder.encode_texts(['a dog', 'ein Hund', 'a train']);"
        "assert vectors.shape == (3, encoder.width);"
        "assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.3"
    )
    done = run(bare, "-c", script)
    assert done.returncode == 0, done.stderr


def test_public_names_are_listed_and_imported_lazily(bare: Path) -> None:
    script = (
        "import sys, polyglance; names = {'load', 'Library', 'CrossEncoder', 'PolyglanceError'};"
        "assert {*names, '__version__'} == {*polyglance.__all__} == {*dir(polyglance)};"
        "assert not {'numpy', 'torch'} & {*sys.modules};"
        "polyglance.Library, polyglance.load, polyglance.PolyglanceError"
    )
    done = run(bare, "-c", script)
    assert done.returncode == 0, done.stderr


def test_the_demo_needs_no_extra_and_answers_most_queries(bare: Path, tmp_path: Path) -> None:
    done = run_offline(bare, tmp_path, "demo")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    output = " ".join(done.stdout.split())
    assert "polyglance-small was loaded in" in output
    counted = re.search(
        r"among the first 4 for (\d+) of the 14 queries, and the very first for (\d+);"
        r" in the 4 languages without captions in training, for (\d+) and \d+\.",
        output,
    )
    assert counted is not None, output
    among_first, first, uncaptioned = map(int, counted.groups())
    assert first >= 8  # none by chance
    assert among_first >= 10
    assert uncaptioned >= 3
    assert (tmp_path / "demo-output" / "sheet.html").stat().st_size > 100_000


def test_doctor_and_compare_work_in_an_empty_folder(bare: Path, tmp_path: Path) -> None:
    done = run_offline(bare, tmp_path, "doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["model"]["status"] == checks["packages"]["status"] == "ok"
    assert checks["extra train"]["fix"] == "pip install 'polyglance[train]'"
    assert checks["Python"]["detail"].endswith(f"Polyglance {__version__}")
    for name in ("horse", "coffee"):
        (tmp_path / f"{name}.webp").write_bytes((FOLDER / f"{name}.webp").read_bytes())
        (tmp_path / f"{name}.txt").write_text(f"a {name}")
    models = ("one=polyglance-small", "polyglance-small")
    done = run_offline(bare, tmp_path, "compare", *models, "--data", ".", "--html", "c.html")
    assert done.returncode == 0, done.stderr
    assert "cannot be told apart on these pictures: mR 100.0 against 100.0" in done.stdout
    assert (tmp_path / "c.html").is_file()


def test_a_missing_extra_is_named(bare: Path, tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    polyglance = bare.parent / "polyglance"
    arguments = ["features", "extract", str(tmp_path), "--out", str(tmp_path / "store")]
    done = subprocess.run(
        [polyglance, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "polyglance[train]" in done.stderr
    assert "Traceback" not in done.stderr
