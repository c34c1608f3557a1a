"""Read captioned pictures in any of the layouts that people have them in.

| layout | found by |
|---|---|
| manifest | a ``.jsonl`` file, or a folder with one |
| imagefolder of Hugging Face's ``datasets`` | ``metadata.jsonl``, ``.csv`` or ``.parquet`` |
| pictures with text files beside them | ``dog.jpg`` with ``dog.txt``, ``dog.de.txt`` |
"""

from __future__ import annotations

from pathlib import Path

from polyglance.data.readers import ReadOptions, read_dataset
from polyglance.data.readers.imagefolder import METADATA
from polyglance.errors import DataError, Problems, printable
from polyglance.records import Record

MANIFEST = "jsonl"
"""The format of a manifest."""
_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.xz")
_MACHINE_MARKS = ".machine.jsonl"


def find_captions(source: Path) -> tuple[str, Path]:
    """Return the format of captioned pictures, and the file or folder to read.

    Args:
        source: A manifest, the table of an imagefolder, or a folder with either or with text files
            beside its pictures.
    """
    if source.is_file():
        if source.name in METADATA:
            return "imagefolder", source
        if not source.name.endswith(_SUFFIXES):
            raise DataError(
                f"{printable(str(source))} is no manifest: give a .jsonl file, or a folder of"
                " captioned pictures"
            )
        return MANIFEST, source
    if not source.is_dir():
        raise DataError(
            f"{printable(str(source))}: no such file or folder; give a manifest, or a folder of"
            " captioned pictures"
        )
    if any(next(source.glob(f"**/{name}"), None) for name in METADATA):
        return "imagefolder", source
    manifests = sorted(
        file
        for file in source.iterdir()
        if file.name.endswith(_SUFFIXES) and not file.name.endswith(_MACHINE_MARKS)
    )
    if len(manifests) > 1:
        names = ", ".join(file.name for file in manifests[:6])
        raise DataError(f"{printable(str(source))} has several manifests ({names}): name one")
    return (MANIFEST, manifests[0]) if manifests else ("captioned-folder", source)


def read_captioned_pictures(source: Path, language: str | None = None) -> tuple[list[Record], Path]:
    """Read a manifest, an imagefolder, or a folder of pictures with text files.

    Args:
        source: What `find_captions` takes.
        language: Of captions whose files do not say it; None for English.

    Returns:
        The records, and the folder that their pictures are relative to.
    """
    format, place = find_captions(source)
    options = ReadOptions(language=language)
    try:
        records = list(read_dataset(format, place, options, Problems(strict=True)))
    except DataError as error:
        if format != "captioned-folder" or "expected pictures" not in str(error):
            raise
        raise DataError(
            f"{printable(str(source))} has no captions: put them in a manifest (.jsonl), in"
            " metadata.jsonl, or in a text file beside each picture (dog.jpg, dog.txt);"
            " 'polyglance data import' converts other formats"
        ) from None
    return records, place if place.is_dir() else place.parent
