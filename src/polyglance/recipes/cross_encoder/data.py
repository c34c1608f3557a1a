"""Splits of captioned images, with regions from a feature store or from an image backbone."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from polyglance.batches.regions import RegionSource
from polyglance.batches.streamed_pixels import PixelRegions
from polyglance.batches.streamed_regions import StreamedRegions
from polyglance.cross_encoders.regions import (
    ImageBackboneConfig,
    encode_regions_tta,
    open_image_backbone,
)
from polyglance.data.captions import CaptionTable
from polyglance.data.lazy_records import LazyRecords
from polyglance.errors import PolyglanceError
from polyglance.objectives.masked_language import TokenMasking
from polyglance.recipes.cross_encoder.captions import Streaming
from polyglance.recipes.cross_encoder.config import CaptionedImages, CrossEncoderRecipe
from polyglance.recipes.cross_encoder.corpora import read_corpus
from polyglance.recipes.cross_encoder.merged_manifest import (
    corpus_bytes,
    merged_path,
    write_merged,
)
from polyglance.recipes.cross_encoder.streaming import (
    LARGE_MANIFEST,
    StoreKeys,
    StreamingConfig,
    cached_captions,
    load_regions,
    open_reader,
    place_pixel_regions,
    place_regions,
    streaming_of,
)
from polyglance.recipes.image_sources import ImageFiles, JoinedImages, open_images
from polyglance.records import Record
from polyglance.text import Tokenizer
from polyglance.training.distributed import barrier, rank
from polyglance.utils.fingerprint import file_stats, fingerprint
from polyglance.vision.decoding import Source
from polyglance.vision.torch_backbone import TorchBackbone

ENGLISH = "en"


@dataclass(frozen=True, eq=False)
class Split:
    """Images with their regions and captions."""

    records: Sequence[Record]
    regions: RegionSource
    captions: CaptionTable
    files: Sequence[Source]
    """The image files, or images in tars; they need not exist where features are stored."""
    streaming_config: StreamingConfig | None = None
    """How a corpus larger than memory is read; None for evaluation splits."""
    captions_key: str | None = None
    """What memory-mapped captions were built from; None for captions in memory."""

    def streaming(self, per_batch: int, *, seed: int = 0) -> Streaming | None:
        """Return how batches of so many captions go through the corpus; None to sample."""
        if self.streaming_config is None:
            return None
        orders = len(self.captions.language_codes)
        return streaming_of(
            self.regions, self.streaming_config, per_batch=per_batch, seed=seed, orders=orders
        )


@dataclass(frozen=True)
class SplitReader:
    """Reads the splits that a recipe names."""

    data: Path
    tokenizer: Tokenizer
    max_text_tokens: int
    max_regions: int
    prepend_global: bool
    image_backbone: ImageBackboneConfig | None = None
    seed: int = 0
    device: str = "cpu"
    streaming: StreamingConfig = field(default_factory=StreamingConfig)
    encoder: str = ""
    """The tokenizer's name, by which cached captions are recognised."""

    @classmethod
    def from_recipe(
        cls, recipe: CrossEncoderRecipe, data: Path, tokenizer: Tokenizer, device: str
    ) -> SplitReader:
        """Build the reader of a recipe's splits inside the data folder."""
        return cls(
            data,
            tokenizer,
            max_text_tokens=recipe.max_text_tokens,
            max_regions=recipe.max_regions,
            prepend_global=recipe.prepend_global,
            image_backbone=recipe.image_backbone,
            seed=recipe.loop.seed,
            device=device,
            streaming=recipe.streaming,
            encoder=recipe.encoder,
        )

    def read_train(self, *corpora: CaptionedImages) -> Split:
        """Read training images of several corpora, with augmented views if pixels are read."""
        views = 1 if self.image_backbone is None else self.image_backbone.views
        return self._read(corpora, None, views)

    def read_eval(self, corpus: CaptionedImages | None, limit: int | None = None) -> Split | None:
        """Read the first ``limit`` images of an evaluation split, with test-time augmentation."""
        return None if corpus is None else self._read([corpus], limit, None)

    def read_eval_sets(
        self, corpora: Iterable[CaptionedImages | None], limit: int | None = None
    ) -> tuple[Split, ...]:
        """Read the first ``limit`` images of evaluation sets, one split a fold of each set."""
        return tuple(
            self._build([(corpus, fold)], None)
            for corpus in corpora
            if corpus is not None
            for fold in split_into_folds(self.read_records(corpus, limit), corpus.fold_images)
        )

    def read_validation(self, recipe: CrossEncoderRecipe) -> tuple[Split, ...]:
        """Read the recipe's validation sets, the main one first."""
        corpora = (recipe.validation, *recipe.extra_validation)
        return self.read_eval_sets(corpora, recipe.validation_images)

    def read_test(self, recipe: CrossEncoderRecipe) -> tuple[Split, ...]:
        """Read the recipe's test sets, the main one first, one split a fold."""
        return self.read_eval_sets((recipe.test, *recipe.extra_test), recipe.test_images)

    def read_records(self, corpus: CaptionedImages, limit: int | None = None) -> Sequence[Record]:
        """Read the images of a corpus; those without stored regions are skipped if it says so."""
        if limit is None and self._is_large(corpus):
            return self._lazy_records(corpus)
        records = read_corpus(corpus, self.data, None if corpus.skip_missing else limit)
        if corpus.skip_missing and self.image_backbone is None:
            records = _with_regions(records, self._store_keys(corpus))
        return records[:limit]

    def _is_large(self, corpus: CaptionedImages) -> bool:
        """Return whether records stay on disk: those of long manifests, of which all is taken."""
        return corpus_bytes(corpus, self.data) > LARGE_MANIFEST

    def _lazy_records(self, corpus: CaptionedImages) -> LazyRecords:
        path = self.data / corpus.manifest
        plain = corpus.format == "jsonl" and not corpus.merge and path.suffix != ".gz"
        if not plain or corpus.splits is not None or corpus.languages is not None:
            path = merged_path(corpus, self.data, self.streaming.cache_dir)
            if rank() == 0 and not path.is_file():
                write_merged(corpus, self.data, path)
            barrier()
        stored = corpus.skip_missing and self.image_backbone is None
        store = self._store_keys(corpus) if stored else None
        return LazyRecords(
            path,
            lambda record: (
                bool(record.image or record.video)
                and (store is None or store.find(record) is not None)
            ),
        )

    def _store_keys(self, corpus: CaptionedImages) -> StoreKeys:
        return StoreKeys(open_reader(self.data, corpus.features, self.streaming))

    @cached_property
    def backbone(self) -> TorchBackbone:
        """The image backbone, opened once for all splits."""
        assert self.image_backbone is not None
        return open_image_backbone(self.image_backbone, self.device)

    def _read(
        self, corpora: Sequence[CaptionedImages], limit: int | None, views: int | None
    ) -> Split:
        parts = [(corpus, self.read_records(corpus, limit)) for corpus in corpora]
        return self._build(parts, views)

    def _build(
        self, parts: Sequence[tuple[CaptionedImages, Sequence[Record]]], views: int | None
    ) -> Split:
        files: Sequence[Source]
        regions: RegionSource
        if self.image_backbone is None:
            regions = self._stored_regions(parts, train=views is not None)
            files = ImageFiles([((self.data / c.manifest).parent, some) for c, some in parts])
        else:
            pixels = self.streaming.pixels
            found = [open_images(some, self.data, c.manifest, c.tars, pixels) for c, some in parts]
            parts = [(c, images.records) for (c, _), images in zip(parts, found, strict=True)]
            files = JoinedImages([images.sources for images in found])
            regions = self.encoded_regions(files, train=views is not None)
        records: Sequence[Record] = parts[0][1]
        if len(parts) > 1:
            records = [record for _, some in parts for record in some]
        on_disk = isinstance(regions, StreamedRegions | PixelRegions)
        key = self._captions_key(parts, records) if on_disk else None
        captions = (
            CaptionTable.build(records, self.tokenizer, max_tokens=self.max_text_tokens)
            if key is None
            else self._mapped_captions(records, key)
        )
        config = self.streaming if views is not None else None
        return Split(records, regions, captions, files, config, key)

    def _captions_key(
        self, parts: Sequence[tuple[CaptionedImages, Sequence[Record]]], records: Sequence[Record]
    ) -> str:
        """Return a digest of all that tokenised captions depend on."""
        corpora = [corpus for corpus, _ in parts]
        names = [n for c in corpora for n in (c.manifest, *(file.manifest for file in c.merge))]
        return fingerprint(
            [file_stats(self.data / name) for name in names],
            corpora,
            [self.encoder, self.tokenizer.vocab_size, self.max_text_tokens, len(records)],
        )

    def _mapped_captions(self, records: Sequence[Record], key: str) -> CaptionTable:
        """Tokenise captions once into memory-mapped files of the cache folder."""
        return cached_captions(
            records,
            self.tokenizer,
            self.data / self.streaming.cache_dir / f"captions-{key}",
            key,
            max_tokens=self.max_text_tokens,
        )

    def encoded_regions(self, images: Sequence[Source], *, train: bool) -> RegionSource:
        """Encode images with the recipe's backbone: into memory, or while training."""
        assert self.image_backbone is not None
        if not train:
            return encode_regions_tta(images, self.backbone, self.image_backbone)
        return place_pixel_regions(
            images, self.backbone, self.image_backbone, self.streaming, seed=self.seed
        )

    def _stored_regions(
        self, parts: Sequence[tuple[CaptionedImages, Sequence[Record]]], *, train: bool
    ) -> RegionSource:
        """Read the regions of images from feature stores: into memory, or while training."""
        regions = self._open_regions([(corpus.features, some) for corpus, some in parts])
        return place_regions(regions, self.streaming) if train else load_regions(regions)

    def stored_regions(self, parts: Sequence[tuple[str, Sequence[Record]]]) -> RegionSource:
        """Find the regions of records' images in feature stores; large ones stay on disk."""
        return place_regions(self._open_regions(parts), self.streaming)

    def _open_regions(self, parts: Sequence[tuple[str, Sequence[Record]]]) -> StreamedRegions:
        stores = []
        for features, records in parts:
            reader = open_reader(self.data, features, self.streaming)
            known = StoreKeys(reader)
            items = known.items(store_keys(known, records))
            lengths = reader.lengths[items] + self.prepend_global
            if (truncated := int((lengths > self.max_regions).sum())) and rank() == 0:
                print(
                    f"{features}: {truncated:,} of {len(items):,} images have more than"
                    f" {self.max_regions} regions, of which the first are used; raise max_regions"
                    " to use more",
                    file=sys.stderr,
                )
            stores.append((reader, items))
        return StreamedRegions(
            stores,
            max_regions=self.max_regions,
            prepend_global=self.prepend_global,
            device=self.device,
        )


def split_into_folds(records: Sequence[Record], images: int | None) -> list[Sequence[Record]]:
    """Return folds of so many images in their order; the last one has what is left.

    MSCOCO's 1K protocol has five folds of 1,000; a rest of fewer than two images joins the fold
    before.
    """
    if images is None or len(records) <= images:
        return [records]
    starts = [start for start in range(0, len(records), images) if len(records) - start > 1]
    return [records[a:b] for a, b in pairwise([*starts, len(records)])]


class KeyedStore(Protocol):
    """A store that finds records by its keys."""

    @property
    def path(self) -> str | Path:
        """Its name, for messages."""
        ...

    @property
    def keys(self) -> Iterable[str]:
        """All keys."""
        ...

    def find(self, record: Record) -> str | None:
        """Return a record's key, or None."""
        ...


def _with_regions(records: Sequence[Record], store: KeyedStore) -> list[Record]:
    """Return the records whose images a store holds, and say how many it lacks."""
    kept = [record for record in records if store.find(record) is not None]
    if not kept:
        store_keys(store, records[:1])  # says what the keys are
    if len(kept) < len(records) and rank() == 0:
        print(
            f"{store.path}: {len(records) - len(kept):,} of {len(records):,} images have no"
            " regions and are left out",
            file=sys.stderr,
        )
    return kept


def store_keys(store: KeyedStore, records: Sequence[Record]) -> list[str]:
    """Return the keys of the records' images in a store, which must hold all of them."""
    keys = [store.find(record) for record in records]
    if missing := [record.key for record, key in zip(records, keys, strict=True) if key is None]:
        raise PolyglanceError(
            f"{store.path} has no regions for {len(missing):,} images, such as {missing[0]!r}"
            f" (it has {next(iter(store.keys), 'none')!r}): run 'polyglance features extract' on"
            " the folder of their manifest, or import their regions with 'polyglance features"
            " regions'"
        )
    return [key for key in keys if key is not None]


def bert_masking(tokenizer: Tokenizer, name: str) -> TokenMasking:
    """Return BERT's masking rates with a tokenizer's mask and vocabulary."""
    mask, size = tokenizer.mask_id, tokenizer.vocab_size
    if mask is None:
        raise PolyglanceError(f"the tokenizer of {name} has no mask: choose another encoder")
    special = (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id, tokenizer.unk_id)
    first = 1 + max((number for number in special if number is not None), default=-1)
    return TokenMasking(mask, (first, mask if mask > first else size))
