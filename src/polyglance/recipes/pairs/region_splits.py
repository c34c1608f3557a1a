"""Pictures as regions, with captions: the parts of the data that M3P and UC2 read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from polyglance.config import check
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.objectives.masked_language import WordMasking
from polyglance.records import Record, read_manifest
from polyglance.text import Tokenizer
from polyglance.training.distribution import rank
from polyglance.training.region_table import RegionTable
from polyglance.training.region_views import region_views
from polyglance.training.visuals import PixelTable, read_pixels
from polyglance.vision.backbone import open_backbone
from polyglance.vision.store import FeatureStore
from polyglance.vision.torch_backbone import TorchBackbone

if TYPE_CHECKING:
    from PIL.Image import Image

ENGLISH = "en"


@dataclass(frozen=True)
class Described:
    """Pictures with captions, and a feature store of their regions, inside the data folder."""

    manifest: str
    features: str = ""
    """Not read where a recipe has eyes of its own."""


@dataclass(frozen=True)
class Eyes:
    """A network that looks at the pictures themselves, in place of stored features."""

    backbone: str = "efficientnet-lite2"
    """By name, or a folder such as `polyglance weights unpack` writes."""
    size: int = 224
    grid: int | None = None
    """Cells a side; None for as many as the network's map has."""
    views: int = 8
    """Looks at each picture to train on: one plain, the others cropped and mirrored."""
    smallest_crop: float = 0.5
    """The least share of a picture's area that is kept."""
    looks: tuple[int, ...] = ()
    """Further sizes in which pictures to measure on are seen, each plain and mirrored: what is
    made of them is averaged where candidates are read again, and where questions are answered."""

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "size", "grid", "views")
        check(self, lambda value: 0 < value <= 1, "a share from 0 to 1", "smallest_crop")
        if self.looks and self.grid is None:
            raise PolyglanceError("looks of several sizes need a grid, the same for all")


@dataclass(frozen=True)
class Sentences:
    """Text without pictures."""

    manifest: str
    format: str = "jsonl"
    """One of `polyglance.data.readers.FORMATS`."""


@dataclass(frozen=True, eq=False)
class Split:
    """Pictures and captions of one part of the data."""

    records: Sequence[Record]
    regions: RegionTable
    captions: CaptionTable
    files: Sequence[Path]
    """Where the pictures are; those of stored features need not be there."""


@dataclass(frozen=True)
class SplitReader:
    """How parts of the data become splits."""

    data: Path
    tokenizer: Tokenizer
    longest_text: int
    longest_regions: int
    whole_first: bool
    eyes: Eyes | None = None
    seed: int = 0
    device: str = "cpu"

    def training(self, *parts: Described) -> Split:
        """Pictures to train on, of several corpora, in as many views as there are."""
        return self._split(parts, None, 1 if self.eyes is None else self.eyes.views)

    def measured(self, part: Described | None, most: int | None = None) -> Split | None:
        """Pictures to measure on, all or the first of them, seen plainly or in several looks."""
        return None if part is None else self._split([part], most, None)

    def _split(self, parts: Sequence[Described], most: int | None, views: int | None) -> Split:
        found = [(part, pictures_of(self.data / part.manifest, most)) for part in parts]
        looks = self._looks(views)
        records = [record for _, some in found for record in some]
        regions = RegionTable.joined([looks(part, some) for part, some in found])
        captions = CaptionTable.build(records, self.tokenizer, longest=self.longest_text)
        files = [self._file(part, record) for part, some in found for record in some]
        return Split(records, regions, captions, files)

    def _file(self, part: Described, record: Record) -> Path:
        return (self.data / part.manifest).parent / str(record.image or record.video)

    def _looks(self, views: int | None) -> Callable[[Described, Sequence[Record]], RegionTable]:
        """From stores, or through eyes of one's own."""
        if self.eyes is None:
            return self._stored
        settings = self.eyes

        def seen(described: Described, records: Sequence[Record]) -> RegionTable:
            files = [self._file(described, record) for record in records]
            if views is None:
                return look_again(files, self.opened_eyes, settings)
            return look_at(files, self.opened_eyes, settings, views=views, seed=self.seed)

        return seen

    @cached_property
    def opened_eyes(self) -> TorchBackbone:
        """Opened once for all parts."""
        assert self.eyes is not None
        return open_eyes(self.eyes, self.device)

    def _stored(self, described: Described, records: Sequence[Record]) -> RegionTable:
        store = FeatureStore(self.data / described.features)
        keys, most = store_keys(store, records), self.longest_regions
        cut = int((store.lengths(keys) + self.whole_first > most).sum())
        if cut and rank() == 0:
            print(
                f"{described.features}: {cut:,} of {len(keys):,} pictures have more than {most}"
                " regions, of which the first are seen; longest_regions in the recipe is how many",
                file=sys.stderr,
            )
        return RegionTable.of_store(
            store, keys, longest=most, whole_first=self.whole_first, device=self.device
        )


def open_eyes(settings: Eyes, device: str = "cpu") -> TorchBackbone:
    """The network that eyes are."""
    eyes = open_backbone(settings.backbone, size=settings.size, device=device)
    if not isinstance(eyes, TorchBackbone):
        raise PolyglanceError(f"{settings.backbone} cannot look while training: choose another")
    return eyes


def look_at(
    pictures: Sequence[str | Path | Image],
    eyes: TorchBackbone,
    settings: Eyes,
    *,
    views: int = 1,
    seed: int = 0,
) -> RegionTable:
    """What eyes see in pictures, files or opened: the whole of each, then the cells of its map."""
    return _seen(read_pixels(pictures, settings.size), eyes, settings, views=views, seed=seed)


def look_again(
    pictures: Sequence[str | Path | Image],
    eyes: TorchBackbone,
    settings: Eyes,
    *,
    both: bool = False,
) -> RegionTable:
    """The same in several looks, if there are: of each size plain and mirrored, as views.

    With ``both`` pictures are mirrored as well where there is one size alone.
    """
    if not settings.looks and not both:
        return look_at(pictures, eyes, settings)
    found = []
    for size in (settings.size, *settings.looks):
        pixels = read_pixels(pictures, size)
        mirrored = pixels.flip(2)
        found += [_seen(look, eyes, settings) for look in (pixels, mirrored)]
    return RegionTable.of_views(found)


def _seen(
    pixels: Tensor, eyes: TorchBackbone, settings: Eyes, *, views: int = 1, seed: int = 0
) -> RegionTable:
    table = PixelTable(
        pixels,
        eyes.network,
        eyes.mean,
        eyes.std,
        smallest_crop=settings.smallest_crop,
        device=eyes.device,
    )
    return region_views(table, views=views, grid=settings.grid, seed=seed)


def pictures_of(manifest: Path, most: int | None = None) -> list[Record]:
    """The first of a manifest; one without captions is no query, but a candidate all the same."""
    return list(islice((r for r in read_manifest(manifest) if r.image or r.video), most))


def store_keys(store: FeatureStore, records: Sequence[Record]) -> list[str]:
    """Under what the pictures of records lie in a store, which must have them all."""
    keys = [store.find(record) for record in records]
    if missing := [record.key for record, key in zip(records, keys, strict=True) if key is None]:
        raise PolyglanceError(
            f"{store.path} has no regions of {len(missing):,} pictures, such as {missing[0]!r}"
            f" (it has {next(iter(store.keys), 'none')!r}): run 'polyglance features extract' on"
            " the folder that their manifest is in"
        )
    return [key for key in keys if key is not None]


def word_masking(tokenizer: Tokenizer, name: str) -> WordMasking:
    """BERT's rates, with the mask and the words of a tokenizer."""
    mask, size = tokenizer.mask_id, tokenizer.vocab_size
    if mask is None:
        raise PolyglanceError(f"the tokenizer of {name} has no mask")
    signs = (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id, tokenizer.unk_id)
    first = 1 + max((number for number in signs if number is not None), default=-1)
    return WordMasking(mask, (first, mask if mask > first else size))
