"""Evaluate a model from its embeddings on disk.

The manifest defines the rows. Row i of the image table is the i-th record with an image or
clip. Row j of a language's table is the j-th caption of that language, in the same order of
records. Records without image or clip are skipped, with their captions.

A table is an ``.npy`` file, or an array in an ``.npz`` or ``.safetensors`` file. Captions are
one file keyed by language, or a folder with one file for each language, such as ``de.npy``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyglance.data.machine_captions import read_human_captions
from polyglance.errors import DataError, MissingExtraError, PolyglanceError
from polyglance.evaluation.results import Evaluation, provenance
from polyglance.evaluation.retrieval import RECALL_AT, Array, Integers, evaluate_retrieval
from polyglance.languages import normalise_language
from polyglance.records import Record, read_manifest

_SUFFIXES = (".npy", ".npz", ".safetensors")
_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class EmbeddingLayout:
    """The images and captions of a manifest in the order of the embeddings' rows."""

    records: tuple[Record, ...]
    """One for each row of the image table."""
    captions: Mapping[str, tuple[str, ...]]
    image_ids: Mapping[str, Integers]
    """For each caption of a language, the row of its image."""


def read_layout(
    manifest: str | Path, split: str | None = None, *, human_only: bool = False
) -> EmbeddingLayout:
    """Return the layout of a manifest or one of its splits.

    Args:
        manifest: Images or clips with captions.
        split: Only records of this split.
        human_only: Leave out machine-made captions.
    """
    records = read_human_captions(manifest) if human_only else read_manifest(manifest)
    return build_layout(records, manifest, split)


def build_layout(
    all_records: Iterable[Record], manifest: str | Path, split: str | None = None
) -> EmbeddingLayout:
    """Return the layout of records, or of one split of them.

    Args:
        all_records: Images or clips with captions.
        manifest: Where they were read, for errors.
        split: Only records of this split.
    """
    records: dict[object, Record] = {}
    captions: dict[str, list[str]] = {}
    image_ids: dict[str, list[int]] = {}
    splits: set[str] = set()
    for record in all_records:
        path = record.image or record.video
        splits.add(record.split or "(none)")
        if path is None or (split is not None and record.split != split):
            continue
        if (path, record.span) in records:
            raise DataError(
                f"{manifest}: {path} is in two records, each of which would count as wrong for the"
                " other's captions: put all its captions in one"
            )
        for language, texts in record.captions.items():
            captions.setdefault(language, []).extend(texts)
            image_ids.setdefault(language, []).extend([len(records)] * len(texts))
        records[path, record.span] = record
    if not any(captions.values()):
        which = f" of split {split!r} (there are: {', '.join(sorted(splits))})" if split else ""
        raise DataError(f"{manifest}: no images with captions{which}")
    present = [language for language, texts in captions.items() if texts]
    return EmbeddingLayout(
        tuple(records.values()),
        {language: tuple(captions[language]) for language in present},
        {language: np.array(image_ids[language], dtype=np.int64) for language in present},
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
    """Evaluate retrieval from embeddings on disk, in each language of the manifest.

    Args:
        images: File with the image table.
        texts: File or folder with the caption tables.
        manifest: Defines the rows.
        split: Only records of this split.
        languages: Languages to evaluate; None for all.
        human: Languages with captions written by people, for the human average.
        model: Name of the model in the report.
        split_name: Name of the split in the report.
        ks: Recalls to compute.
        cosine: Whether similarity is the cosine; otherwise the inner product.
    """
    manifest, images, texts = Path(manifest), Path(images), Path(texts)
    layout = read_layout(manifest, split)
    wanted, human_languages = select_languages(layout, manifest, languages, human)
    tables = _text_tables(texts, wanted)
    if languages is None and (unknown := [code for code in tables if code not in wanted]):
        raise DataError(f"{texts}: {unknown[0]} is not a language of {manifest}")
    vectors = _only_table(images).read()
    _check(vectors, str(images), len(layout.records), "images or clips", manifest)
    results = {}
    for language in wanted:
        if language not in tables:
            raise DataError(
                f"{texts}: no embeddings in {language}; to leave it out, "
                f"name the languages to evaluate (there are: {', '.join(tables)})"
            )
        table = tables[language]
        captions = table.read()
        count = len(layout.captions[language])
        _check(captions, str(table), count, f"captions in {language}", manifest)
        if captions.shape[1] != vectors.shape[1]:
            raise DataError(
                f"{table}: captions of width {captions.shape[1]} cannot be compared with "
                f"images of width {vectors.shape[1]} in {images}"
            )
        results[language] = evaluate_retrieval(
            vectors, captions, layout.image_ids[language], ks=ks, cosine=cosine
        )
    return Evaluation(
        model=model or texts.stem,
        split=split_name or default_split_name(manifest, split),
        languages=results,
        human=tuple(human_languages),
        similarity="cosine" if cosine else "inner product",
        **provenance(),
    )


def select_languages(
    layout: EmbeddingLayout,
    manifest: Path,
    languages: Collection[str] | None,
    human: Collection[str],
) -> tuple[list[str], list[str]]:
    """Return the languages to evaluate, by default all, and those written by people.

    Args:
        layout: Of the manifest.
        manifest: Its path, for errors.
        languages: Requested languages; None for all.
        human: Languages for the human average.
    """
    human_languages = _codes(human)
    wanted = list(layout.captions) if languages is None else _codes(languages)
    if unknown := [code for code in [*wanted, *human_languages] if code not in layout.captions]:
        raise PolyglanceError(
            f"{manifest}: no captions in {unknown[0]}, only in {', '.join(layout.captions)}"
        )
    if not set(human_languages) <= set(wanted):
        raise PolyglanceError(
            "the human average needs languages that are not evaluated: add them to languages"
        )
    return wanted, human_languages


def default_split_name(manifest: Path, split: str | None) -> str:
    """Return the name of a manifest, or of its split, for reports."""
    folder = manifest.resolve().parent.name
    return f"{folder}/{manifest.name.split('.')[0]}" + (f":{split}" if split else "")


@dataclass(frozen=True, slots=True)
class _Table:
    """An array on disk; ``key`` is its name in a file of several."""

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
    """Return the arrays of a file by key; an ``.npy`` file has one, without a key."""
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
            raise DataError(f"{path}: no file of {', '.join(_SUFFIXES)}, such as de.npy")
    elif path.suffix == ".npy":
        if len(wanted) != 1:
            raise DataError(
                f"{path}: an .npy file has the captions of one language, but "
                f"{', '.join(wanted)} are to be evaluated; name one of them, or give a folder"
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
                "a model that returns NaN or infinity cannot be evaluated"
            )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn any error of a file's reader into a `DataError`."""
    try:
        yield
    except PolyglanceError:
        raise
    except Exception as error:  # a reader may raise anything on a mangled binary file
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        raise DataError(
            f"{path}: not a valid {path.suffix} file of numbers "
            "(it is damaged, or has pickled objects, which are never opened)"
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
