"""Multi30K and MSCOCO as SMALR trains on them (section 4), from their published files.

Captions of several datasets are merged by image, validation and test images are chosen, and
machine translations are added "so every image contains at least five sentences" in each
language. The result is one manifest a split, in the cache; ``.machine.jsonl`` beside it marks
what was translated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np

from polyglance.data.machine_captions import MachineCaptions, write_machine_captions
from polyglance.data.readers import ReadOptions, read_dataset
from polyglance.errors import PolyglanceError, Problems
from polyglance.recipes.smalr.config import CaptionSource, PublishedCorpus
from polyglance.recipes.smalr.lexicon_captions import SPLITS
from polyglance.recipes.smalr.translation import CaptionTranslator
from polyglance.records import Record, write_manifest
from polyglance.utils.fingerprint import file_stats, fingerprint
from polyglance.weights.cache import make_once

PIVOT = "en"
_COCO = re.compile(r"(?:COCO_\w+?_)?(\d{12})\.jpg")

_Marked = tuple[Record, MachineCaptions]


def corpus_manifests(
    corpus: PublishedCorpus,
    languages: Sequence[str],
    data: Path,
    *,
    translator: CaptionTranslator | None,
    cache_dir: Path,
) -> dict[str, Path]:
    """Return the manifest of each split, made from published files or found in the cache.

    Args:
        corpus: Which datasets, and how they are split.
        languages: Languages of the recipe.
        data: Folder that the datasets are in.
        translator: Makes the captions that are missing; None for human captions alone.
        cache_dir: Keeps the manifests.
    """
    folders = [data / source.path for source in corpus.sources]
    names = [] if translator is None else translator.names
    name = fingerprint(
        [corpus, list(languages), names, [file_stats(path) for path in folders if path.exists()]]
    )
    folder = cache_dir / f"corpus-{name}"

    def make(partial: Path) -> None:
        records = merge_records([_read(source, data) for source in corpus.sources])
        for split, some in split_records(records, corpus).items():
            own = [_in_languages(record, languages) for record in some]
            marked: list[_Marked] = [(record, {}) for record in own]
            if translator is not None and corpus.min_captions:
                marked = add_translations(
                    own, languages, translator,
                    min_captions=corpus.min_captions, complete=split == "train",
                )  # fmt: skip
            write_manifest(partial / f"{split}.jsonl", (record for record, _ in marked))
            write_machine_captions(partial / f"{split}.jsonl", marked)

    make_once(folder, lambda path: path.is_dir(), make)
    return {split: folder / f"{split}.jsonl" for split in SPLITS}


def merge_records(datasets: Sequence[Sequence[Record]]) -> list[Record]:
    """Return one record an image, with its captions in all datasets; the first names it."""
    merged: dict[str, Record] = {}
    for records in datasets:
        for record in records:
            known = merged.setdefault(image_key(record), replace(record, captions={}))
            captions = {
                code: (*known.captions.get(code, ()), *texts)
                for code, texts in record.captions.items()
            }
            merged[image_key(record)] = replace(known, captions={**known.captions, **captions})
    return list(merged.values())


def image_key(record: Record) -> str:
    """Return what names the same image in all datasets: MSCOCO's number, or the file's name."""
    name = PurePosixPath(record.image or record.key).name
    match = _COCO.fullmatch(name)
    return match[1] if match else name


def split_records(records: Sequence[Record], corpus: PublishedCorpus) -> dict[str, list[Record]]:
    """Return the records of each split.

    With ``held_out`` validation and test images are drawn from those with captions in all of
    ``held_out_languages``, as MULE draws them, and all others are for training.
    """
    if not corpus.held_out:
        names = {"train": corpus.train, "validation": corpus.validation, "test": corpus.test}
        splits = {
            split: [record for record in records if record.split in wanted]
            for split, wanted in names.items()
        }
        for split, some in splits.items():
            if not some:
                present = sorted({str(record.split) for record in records})
                raise PolyglanceError(
                    f"no image is in {' or '.join(names[split])}, the {split} split: the files"
                    f" have {', '.join(present)}; set corpus.{split} to one of them"
                )
        return splits
    needed = set(corpus.held_out_languages)
    complete = [n for n, record in enumerate(records) if needed <= set(record.captions)]
    if len(complete) < 2 * corpus.held_out:
        raise PolyglanceError(
            f"{len(complete):,} images have captions in {', '.join(sorted(needed))}, too few for"
            f" {corpus.held_out:,} in validation and in test each: lower corpus.held_out"
        )
    drawn = np.random.default_rng(corpus.seed).permutation(complete)
    validation = set(drawn[: corpus.held_out].tolist())
    test = set(drawn[corpus.held_out : 2 * corpus.held_out].tolist())
    train = set(range(len(records))) - validation - test
    chosen = zip(SPLITS, (train, validation, test), strict=True)
    return {split: [records[n] for n in sorted(numbers)] for split, numbers in chosen}


def add_translations(
    records: Sequence[Record],
    languages: Sequence[str],
    translator: CaptionTranslator,
    *,
    min_captions: int = 5,
    complete: bool = True,
) -> list[_Marked]:
    """Add machine translations of English captions where an image has too few in a language.

    Args:
        records: Images with captions.
        languages: Languages to complete.
        translator: From English.
        min_captions: How many captions an image shall have in each language, as far as it has
            English ones.
        complete: Add translations beside human captions, as in training; otherwise only where an
            image has none, as at test time.

    Returns:
        The records with more captions, and which of these are translations.
    """
    captions = [dict(record.captions) for record in records]
    machine: list[dict[str, tuple[int, ...]]] = [{} for _ in records]
    for language in languages:
        if language == PIVOT:
            continue
        wanted = [_untranslated(record, language, min_captions, complete) for record in records]
        texts = [
            record.captions[PIVOT][n]
            for record, numbers in zip(records, wanted, strict=True)
            for n in numbers
        ]
        if not texts:
            continue
        translated = iter(translator.translate(texts, PIVOT, language))
        for row, numbers in enumerate(wanted):
            new = [(n, next(translated)) for n in numbers]
            found = [(n, text) for n, text in new if text.strip()]
            if found:
                human = captions[row].get(language, ())
                captions[row][language] = (*human, *(text for _, text in found))
                if not human:  # marks are of languages without human captions
                    machine[row][language] = tuple(n for n, _ in found)
    return [
        (replace(record, captions=own), marks)
        for record, own, marks in zip(records, captions, machine, strict=True)
    ]


def _untranslated(record: Record, language: str, min_captions: int, complete: bool) -> range:
    """Return the English captions to translate for a record."""
    english, own = len(record.captions.get(PIVOT, ())), len(record.captions.get(language, ()))
    if own and not complete:
        return range(0)
    # Translations come from the last English captions: the first is what people translated.
    missing = max(0, min(english, min_captions - own))
    return range(english - missing, english)


def _read(source: CaptionSource, data: Path) -> list[Record]:
    options = ReadOptions(images=source.images)
    records = read_dataset(source.format, data / source.path, options, Problems(strict=True))
    if source.languages is None:
        return list(records)
    return [_in_languages(record, source.languages) for record in records]


def _in_languages(record: Record, languages: Sequence[str]) -> Record:
    captions: Mapping[str, tuple[str, ...]] = {
        code: texts for code, texts in record.captions.items() if code in languages
    }
    return replace(record, captions=captions)
