"""Read captioned images from datasets as they are published, merged by image."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePosixPath

from polyglance.data.readers import ReadOptions, read_dataset
from polyglance.data.readers.base import normalise_split
from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.recipes.cross_encoder.config import CaptionedImages, CaptionFile
from polyglance.records import Captions, Record, read_manifest
from polyglance.training.distributed import rank


def read_corpus(corpus: CaptionedImages, data: Path, limit: int | None = None) -> list[Record]:
    """Read the images of a corpus with all their captions.

    Args:
        corpus: names the files.
        data: the data folder.
        limit: read the first so many images.

    Returns:
        Records with an image or clip; those without captions are candidates too.
    """
    images = (record for record in read_file(corpus, data) if record.image or record.video)
    records = list(islice(images, limit))
    if not records:
        raise DataError(
            f"{data / corpus.manifest}: there is no image{in_splits(corpus)}: name other splits"
            " or another file"
        )
    for file in corpus.merge:
        # The first few images may have no caption in a file that captions others.
        records = merge_captions(records, read_file(file, data), file, required=limit is None)
    return records


def merge_captions(
    records: list[Record], others: Iterable[Record], file: CaptionFile, *, required: bool = True
) -> list[Record]:
    """Add captions of the same images.

    Args:
        records: the images.
        others: records of the same images, and perhaps of others, which are left out.
        file: where those come from.
        required: whether captions of none of the images are an error.

    Returns:
        The images in the same order; a language that both have gets the captions of both.
    """
    images = {image_key(record) for record in records}
    added: dict[str, dict[str, tuple[str, ...]]] = {}
    for other in others:
        if (key := image_key(other)) in images:
            captions = added.setdefault(key, {})
            for language, texts in other.captions.items():
                captions[language] = captions.get(language, ()) + texts
    if not added and required:
        raise PolyglanceError(
            f"{file.manifest} captions none of the {len(records):,} images, such as"
            f" {image_key(records[0])!r}: merge a file that names images in the same way"
        )
    return [with_captions(record, added.get(image_key(record), {})) for record in records]


def image_key(record: Record) -> str:
    """Return what identifies an image in several files: its id, else its file name."""
    return record.id or PurePosixPath(record.image or record.video or "").name


def with_captions(record: Record, added: Captions) -> Record:
    """Return a record with further captions after its own."""
    if not added:
        return record
    captions = dict(record.captions)
    for language, texts in added.items():
        captions[language] = captions.get(language, ()) + texts
    return replace(record, captions=captions)


def read_file(file: CaptionFile | CaptionedImages, data: Path) -> Iterator[Record]:
    """Yield the records of the chosen splits with captions in the chosen languages."""
    path = data / file.manifest
    problems = Problems()
    if file.format == "jsonl":
        records: Iterable[Record] = read_manifest(path)  # ours: a malformed line is an error
    else:
        options = ReadOptions(images=file.images, language=file.language)
        records = read_dataset(file.format, path, options, problems)
    splits = None if file.splits is None else {normalise_split(name) for name in file.splits}
    for record in records:
        if splits is not None and record.split not in splits:
            continue
        if file.languages is not None:
            kept = {
                code: record.captions[code] for code in file.languages if code in record.captions
            }
            record = replace(record, captions=kept)
        yield record
    if problems and rank() == 0:
        print(
            f"{path}: {len(problems):,} malformed entries left out, the first {problems.items[0]}",
            file=sys.stderr,
        )


def in_splits(corpus: CaptionedImages) -> str:
    """Name the chosen splits, for messages."""
    return "" if corpus.splits is None else f" in split {', '.join(corpus.splits)}"
