"""Ranks and recalls: by hand, against slow loops, against chance, and against a known mistake."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import (
    Ranks,
    RetrievalResult,
    Shortlists,
    evaluate_retrieval,
    human_average,
    mean_over_languages,
    meta_average,
    ranks_from_embeddings,
    ranks_from_scores,
    ranks_from_shortlists,
    summarise,
)


def ranks_by_loops(scores, owner):
    """The definition, spelled out: one comparison at a time."""
    pictures, texts = len(scores), len(owner)
    text_to_image = []
    for text in range(texts):
        right = scores[owner[text]][text]
        lost = [p for p in range(pictures) if p != owner[text] and not scores[p][text] < right]
        text_to_image.append(1 + len(lost))
    image_to_text = []
    for picture in range(pictures):
        own = [text for text in range(texts) if owner[text] == picture]
        wrong = [text for text in range(texts) if owner[text] != picture]
        if own:
            image_to_text.append(
                min(
                    1 + sum(not scores[picture][w] < scores[picture][text] for w in wrong)
                    for text in own
                )
            )
    return image_to_text, text_to_image


def assert_ranks(found: Ranks, expected):
    assert found.image_to_text.tolist() == expected[0]
    assert found.text_to_image.tolist() == expected[1]


class TestByHand:
    def test_two_images_three_captions(self):
        scores = np.array([[0.9, 0.2, 0.8], [0.1, 0.7, 0.85]])
        # Captions 0 and 1 belong to picture 0, caption 2 to picture 1.
        ranks = ranks_from_scores(scores, [0, 0, 1])
        assert ranks.image_to_text.tolist() == [1, 1]
        assert ranks.text_to_image.tolist() == [1, 2, 1]
        result = summarise(ranks, ks=(1, 2))
        assert result.image_to_text.recalls == {1: 100.0, 2: 100.0}
        assert result.text_to_image.recalls == {1: pytest.approx(200 / 3), 2: 100.0}
        assert result.mean_recall == pytest.approx((100 + 100 + 200 / 3 + 100) / 4)
        assert result.text_to_image.median_rank == 1
        assert (result.image_to_text.candidates, result.text_to_image.candidates) == (3, 2)
        assert (result.image_to_text.queries, result.text_to_image.queries) == (2, 3)

    def test_best_caption_of_an_image_counts(self):
        scores = np.array([[0.1, 0.9, 0.5, 0.6], [0.0, 0.0, 1.0, 1.0]])
        ranks = ranks_from_scores(scores, [0, 0, 1, 1])
        assert ranks.image_to_text.tolist() == [1, 1]

    def test_other_right_captions_do_not_push_the_best_one_down(self):
        ranks = ranks_from_scores(np.array([[1.0, 1.0, 1.0, 0.5], [0.0] * 4]), [0, 0, 0, 1])
        assert ranks.image_to_text.tolist() == [1, 4]

    def test_image_without_captions_is_a_candidate_but_no_query(self):
        scores = np.array([[0.5, 0.5], [0.9, 0.1], [0.1, 0.9]])
        ranks = ranks_from_scores(scores, [0, 2])
        assert ranks.image_to_text.tolist() == [2, 1]
        assert ranks.text_to_image.tolist() == [2, 1]
        assert summarise(ranks).text_to_image.candidates == 3

    def test_cosine_ignores_length_and_inner_product_does_not(self):
        images = np.array([[10.0, 0.0], [0.6, 0.8]])
        texts = np.array([[0.7, 0.7]])
        assert ranks_from_embeddings(images, texts, [1]).text_to_image.tolist() == [1]
        by_product = ranks_from_embeddings(images, texts, [1], cosine=False)
        assert by_product.text_to_image.tolist() == [2]

    def test_median_of_an_even_number_of_queries_is_between_the_middle_two(self):
        ranks = Ranks(np.array([1, 4]), np.array([1, 2, 8, 9]), num_images=9)
        result = summarise(ranks)
        assert result.image_to_text.median_rank == 2.5
        assert result.text_to_image.median_rank == 5


class TestTies:
    def test_a_constant_scorer_ranks_last_everywhere(self):
        owner = np.repeat(np.arange(20), 5)
        ranks = ranks_from_scores(np.zeros((20, 100)), owner)
        assert set(ranks.image_to_text) == {96}
        assert set(ranks.text_to_image) == {20}
        assert summarise(ranks).mean_recall == 0.0

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_collapsed_embeddings_score_nothing_despite_rounding(self, dtype):
        """The sums of a matrix product depend on the place in the matrix; ties must not."""
        one = np.random.default_rng(0).normal(size=(1, 77))
        images, texts = np.repeat(one, 203, axis=0), np.repeat(one, 307, axis=0)
        result = evaluate_retrieval(images.astype(dtype), texts.astype(dtype), np.arange(307) % 203)
        assert result.mean_recall == 0.0
        assert result.text_to_image.median_rank == 203

    def test_duplicate_of_the_right_image_ranks_above_it(self):
        images = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        ranks = ranks_from_embeddings(images, np.array([[1.0, 0.1]]), [0])
        assert ranks.text_to_image.tolist() == [2]

    def test_zero_vectors_tie_with_everything(self):
        ranks = ranks_from_embeddings(np.eye(4), np.zeros((4, 4)), np.arange(4))
        assert set(ranks.text_to_image) == {4}


class TestNaN:
    def test_a_nan_never_wins_as_right_answer(self):
        scores = np.full((3, 3), 0.0)
        scores[np.diag_indices(3)] = np.nan
        assert_ranks(ranks_from_scores(scores, [0, 1, 2]), ([3, 3, 3], [3, 3, 3]))

    def test_a_nan_of_a_wrong_candidate_is_not_outscored(self):
        scores = np.array([[1.0, np.nan], [0.0, 1.0]])
        assert_ranks(ranks_from_scores(scores, [0, 1]), ([2, 1], [1, 2]))

    def test_nan_caption_does_not_affect_other_captions_of_the_image(self):
        scores = np.array([[np.nan, 1.0, 0.0], [0.0, 0.0, 1.0]])
        assert ranks_from_scores(scores, [0, 0, 1]).image_to_text.tolist() == [1, 1]

    def test_a_model_of_nothing_but_nan_ranks_last(self):
        nothing = np.full((12, 4), np.nan)
        result = evaluate_retrieval(nothing, nothing, np.arange(12))
        assert result.mean_recall == 0.0

    def test_infinite_embeddings_do_not_win(self):
        images = np.array([[np.inf, 0.0], [0.0, 1.0]])
        ranks = ranks_from_embeddings(images, np.eye(2), [0, 1])
        assert ranks.text_to_image.tolist() == [2, 2]


def mistaken_image_retrieval(scores, owner, ks=(1, 5, 10)):
    """Recall as UC2's published evaluation computes it, mistake included.

    It lists the (query, place) pairs at which the right picture stands in the
    top ten, and then counts *every* number below k in those pairs: places, as
    intended, but also the indices of the queries. Each of the first k queries
    whose picture is anywhere in the top ten so counts once more.
    """
    top_ten = np.argsort(-scores, axis=0, kind="stable")[:10].T
    pairs = np.argwhere(top_ten == np.asarray(owner)[:, None])
    return {k: 100 * np.count_nonzero(pairs < k) / len(owner) for k in ks}


class TestThePublishedMistake:
    @pytest.fixture
    def scores_and_ids(self):
        """1,000 captions, one a picture, with each right picture put at a chosen place."""
        count = 1000
        places = np.random.default_rng(5).integers(0, 200, size=count)
        # Of the first five queries three are found in the top ten, of the first ten seven.
        places[:10] = [3, 40, 8, 90, 6, 2, 150, 9, 7, 5]
        scores = np.empty((count, count))
        for text, place in enumerate(places):
            order = np.roll(np.arange(count), place - text)  # order[place] is picture `text`
            assert order[place] == text
            scores[order, text] = np.linspace(1, 0, count)
        return scores, np.arange(count), places

    def test_it_inflates_image_retrieval_by_exactly_the_known_amount(self, scores_and_ids):
        scores, owner, places = scores_and_ids
        truth = {k: 100 * np.mean(places < k) for k in (1, 5, 10)}
        ours = summarise(ranks_from_scores(scores, owner)).text_to_image.recalls
        theirs = mistaken_image_retrieval(scores, owner)
        assert ours == pytest.approx(truth)
        inflation = {k: theirs[k] - ours[k] for k in ours}
        assert inflation == pytest.approx({1: 0.1, 5: 0.3, 10: 0.7})

    def test_ours_does_not_depend_on_the_order_of_queries(self, scores_and_ids):
        """What the mistake cannot pass: queries shuffled, nothing else changed."""
        scores, owner, _ = scores_and_ids
        order = np.argsort(-np.arange(len(owner)))
        before, after = scores, scores[:, order]
        ours = [
            summarise(ranks_from_scores(before, owner)).text_to_image,
            summarise(ranks_from_scores(after, owner[order])).text_to_image,
        ]
        assert ours[0] == ours[1]
        assert mistaken_image_retrieval(before, owner) != mistaken_image_retrieval(
            after, owner[order]
        )


@st.composite
def retrieval_cases(draw):
    """Small tables of whole numbers, so that ties abound, with any assignment of captions."""
    pictures, texts, width = draw(st.integers(1, 7)), draw(st.integers(1, 12)), 3
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    images = rng.integers(-1, 2, size=(pictures, width)).astype(np.float32)
    captions = rng.integers(-1, 2, size=(texts, width)).astype(np.float32)
    return images, captions, rng.integers(0, pictures, size=texts), rng


class TestAgainstLoops:
    @settings(max_examples=150, deadline=None)
    @given(retrieval_cases(), st.integers(1, 5))
    def test_embeddings_in_blocks(self, case, block):
        images, texts, owner, _ = case
        expected = ranks_by_loops(images @ texts.T, owner)
        assert_ranks(
            ranks_from_embeddings(images, texts, owner, cosine=False, block=block), expected
        )
        assert_ranks(ranks_from_embeddings(images, texts, owner, cosine=False), expected)

    @settings(max_examples=150, deadline=None)
    @given(retrieval_cases(), st.integers(1, 5), st.floats(0, 0.5))
    def test_scores_with_nan(self, case, block, share):
        images, texts, owner, rng = case
        scores = images @ texts.T
        scores[rng.random(scores.shape) < share] = np.nan
        assert_ranks(ranks_from_scores(scores, owner, block=block), ranks_by_loops(scores, owner))

    @settings(max_examples=150, deadline=None)
    @given(retrieval_cases())
    def test_full_shortlists_rank_like_the_table_of_scores(self, case):
        images, texts, owner, rng = case
        scores = images @ texts.T
        columns = rng.permuted(np.tile(np.arange(len(texts)), (len(images), 1)), axis=1)
        rows = rng.permuted(np.tile(np.arange(len(images)), (len(texts), 1)), axis=1)
        found = ranks_from_shortlists(
            Shortlists(columns, np.take_along_axis(scores, columns, axis=1)),
            Shortlists(rows, np.take_along_axis(scores.T, rows, axis=1)),
            owner,
        )
        assert_ranks(found, ranks_by_loops(scores, owner))

    @settings(max_examples=75, deadline=None)
    @given(retrieval_cases())
    def test_order_of_images_and_captions_does_not_matter(self, case):
        images, texts, owner, rng = case
        expected = evaluate_retrieval(images, texts, owner)
        picture_order, text_order = rng.permutation(len(images)), rng.permutation(len(texts))
        new_place = np.argsort(picture_order)
        shuffled = evaluate_retrieval(
            images[picture_order], texts[text_order], new_place[owner[text_order]]
        )
        assert shuffled == expected


class TestShortlists:
    def test_positions_are_ranks_and_missing_answers_rank_last(self):
        # Five pictures with one caption each; lists of two, one of them cut short.
        captions = np.array([[0, 1], [2, 1], [0, 1], [3, -1], [-1, -1]])
        pictures = np.array([[1, 0], [1, 2], [2, 0], [0, 1], [4, -1]])
        ranks = ranks_from_shortlists(Shortlists(captions), Shortlists(pictures), np.arange(5))
        assert ranks.image_to_text.tolist() == [1, 2, 5, 1, 5]
        assert ranks.text_to_image.tolist() == [2, 1, 1, 5, 1]

    def test_scores_decide_over_order_and_ties_go_to_the_wrong_one(self):
        captions = Shortlists(np.array([[1, 0], [0, 1]]), np.array([[0.2, 0.9], [0.5, 0.5]]))
        pictures = Shortlists(np.array([[0, 1], [1, 0]]))
        ranks = ranks_from_shortlists(captions, pictures, [0, 1])
        assert ranks.image_to_text.tolist() == [1, 2]

    def test_a_right_answer_scored_nan_is_last_among_all(self):
        count = 30
        lists = Shortlists(np.arange(count)[:, None], np.full((count, 1), np.nan))
        ranks = ranks_from_shortlists(lists, lists, np.arange(count))
        assert set(ranks.image_to_text) == set(ranks.text_to_image) == {count}

    def test_image_without_captions_may_have_a_list(self):
        lists = Shortlists(np.array([[0], [0]])), Shortlists(np.array([[1]]))
        assert ranks_from_shortlists(*lists, [1]).image_to_text.tolist() == [1]

    @pytest.mark.parametrize(
        ("candidates", "scores", "message"),
        [
            (np.array([[0, 0], [1, 0]]), None, "twice"),
            (np.array([[0, 2], [1, 0]]), None, "beyond the 2"),
            (np.array([[0, -2], [1, 0]]), None, "beyond the 2"),
            (np.array([[0.0, 1.0], [1, 0]]), None, "whole numbers"),
            (np.array([0, 1]), None, "row per query"),
            (np.array([[0, 1], [1, 0]]), np.zeros((2, 3)), "as many scores"),
        ],
    )
    def test_invalid_lists_are_rejected(self, candidates, scores, message):
        good = Shortlists(np.array([[0, 1], [1, 0]]))
        with pytest.raises(PolyglanceError, match=message):
            ranks_from_shortlists(Shortlists(candidates, scores), good, [0, 1])


class TestChance:
    def test_random_embeddings_score_as_chance_predicts(self):
        rng = np.random.default_rng(11)
        pictures, each = 400, 5
        texts = pictures * each
        result = evaluate_retrieval(
            rng.normal(size=(pictures, 64)),
            rng.normal(size=(texts, 64)),
            np.repeat(np.arange(pictures), each),
        )
        for k in (1, 5, 10):
            chance = k / pictures
            spread = 4 * math.sqrt(chance * (1 - chance) / texts)
            assert abs(result.text_to_image.recalls[k] / 100 - chance) < spread
            # None of the five among k draws without replacement, or a hit.
            chance = 1 - math.comb(texts - k, each) / math.comb(texts, each)
            spread = 4 * math.sqrt(chance * (1 - chance) / pictures)
            assert abs(result.image_to_text.recalls[k] / 100 - chance) < spread
        assert abs(result.text_to_image.median_rank - pictures / 2) < 30

    def test_perfect_embeddings_score_a_hundred(self):
        images = np.random.default_rng(0).normal(size=(50, 16))
        owner = np.repeat(np.arange(50), 3)
        assert evaluate_retrieval(images, images[owner], owner).mean_recall == 100.0


class TestMemory:
    def test_the_table_of_scores_is_never_whole_in_memory(self):
        rng = np.random.default_rng(0)
        images = rng.normal(size=(3000, 8)).astype(np.float32)
        owner = np.repeat(np.arange(3000), 5)
        tracemalloc.start()
        ranks = ranks_from_embeddings(images, images[owner], owner, block=512)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert set(ranks.text_to_image) == {1}
        assert peak < 12 * 2**20 < 3000 * 15000 * 4 / 10


class TestAverages:
    def test_human_and_plain_average_reproduce_smalrs_multi30k_row(self):
        """SMALR, table 2, last line before CLC: HA 65.0 and A 65.4."""
        languages = ["en", "de", "fr", "cs", "zh", "ja", "ar", "af", "ko", "ru"]
        values = [69.6, 64.7, 64.5, 61.1, 64.0, 66.7, 66.0, 67.4, 64.2, 65.7]
        row = dict(zip(languages, values, strict=True))
        assert round(human_average(row, {"en", "de", "fr", "cs"}), 1) == 65.0
        assert round(mean_over_languages(row), 1) == 65.4

    def test_meta_average_reproduces_uc2s_table(self):
        """UC2, table 1, UNITER translate-test: a mean over seven columns, not over two datasets."""
        flickr = {"en": 87.7, "de": 81.2, "fr": 81.9, "cs": 80.2}
        coco = {"en": 88.4, "zh": 87.3, "ja": 82.2}
        assert round(meta_average({"flickr30k": flickr, "mscoco": coco}), 1) == 84.1

    def test_average_over_missing_languages_is_an_error(self):
        with pytest.raises(PolyglanceError, match="needs cs"):
            human_average({"en": 50.0}, {"en", "cs"})
        with pytest.raises(PolyglanceError, match="no language"):
            meta_average({})


class TestWrongInput:
    @pytest.mark.parametrize(
        ("images", "texts", "owner", "message"),
        [
            (np.zeros((2, 3)), np.zeros((2, 4)), [0, 1], "same width"),
            (np.zeros(2), np.zeros((2, 4)), [0, 1], "same width"),
            (np.zeros((2, 3)), np.zeros((2, 3)), [0], "each of the 2 captions"),
            (np.zeros((2, 3)), np.zeros((2, 3)), [0.0, 1.0], "each of the 2 captions"),
            (np.zeros((2, 3)), np.zeros((2, 3)), [0, 2], "beyond the 2"),
            (np.zeros((2, 3)), np.zeros((2, 3)), [0, -1], "beyond the 2"),
            (np.zeros((2, 3)), np.zeros((0, 3)), [], "no captions"),
        ],
    )
    def test_is_named(self, images, texts, owner, message):
        with pytest.raises(PolyglanceError, match=message):
            evaluate_retrieval(images, texts, owner)

    @pytest.mark.parametrize("ks", [(), (0,), (1, 1)])
    def test_recall_at_nothing(self, ks):
        with pytest.raises(PolyglanceError, match="recall needs"):
            summarise(Ranks(np.array([1]), np.array([1]), 1), ks)

    def test_scores_must_be_a_table(self):
        with pytest.raises(PolyglanceError, match="images x captions"):
            ranks_from_scores(np.zeros(3), [0])


def test_every_small_ranking_of_three():
    """All 27 score tables of one caption over three pictures with scores 0, 1, 2."""
    for scores in itertools.product((0, 1, 2), repeat=3):
        table = np.array(scores)[:, None]
        result: RetrievalResult = summarise(ranks_from_scores(table, [0]), ks=(1, 2, 3))
        ahead = (scores[1] >= scores[0]) + (scores[2] >= scores[0])
        assert result.text_to_image.recalls == {k: 100.0 * (ahead < k) for k in (1, 2, 3)}
