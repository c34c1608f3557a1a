from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
import torch

from polyglance.data.toy import ToyDataset, lexicon
from polyglance.data.toy.semantics import COLOURS, SHAPES
from polyglance.text.lexicon import Lexicon
from polyglance.text.subwords import SubwordConfig
from polyglance.text.vector_space import WordSpace
from polyglance.training.skipgram import (
    Neighbours,
    SkipGram,
    SkipGramSettings,
    learn_word_vectors,
    skipgram_loss,
)

SENTENCES = [[0, 1, 2, 0, 3], [2, 0], [], [4]]


def test_neighbours_are_counted_by_distance_within_sentences() -> None:
    settings = SkipGramSettings(window=2, subsampling=1e9, max_contexts=5)
    found = Neighbours.count_in(SENTENCES, 6, settings)
    wanted: Counter[tuple[int, int]] = Counter()
    for sentence in SENTENCES:
        for place, word in enumerate(sentence):
            for other, neighbour in enumerate(sentence):
                if other != place and abs(other - place) <= 2:
                    wanted[word, neighbour] += 1 if abs(other - place) == 1 else 0.5  # type: ignore[assignment]
    # Contexts lie by how common they are: 0 (3 times), 2 (twice), then 1, 3, 4 (once).
    order = [0, 2, 1, 3, 4]
    rows = found.rows(np.arange(6))
    assert rows.tolist() == [[wanted[word, context] for context in order] for word in range(6)]
    assert found.rows(np.array([3, 3]))[1].tolist() == rows[3].tolist()


def test_contexts_are_frequent_words_and_subsampling_downweights_them() -> None:
    settings = SkipGramSettings(window=1, subsampling=0.25, max_contexts=1)
    rows = Neighbours.count_in(SENTENCES, 6, settings).rows(np.arange(6))
    share = {word: count / 8 for word, count in {0: 3, 1: 1, 2: 2, 3: 1}.items()}
    kept = {word: min(1, (0.25 / f) ** 0.5 + 0.25 / f) for word, f in share.items()}
    times = {1: 1, 2: 2, 3: 1}  # next to word 0
    wanted = [[kept[0] * kept[word] * times[word]] if word in times else [0] for word in range(6)]
    np.testing.assert_allclose(rows, wanted, rtol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_loss_equals_a_loop(smoothing: float) -> None:
    generator = np.random.default_rng(0)
    scores, counts = generator.normal(size=(3, 4)), generator.random((3, 4)) * 5
    chances, negatives = generator.dirichlet(np.ones(4)), 5
    total = 0.0
    for word in range(3):
        neighbours = counts[word].sum()
        loss = 0.0
        for context in range(4):
            right = 1 / (1 + exp(-scores[word, context]))
            drawn = negatives * neighbours * chances[context]
            loss -= (counts[word, context] + smoothing * drawn) * log(right) + drawn * log(
                1 - right
            )
        total += loss / neighbours / 3
    found = skipgram_loss(*map(torch.tensor, (scores, counts, chances)), negatives, smoothing)
    assert float(found) == pytest.approx(total)


def test_word_vector_is_own_row_plus_mean_of_subwords() -> None:
    settings = SkipGramSettings(width=4, subwords=SubwordConfig(3, 3, 10**9))
    model = SkipGram(["ab", "abc", "x"], 2, settings)
    rows = model.embeddings.weight
    # <ab ab> | <ab abc bc> | <x>: five different parts, of which two words share <ab
    assert len(rows) == 3 + 5
    with torch.no_grad():
        rows.zero_()
        rows[:3, 0] = torch.tensor([1.0, 2.0, 3.0])
        rows[3:, 1] = 6.0
    found = model(np.array([2, 0, 1, 0]))
    assert found[:, :2].tolist() == [[3, 6], [1, 6], [2, 6], [1, 6]]


def toy_captions(code: str) -> list[str]:
    pictures = ToyDataset(seed=1).pictures(400, "train")
    return [caption.text for picture in pictures for caption in picture.captions[code]]


def test_colours_are_near_colours_and_shapes_near_shapes() -> None:
    """What words mean in the toy dataset is seen in what they stand next to."""
    words = Lexicon.from_texts({"en": (texts := toy_captions("en"))})
    place = {number: row for row, number in enumerate(range(2, len(words)))}
    sentences = [[place[n] for n in one] for one in words.encode_batch(texts, "en")]
    settings = SkipGramSettings(width=32, epochs=60, batch=8, window=3, subsampling=1e-2)
    vectors = learn_word_vectors(sentences, words.words[2:], settings)
    space = WordSpace(words, np.concatenate([np.zeros((2, 32), np.float32), vectors]))
    forms = lexicon("en")
    for senses in (COLOURS, SHAPES):
        kind = {form.lower() for sense in senses for form in forms[sense]} & set(words.counts["en"])
        near = [
            neighbour.word in kind for word in kind for neighbour in space.neighbours(word, "en", 2)
        ]
        assert np.mean(near) >= 0.8, sorted(kind)


def test_the_same_seed_learns_the_same_vectors() -> None:
    words, sentences = (
        [f"word{number}" for number in range(40)],
        [[*range(40)], [*range(39, 0, -2)]],
    )
    settings = SkipGramSettings(width=8, epochs=3, batch=8, window=3)
    first, second = (learn_word_vectors(sentences, words, settings) for _ in range(2))
    other = learn_word_vectors(sentences, words, replace(settings, seed=1))
    assert (first == second).all()
    assert not (first == other).any()


def test_unseen_words_get_vectors_from_subwords() -> None:
    words = ["running", "ball", "runnings", "runningx", "xyz"]
    settings = SkipGramSettings(width=16, epochs=5, batch=2, subwords=SubwordConfig(4, 4))
    vectors = learn_word_vectors([[0, 1], [1, 0]] * 5, words, settings)
    # Both share five parts with "running", and the two others were taught by no word.
    np.testing.assert_allclose(vectors[2], vectors[3], atol=1e-6)
    assert np.linalg.norm(vectors[2]) > 0
    assert not vectors[4].any()


def test_empty_corpus_gives_zero_vectors() -> None:
    assert learn_word_vectors([], []).shape == (0, 300)
    assert learn_word_vectors([], ["dog"], SkipGramSettings(width=8)).shape == (1, 8)
