"""A search-only install in its own environment works without torch."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with Polyglance and no extras."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    pip, wheels = [sys.executable, "-m", "pip"], tmp_path_factory.mktemp("wheels")
    # `make test` installs what builds and installs in a fraction of pip's time.
    build = [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, ROOT]
    if find_spec("hatchling"):
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels]
    subprocess.run(build, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    install = [*pip, "--python", python, "install", "--no-compile"]
    if find_spec("uv"):
        install = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--python", python]
    subprocess.run([*install, "--quiet", "--no-deps", *wheels.glob("*.whl")], check=True)
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
    done = subprocess.run(
        [bare.parent / "polyglance", "demo", "--out", str(tmp_path / "out")],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    output = " ".join(done.stdout.split())
    assert "polyglance-small was loaded in" in output
    counted = re.search(
        r"among the first 4 for (\d+) of the 14 queries, and the very first for (\d+);"
        r" in the 7 languages without captions in training, for (\d+) and \d+\.",
        output,
    )
    assert counted is not None, output
    among_first, first, uncaptioned = map(int, counted.groups())
    assert first >= 8  # none by chance
    assert among_first >= 10
    assert uncaptioned >= 4
    assert (tmp_path / "out" / "sheet.html").stat().st_size > 100_000


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
