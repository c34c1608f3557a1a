"""Aligned captions of a corpus larger than memory, as memory-mapped arrays.

The corpus is aligned part by part, since the word aligner holds all words of the sentences that it
aligns, and the links of each part are written behind those of the parts before. Training maps
them (`polyglance.data.array_files`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from polyglance.data.array_files import ArrayWriter, map_arrays, read_info
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.recipes.cross_encoder.captions import Streaming
from polyglance.recipes.uc2.aligned_captions import (
    AlignedCaptions,
    AlignedPair,
    FlatLinks,
    subword_links,
)
from polyglance.records import Record
from polyglance.text.tokenizer import Tokenizer

_INFO = "links.json"
_ARRAYS: dict[str, np.dtype[Any]] = {
    "first": np.dtype("<i4"),
    "second": np.dtype("<i4"),
    "sizes": np.dtype("<i2"),
    "positions": np.dtype("<i2"),
}

Align = Callable[[Sequence[Record], str], Sequence[AlignedPair]]
"""Aligns the English captions of some records with those in another language."""


def write_alignments(
    folder: Path,
    key: str,
    records: Sequence[Record],
    table: CaptionTable,
    tokenizer: Tokenizer,
    languages: Sequence[tuple[str, str]],
    align: Align,
    *,
    part_images: int,
) -> None:
    """Align a corpus part by part and write its links.

    Args:
        folder: Where.
        key: What they are built from.
        records: Captioned images; read once for each pair of languages.
        table: Their captions.
        tokenizer: Of the table.
        languages: Pairs of languages to align.
        align: The word aligner.
        part_images: Images of a part; the last has half to one and a half times as many.
    """
    with ArrayWriter(folder, _ARRAYS, _INFO) as writer:
        pairs = links = 0
        for codes in languages:
            for start, part in parts(records, part_images):
                aligned = [] if _lacks(part, codes) else align(part, codes[1])
                first, second, sizes, positions = subword_links(
                    part, start, table, tokenizer, codes, aligned
                )
                writer.append("first", first)
                writer.append("second", second)
                writer.append("sizes", sizes)
                writer.append("positions", positions.ravel())
                pairs, links = pairs + len(first), links + len(positions)
        writer.info = {"key": key, "pairs": pairs, "links": links}
        if not pairs:
            raise PolyglanceError(
                "no captions translate each other: set pretraining.mixture.vtlm to 0"
            )


def open_alignments(
    folder: Path, key: str, table: CaptionTable, *, streaming: Streaming | None = None
) -> AlignedCaptions | None:
    """Map aligned captions that were written before; None if there are none with this key.

    Args:
        folder: Where.
        key: What they must be built from.
        table: The captions that they are of.
        streaming: Go through the pairs in shuffled order.
    """
    info: Mapping[str, Any] | None = read_info(folder, _INFO, key)
    if info is None:
        return None
    lengths = dict.fromkeys(_ARRAYS, info["pairs"]) | {"positions": 2 * info["links"]}
    arrays = map_arrays(folder, _ARRAYS, lengths)
    links = FlatLinks(arrays["sizes"], arrays["positions"].reshape(-1, 2))
    return AlignedCaptions(table, arrays["first"], arrays["second"], links, streaming=streaming)


def parts(records: Sequence[Record], size: int) -> Iterator[tuple[int, list[Record]]]:
    """Yield consecutive records in parts of at least half and at most one and a half the size.

    The last part would otherwise have few sentences to learn from.
    """
    start, remaining = 0, iter(records)
    while start < len(records):
        left = len(records) - start
        count = left if left <= 1.5 * size else size
        part = list(islice(remaining, count))
        yield start, part
        start += count


def _lacks(records: Sequence[Record], languages: tuple[str, str]) -> bool:
    """Return whether no record has captions in both languages."""
    return not any(all(code in record.captions for code in languages) for record in records)
