"""Read captioned pictures in any of the layouts that people have them in."""

from __future__ import annotations

from pathlib import Path

from polyglance.data.readers import read_all_records
from polyglance.data.readers.imagefolder import METADATA
from polyglance.records import Record, read_manifest


def read_captioned_pictures(source: Path) -> tuple[list[Record], Path]:
    """Read a manifest, an imagefolder, or a folder of pictures with text files.

    Args:
        source: A manifest, the ``metadata.jsonl`` of an imagefolder of Hugging Face's
            ``datasets``, or the folder of pictures.

    Returns:
        The records, and the folder that their pictures are relative to.
    """
    if source.is_dir():
        has_table = any(next(source.glob(f"**/{name}"), None) for name in METADATA)
        return read_all_records("imagefolder" if has_table else "captioned-folder", source), source
    if source.name in METADATA:
        return read_all_records("imagefolder", source), source.parent
    return list(read_manifest(source)), source.parent
