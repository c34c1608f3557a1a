"""What a run reads: the files that its settings name, and which of them are missing.

Recipes that can name what they lack (`missing_files`) are asked. For the others the settings are
walked for the names of files, and for all of them encoders, word vectors and translators are
looked for under the names that training looks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

from polyglance.recipes import Recipe
from polyglance.reproduce.target import Target
from polyglance.text.dictionaries import dictionary_exists
from polyglance.weights import ENTRIES

_FILES = (
    "manifest", "features", "path", "translations", "names", "image_list", "all_captions",
    "classes", "test_classes",
)  # fmt: skip
"""Settings of recipes that name files inside the data folder."""
_SPLITS = ("train", "validation", "test")
_WITHOUT_FOLDER = ("apertium", "words")
_ENGLISH = "en"
_NO_FILE = "there is no such file or folder"


def missing_needs(recipe: Recipe, data: Path) -> Iterator[tuple[str, str]]:
    """Yield what a run needs and does not find, each with what is wrong with it.

    Args:
        recipe: with all changes of the run.
        data: the data folder.
    """
    settings = recipe.settings
    if hasattr(settings, "missing_files"):
        for sentence in settings.missing_files(data):
            names, _, problem = sentence.partition(": ")
            yield from ((name, problem) for name in names.split(", "))
    else:
        yield from ((str(p), _NO_FILE) for p in named_files(settings, data) if not p.exists())
    for path in (*_encoders(settings), *_dictionaries(settings, data)):
        yield str(path), _NO_FILE
    if recipe.system == "smalr":
        yield from _words(settings, data)
    if getattr(settings, "translate_test", None) is not None:
        yield from _test_translators(settings, data)


def named_files(settings: Any, data: Path, name: str = "") -> Iterator[Path]:
    """Yield the files inside the data folder that settings name.

    Args:
        settings: of a recipe, or a part of them.
        data: the data folder.
        name: of the setting.
    """
    if is_dataclass(settings):
        # A published corpus takes the place of the three splits, whose defaults name files too.
        unread = _SPLITS if getattr(settings, "corpus", None) is not None else ()
        for field in fields(settings):
            if field.name not in unread:
                yield from named_files(getattr(settings, field.name), data, field.name)
    elif isinstance(settings, Mapping):
        for key, value in settings.items():
            yield from named_files(value, data, str(key))
    elif isinstance(settings, tuple | list):
        for value in settings:
            yield from named_files(value, data, name)
    elif isinstance(settings, str) and settings and name in _FILES and "{" not in settings:
        yield data / settings


def _encoders(settings: Any) -> Iterator[Path]:
    """Yield folders of encoders that are not there; names of known weights are fetched."""
    if getattr(settings, "init_from_dual_encoder", None) is not None:
        return
    name = getattr(settings, "encoder", None)
    if name is not None and name not in ENTRIES and Path(name).is_absolute():
        config = Path(name) / "config.json"
        if not config.is_file():
            yield config


def _dictionaries(settings: Any, data: Path) -> Iterator[Path]:
    """Yield dictionaries that M3P or SMALR needs and does not find."""
    if getattr(settings, "uses_code_switching", False):
        switching = settings.code_switching
        if not switching.languages_in(data):  # all with a dictionary, and there is none
            yield data / switching.dictionaries
    pattern = getattr(settings, "dictionaries", None)
    if pattern is None or "{" not in pattern or not settings.needs_dictionaries:
        return
    others = [code for code in settings.languages if code != _ENGLISH]
    both = settings.consistency and not settings.translators
    pairs = [(code, _ENGLISH) for code in others]
    for source, target in pairs + ([(_ENGLISH, code) for code in others] if both else []):
        path = data / _fill(pattern, source, target)
        if not dictionary_exists(path):
            yield path


def _words(settings: Any, data: Path) -> Iterator[tuple[str, str]]:
    """Yield SMALR's word vectors and translators that are not there."""
    from polyglance.recipes.smalr.data import word_vector_source

    if "{language}" in settings.word_vectors:
        # As training looks for them: in the data folder if that has the folder.
        source = word_vector_source(settings, data)
        for code in settings.languages:
            path = Path(source.replace("{language}", code))
            if not path.is_file():
                shown = path if path.is_absolute() else data / path
                yield str(shown), _NO_FILE
    elif settings.word_vectors not in (*ENTRIES, "skipgram"):
        folder = Path(settings.word_vectors)
        if folder.is_absolute() and not folder.is_dir():
            yield str(folder), _NO_FILE
    names = settings.translators
    if not names or any(name in _WITHOUT_FOLDER for name in names):
        return
    for source, target in _translated_pairs(settings):
        paths = [data / _fill(name, source, target) for name in names]
        if not any(path.exists() for path in paths):
            yield (
                str(paths[0]),
                "there is no such translation model"
                + (f", nor {', '.join(str(path) for path in paths[1:])}" if paths[1:] else ""),
            )


def _translated_pairs(settings: Any) -> list[tuple[str, str]]:
    """Return the languages that SMALR translates between."""
    languages = settings.languages
    pairs: dict[tuple[str, str], None] = {}
    if settings.corpus is not None and settings.corpus.min_captions:
        pairs |= {(_ENGLISH, code): None for code in languages if code != _ENGLISH}
    if settings.translate_to is not None:
        others = (code for code in languages if code != settings.translate_to)
        pairs |= {(code, settings.translate_to): None for code in others}
    if settings.consistency:
        pairs |= dict.fromkeys(permutations(languages, 2))
    return list(pairs)


def _test_translators(settings: Any, data: Path) -> Iterator[tuple[str, str]]:
    """Yield the models or dictionaries that translate tests into English and are not there."""
    name = settings.translate_test
    if name in _WITHOUT_FOLDER:
        return
    for code in _test_languages(settings, data):
        path = data / _fill(name, code, _ENGLISH)
        if not path.exists() and not dictionary_exists(path):
            yield str(path), "there is no such translation model or dictionary"


def _test_languages(settings: Any, data: Path) -> list[str]:
    """Return the languages other than English of test captions or questions, which files name."""
    from polyglance.recipes.cross_encoder.corpora import read_corpus
    from polyglance.recipes.vqa.config import VQARecipe
    from polyglance.recipes.vqa.questions import read_questions

    found: set[str] = set()
    if isinstance(settings, VQARecipe):
        tests = [file for file in settings.test if (data / file.manifest).exists()]
        for questions in read_questions(tests, data).values():
            found |= {question.language for question in questions}
    else:
        for split in filter(None, (settings.test, *settings.extra_test)):
            files = (split.manifest, *(file.manifest for file in split.merge))
            if all((data / name).exists() for name in files):  # else they are named as missing
                found |= {code for record in read_corpus(split, data) for code in record.captions}
    return sorted(found - {_ENGLISH})


def note_missing_packages(target: Target) -> Target:
    """Note in rows that measure BLEU why its cells will stay empty here, and what to install."""
    rows = list(target.rows)
    for column in target.columns:
        if not column.report.endswith(".bleu"):
            continue
        from polyglance.recipes.vqa.evaluation import why_without_bleu

        reason = why_without_bleu(column.report.split(".")[-3])  # test.LANGUAGE.model.bleu
        for number, row in enumerate(rows):
            if reason is not None and row.run_of(column):
                note = f"{column.name} stays empty here: {reason}"
                rows[number] = replace(row, note="; ".join(filter(None, (row.note, note))))
    return replace(target, rows=tuple(rows))


def _fill(pattern: str, source: str, target: str) -> str:
    return pattern.replace("{source}", source).replace("{target}", target)
