"""CONTRIBUTING.md names files that exist, and its guides work as they are written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
WALK = "From `polyglance train uc2-flickr8k` to the MLM loss"
GUIDES = {
    "Add an objective": ["tests/objectives/test_focal_matching.py"],
    "Add a cross-encoder": ["tests/recipes/visualbert/test_train.py"],
    "Add a dataset reader": [
        "tests/data/readers/test_crossmodal_3600.py",
        "tests/data/readers/test_mangled.py",
        "tests/data/readers/test_registry.py",
    ],
    "Add a store for the search library": [
        "tests/search/test_memory_library.py",
        "tests/search/test_store.py",
    ],
}
"""The tests that a guide adds, or that hold for what it adds."""
NEW = "focal or visualbert or crossmodal or sample_of_every or every_format or memory"
"""Which of these tests the guides affect."""


@dataclass(frozen=True)
class Block:
    """A fenced block: a new file, or changes to one that exists."""

    path: str
    text: str
    is_diff: bool


def section(title: str) -> str:
    """Return the text below a heading, up to the next one."""
    _, found, rest = PAGE.partition(f"# {title}\n")
    assert found, f"there is no section {title!r}"
    return re.split(r"^##+ ", rest, maxsplit=1, flags=re.M)[0]


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks that begin with a path."""
    for language, body in re.findall(r"^```(\w+)\n(.*?)^```$", text, flags=re.M | re.S):
        first, _, rest = body.partition("\n")
        marker, _, path = first.partition(" ")
        assert marker == ("---" if language == "diff" else "#"), f"{first!r} names no path"
        yield Block(path, rest, language == "diff")


def apply_diff(text: str, diff: str) -> str:
    """Apply hunks, separated by ``@@``; the lines of each must occur exactly once."""
    for hunk in re.split(r"^@@\n", diff, flags=re.M):
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        new = "".join(line[1:] for line in lines if line[0] in " +")
        assert f"\n{text}".count(f"\n{old}") == 1, f"not once in the file:\n{old}"
        text = f"\n{text}".replace(f"\n{old}", f"\n{new}")[1:]
    return text


def copy_tree(folder: Path) -> None:
    """Copy the package and the tests as links, so that changing a file leaves ours alone.

    Compiled files are linked as well: Python makes new ones for the files that change.
    """
    for name in ("src/polyglance", "tests"):
        shutil.copytree(ROOT / name, folder / name, copy_function=os.symlink)
    (folder / "benchmarks").symlink_to(ROOT / "benchmarks")
    shutil.copyfile(ROOT / "pyproject.toml", folder / "pyproject.toml")


def apply_guide(guide: str, folder: Path) -> list[str]:
    """Write what a guide says into a copied tree; return the Python files that it touches."""
    touched = []
    for block in blocks(section(guide)):
        path = folder / block.path
        assert path.exists() == block.is_diff, f"{block.path}: new file, or not?"
        text = block.text
        if block.is_diff:
            text = apply_diff(path.read_text(encoding="utf-8"), block.text)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        touched += [block.path] if path.suffix == ".py" else []
    return touched


def run(folder: Path, *command: str) -> str:
    """Run a module in the copied tree; return its output."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder / "src"),
        "OMP_NUM_THREADS": "1",
        # The constants of files that stay as they are were read before.
        "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis"),
    }
    result = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    return result.stdout


def test_the_guides_work_as_written(tmp_path: Path) -> None:
    copy_tree(tmp_path)
    touched = [path for guide in GUIDES for path in apply_guide(guide, tmp_path)]
    run(tmp_path, "ruff", "check", "-q", "--no-cache", *touched)
    run(tmp_path, "ruff", "format", "-q", "--no-cache", "--check", *touched)
    # All guides in one process: importing torch takes longer than any of their tests.
    tests = [path for paths in GUIDES.values() for path in paths]
    output = run(tmp_path, "pytest", "-x", "-rp", "-p", "no:cacheprovider", *tests, "-k", NEW)
    for path in tests:
        assert f"PASSED {path}::" in output


def test_the_walk_to_the_mlm_loss_has_at_most_fourteen_files() -> None:
    steps = re.findall(r"^(\d+)\. `([^`]+)`: \S", section(WALK), flags=re.M)
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    assert 0 < len(steps) <= 14
    assert len({path for _, path in steps}) == len(steps)


def test_the_walk_names_what_its_files_define() -> None:
    for path, text in re.findall(r"^\d+\. `([^`]+)`: (.*)$", section(WALK), flags=re.M):
        source = (ROOT / "src" / "polyglance" / path).read_text(encoding="utf-8")
        for name in re.findall(r"`(\w+)", text):
            assert re.search(rf"\b{name}\b", source), f"{path} has no {name}"


def test_every_file_that_is_named_exists() -> None:
    prose = re.sub(r"^```.*?^```$", "", PAGE, flags=re.M | re.S)
    links = re.findall(r"\]\(([^)]+)\)", prose)
    names = re.findall(r"`([\w.-]+(?:/[\w.-]+)+|src|tests)`", prose)
    assert len(links) > 5
    assert len(names) > 20
    headings = re.findall(r"^#+ (.+)$", prose, flags=re.M)
    anchors = {"#" + re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings}
    assert {link for link in links if link.startswith("#")} <= anchors
    for name in (*(link for link in links if not link.startswith("#")), *names):
        places = [ROOT / name, ROOT / "src" / "polyglance" / name]
        assert any(place.exists() for place in places), f"{name} does not exist"
    for command in re.findall(r"^make (\w+)", PAGE, flags=re.M):
        assert f"\n{command}:" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_every_guide_is_tested() -> None:
    assert re.findall(r"^### (.+)$", PAGE, flags=re.M) == list(GUIDES)
