"""Multi30K, task 1 (Elliott et al., 2016): one caption per image and its translations.

Layout: ``train.en``, ``train.de`` ... (or ``.gz``, or ``train.lc.norm.tok.en``) with one caption
per line; ``image_splits/train.txt`` names the images.
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
    """Yield one record per image, with one caption in each language."""
    return read_splits(source, _NAME, "files named train.en, train.de ...", options, problems)
