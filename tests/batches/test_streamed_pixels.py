"""Pixels decoded while training equal those of a table in memory."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from polyglance.batches.batch import Batch
from polyglance.batches.inputs import PixelTable
from polyglance.batches.order import Shuffle, Streaming
from polyglance.batches.region_augmentation import augmented_regions
from polyglance.batches.streamed_pixels import PixelRegions, StreamedPixels
from polyglance.data.captions import CaptionTable
from polyglance.models.mmp import MMPObjective
from polyglance.objectives.draws import ItemDraws
from polyglance.recipes.mmp.tasks import MMPTask
from polyglance.training import mixture as mixture_module
from polyglance.training.mixture import step_generator
from polyglance.vision.decoding import DecodePool, ImageBytes, Source, decode

SIZE, IMAGES = 8, 30


def sources() -> list[ImageBytes]:
    generator, made = np.random.default_rng(0), []
    for number in range(IMAGES):
        out = io.BytesIO()
        pixels = generator.integers(256, size=(10, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(out, "PNG")
        made.append(ImageBytes(f"{number}.png", content=out.getvalue()))
    return made


IMAGE_SOURCES = sources()
MEAN = torch.full((3,), 127.5)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Conv2d(3, 5, 4, stride=4)


def both(min_crop_area: float = 0.4) -> tuple[StreamedPixels, PixelTable]:
    pixels = torch.from_numpy(np.stack([decode(source, SIZE) for source in IMAGE_SOURCES]))
    table = PixelTable(pixels, network(), MEAN, MEAN, min_crop_area=min_crop_area)
    images = StreamedPixels(IMAGE_SOURCES, SIZE, network(), MEAN, MEAN, min_crop_area=min_crop_area)
    return images, table


def test_batches_equal_those_of_a_table_in_memory() -> None:
    images, table = both()
    items = np.array([7, 0, 29, 7])
    assert len(images) == len(table)
    for draws in (None, ItemDraws.of(5, np.arange(4))):
        batch = images.select(items, draws)
        assert isinstance(batch, Batch)
        ours, theirs = batch.to("cpu").load(), table.rows(items, draws)
        assert torch.equal(ours[0], theirs[0])
        assert torch.equal(ours[1].cu_seqlens, theirs[1].cu_seqlens)
    other = images.with_network(nn.Conv2d(3, 2, 4, stride=4))
    assert other.rows(items, None)[0].shape[1] == 2


@pytest.mark.parametrize("grid", [None, 1])
def test_regions_equal_those_encoded_beforehand(grid: int | None) -> None:
    images, table = both()
    known = augmented_regions(table, views=1, grid=grid)
    regions = PixelRegions(images, views=4, grid=grid)
    assert regions.lengths.tolist() == known.lengths.tolist()
    assert (regions.width, regions.has_labels, regions.max_label()) == (5, False, known.max_label())
    items = np.array([3, 11, 3])
    (ours, labels), (theirs, expected) = regions.take(items), known.take(items)
    assert torch.equal(ours.features, theirs.features)
    assert torch.equal(ours.boxes, theirs.boxes)
    assert torch.equal(labels, expected)
    first, second = regions.select(items).global_rows, known.select(items).global_rows
    assert second is not None
    assert torch.equal(first, second)
    # One in four is whole, the others are cropped anew.
    many = np.arange(4000) % IMAGES
    crops = regions.select(many[:1000], ItemDraws.of(1, np.arange(1000))).crops
    assert crops is not None
    whole = (crops == torch.eye(2, 3)).all(dim=(1, 2))
    assert 200 < int(whole.sum()) < 300
    again = regions.select(many[:1000], ItemDraws.of(2, np.arange(1000))).crops
    assert again is not None
    assert not torch.equal(crops, again)
    assert PixelRegions(images).select(items, ItemDraws.of(1, np.arange(3))).crops is None


class Recorded(Sequence[Source]):
    """Notes which images are read."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, item: Any) -> Any:
        self.taken.append(item)
        return IMAGE_SOURCES[item]


class Once(DecodePool):
    """Decodes nothing, which would take time."""

    def squares(self, sources: Sequence[Source], size: int) -> Any:
        return np.zeros((len(sources), size, size, 3), np.uint8)


@pytest.mark.parametrize("window", [None, 10])
def test_every_image_comes_once_an_epoch_over_processes(
    monkeypatch: pytest.MonkeyPatch, window: int | None
) -> None:
    captions = CaptionTable(
        np.arange(2 * IMAGES, dtype=np.int32), 2 * np.arange(IMAGES + 1), np.arange(IMAGES),
        np.zeros(IMAGES, np.int64), ("en",), IMAGES,
    )  # fmt: skip
    shuffle = None if window is None else Shuffle(window, block=2)
    images = Recorded()
    pixels = StreamedPixels(images, 4, network(), MEAN, MEAN, pool=Once())
    task = MMPTask(
        None,  # type: ignore[arg-type]  # sampling needs no model
        pixels,
        captions,
        MMPObjective(),
        batch=6,
        streaming=Streaming(6, seed=3, shuffle=shuffle),
    )

    def read(step: int, number: int, size: int) -> list[int]:
        monkeypatch.setattr(mixture_module, "rank", lambda: number)
        monkeypatch.setattr(mixture_module, "world_size", lambda: size)
        images.taken = []
        batch = task.sample(step_generator(0, step))
        ids = batch.captions[0].ids.view(-1, 2)[:, 0] // 2
        assert ids.tolist() == images.taken  # each with its own caption
        return images.taken

    epochs = []
    for epoch in range(2):
        steps = range(5 * epoch, 5 * epoch + 5)
        alone = [read(step, 0, 1) for step in steps]
        split = [[read(step, number, 3) for number in range(3)] for step in steps]
        assert [[item for part in parts for item in part] for parts in split] == alone
        flat = [item for batch in alone for item in batch]
        assert Counter(flat) == Counter(range(IMAGES))
        if window is not None:
            # A window holds five blocks of two, whose images are read before any other's.
            for start in range(0, IMAGES, window):
                part = flat[start : start + window]
                assert len({item // 2 for item in part}) == window // 2
        epochs.append(flat)
    assert epochs[0] != epochs[1]
    assert read(7, 0, 1) == epochs[1][12:18]  # needs none of the steps before it
