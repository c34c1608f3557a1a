"""Measuring a model by the embeddings it left on disk, whoever made them.

The manifest says what each row is. Row i of the pictures' table is the i-th
record with a picture or clip. Row j of a language's table is the j-th caption
of that language, going through the same records in the same order. Records
without picture or clip are passed over, captions and all.

A table is an ``.npy`` file, or an array in an ``.npz`` or ``.safetensors`` file.
Captions come as one file keyed by language, or as a folder with one file for
each language, such as ``de.npy``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyglance.data.machine_captions import read_human_captions
from polyglance.errors import DataError, MissingExtraError, PolyglanceError
from polyglance.evaluation.results import Evaluation, stamp
from polyglance.evaluation.retrieval import RECALL_AT, Array, Integers, evaluate_retrieval
from polyglance.languages import normalise_language
from polyglance.records import Record, read_manifest

_SUFFIXES = (".npy", ".npz", ".safetensors")
_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class Layout:
    """The pictures and captions of a manifest in the order in which embeddings stand."""

    pictures: tuple[Record, ...]
    captions: Mapping[str, tuple[str, ...]]
    owners: Mapping[str, Integers]
    """For each caption of a language, the row of its picture."""


def read_layout(
    manifest: str | Path, split: str | None = None, *, people_only: bool = False
) -> Layout:
    """Lay out a manifest, or one split of it, with ``people_only`` without what a machine made."""
    pictures: dict[object, Record] = {}
    captions: dict[str, list[str]] = {}
    owners: dict[str, list[int]] = {}
    splits: set[str] = set()
    for record in read_human_captions(manifest) if people_only else read_manifest(manifest):
        seen = record.image or record.video
        splits.add(record.split or "(none)")
        if seen is None or (split is not None and record.split != split):
            continue
        if (seen, record.span) in pictures:
            raise DataError(
                f"{manifest}: {seen} stands in two records, each of which would count as wrong "
                "for the other's captions; put its captions in one"
            )
        for language, texts in record.captions.items():
            captions.setdefault(language, []).extend(texts)
            owners.setdefault(language, []).extend([len(pictures)] * len(texts))
        pictures[seen, record.span] = record
    if not any(captions.values()):
        which = f" of split {split!r} (there are: {', '.join(sorted(splits))})" if split else ""
        raise DataError(f"{manifest}: holds no pictures with captions{which}")
    filled = [language for language, texts in captions.items() if texts]
    return Layout(
        tuple(pictures.values()),
        {language: tuple(captions[language]) for language in filled},
        {language: np.array(owners[language], dtype=np.int64) for language in filled},
    )


def evaluate_files(
    images: str | Path,
    texts: str | Path,
    manifest: str | Path,
    *,
    split: str | None = None,
    languages: Collection[str] | None = None,
    human: Collection[str] = (),
    model: str | None = None,
    split_name: str | None = None,
    ks: Sequence[int] = RECALL_AT,
    cosine: bool = True,
) -> Evaluation:
    """Measure retrieval from embeddings on disk, in each language of the manifest.

    ``languages`` restricts it to some; ``human`` are those that count for the
    human average. ``model`` and ``split_name`` are what the report calls them.
    """
    manifest, images, texts = Path(manifest), Path(images), Path(texts)
    layout = read_layout(manifest, split)
    wanted, people = chosen_languages(layout, manifest, languages, human)
    tables = _text_tables(texts, wanted)
    if languages is None and (strangers := [code for code in tables if code not in wanted]):
        raise DataError(f"{texts}: {strangers[0]} is not a language of {manifest}")
    pictures = _only_table(images).read()
    _check(pictures, str(images), len(layout.pictures), "pictures or clips", manifest)
    results = {}
    for language in wanted:
        if language not in tables:
            raise DataError(
                f"{texts}: holds no embeddings in {language}; to leave it out, "
                f"name the languages to measure (there are: {', '.join(tables)})"
            )
        table = tables[language]
        captions = table.read()
        count = len(layout.captions[language])
        _check(captions, str(table), count, f"captions in {language}", manifest)
        if captions.shape[1] != pictures.shape[1]:
            raise DataError(
                f"{table}: captions of width {captions.shape[1]} cannot be compared with "
                f"the pictures of width {pictures.shape[1]} in {images}"
            )
        results[language] = evaluate_retrieval(
            pictures, captions, layout.owners[language], ks=ks, cosine=cosine
        )
    return Evaluation(
        model=model or texts.stem,
        split=split_name or split_title(manifest, split),
        languages=results,
        human=tuple(people),
        similarity="cosine" if cosine else "inner product",
        **stamp(),
    )


def chosen_languages(
    layout: Layout, manifest: Path, languages: Collection[str] | None, human: Collection[str]
) -> tuple[list[str], list[str]]:
    """The languages to measure, all of the manifest by default, and those that people wrote."""
    people = _codes(human)
    wanted = list(layout.captions) if languages is None else _codes(languages)
    if strangers := [code for code in [*wanted, *people] if code not in layout.captions]:
        raise PolyglanceError(
            f"{manifest}: holds no captions in {strangers[0]}, only {', '.join(layout.captions)}"
        )
    if not set(people) <= set(wanted):
        raise PolyglanceError("the human average needs languages that are not being measured")
    return wanted, people


def split_title(manifest: Path, split: str | None) -> str:
    """What a report calls a manifest, or a split of it."""
    folder = manifest.resolve().parent.name
    return f"{folder}/{manifest.name.split('.')[0]}" + (f":{split}" if split else "")


@dataclass(frozen=True, slots=True)
class _Table:
    """One array on disk; ``key`` names it in a file that holds several."""

    path: Path
    key: str | None = None

    def __str__(self) -> str:
        return str(self.path) if self.key is None else f"{self.path}[{self.key}]"

    def read(self) -> Array:
        with _reading(self.path):
            if self.path.suffix == ".safetensors":
                with _open_safetensors(self.path) as file:
                    return np.asarray(file.get_tensor(self.key))
            if self.key is None:
                return np.asanyarray(np.load(self.path, mmap_mode="r", allow_pickle=False))
            with np.load(self.path, allow_pickle=False) as file:
                return np.asarray(file[self.key])


def _tables_in(path: Path) -> dict[str | None, _Table]:
    """The arrays of a file by their keys; the one of an ``.npy`` file has none."""
    if path.suffix not in _SUFFIXES:
        raise DataError(f"{path}: embeddings must be in a file of {', '.join(_SUFFIXES)}")
    with _reading(path):
        if path.suffix == ".safetensors":
            with _open_safetensors(path) as file:
                keys = list(file.keys())
        elif path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                keys = list(file.files)
        else:
            return {None: _Table(path)}
    return {key: _Table(path, key) for key in keys}


def _only_table(path: Path) -> _Table:
    tables = _tables_in(path)
    if len(tables) != 1:
        raise DataError(f"{path}: expected one array, found {len(tables)}")
    return next(iter(tables.values()))


def _text_tables(path: Path, wanted: Sequence[str]) -> dict[str, _Table]:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
        named = [(file.stem, _only_table(file)) for file in files]
        if not named:
            raise DataError(f"{path}: holds no file of {', '.join(_SUFFIXES)}, such as de.npy")
    elif path.suffix == ".npy":
        if len(wanted) != 1:
            raise DataError(
                f"{path}: an .npy file holds the captions of one language, but "
                f"{', '.join(wanted)} are to be measured; name one of them, or give a folder"
            )
        named = [(wanted[0], _only_table(path))]
    else:
        named = [(str(key), table) for key, table in _tables_in(path).items()]
    tables: dict[str, _Table] = {}
    for name, table in named:
        try:
            code = normalise_language(name)
        except ValueError as error:
            raise DataError(f"{table}: expected {error}") from error
        if code in tables:
            raise DataError(f"{table}: a second table of captions in {code}, after {tables[code]}")
        tables[code] = table
    return tables


def _check(table: Array, where: str, rows: int, what: str, manifest: Path) -> None:
    if table.ndim != 2 or table.dtype.kind not in "fiu" or not table.shape[1]:
        raise DataError(
            f"{where}: expected a table of numbers, found {table.dtype} of shape {table.shape}"
        )
    if len(table) != rows:
        raise DataError(
            f"{where}: expected {rows} rows, one for each of the {what} of {manifest} "
            f"in its order, found {len(table)}"
        )
    for start in range(0, rows, _ROWS_AT_ONCE):
        finite = np.isfinite(table[start : start + _ROWS_AT_ONCE]).all(axis=1)
        if not finite.all():
            raise DataError(
                f"{where}: row {start + int(np.argmin(finite))} is not finite; "
                "a model that puts out NaN or infinity cannot be measured"
            )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn whatever a file makes its reader raise into one sentence."""
    try:
        yield
    except PolyglanceError:
        raise
    except Exception as error:  # a reader may raise anything on a mangled binary file
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        raise DataError(
            f"{path}: not a sound {path.suffix} file of numbers "
            "(it is damaged, or holds pickled objects, which are never opened)"
        ) from error


def _open_safetensors(path: Path) -> Any:
    try:
        from safetensors import safe_open
    except ImportError:
        raise MissingExtraError("reading safetensors", "train") from None
    return safe_open(path, framework="numpy")


def _codes(languages: Collection[str]) -> list[str]:
    try:
        return list(dict.fromkeys(normalise_language(language) for language in languages))
    except ValueError as error:
        raise PolyglanceError(f"expected {error}") from error
