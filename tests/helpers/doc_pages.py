"""The fenced blocks of the pages, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "docs/systems/*.md")
SHELLS = ("", "sh", "bash", "console", "shell")
_FENCE = re.compile(r"^( *)(```+)([^\n]*)\n(.*?)^\1\2\s*$", re.DOTALL | re.MULTILINE)
_INFO = re.compile(r'(?P<language>\w*)(?:.*?title="(?P<title>[^"]*)")?')


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    language: str
    title: str
    """What is shown above it; one that begins with "needs" says why no test runs it."""
    text: str

    @property
    def is_marked(self) -> bool:
        """Whether readers are told that it needs data, a model or an accelerator."""
        return self.title.startswith("needs ")

    @cached_property
    def commands(self) -> list[str]:
        """The commands of a block of shell, without comments."""
        if self.language not in SHELLS:
            return []
        lines = self.text.replace("\\\n", " ").splitlines()
        plain = [re.sub(r"(^|\s+)#.*", "", line).strip() for line in lines]
        return [" ".join(line.split()) for line in plain if line]


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    for fence in _FENCE.finditer(page.read_text(encoding="utf-8")):
        info = _INFO.match(fence[3].strip())
        assert info is not None
        name = str(page.relative_to(ROOT))
        text = "\n".join(line.removeprefix(fence[1]) for line in fence[4].splitlines())
        yield Block(name, info["language"], info["title"] or "", text)


def all_blocks() -> list[Block]:
    """Return the blocks of all pages."""
    found = [page for pattern in PAGES for page in sorted(ROOT.glob(pattern))]
    return [block for page in found for block in blocks(page)]


def polyglance_arguments(command: str) -> list[str] | None:
    """Return the arguments of our command in a line, or None where it is not there."""
    words = shlex.split(re.sub(r"\$\([^)]*\)", "x", command))
    for end in ("|", ">", "&&"):
        words = words[: words.index(end)] if end in words else words
    first = next((n for n, word in enumerate(words) if not re.match(r"[A-Z_]+=", word)), 0)
    for number, word in enumerate(words):
        if Path(word).name == "polyglance" and (number == first or words[number - 1] == "-m"):
            return words[number + 1 :]
    return None
