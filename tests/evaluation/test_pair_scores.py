from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.evaluation.pair_scores import PairScores, read_candidates
from polyglance.evaluation.retrieval import (
    ranks_from_scores,
    ranks_from_shortlists,
    summarise,
)
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.nn.encoder import EncoderConfig
from polyglance.records import Record
from polyglance.training.caption_sources import read_captions
from polyglance.training.region_table import RegionTable

PICTURES, CAPTIONS = 7, 12
ENCODER = EncoderConfig(vocabulary=40, width=16, layers=2, heads=2, inner=32, positions=40)


class Letters:
    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[0, *(4 + ord(letter) % 30 for letter in text), 2] for text in texts]


def captions() -> CaptionTable:
    """Twelve captions of seven pictures, in two languages, the rows of which lie mixed."""
    generator = np.random.default_rng(0)

    def said(count: int) -> tuple[str, ...]:
        return tuple(
            "".join(chr(97 + i) for i in generator.integers(0, 26, generator.integers(1, 9)))
            for _ in range(count)
        )

    counts = [(1, 1), (2, 0), (1, 2), (1, 0), (1, 1), (1, 0), (1, 0)]
    records = [Record(captions={"en": said(en), "de": said(de)}) for en, de in counts]
    return CaptionTable.build(records, Letters())


def pictures() -> RegionTable:
    generator = torch.Generator().manual_seed(0)
    lengths = np.array([2, 5, 1, 3, 3, 4, 2])
    total = int(lengths.sum())
    corners = torch.rand(total, 2, 2, generator=generator).sort(1).values.flatten(1)
    features = torch.randn(total, 6, generator=generator)
    return RegionTable(features, corners, torch.zeros(total, dtype=torch.long), lengths)


def model(layout: str = "paper") -> M3P:
    torch.manual_seed(0)
    made = M3P(
        M3PConfig(ENCODER, ("en", "de"), visual_width=6, labels=2, layout=layout)  # type: ignore[arg-type]
    ).eval()
    for parameter in made.parameters():
        nn.init.normal_(parameter, mean=parameter.mean().round().item(), std=0.5)
    return made


NUMBERS = np.array([0, 1])


@pytest.mark.parametrize("layout", ["paper", "reference"])
@pytest.mark.parametrize("rows_at_once", [1, 40, 65_536])
def test_all_pairs_are_scored_as_one_by_one(layout: str, rows_at_once: int) -> None:
    reader, table, gallery = model(layout), captions(), pictures()
    scores = PairScores(reader, gallery, table, languages=NUMBERS, rows_at_once=rows_at_once)
    rows = table.of_language("en")[::-1].copy()
    found = scores.table(rows)
    assert found.shape == (PICTURES, len(rows))
    for column, row in enumerate(rows):
        for picture in range(PICTURES):
            with torch.no_grad():
                text = read_captions(table, np.array([row]), NUMBERS)
                read = reader(text, gallery.take(np.array([picture]))[0])
                expected = reader.matching(read.first).item()
            assert found[picture, column] == pytest.approx(expected, abs=1e-5)
    assert scores.score(np.zeros(0, np.int64), np.zeros(0, np.int64)).shape == (0,)


def test_half_precision_scores_nearly_alike_and_leaves_the_model_as_it_is() -> None:
    reader, table = model(), captions()
    rows = np.arange(len(table))
    exact = PairScores(reader, pictures(), table, languages=NUMBERS).table(rows)
    half = PairScores(reader, pictures(), table, languages=NUMBERS, precision="float16").table(rows)
    assert half == pytest.approx(exact, abs=0.02 * float(exact.std()))
    assert not np.array_equal(half, exact)
    assert {parameter.dtype for parameter in reader.parameters()} == {torch.float32}


def test_several_looks_at_a_picture_are_averaged() -> None:
    reader, table, gallery = model(), captions(), pictures()
    other = pictures()
    other.features = other.features.flip(0)
    both = RegionTable.of_views([gallery, other])
    rows = np.arange(len(table))

    def scores(seen: RegionTable, views: int = 1) -> np.ndarray:
        return PairScores(reader, seen, table, languages=NUMBERS, views=views).table(rows)

    expected = (scores(gallery) + scores(other)) / 2
    assert scores(both, 2) == pytest.approx(expected, abs=1e-5)
    assert scores(both) == pytest.approx(scores(gallery), abs=1e-5)
    assert np.abs(scores(gallery) - scores(other)).max() > 0.1
    with pytest.raises(ValueError, match="equally many regions"):
        RegionTable.of_views([gallery, RegionTable(*_fewer(gallery))])


def _fewer(table: RegionTable) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, np.ndarray]:
    count = int(table.lengths[:-1].sum())
    return table.features[:count], table.boxes[:count], table.labels[:count], table.lengths[:-1]


def test_reranking_everything_is_ranking_by_the_reader() -> None:
    table = captions()
    scores = PairScores(model(), pictures(), table, languages=NUMBERS)
    rows = np.arange(len(table))
    dual = np.random.default_rng(1).standard_normal((PICTURES, len(table))).astype(np.float32)
    whole = summarise(ranks_from_scores(scores.table(rows), table.owners))
    lists = read_candidates(dual, scores, rows, k=100).trusting(0)
    assert summarise(ranks_from_shortlists(*lists, table.owners)) == whole


def test_only_the_candidates_of_the_dual_encoder_are_read_each_pair_once() -> None:
    table = captions()
    scores = PairScores(model(), pictures(), table, languages=NUMBERS)
    rows = np.arange(len(table))
    dual = np.random.default_rng(1).standard_normal((PICTURES, len(table))).astype(np.float32)
    read: list[tuple[int, int]] = []
    plain = scores.score

    def counting(some: np.ndarray, gallery: np.ndarray) -> np.ndarray:
        read.extend(zip(some.tolist(), gallery.tolist(), strict=True))
        return plain(some, gallery)

    scores.score = counting  # type: ignore[method-assign]
    texts, images = read_candidates(dual, scores, rows, k=3).trusting(0)
    for picture in range(PICTURES):
        assert set(texts.candidates[picture]) == set(np.argsort(-dual[picture])[:3])
    for caption in rows:
        assert set(images.candidates[caption]) == set(np.argsort(-dual[:, caption])[:3])
    listed = {(c, p) for p, row in enumerate(texts.candidates.tolist()) for c in row}
    listed |= {(c, p) for c, row in enumerate(images.candidates.tolist()) for p in row}
    assert len(read) == len(set(read)) == len(listed)
    assert set(read) == listed
    whole = scores.table(rows)
    assert texts.scores is not None
    assert images.scores is not None
    expected = np.take_along_axis(whole, texts.candidates, 1)
    assert texts.scores == pytest.approx(expected, abs=1e-5)
    expected = np.take_along_axis(whole.T, images.candidates, 1)
    assert images.scores == pytest.approx(expected, abs=1e-5)


def test_a_dual_encoder_that_is_trusted_without_bounds_keeps_its_order() -> None:
    table = captions()
    scores = PairScores(model(), pictures(), table, languages=NUMBERS)
    dual = np.random.default_rng(1).standard_normal((PICTURES, len(table))).astype(np.float32)
    texts, _ = read_candidates(dual, scores, np.arange(len(table)), k=4).trusting(1e6)
    assert texts.scores is not None
    order = np.take_along_axis(texts.candidates, np.argsort(-texts.scores, axis=1), 1)
    assert np.array_equal(order, np.argsort(-dual, axis=1)[:, :4])


def test_a_closer_look_sorts_the_candidates_but_chooses_none() -> None:
    table = captions()
    scores = PairScores(model(), pictures(), table, languages=NUMBERS)
    rows = np.arange(len(table))
    generator = np.random.default_rng(1)
    dual, closer = generator.standard_normal((2, PICTURES, len(table))).astype(np.float32)
    plain = read_candidates(dual, scores, rows, k=4)
    looked = read_candidates(dual, scores, rows, k=4, closer=closer)
    assert np.array_equal(looked.texts, plain.texts)
    assert looked.read == pytest.approx(plain.read)
    for lists, order in ((looked.by_dual()[0], closer), (plain.by_dual()[0], dual)):
        assert lists.scores is not None
        best = np.take_along_axis(lists.candidates, np.argsort(-lists.scores, axis=1), 1)
        for picture, found in enumerate(best):
            among = sorted(plain.texts[picture], key=lambda text: -order[picture, text])
            assert found.tolist() == among
    trusted, _ = looked.trusting(3.0)
    deviation = np.std(dual)  # also those know who have looked at some alone
    expected = plain.read[0] + 3 * closer[0, plain.texts[0, 0]] / deviation
    assert trusted.scores is not None
    assert trusted.scores[0, 0] == pytest.approx(expected, rel=1e-4)


def test_what_does_not_fit_is_said_plainly() -> None:
    table = captions()
    scores = PairScores(model(), pictures(), table, languages=NUMBERS)
    with pytest.raises(PolyglanceError, match="7 pictures and 2 captions"):
        read_candidates(np.zeros((7, 3)), scores, np.array([0, 1]))
    with pytest.raises(PolyglanceError, match="one candidate at least"):
        read_candidates(np.zeros((7, 2)), scores, np.array([0, 1]), k=0)
