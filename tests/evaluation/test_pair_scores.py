from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from polyglance.batches.inputs import pack_captions
from polyglance.batches.regions import RegionTable
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

IMAGES, CAPTIONS = 7, 12
ENCODER = EncoderConfig(
    vocab_size=40,
    hidden_size=16,
    num_layers=2,
    num_heads=2,
    intermediate_size=32,
    max_position_embeddings=40,
)


class Letters:
    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[0, *(4 + ord(letter) % 30 for letter in text), 2] for text in texts]


def captions() -> CaptionTable:
    """Return twelve captions of seven images in two languages."""
    generator = np.random.default_rng(0)

    def texts(count: int) -> tuple[str, ...]:
        return tuple(
            "".join(chr(97 + i) for i in generator.integers(0, 26, generator.integers(1, 9)))
            for _ in range(count)
        )

    counts = [(1, 1), (2, 0), (1, 2), (1, 0), (1, 1), (1, 0), (1, 0)]
    records = [Record(captions={"en": texts(en), "de": texts(de)}) for en, de in counts]
    return CaptionTable.build(records, Letters())


def gallery_images() -> RegionTable:
    generator = torch.Generator().manual_seed(0)
    lengths = np.array([2, 5, 1, 3, 3, 4, 2])
    total = int(lengths.sum())
    corners = torch.rand(total, 2, 2, generator=generator).sort(1).values.flatten(1)
    features = torch.randn(total, 6, generator=generator)
    return RegionTable(features, corners, torch.zeros(total, dtype=torch.long), lengths)


def model(variant: str = "paper") -> M3P:
    torch.manual_seed(0)
    m3p = M3P(
        M3PConfig(ENCODER, ("en", "de"), visual_width=6, num_labels=2, variant=variant)  # type: ignore[arg-type]
    ).eval()
    for parameter in m3p.parameters():
        nn.init.normal_(parameter, mean=parameter.mean().round().item(), std=0.5)
    return m3p


LANGUAGE_IDS = np.array([0, 1])


@pytest.mark.parametrize("variant", ["paper", "reference"])
@pytest.mark.parametrize("tokens_per_batch", [1, 40, 65_536])
def test_batched_scores_equal_single_pairs(variant: str, tokens_per_batch: int) -> None:
    cross_encoder, table, gallery = model(variant), captions(), gallery_images()
    scores = PairScores(
        cross_encoder, gallery, table, language_ids=LANGUAGE_IDS, tokens_per_batch=tokens_per_batch
    )
    rows = table.rows_in_language("en")[::-1].copy()
    found = scores.table(rows)
    assert found.shape == (IMAGES, len(rows))
    for column, row in enumerate(rows):
        for image in range(IMAGES):
            with torch.no_grad():
                text = pack_captions(
                    table, np.array([row]), torch.device("cpu"), language_ids=LANGUAGE_IDS
                )
                pair = cross_encoder(text, gallery.take(np.array([image]))[0])
                expected = cross_encoder.match_logits(pair.pooled).item()
            assert found[image, column] == pytest.approx(expected, abs=1e-5)
    assert scores.score(np.zeros(0, np.int64), np.zeros(0, np.int64)).shape == (0,)


def test_half_precision_is_close_and_keeps_the_model() -> None:
    cross_encoder, table = model(), captions()
    rows = np.arange(len(table))
    exact = PairScores(cross_encoder, gallery_images(), table, language_ids=LANGUAGE_IDS).table(
        rows
    )
    half = PairScores(
        cross_encoder, gallery_images(), table, language_ids=LANGUAGE_IDS, precision="float16"
    ).table(rows)
    assert half == pytest.approx(exact, abs=0.02 * float(exact.std()))
    assert not np.array_equal(half, exact)
    assert {parameter.dtype for parameter in cross_encoder.parameters()} == {torch.float32}


def test_views_of_an_image_are_averaged() -> None:
    cross_encoder, table, gallery = model(), captions(), gallery_images()
    other = gallery_images()
    other.features = other.features.flip(0)
    both = RegionTable.stack_views([gallery, other])
    rows = np.arange(len(table))

    def scores(regions: RegionTable, views: int = 1) -> np.ndarray:
        return PairScores(
            cross_encoder, regions, table, language_ids=LANGUAGE_IDS, views=views
        ).table(rows)

    expected = (scores(gallery) + scores(other)) / 2
    assert scores(both, 2) == pytest.approx(expected, abs=1e-5)
    assert scores(both) == pytest.approx(scores(gallery), abs=1e-5)
    assert np.abs(scores(gallery) - scores(other)).max() > 0.1
    with pytest.raises(ValueError, match="equal numbers of regions"):
        RegionTable.stack_views([gallery, RegionTable(*_fewer(gallery))])


def _fewer(table: RegionTable) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, np.ndarray]:
    count = int(table.lengths[:-1].sum())
    return table.features[:count], table.boxes[:count], table.labels[:count], table.lengths[:-1]


def test_reranking_all_candidates_is_ranking_by_all_pairs() -> None:
    table = captions()
    scores = PairScores(model(), gallery_images(), table, language_ids=LANGUAGE_IDS)
    rows = np.arange(len(table))
    dual = np.random.default_rng(1).standard_normal((IMAGES, len(table))).astype(np.float32)
    whole = summarise(ranks_from_scores(scores.table(rows), table.record_ids))
    lists = read_candidates(dual, scores, rows, k=100).reranked(0)
    assert summarise(ranks_from_shortlists(*lists, table.record_ids)) == whole


def test_only_candidates_are_scored_each_pair_once() -> None:
    table = captions()
    scores = PairScores(model(), gallery_images(), table, language_ids=LANGUAGE_IDS)
    rows = np.arange(len(table))
    dual = np.random.default_rng(1).standard_normal((IMAGES, len(table))).astype(np.float32)
    pairs: list[tuple[int, int]] = []
    score = scores.score

    def recording(rows: np.ndarray, gallery: np.ndarray) -> np.ndarray:
        pairs.extend(zip(rows.tolist(), gallery.tolist(), strict=True))
        return score(rows, gallery)

    scores.score = recording  # type: ignore[method-assign]
    texts, images = read_candidates(dual, scores, rows, k=3).reranked(0)
    for image in range(IMAGES):
        assert set(texts.candidates[image]) == set(np.argsort(-dual[image])[:3])
    for caption in rows:
        assert set(images.candidates[caption]) == set(np.argsort(-dual[:, caption])[:3])
    listed = {(c, p) for p, row in enumerate(texts.candidates.tolist()) for c in row}
    listed |= {(c, p) for c, row in enumerate(images.candidates.tolist()) for p in row}
    assert len(pairs) == len(set(pairs)) == len(listed)
    assert set(pairs) == listed
    whole = scores.table(rows)
    assert texts.scores is not None
    assert images.scores is not None
    expected = np.take_along_axis(whole, texts.candidates, 1)
    assert texts.scores == pytest.approx(expected, abs=1e-5)
    expected = np.take_along_axis(whole.T, images.candidates, 1)
    assert images.scores == pytest.approx(expected, abs=1e-5)


def test_large_dual_weight_keeps_the_dual_encoder_s_order() -> None:
    table = captions()
    scores = PairScores(model(), gallery_images(), table, language_ids=LANGUAGE_IDS)
    dual = np.random.default_rng(1).standard_normal((IMAGES, len(table))).astype(np.float32)
    texts, _ = read_candidates(dual, scores, np.arange(len(table)), k=4).reranked(1e6)
    assert texts.scores is not None
    order = np.take_along_axis(texts.candidates, np.argsort(-texts.scores, axis=1), 1)
    assert np.array_equal(order, np.argsort(-dual, axis=1)[:, :4])


def test_tta_scores_sort_candidates_but_do_not_choose_them() -> None:
    table = captions()
    scores = PairScores(model(), gallery_images(), table, language_ids=LANGUAGE_IDS)
    rows = np.arange(len(table))
    generator = np.random.default_rng(1)
    dual, tta = generator.standard_normal((2, IMAGES, len(table))).astype(np.float32)
    plain = read_candidates(dual, scores, rows, k=4)
    augmented = read_candidates(dual, scores, rows, k=4, tta=tta)
    assert np.array_equal(augmented.texts, plain.texts)
    assert augmented.scores == pytest.approx(plain.scores)
    for lists, order in ((augmented.by_dual()[0], tta), (plain.by_dual()[0], dual)):
        assert lists.scores is not None
        best = np.take_along_axis(lists.candidates, np.argsort(-lists.scores, axis=1), 1)
        for image, found in enumerate(best):
            among = sorted(plain.texts[image], key=lambda text: -order[image, text])
            assert found.tolist() == among
    reranked, _ = augmented.reranked(3.0)
    deviation = np.std(dual)  # of all pairs, of which only candidates are augmented
    expected = plain.scores[0] + 3 * tta[0, plain.texts[0, 0]] / deviation
    assert reranked.scores is not None
    assert reranked.scores[0, 0] == pytest.approx(expected, rel=1e-4)


def test_mismatched_shapes_are_rejected() -> None:
    table = captions()
    scores = PairScores(model(), gallery_images(), table, language_ids=LANGUAGE_IDS)
    with pytest.raises(PolyglanceError, match="7 images and 2 captions"):
        read_candidates(np.zeros((7, 3)), scores, np.array([0, 1]))
    with pytest.raises(PolyglanceError, match="at least one candidate"):
        read_candidates(np.zeros((7, 2)), scores, np.array([0, 1]), k=0)
