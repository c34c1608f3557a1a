"""Docs pages and plots are those that the results give."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.reports import pages
from benchmarks.reports.__main__ import PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.__name__.rpartition(".")[2])
def test_the_page_is_up_to_date(page: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []

    def check_page(document: Path, contents: Mapping[str, str]) -> None:
        text = document.read_text(encoding="utf-8")
        for name, content in contents.items():
            assert f"<!-- {name} -->\n\n{content}\n\n<!-- end of {name} -->" in text
            checked.append(name)

    def check_plot(path: Path, text: str, **options: Any) -> None:
        assert path.read_text(encoding="utf-8") == text

    monkeypatch.setattr(pages, "fill", check_page)
    monkeypatch.setattr(Path, "write_text", check_plot)
    page.main()
    assert checked


def test_a_page_without_the_mark_is_refused(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("no marks")
    with pytest.raises(SystemExit, match="has no mark <!-- table -->"):
        pages.fill(document, {"table": "| a |"})
