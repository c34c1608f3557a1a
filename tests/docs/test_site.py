"""The documentation site builds without a warning; every public name has its place on it."""

from __future__ import annotations

import ast
import logging
import re
import zlib
from importlib.util import find_spec
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import PluginError

from helpers.doc_pages import ROOT
from tools import site_hooks
from tools.public_modules import public_modules

PUBLIC = [name for group in public_modules(ROOT).values() for name in group]


def public_names(module: str) -> set[str]:
    """Return what a module offers, by its source: ``__all__``, or what it defines itself.

    It is not imported: some of the packages that the integrations are for take ten seconds.
    """
    found = find_spec(module)
    assert found is not None
    assert found.origin is not None
    tree = ast.parse(Path(found.origin).read_text(encoding="utf-8"))
    listed = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    defined = [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    ]
    names = listed[0] if listed else defined
    return {f"{module}.{name}" for name in names if name != "__version__"}


def inventory(site: Path) -> dict[str, str]:
    """Return the page of each documented name."""
    content = (site / "objects.inv").read_bytes()
    lines = zlib.decompress(content.split(b"\n", 4)[4]).decode().splitlines()
    return {line.split(" ")[0]: line.split(" ")[3].partition("#")[0] for line in lines}


def broken_links(site: Path) -> list[str]:
    """Return links and sources of pages that lead nowhere, or out of the site without a click."""
    found = []
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for tag, attributes in re.findall(r"<(a|img|script|link)\b([^>]*)>", text):
            link = re.search(r'\b(?:href|src)="?([^"\s>]+)', attributes)
            if link is None or link[1].startswith(("#", "data:", "mailto:")):
                continue
            address = link[1]
            if "://" in address:
                if tag != "a" and "canonical" not in attributes:
                    found.append(f"{page.name} loads {address}")
                continue
            target = page.parent / address.partition("#")[0].partition("?")[0]
            if page.name != "404.html" and not target.exists():
                found.append(f"{page.relative_to(site)} links to {address}")
    return found


def test_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("SITE_SEARCH", "false")  # its index takes seconds and is not looked at
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "true")
    with caplog.at_level(logging.WARNING):
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True))
    assert [record.getMessage() for record in caplog.records] == []

    documented = inventory(tmp_path)
    for name in PUBLIC:
        missing = public_names(name) - documented.keys()
        assert not missing, f"{name}: give {missing} docstrings"
    assert all((tmp_path / page).is_file() for page in documented.values())

    assert broken_links(tmp_path) == []

    for system in ("smalr", "mmp", "m3p", "uc2"):
        text = (tmp_path / "systems" / f"{system}.html").read_text(encoding="utf-8")
        assert text.count("<math") > 4
        assert "arithmatex" not in text
        assert "<!-- code" not in text
        assert text.count('class="filename"') > 3
    assert "multi30k-task1" in (tmp_path / "data-formats.html").read_text(encoding="utf-8")
    assert "/api/search" in (tmp_path / "http-api.html").read_text(encoding="utf-8")
    assert "uc2_step" in (tmp_path / "history.html").read_text(encoding="utf-8")
    assert "From" in (tmp_path / "contributing.html").read_text(encoding="utf-8")


def test_an_excerpt_that_is_gone_stops_the_build(tmp_path: Path) -> None:
    source = tmp_path / "code.py"
    source.write_text(
        "class A:\n    @property\n    def b(self):\n        c = 1\n        return c\n"
    )
    assert site_hooks.code_of(source, "A.b").startswith("@property\ndef b(self):\n    c = 1")
    assert site_hooks.code_of(source, "A.b[c]") == "c = 1\nreturn c"
    for name in ("B", "A.c", "A.b[d]"):
        with pytest.raises(PluginError, match="change the excerpt"):
            site_hooks.code_of(source, name)
