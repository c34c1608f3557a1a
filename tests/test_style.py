"""Names follow the field's vocabulary: the words that it replaced must not come back."""

from __future__ import annotations

import ast
import dataclasses
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer.main

from polyglance.utils import yaml12

ROOT = Path(__file__).parent.parent


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IDENTIFIERS = words(
    """
    doorkeeper Doorkeeper Desk Shelf shelf closer_look known_pictures Refused
    walking looks_sheet Stamp
    glossing
    own_share share_weights
    Imitation imitation pair_imitation imitating hardening FromEasyToHard mismatches lookalikes
    even_captions EvenCaptions Together pair_alignment
    linked_captions region_views word_choice label_words BelievedLabels
    meeting Meeting word_looks told_from Answering
    PictureWords PictureMatching RegionNames TranslatedWords PictureRanking
    MultilingualText DescribedRegions
    read_at World world ToyWorld uc2_world m3p_world PairReader
    Eyes eyes opened_eyes open_eyes look_at looks towers
    ObjectTeller told SecondLook spoken telling
    matching_first easy_share new_rate longest_text longest_regions longest_visual whole_first
    captions_each more_captions
    """
)
"""Forbidden as any name in the code."""

DEFINITIONS = words("joined Joined watched sent spread untrained Home Known Cursor seats hold_out")
"""Forbidden as the name of a class, function, parameter or class attribute."""

DEFINITIONS_IN = {
    "src/polyglance/search": words("Manifest"),
    # Of early stopping, patience is the field's word; of a service it is a timeout.
    "src/polyglance/serve": words("Manifest Question problems patience"),
    "src/polyglance/models/uc2.py": words("see read_at pair first"),
}
"""Forbidden as such a name in these places only."""

MODULES = words(
    """
    serve/doorkeeper serve/desk serve/shelf serve/known_pictures serve/closer_look serve/problems
    serve/running
    search/home search/stored search/walking search/showing search/looks_sheet
    vision/ahead vision/views
    text/flat text/induction text/glossing
    nn/sending nn/joint
    weights/cursor weights/wire
    training/distribution training/imitation training/pair_imitation training/imitating
    training/hardening training/mismatches training/even_captions training/pairing
    training/pair_alignment training/linked_captions training/region_views training/word_choice
    training/label_words
    models/meeting models/word_looks models/answering
    recipes/pairs recipes/questions recipes/untrained recipes/reader recipes/folder recipes/keys
    cli/telling cli/switching
    data/toy/world data/importing data/translating progress yaml12
    """
)

FIELDS = {
    "polyglance.nn.encoder:EncoderConfig": "width inner positions vocabulary",
    "polyglance.nn.packing:Packing": "boundaries longest total owners",
    "polyglance.data.captions:CaptionTable": "owners",
    "polyglance.training.loop:LoopConfig": "clip accumulate",
}
"""Fields that were renamed, where the word itself is a legitimate name elsewhere."""

RECIPE_KEYS = words(
    """
    eyes looks towers meeting imitation adaptation alignment trust matching_first lookalikes
    easy_share smoothing new_rate longest_text longest_regions longest_visual whole_first more
    captions_each form layout keep clip accumulate hold_out least most kind
    """
)
OPTIONS = words(
    """
    --reader --reranker --explainer --not --least --at --people-only --sheet --also --every-span
    """
)
COMMANDS = {("weights", "unpack"), ("text", "vectors", "near")}


def python_files() -> list[Path]:
    folders = ("src", "tests", "benchmarks")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return [path for path in sorted(files) if path != Path(__file__)]


def mentions(path: Path, names: frozenset[str]) -> bool:
    """Return whether any of these words occurs in a file, be it in a comment only.

    Python's tokenizer and parser are slow: most files need neither.
    """
    any_name = rf"\b(?:{'|'.join(sorted(names))})\b"
    return re.search(any_name, path.read_text(encoding="utf-8")) is not None


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_forbidden_identifier() -> None:
    found = []
    for path in python_files():
        if not mentions(path, IDENTIFIERS):
            continue
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type == tokenize.NAME and token.string in IDENTIFIERS:
                    found.append(f"{relative(path)}:{token.start[0]} {token.string}")
    assert not found, "\n".join(found)


def definitions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the classes, functions, parameters and class attributes that a module defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        if isinstance(node, ast.arg):
            yield node.lineno, node.arg
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    yield statement.lineno, statement.target.id


def test_no_forbidden_definition() -> None:
    found = []
    for path in python_files():
        if not path.is_relative_to(ROOT / "src"):
            continue
        forbidden = DEFINITIONS.union(
            *(names for place, names in DEFINITIONS_IN.items() if path.is_relative_to(ROOT / place))
        )
        if not mentions(path, forbidden):
            continue
        names = definitions(ast.parse(path.read_text(encoding="utf-8")))
        found += [f"{relative(path)}:{line} {name}" for line, name in names if name in forbidden]
    assert not found, "\n".join(found)


def test_no_forbidden_module() -> None:
    package = ROOT / "src" / "polyglance"
    paths = [package / name for name in sorted(MODULES)]
    # Not `is_dir`: a checkout may leave folders of compiled files behind.
    assert not [p for p in paths if p.with_suffix(".py").exists() or any(p.rglob("*.py"))]


@pytest.mark.parametrize("dataclass", FIELDS)
def test_no_forbidden_field(dataclass: str) -> None:
    module, _, name = dataclass.partition(":")
    cls = getattr(pytest.importorskip(module), name)
    assert not {field.name for field in dataclasses.fields(cls)} & words(FIELDS[dataclass])


def keys(value: object) -> Iterator[str]:
    """Yield the keys of nested mappings."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


def test_no_forbidden_recipe_key() -> None:
    recipes = sorted((ROOT / "src" / "polyglance" / "recipes").rglob("*.yaml"))
    assert len(recipes) > 5
    found = []
    for path in recipes:
        content = yaml12.parse(path.read_text(encoding="utf-8"), str(path))
        found += [f"{relative(path)} {key}" for key in keys(content) if key in RECIPE_KEYS]
    for path in sorted((ROOT / "src" / "polyglance" / "recipes").rglob("config.py")):
        names = definitions(ast.parse(path.read_text(encoding="utf-8")))
        found += [f"{relative(path)}:{line} {name}" for line, name in names if name in RECIPE_KEYS]
    assert not found, "\n".join(found)


def commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command of the command line with its name."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


def test_no_forbidden_option_or_command() -> None:
    from polyglance.cli import app

    found = []
    for path, command in commands(typer.main.get_command(app)):
        if path in COMMANDS:
            found.append(" ".join(path))
        options = [option for parameter in command.params for option in parameter.opts]
        found += [f"{' '.join(path)} {option}" for option in options if option in OPTIONS]
    assert not found, "\n".join(found)


def test_no_forbidden_json_field() -> None:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.js")]
    found = [relative(path) for path in files if "reread" in path.read_text(encoding="utf-8")]
    assert not found
