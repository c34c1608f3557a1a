from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polyglance.errors import DataError, PolyglanceError
from polyglance.text.lexicon import Lexicon
from polyglance.text.vector_space import WordSpace, l2_normalise, principal_components

LEXICON = Lexicon({"en": {"dog": 2, "cat": 1, "red": 1}, "de": {"hund": 1, "rot": 1}})
VECTORS = np.array(
    [[0, 0], [0, 0], [1, 0.1], [1, 0.5], [0, 1], [2, 0], [0.1, 3]], np.float32
)  # fmt: skip


@pytest.mark.parametrize("shape", [(200, 12), (8, 20)])
def test_principal_components_equal_an_svd(shape: tuple[int, int]) -> None:
    vectors = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    vectors *= np.linspace(1, 4, shape[1], dtype=np.float32)
    vectors += 5
    reduced = principal_components(vectors, 5)
    assert reduced.shape == (shape[0], 5)
    assert reduced.dtype == np.float32
    left, values, _ = np.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    wanted = (left * values)[:, :5]
    signs = np.sign((wanted * reduced).sum(0))
    np.testing.assert_allclose(reduced, wanted * signs, atol=1e-3)


def test_components_beyond_the_dimension_are_zero() -> None:
    vectors = np.array([[1, 1], [2, 2], [3, 3]], np.float32)
    reduced = principal_components(vectors, 3)
    np.testing.assert_allclose(reduced[:, 0], [-(2**0.5), 0, 2**0.5], atol=1e-6)
    np.testing.assert_allclose(reduced[:, 1:], 0, atol=1e-6)
    assert principal_components(np.zeros((0, 4), np.float32), 2).shape == (0, 2)


def test_l2_normalise() -> None:
    assert l2_normalise(np.array([[3, 4], [0, 0]], np.float32)).tolist() == [
        [pytest.approx(0.6), pytest.approx(0.8)], [0, 0],
    ]  # fmt: skip


def test_neighbours_in_a_language_and_across() -> None:
    space = WordSpace(LEXICON, VECTORS)
    assert [found.word for found in space.neighbours("Dog", "en")] == ["cat", "red"]
    across = space.neighbours("dog", "eng", 2, languages=["de", "en"])
    assert [(found.word, found.language) for found in across] == [("hund", "de"), ("cat", "en")]
    assert across[0].cosine == pytest.approx(1 / 1.01**0.5)


def test_unknown_words_and_languages_are_refused() -> None:
    space = WordSpace(LEXICON, VECTORS)
    with pytest.raises(PolyglanceError, match="no word 'hund' in 'en'"):
        space.neighbours("hund", "en")
    with pytest.raises(PolyglanceError, match="no words of 'fr', only of en, de"):
        space.neighbours("dog", "en", languages=["fr"])


def test_save_and_open_round_trip(tmp_path: Path) -> None:
    WordSpace(LEXICON, VECTORS).save(tmp_path)
    again = WordSpace.open(tmp_path)
    assert (again.vectors == VECTORS).all()
    assert again.lexicon.words == LEXICON.words
    np.save(tmp_path / "vectors.npy", VECTORS[:3])
    with pytest.raises(DataError, match="do not belong together"):
        WordSpace.open(tmp_path)
    (tmp_path / "vectors.npy").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="expected an array"):
        WordSpace.open(tmp_path)
    (tmp_path / "vectors.npy").unlink()
    with pytest.raises(DataError, match="cannot be read"):
        WordSpace.open(tmp_path)
