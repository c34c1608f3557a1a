"""The list of public modules is what `tools.public_modules.RULE` says, line by line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain

import griffe
import pytest

from helpers.doc_pages import ROOT, all_blocks
from tools.public_modules import RULE, module_file, public_modules

PUBLIC = {name for group in public_modules(ROOT).values() for name in group}
MODULES = {
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "src" / "polyglance").rglob("*.py")
}
_IMPORT = re.compile(r"^[+ ]?\s*from (polyglance[\w.]*) import", re.MULTILINE)


def test_each_public_module_is_listed_once() -> None:
    listed = [name for group in public_modules(ROOT).values() for name in group]
    assert len(listed) == len(PUBLIC)
    assert PUBLIC <= MODULES
    assert all(what for group in public_modules(ROOT).values() for what in group.values())


def test_packages_with_all_are_public() -> None:
    files = {name: module_file(ROOT, name) for name in MODULES}
    packages = {name for name, file in files.items() if file.name == "__init__.py"}
    lists = {n for n in packages if re.search(r"^__all__", files[n].read_text(), re.MULTILINE)}
    assert lists - PUBLIC == set()
    assert "polyglance" in lists


def test_what_examples_and_guides_import_is_public() -> None:
    texts = {}
    for block in all_blocks():
        if block.language in ("python", "diff") and not block.text.startswith("# tests/"):
            texts[block.page] = texts.get(block.page, "") + block.text + "\n"
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts[path.name] = "\n".join("".join(cell["source"]) for cell in cells)
    found = {(page, name) for page, text in texts.items() for name in _IMPORT.findall(text)}
    assert len(found) > 40
    for page, name in sorted(found):
        # Guides also import from modules that they tell to write.
        is_new = page == "CONTRIBUTING.md" and name not in MODULES
        assert is_new or name in PUBLIC, f"{page} imports from {name}: add it to public_modules.py"


@pytest.mark.parametrize(
    "pattern",
    [
        r"polyglance\.models\.\w+",
        r"polyglance\.objectives\.\w+",
        r"polyglance\.integrations\.\w+",
        r"polyglance\.recipes\.\w+\.config",
    ],
)
def test_models_objectives_integrations_and_settings_are_public(pattern: str) -> None:
    wanted = {name for name in MODULES if re.fullmatch(pattern, name)}
    assert len(wanted) > 5
    assert wanted - PUBLIC == set()
    assert pattern.replace(r"\w+", "*").replace("\\", "").removesuffix(".*") in RULE


class Package:
    """The package as griffe reads it, without importing it."""

    def __init__(self) -> None:
        self.root = griffe.load(
            "polyglance", search_paths=[ROOT / "src"], allow_inspection=False, resolve_aliases=False
        )

    def find(self, path: str) -> griffe.Object | None:
        """Return what a dotted path names, through imports; None for other packages' things."""
        while path.startswith("polyglance."):
            try:
                found = self.root[path.removeprefix("polyglance.")]
            except KeyError:
                return None
            if isinstance(found, griffe.Object):
                return found
            path = found.target_path
        return None

    def public_objects(self, name: str) -> Iterator[griffe.Object]:
        """Yield what a module offers: ``__all__``, or what it defines itself."""
        module = self.root if name == "polyglance" else self.root[name.removeprefix("polyglance.")]
        listed = module.exports
        for key in module.members if listed is None else map(str, listed):
            found = self.find(f"{name}.{key}")
            is_own = found is not None and not found.is_module and found.path == f"{name}.{key}"
            if found is not None and (is_own if listed is None else True) and key[0] != "_":
                yield found

    def named_classes(self, thing: griffe.Object) -> Iterator[griffe.Object]:
        """Yield the classes of ours that a thing's annotations name."""
        annotations: list[str | griffe.Expr | None] = []
        if isinstance(thing, griffe.Function):
            annotations = [thing.returns, *(p.annotation for p in thing.parameters)]
        elif isinstance(thing, griffe.Attribute):
            annotations = [thing.annotation]
        elif isinstance(thing, griffe.Class):
            for key, member in thing.members.items():
                if isinstance(member, griffe.Object) and (key[0] != "_" or key == "__init__"):
                    yield from self.named_classes(member)
        expressions = [a for a in annotations if isinstance(a, griffe.Expr)]
        for part in chain.from_iterable(e.iterate(flat=True) for e in expressions):
            if isinstance(part, griffe.ExprName):
                found = self.find(part.canonical_path)
                if isinstance(found, griffe.Class) and found.name[0] != "_":
                    yield found


def test_classes_that_public_things_take_and_return_are_public() -> None:
    package = Package()
    public = {thing.path: thing for name in PUBLIC for thing in package.public_objects(name)}
    assert "polyglance.search.query.Hit" in public
    missing = {
        f"{found.path} of {thing.path}"
        for thing in public.values()
        for found in package.named_classes(thing)
        if found.path not in public
    }
    assert missing == set(), "add their modules to public_modules.py"
    # The check sees classes: without the module of hits it would name them.
    del public["polyglance.search.query.Hit"]
    results = public["polyglance.search.results.SearchResults"]
    assert any(found.path not in public for found in package.named_classes(results))
