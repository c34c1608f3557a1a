"""YAML 1.2, read by libyaml and, where nesting is too deep for it, by PyYAML itself."""

from __future__ import annotations

import pytest

from polyglance.errors import PolyglanceError
from polyglance.utils import yaml12

TEXTS = {
    "scalars": "[1e-4, 010, 0o17, 0x1F, 1_000, .5, -.inf, no, on, true, ~, 1:30, 2024-01-01, '']",
    "blocks": "a:\n  - b: 1\n    c: |\n      two\n      lines\n  - {d: [e, {f: g}]}\n",
    "anchors": "base: &base {x: 1}\nother: *base\n",
    "other scripts": "名: 日本語\nар: \"\\u0627\"\nlong: 'it''s'\n",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_both_loaders_read_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = yaml12.parse(text, "text")
    monkeypatch.setattr(yaml12, "_MAX_DEPTH", 0)
    yaml12._parse.cache_clear()
    assert repr(yaml12.parse(text, "text")) == repr(read)


@pytest.mark.parametrize("text", ["a: 1\nb: [", "a: 1\na: 2", "a: 1\n\t- b"])
def test_both_loaders_name_the_line(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for depth in (1000, 0):
        monkeypatch.setattr(yaml12, "_MAX_DEPTH", depth)
        with pytest.raises(PolyglanceError, match=r"^text:\d: not valid YAML \(") as refused:
            yaml12.parse(text, "text")
        found.add(str(refused.value).partition(" (")[0])
    assert len(found) == 1


@pytest.mark.parametrize("level", ["{a: ", "- "])
def test_any_depth_of_nesting_is_refused_without_a_crash(level: str) -> None:
    with pytest.raises(PolyglanceError, match="not valid YAML"):
        yaml12.parse(level * 50_000, "text")  # libyaml alone ends the process
