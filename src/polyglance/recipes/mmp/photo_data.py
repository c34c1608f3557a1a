"""Read the corpora of `MMPPhotoRecipe`: images as pixels, captions, and parallel texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyglance.batches.inputs import ImagePixels
from polyglance.batches.order import Streaming
from polyglance.data.captions import CaptionTable
from polyglance.data.readers import read_all_records
from polyglance.errors import PolyglanceError
from polyglance.recipes.image_sources import (
    ImageCollection,
    PixelStreaming,
    open_images,
    pixel_order,
    place_pixels,
)
from polyglance.recipes.mmp.config import ImageCorpus, MMPPhotoRecipe, TextCorpus
from polyglance.recipes.mmp.data import corpus_name
from polyglance.recipes.mmp.enrich import MIXED
from polyglance.recipes.mmp.evaluation import RetrievalSplit
from polyglance.recipes.mmp.label_names import label_name_records
from polyglance.records import Record, read_manifest
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.vision.labels import LABEL_LANGUAGES, label_names, label_table
from polyglance.vision.torch_backbone import TorchBackbone


@dataclass(frozen=True, eq=False)
class PhotoData:
    """Everything that a run on photos trains and evaluates on."""

    tokenizer: Tokenizer
    images: tuple[tuple[ImageCorpus, ImagePixels, CaptionTable], ...]
    texts: tuple[tuple[TextCorpus, CaptionTable], ...]
    class_names: CaptionTable | None
    """A record for each class of the image backbone, where their names are learned."""
    label_names: CaptionTable | None
    """A record for each of COCO's classes, where the names of labels are learned."""
    labels: tuple[NDArray[np.bool_], ...]
    """Which of COCO's classes the images of each corpus show, ``(images, classes)``."""
    held_out: Mapping[str, RetrievalSplit]
    """Images held out of training, by corpus."""
    validation: RetrievalSplit
    test: RetrievalSplit | None

    @property
    def pixel_tables(self) -> list[ImagePixels]:
        """Return the images of all corpora."""
        return [table for _, table, _ in self.images]

    @property
    def sentences(self) -> list[CaptionTable]:
        """Return all captions and texts."""
        captions = [table for _, _, table in self.images]
        return captions + [table for _, table in self.texts]

    @property
    def languages(self) -> list[str]:
        """Return the languages of the captions."""
        return sorted(
            set().union(*(table.present_languages for _, _, table in self.images)) - {MIXED}
        )


def load_photo_data(
    recipe: MMPPhotoRecipe, data: Path, backbone: TorchBackbone, device: str
) -> PhotoData:
    """Read all that a recipe names, so that missing data fails before training starts.

    Args:
        recipe: The settings.
        data: Folder that the recipe's paths are in.
        backbone: Encodes the images.
        device: Where pixels lie.
    """
    if not recipe.image_corpora:
        raise PolyglanceError("the recipe has no image_corpora to train on: name a manifest")
    reader = _Reader(recipe, data, backbone, device)
    images, held_out, labels = [], {}, []
    for corpus in recipe.image_corpora:
        split, others = reader.training_split(corpus)
        images.append((corpus, split.visuals, split.captions))
        if recipe.label_names is not None:
            labels.append(label_table([record.labels for record in split.records]))
        if others is not None:
            held_out[corpus_name(corpus.manifest)] = others
    texts = [
        (text, reader.captions(read_all_records(text.format, data / text.manifest), text.languages))
        for text in recipe.text_corpora
    ]
    return PhotoData(
        reader.tokenizer,
        tuple(images),
        tuple(texts),
        reader.class_names(),
        reader.label_names(),
        tuple(labels),
        held_out,
        reader.split(recipe.validation),
        None if recipe.test is None else reader.split(recipe.test),
    )


@dataclass(frozen=True, eq=False)
class _ImageSplit(RetrievalSplit):
    visuals: ImagePixels
    records: Sequence[Record]


class _Reader:
    """Reads images onto the device and captions as sub-words."""

    def __init__(
        self, recipe: MMPPhotoRecipe, data: Path, backbone: TorchBackbone, device: str
    ) -> None:
        self.recipe, self.data, self.backbone, self.device = recipe, data, backbone, device
        self.tokenizer = open_tokenizer(recipe.encoder)

    def split(self, manifest: str) -> RetrievalSplit:
        """Return all images and captions of a manifest."""
        records = _captioned_images(self.data / manifest)
        return self._split(self._in_files(records, manifest), manifest)

    def training_split(self, corpus: ImageCorpus) -> tuple[_ImageSplit, RetrievalSplit | None]:
        """Return the images to train on with all captions, and those held out."""
        labelled = self.recipe.label_names is not None
        records = _captioned_images(self.data / corpus.manifest, labelled=labelled)
        if not 0 <= corpus.held_out < len(records):
            raise PolyglanceError(
                f"{corpus.manifest} has {len(records)} images with captions, too few to train on"
                f" when {corpus.held_out} are held out: lower held_out or add images"
            )
        train = records[: len(records) - corpus.held_out]
        others = records[len(train) :]
        held_out = None
        if others:
            images = open_images(
                others, self.data, corpus.manifest, corpus.tars, self.recipe.streaming
            )
            held_out = self._split(images, corpus.manifest)
        if corpus.extra_captions is not None:
            extra = self.data / corpus.extra_captions
            if not extra.is_file():
                raise PolyglanceError(
                    f"{extra}: no such manifest; 'polyglance data enrich' makes it from"
                    f" {corpus.manifest}, or set its extra_captions to null"
                )
            train = with_extra_captions(train, read_manifest(extra))
        images = open_images(train, self.data, corpus.manifest, corpus.tars, self.recipe.streaming)
        split = self._split(images, corpus.manifest, corpus.languages, self.recipe.streaming)
        if missing := set(corpus.languages or ()) - split.captions.present_languages:
            raise PolyglanceError(
                f"{corpus.manifest} has no captions in {', '.join(sorted(missing))}:"
                " choose languages that it has"
            )
        return split, held_out

    def class_names(self) -> CaptionTable | None:
        """Return the names of the image backbone's classes, where they are learned."""
        if (config := self.recipe.class_names) is None:
            return None
        classes = self.backbone.num_classes
        if classes != len(label_names()):
            raise PolyglanceError(
                f"there are names for {len(label_names())} classes and the image backbone has"
                f" {classes}: set class_names to null"
            )
        words = [] if config.words is None else read_all_records("jsonl", self.data / config.words)
        return self.captions(class_records(words), None)

    def label_names(self) -> CaptionTable | None:
        """Return the names of COCO's classes, where they are learned."""
        if (config := self.recipe.label_names) is None:
            return None
        return self.captions(label_name_records(config.languages), None)

    def captions(
        self, records: Sequence[Record], languages: tuple[str, ...] | None
    ) -> CaptionTable:
        """Return the captions of records in some or all languages."""
        return CaptionTable.build(
            records, self.tokenizer, languages=languages, max_tokens=self.recipe.max_text_tokens
        )

    def _in_files(self, records: Sequence[Record], manifest: str) -> ImageCollection:
        return open_images(records, self.data, manifest, None, PixelStreaming())

    def _split(
        self,
        images: ImageCollection,
        manifest: str,
        languages: tuple[str, ...] | None = None,
        streaming: PixelStreaming | None = None,
    ) -> _ImageSplit:
        captions = self.captions(images.records, languages)
        pixels = place_pixels(
            images.sources,
            self.recipe.image_size,
            self.backbone,
            min_crop_area=self.recipe.min_crop_area,
            device=self.device,
            config=streaming,
            name=manifest,
        )
        return _ImageSplit(pixels, captions, images.records)


def image_order(
    recipe: MMPPhotoRecipe, corpus: ImageCorpus, images: ImagePixels
) -> Streaming | None:
    """Return how training goes through a corpus on disk; None for one in memory."""
    return pixel_order(
        images,
        recipe.image_size,
        recipe.streaming,
        per_batch=corpus.batch,
        seed=recipe.loop.seed,
    )


def _captioned_images(manifest: Path, *, labelled: bool = False) -> list[Record]:
    """Read images with captions, or also those with labels alone."""
    records = [
        record
        for record in read_manifest(manifest)
        if record.image and (record.captions or (labelled and record.labels))
    ]
    if not records:
        raise PolyglanceError(f"{manifest} has no images with captions")
    return records


def with_extra_captions(records: Sequence[Record], extra: Iterable[Record]) -> list[Record]:
    """Return the records, each with the captions that ``extra`` has for the same image."""
    captions_of = {record.image: record.captions for record in extra}
    return [
        replace(record, captions={**record.captions, **captions_of[record.image]})
        if record.image in captions_of
        else record
        for record in records
    ]


def class_records(words: Iterable[Record]) -> list[Record]:
    """Return a record for each ImageNet class with its names by language.

    ``words`` are records of words with translations, which add names in more languages.
    """
    translations: dict[str, dict[str, tuple[str, ...]]] = {}
    for record in words:
        for word in record.captions.get("en", ()):
            translations.setdefault(word.lower(), {}).update(record.captions)
    records = []
    for number in range(len(label_names())):
        names = {code: label_names(code)[number][:2] for code in LABEL_LANGUAGES}
        for name in reversed(names["en"]):  # the commonest name overrides the others
            found = translations.get(name.lower(), {})
            names = {**{code: texts[:1] for code, texts in found.items()}, **names}
        records.append(Record(captions=names))
    return records
