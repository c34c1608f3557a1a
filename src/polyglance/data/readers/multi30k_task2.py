"""Multi30K, task 2 (Elliott et al., 2016): five independent captions per language.

Layout: ``train.1.en`` ... ``train.5.de`` (or ``.gz``, or ``train.lc.norm.tok.1.en``) with one
caption per line; ``image_splits/train_images.txt`` names the images.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from polyglance.data.readers.base import ReadOptions
from polyglance.data.readers.multi30k import LANGUAGE, read_splits
from polyglance.errors import Problems
from polyglance.records import Record

_NAME = re.compile(rf"(?P<split>[^.]+)(\.lc\.norm\.tok)?\.\d\.{LANGUAGE}")


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield one record per image, with up to five captions in each language."""
    return read_splits(source, _NAME, "files named train.1.en ... train.5.de", options, problems)
