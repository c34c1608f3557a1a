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
from polyglance.training.mixture import seed_step


class Letters:
    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[ord(letter) for letter in text] for text in texts]


RECORDS = [Record(captions={"en": ("a", "b")} if number != 3 else {}) for number in range(10)]
TABLE = CaptionTable.build(RECORDS, Letters())
SOURCE = PlainCaptions(TABLE)


def test_positives_belong_together_and_negatives_never_do() -> None:
    items = np.array([0, 5, 9, 4] * 200)
    pairs = sample_pairs(items, SOURCE.items, SOURCE, seed_step(0, 0, 0), negatives=3)
    told = TABLE.record_ids[pairs.captions]
    assert pairs.matched.sum() == 800
    assert len(pairs.pictures) == 3200
    assert np.array_equal(told == pairs.pictures, pairs.matched)
    assert np.array_equal(pairs.pictures[:800], items)
    own = np.repeat(items, 3)
    retold = pairs.pictures[800:] == own
    assert retold.mean() == pytest.approx(0.5, abs=0.04)
    # Where the picture was replaced the caption is the very one of its positive.
    same = np.repeat(pairs.captions[:800], 3)
    assert np.array_equal(pairs.captions[800:][~retold], same[~retold])
    others = np.where(retold, told[800:], pairs.pictures[800:])
    for item in (0, 5, 9):
        drawn, counts = np.unique(others[own == item], return_counts=True)
        assert drawn.tolist() == [i for i in range(10) if i not in (3, item)]
        assert counts.min() > 0.6 * counts.mean()


def test_hard_negatives_are_neighbours() -> None:
    neighbours = np.stack([(np.arange(10) + 1) % 10, (np.arange(10) + 5) % 10], axis=1)
    items = np.array([0, 4, 7] * 100)
    pairs = sample_pairs(
        items, SOURCE.items, SOURCE, seed_step(0, 0, 0), negatives=1, hard_negatives=neighbours
    )
    told, shown = TABLE.record_ids[pairs.captions[300:]], pairs.pictures[300:]
    others = np.where(shown == items, told, shown)
    assert set(zip(items.tolist(), others.tolist(), strict=True)) == {
        (0, 1), (0, 5), (4, 5), (4, 9), (7, 8), (7, 2),
    }  # fmt: skip


def test_captions_give_way_to_some_in_their_own_language_wherever_there_is_one() -> None:
    both = {"en": ("a", "b"), "de": ("c", "d")}
    records = [Record(captions=both if number else {"en": ("a",)}) for number in range(6)]
    table = CaptionTable.build(records, Letters())
    source = PlainCaptions(table)
    items = np.repeat(np.arange(1, 6), 200)
    pairs = sample_pairs(items, source.items, source, seed_step(0, 0, 0), negatives=1)
    true, false = pairs.captions[:1000], pairs.captions[1000:]
    retold = pairs.pictures[1000:] == items
    has_both = table.record_ids[false] > 0
    assert table.language_ids[true].mean() == pytest.approx(0.5, abs=0.05)
    assert (table.language_ids[true] == table.language_ids[false])[retold & has_both].all()
    assert (table.language_ids[false][retold & ~has_both] == table.language_codes.index("en")).all()


@pytest.mark.parametrize("near", [0.0, 0.3])
def test_a_share_of_the_negatives_is_near(near: float) -> None:
    pool = SOURCE.items
    neighbours = np.zeros((10, 1), np.int64)
    neighbours[pool, 0] = np.roll(pool, 1)
    items = np.repeat(pool, 400)
    pairs = sample_pairs(
        items,
        pool,
        SOURCE,
        seed_step(0, 0, 0),
        negatives=1,
        hard_negatives=neighbours,
        hard_share=near,
    )
    told = TABLE.record_ids[pairs.captions[len(items) :]]
    shown = pairs.pictures[len(items) :]
    others = np.where(shown == items, told, shown)
    # Of those that are drawn from all some are the neighbour by chance.
    share = float(np.mean(others == neighbours[items, 0]))
    assert share == pytest.approx(near + (1 - near) / (len(pool) - 1), abs=0.03)


def test_lookalikes_are_the_nearest_by_mean_region_and_never_the_picture_itself() -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = np.array([2, 1, 3, 2, 1, 4])
    features = torch.randn(13, 3, generator=generator)
    table = RegionTable(features, torch.zeros(13, 4), torch.zeros(13, dtype=torch.long), lengths)
    among = np.array([0, 2, 3, 5])
    found = mine_hard_negatives(table, among, 2)
    means = np.stack([part.numpy().mean(0) for part in features.split(lengths.tolist())])
    means -= means.mean(0)
    for picture in range(6):
        cosines = {
            int(other): means[picture] @ means[other] / np.linalg.norm(means[other])
            for other in among
            if other != picture
        }
        assert found[picture].tolist() == sorted(cosines, key=lambda o: -cosines[o])[:2]
    assert mine_hard_negatives(table, among, 99).shape == (6, 3)
    with pytest.raises(PolyglanceError, match="two pictures or more"):
        mine_hard_negatives(table, among[:1], 1)
