"""Matching pairs, negatives, and hard negatives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from polyglance.batches.regions import RegionTable
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.recipes.cross_encoder.captions import PlainCaptions
from polyglance.recipes.cross_encoder.hard_negatives import mine_hard_negatives, sample_pairs
from polyglance.records import Record
from polyglance.training.mixture import step_generator


class Letters:
    """A letter is a token."""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[ord(letter) for letter in text] for text in texts]


RECORDS = [Record(captions={"en": ("a", "b")} if number != 3 else {}) for number in range(10)]
TABLE = CaptionTable.build(RECORDS, Letters())
SOURCE = PlainCaptions(TABLE)


def test_positives_match_and_negatives_never_do() -> None:
    images = np.array([0, 5, 9, 4] * 200)
    pairs = sample_pairs(images, SOURCE.images, SOURCE, step_generator(0, 0), negatives=3)
    captioned = TABLE.record_ids[pairs.captions]
    assert pairs.matched.sum() == 800
    assert len(pairs.images) == 3200
    assert np.array_equal(captioned == pairs.images, pairs.matched)
    assert np.array_equal(pairs.images[:800], images)
    own = np.repeat(images, 3)
    caption_replaced = pairs.images[800:] == own
    assert caption_replaced.mean() == pytest.approx(0.5, abs=0.04)
    # Where the image was replaced, the caption is that of the positive.
    same = np.repeat(pairs.captions[:800], 3)
    assert np.array_equal(pairs.captions[800:][~caption_replaced], same[~caption_replaced])
    others = np.where(caption_replaced, captioned[800:], pairs.images[800:])
    for image in (0, 5, 9):
        sampled, counts = np.unique(others[own == image], return_counts=True)
        assert sampled.tolist() == [i for i in range(10) if i not in (3, image)]
        assert counts.min() > 0.6 * counts.mean()


def test_hard_negatives_come_from_the_pool() -> None:
    hard_negatives = np.stack([(np.arange(10) + 1) % 10, (np.arange(10) + 5) % 10], axis=1)
    images = np.array([0, 4, 7] * 100)
    pairs = sample_pairs(
        images,
        SOURCE.images,
        SOURCE,
        step_generator(0, 0),
        negatives=1,
        hard_negatives=hard_negatives,
    )
    captioned, shown = TABLE.record_ids[pairs.captions[300:]], pairs.images[300:]
    others = np.where(shown == images, captioned, shown)
    assert set(zip(images.tolist(), others.tolist(), strict=True)) == {
        (0, 1), (0, 5), (4, 5), (4, 9), (7, 8), (7, 2),
    }  # fmt: skip


def test_replaced_captions_keep_their_language_where_possible() -> None:
    both = {"en": ("a", "b"), "de": ("c", "d")}
    records = [Record(captions=both if number else {"en": ("a",)}) for number in range(6)]
    table = CaptionTable.build(records, Letters())
    source = PlainCaptions(table)
    images = np.repeat(np.arange(1, 6), 200)
    pairs = sample_pairs(images, source.images, source, step_generator(0, 0), negatives=1)
    positive, negative = pairs.captions[:1000], pairs.captions[1000:]
    caption_replaced = pairs.images[1000:] == images
    has_both = table.record_ids[negative] > 0
    assert table.language_ids[positive].mean() == pytest.approx(0.5, abs=0.05)
    assert (table.language_ids[positive] == table.language_ids[negative])[
        caption_replaced & has_both
    ].all()
    assert (
        table.language_ids[negative][caption_replaced & ~has_both]
        == table.language_codes.index("en")
    ).all()


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_a_share_of_the_negatives_is_hard(share: float) -> None:
    pool = SOURCE.images
    hard_negatives = np.zeros((10, 1), np.int64)
    hard_negatives[pool, 0] = np.roll(pool, 1)
    images = np.repeat(pool, 400)
    pairs = sample_pairs(
        images,
        pool,
        SOURCE,
        step_generator(0, 0),
        negatives=1,
        hard_negatives=hard_negatives,
        hard_share=share,
    )
    captioned = TABLE.record_ids[pairs.captions[len(images) :]]
    shown = pairs.images[len(images) :]
    others = np.where(shown == images, captioned, shown)
    # Some of those sampled from all images are hard by chance.
    hard = float(np.mean(others == hard_negatives[images, 0]))
    assert hard == pytest.approx(share + (1 - share) / (len(pool) - 1), abs=0.03)


def test_hard_negatives_are_the_nearest_other_images_by_mean_region() -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = np.array([2, 1, 3, 2, 1, 4])
    features = torch.randn(13, 3, generator=generator)
    table = RegionTable(features, torch.zeros(13, 4), torch.zeros(13, dtype=torch.long), lengths)
    among = np.array([0, 2, 3, 5])
    mined = mine_hard_negatives(table, among, 2)
    means = np.stack([part.numpy().mean(0) for part in features.split(lengths.tolist())])
    means -= means.mean(0)
    for image in range(6):
        cosines = {
            int(other): means[image] @ means[other] / np.linalg.norm(means[other])
            for other in among
            if other != image
        }
        assert mined[image].tolist() == sorted(cosines, key=lambda o: -cosines[o])[:2]
    assert mine_hard_negatives(table, among, 99).shape == (6, 3)
    with pytest.raises(PolyglanceError, match="at least two images"):
        mine_hard_negatives(table, among[:1], 1)
