"""Hooks of mkdocs: what the site shows beside docs/*.md, and how their links are followed.

`make docs` builds the site. Pages of docs are also read in the repository, where links to source
files and results are relative to it. On the site such a link leads to a page with the file's text
or to a copy of it, so that nothing outside of the site is needed to read it.

In a page, ``<!-- code: PATH NAME -->`` becomes the source of a function or class of a file, so
that excerpts are always those of the code, and TeX between dollar signs becomes MathML, which
browsers show without scripts.
"""

from __future__ import annotations

import ast
import html
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from tools import site_pages
from tools.public_modules import public_modules

ROOT = Path(__file__).parent.parent
COPIES = {
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "security.md": "SECURITY.md",
    "model-cards/polyglance-small.md": "src/polyglance/encoders/polyglance-small/README.md",
    "photographs.md": "src/polyglance/demo/photos/LICENCES.md",
    "word-lists.md": "src/polyglance/text/spelling/README.md",
    "benchmarks-how.md": "benchmarks/README.md",
}
"""Pages of the site that are files of the repository outside of docs."""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".cff": "yaml", ".txt": "text"}
"""Files that get a page with their text; others are copied as they are."""
_LINK = re.compile(r"(?<!\\)\]\(<?([^)\s>]+)>?\)")
_CODE = re.compile(r"^( *)<!-- code: (\S+) (\S+) -->$", re.MULTILINE)
_MATH = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2[`~]*\s*$", re.DOTALL | re.MULTILINE)
_HEADER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)

_source_of: dict[str, str] = {}
"""The repository's file that each page of the site shows, by the page's path in docs."""


def on_config(config: Any) -> Any:
    """Complete the navigation: a page for each public module, and pages that it does not name."""
    named = set(re.findall(r"[\w./-]+\.md", str(config.nav)))
    others = sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name not in named)
    for section in config.nav:
        for entries in section.values():
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict) and entry.get("Python API") == "api/":
                    entry["Python API"] = _api_navigation()
    if others:
        config.nav.append({"More": others})
    plugin = sys.modules.get("material.plugins.search.plugin")
    if plugin is not None:  # it would take seconds to load a dictionary of Chinese for a few words
        vars(plugin)["jieba"] = None
    return config


def _api_navigation() -> list[Any]:
    groups = public_modules(ROOT).items()
    return [
        "api/index.md",
        *({heading: [{name: f"api/{name}.md"} for name in names]} for heading, names in groups),
    ]


def on_files(files: Files, config: Any) -> Files:
    """Add copies, generated pages, and the files that pages link to."""
    _source_of.clear()
    for file in files:
        if file.abs_src_path and Path(file.abs_src_path).is_relative_to(ROOT):
            _source_of[file.src_uri] = str(Path(file.abs_src_path).relative_to(ROOT))
    for page, source in COPIES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        _add(files, config, page, _HEADER.sub("", text), source)
    for page, text in site_pages.generated_pages(ROOT).items():
        notebook = page.startswith("notebooks/")
        _add(
            files, config, page, text, f"docs/{page.removesuffix('md')}ipynb" if notebook else None
        )
    texts = {file.src_uri: file.content_string for file in files.documentation_pages()}
    for page, text in texts.items():
        for link in _links(text):
            target = _resolve(page, link)
            if target is not None and target not in _source_of.values():
                _add_source(files, config, target)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Insert code, and lead links to files of the repository to their place in the site."""
    here = page.file.src_uri
    markdown = _CODE.sub(_excerpt, markdown)
    markdown = markdown.replace("<!-- formats -->", site_pages.formats_table())
    if here.startswith("source/"):
        return markdown
    places = {source: uri for uri, source in _source_of.items()}

    def lead(match: re.Match[str]) -> str:
        target = _resolve(here, match[1])
        if target is None or target not in places or places[target] == here:
            return match[0]
        place = posixpath.relpath(places[target], posixpath.dirname(here) or ".")
        anchor = "#" + match[1].partition("#")[2] if "#" in match[1] else ""
        return match[0].replace(match[1], place + anchor)

    return _outside_fences(markdown, lambda text: _LINK.sub(lead, text))


def on_page_content(html_text: str, **_: Any) -> str:
    """Turn TeX into MathML."""

    def to_mathml(match: re.Match[str]) -> str:
        display = "block" if match[2] == "[" else "inline"
        return convert(html.unescape(match[3]).strip(), display=display)

    return _MATH.sub(to_mathml, html_text)


def code_of(path: Path, name: str) -> str:
    """Return the source of a function, class or method, such as ``MMP.encode_text``.

    Args:
        path: A Python file.
        name: The definition; a line in brackets at its end, ``mmp_losses[losses]``, starts the
            excerpt at the first statement that assigns this name.
    """
    text = path.read_text(encoding="utf-8")
    name, _, first = name.removesuffix("]").partition("[")
    body: Any = ast.parse(text).body
    node: Any = None
    for part in name.split("."):
        found = [n for n in body if getattr(n, "name", None) == part or part in _targets(n)]
        if not found:
            raise PluginError(f"{path} has no {name}: change the excerpt that names it")
        node, body = found[0], getattr(found[0], "body", [])
    start = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    lines = text.splitlines()
    if first:
        inner = [n for n in ast.walk(node) if first in _targets(n)]
        if not inner:
            raise PluginError(f"{name} in {path} assigns no {first}: change the excerpt")
        start = min(n.lineno for n in inner)
    excerpt = lines[start - 1 : node.end_lineno]
    indent = min(len(line) - len(line.lstrip()) for line in excerpt if line.strip())
    return "\n".join(line[indent:] for line in excerpt)


def _targets(node: Any) -> list[str]:
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return [target.id for target in targets or [] if isinstance(target, ast.Name)]


def _excerpt(match: re.Match[str]) -> str:
    indent, path, name = match.groups()
    code = code_of(ROOT / path, name)
    title = f"{path.removeprefix('src/')}: {name.partition('[')[0]}"
    block = f'```python title="{title}"\n{code}\n```'
    return "\n".join(indent + line for line in block.splitlines())


def _links(text: str) -> list[str]:
    found: list[str] = []

    def note(part: str) -> str:
        found.extend(_LINK.findall(part))
        return part

    _outside_fences(text, note)
    return found


def _outside_fences(text: str, change: Any) -> str:
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def _resolve(page: str, link: str) -> str | None:
    """Return the repository's file that a link of a page means, or None for other links."""
    path = link.partition("#")[0]
    if not path or "://" in link or link.startswith(("mailto:", "/")):
        return None
    source = _source_of.get(page, f"docs/{page}")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if target.startswith("..") or not (ROOT / target).exists():
        return None
    return target


def _add(files: Files, config: Any, uri: str, text: str, source: str | None = None) -> None:
    files.append(File.generated(config, uri, content=text))
    _source_of[uri] = source or f"docs/{uri}"


def _add_source(files: Files, config: Any, target: str) -> None:
    """Add a page with a file's text or a folder's list, or a copy of the file."""
    path = ROOT / target
    header = "---\nsearch:\n  exclude: true\nhide: [toc]\n---\n"
    if path.is_dir():
        names = sorted(p.name for p in path.iterdir() if not p.name.startswith((".", "_")))
        listing = "\n".join(f"- `{name}`" for name in names)
        _add(
            files, config, f"source/{target}/index.md", f"{header}# {target}\n\n{listing}\n", target
        )
    elif path.suffix in LANGUAGES or path.name == "Makefile":
        language = LANGUAGES.get(path.suffix, "makefile")
        text = path.read_text(encoding="utf-8")
        block = f'````{language} linenums="1"\n{text}\n````\n'
        _add(files, config, f"source/{target}.md", f"{header}# {target}\n\n{block}", target)
    else:
        uri = f"source/{target}" + (".txt" if path.suffix == ".md" else "")
        files.append(File.generated(config, uri, content=path.read_bytes()))
        _source_of[uri] = target
