"""Multi30K, task 2 (Elliott et al., 2016): five independent descriptions a language.

``train.1.en`` ... ``train.5.de`` (perhaps ``.gz``, perhaps ``train.lc.norm.tok.1.en``)
hold one description a line; ``image_splits/train_images.txt`` names the pictures.
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
    """Yield a record a picture, with up to five descriptions in each language."""
    return read_splits(source, _NAME, "files named train.1.en ... train.5.de", options, problems)
