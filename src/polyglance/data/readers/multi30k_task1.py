"""Multi30K, task 1 (Elliott et al., 2016): a sentence for each picture and its translations.

``train.en``, ``train.de`` ... (perhaps ``.gz``, perhaps ``train.lc.norm.tok.en``)
hold one sentence a line; ``image_splits/train.txt`` names the pictures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from polyglance.data.readers.base import ReadOptions
from polyglance.data.readers.multi30k import LANGUAGE, read_splits
from polyglance.errors import Problems
from polyglance.records import Record

_NAME = re.compile(rf"(?P<split>[^.]+)(\.lc\.norm\.tok)?\.{LANGUAGE}")


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield a record a picture, with one sentence in each language."""
    return read_splits(source, _NAME, "files named train.en, train.de ...", options, problems)
