"""Evaluate word search: single names of classes as queries over labelled pictures, by language.

Captions are sentences; people search with words. For each class its name in a language is the
query, and the pictures that people labelled with that class are the hits to find. The measure is
average precision, the mean over hits of the share of hits up to each (as in Pascal VOC since 2010,
without interpolation), and its mean over classes, mAP.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyglance.config import as_plain
from polyglance.encoders import Encoder
from polyglance.errors import PolyglanceError
from polyglance.evaluation.encoders import encode_in_blocks
from polyglance.evaluation.results import provenance
from polyglance.records import atomic_write, read_manifest
from polyglance.vision.labels import label_languages, label_names, label_table, object_names

if TYPE_CHECKING:
    from rich.table import Table

ENGLISH = "en"
_NUM_WORST = 3
"""Words named in the table."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WordSearch:
    """Word search of one model, by language."""

    model: str
    split: str
    pictures: int
    languages: Mapping[str, Mapping[str, float]]
    """Average precision in percent, by language and COCO's name of the class."""
    date: str = ""
    version: str = ""

    @property
    def mean_average_precision(self) -> dict[str, float]:
        """Return mAP of each language, in percent."""
        return {code: float(np.mean([*one.values()])) for code, one in self.languages.items()}

    @property
    def share_of_english(self) -> dict[str, float]:
        """Return each language's mAP as a share of English's; empty without English."""
        values = self.mean_average_precision
        if not (english := values.get(ENGLISH)):
            return {}
        return {code: value / english for code, value in values.items()}


def evaluate_word_search(
    encoder: Encoder,
    manifest: str | Path,
    *,
    pictures: str | Path | None = None,
    languages: Collection[str] | None = None,
    model: str | None = None,
    split_name: str | None = None,
    quiet: bool = False,
) -> WordSearch:
    """Search labelled pictures for the names of COCO's classes.

    Args:
        encoder: A dual encoder.
        manifest: Pictures with ``labels``, names of COCO's classes.
        pictures: Folder that image paths are relative to; None for the manifest's.
        languages: Languages of the names; None for all that have them.
        model: Name of the model in the report.
        split_name: Name of the pictures in the report.
        quiet: Show no progress.
    """
    manifest = Path(manifest)
    codes = label_languages("coco") if languages is None else tuple(languages)
    names = {code: [name for name, *_ in label_names(code, "coco")] for code in codes}
    classes = [name for name in object_names() if name is not None]
    records = [record for record in read_manifest(manifest) if record.image and record.labels]
    if not records:
        raise PolyglanceError(
            f"{manifest}: no picture has labels; word search needs them, such as"
            ' {"image": "1.jpg", "labels": ["dog"]}'
        )
    relevant = label_table([record.labels for record in records]).T
    shown = np.flatnonzero(relevant.any(1))
    folder = manifest.parent if pictures is None else Path(pictures)
    paths = [folder / str(record.image) for record in records]
    images = encode_in_blocks("images", paths, encoder.encode_pictures, quiet)
    by_language = {}
    for code in sorted(codes):
        texts = encoder.encode_texts([names[code][row] for row in shown], language=code)
        precisions = average_precision(texts @ images.T, relevant[shown])
        by_language[code] = {
            classes[row]: 100 * float(value) for row, value in zip(shown, precisions, strict=True)
        }
    return WordSearch(
        model=model or encoder.name,
        split=split_name or manifest.stem,
        pictures=len(records),
        languages=by_language,
        **provenance(),
    )


def word_search_table(result: WordSearch) -> Table:
    """Return mAP by language for rich, with the words that are found worst."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        title=f"{result.split}: {result.pictures:,} pictures", box=SIMPLE_HEAD, pad_edge=False
    )
    for name, justify in (("language", "left"), ("mAP", "right"), ("of English's", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("worst")
    shares, means = result.share_of_english, result.mean_average_precision
    for code, mean in sorted(means.items(), key=lambda pair: -pair[1]):
        words = result.languages[code]
        worst = sorted(words, key=lambda word: words[word])[:_NUM_WORST]
        share = f"{100 * shares[code]:.0f} %" if code in shares else ""
        table.add_row(code, f"{mean:.1f}", share, ", ".join(worst))
    return table


def write_word_search(path: str | Path, result: WordSearch) -> None:
    """Write the result as JSON, with its means in a summary for readers."""
    summary = {"mAP": result.mean_average_precision, "share_of_english": result.share_of_english}
    with atomic_write(path) as out:
        json.dump(as_plain(result) | {"summary": summary}, out, ensure_ascii=False, indent=2)
        out.write("\n")


def average_precision(scores: NDArray[np.floating], relevant: NDArray[np.bool_]) -> Floats:
    """Return the average precision of each query; of equal scores, relevant ones come last.

    Args:
        scores: ``[queries, items]``.
        relevant: ``[queries, items]``, at least one in each row.

    Returns:
        ``[queries]``, from 0 to 1.
    """
    order = np.lexsort((relevant, -scores), axis=1)
    hits = np.take_along_axis(relevant, order, axis=1)
    precision = hits.cumsum(1) / np.arange(1, hits.shape[1] + 1)
    values: Floats = (precision * hits).sum(1) / hits.sum(1)
    return values
