"""The notebooks run from top to bottom, one after another in one folder, as a reader runs them."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from helpers.doc_pages import ROOT
from helpers.small_mmp import small_model
from polyglance.demo.photographs import FOLDER
from tools.site_pages import notebook_page

NOTEBOOKS = ROOT / "docs" / "notebooks"
SHOWN = ("balloon", "beach", "boats", "books", "horse", "snowy-mountain")


def run(name: str, folder: Path, parameters: dict[str, Any]) -> nbformat.NotebookNode:
    """Run a notebook with other parameters; a cell that fails is an error."""
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    [cell] = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", ())]
    known = set(re.findall(r"^([A-Z, ]+) = ", cell.source, re.MULTILINE))
    assert parameters.keys() <= {word for line in known for word in line.split(", ")}
    cell.source += "".join(f"\n{key} = {value!r}" for key, value in parameters.items())
    NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}, timeout=600).execute()
    return notebook


def outputs(notebook: nbformat.NotebookNode) -> str:
    return json.dumps([cell.get("outputs", []) for cell in notebook.cells])


def test_the_notebooks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    photographs = tmp_path / "photographs"
    photographs.mkdir()
    for name in SHOWN:
        shutil.copy(FOLDER / f"{name}.webp", photographs)
    small_model().export(tmp_path / "small")

    searched = run("search", tmp_path, {"FOLDER": str(photographs)})
    assert "text/html" in outputs(searched)
    assert "snowy-mountain.webp" in outputs(searched)

    parameters = {"MODEL": "small", "PICTURES": 12, "STEPS": 1, "BATCH": 4}
    trained = run("train", tmp_path, parameters)
    assert (tmp_path / "run" / "model" / "model.json").is_file()
    assert (tmp_path / "compare.html").stat().st_size > 10_000
    assert "held out" in outputs(trained)

    run("compare", tmp_path, {"MODELS": ["small", "run/model"], "PHOTOS": 6})
    assert json.loads((tmp_path / "photographs.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_becomes_a_page(path: Path) -> None:
    page = notebook_page(path)
    assert page.startswith("# ")
    assert f"[download it]({path.name})" in page
    assert page.count("```python") >= 3
