"""Word vectors of a lexicon: PCA, nearest neighbours, saving and opening."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, PolyglanceError, error_reason
from polyglance.languages import normalise_language
from polyglance.text.lexicon import Lexicon
from polyglance.text.segment import normalise_word

Vectors = NDArray[np.float32]

_FILE = "vectors.npy"


def principal_components(vectors: Vectors, num_components: int) -> Vectors:
    """Project vectors, (n, d), onto their first principal components, (n, num_components).

    Computed from the (d, d) covariance, which is small beside the vectors. The sign of a
    component makes its largest entry positive, so that results are reproducible.
    Components beyond d are zero.
    """
    centred = vectors.astype(np.float64)
    if len(centred):
        centred -= centred.mean(axis=0)
    values, directions = np.linalg.eigh(centred.T @ centred)
    chosen = directions[:, np.argsort(values)[::-1][:num_components]]
    largest = np.take_along_axis(chosen, np.abs(chosen).argmax(axis=0)[None], axis=0)
    reduced = np.zeros((len(vectors), num_components), np.float32)
    reduced[:, : chosen.shape[1]] = centred @ (chosen * np.sign(largest))
    return reduced


def l2_normalise(vectors: Vectors) -> Vectors:
    """Divide each vector by its L2 norm; zero vectors stay zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled


@dataclass(frozen=True)
class Neighbour:
    """A nearest neighbour of a word."""

    word: str
    language: str
    cosine: float


@dataclass(frozen=True, eq=False)
class WordSpace:
    """A lexicon and a vector for each of its words, (words, dim)."""

    lexicon: Lexicon
    vectors: Vectors

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.lexicon):
            raise DataError(
                f"{len(self.lexicon):,} words and vectors of shape {self.vectors.shape} do not"
                " belong together"
            )

    def neighbours(
        self, word: str, language: str, count: int = 10, *, languages: Sequence[str] | None = None
    ) -> list[Neighbour]:
        """Return the words with the highest cosine to a word.

        Args:
            word: The word.
            language: Its language.
            count: Number of neighbours.
            languages: Languages of the neighbours; None for the word's own. Comparing
                languages needs vectors in a shared space, such as an encoder's.
        """
        code = normalise_language(language)
        row = self.lexicon.word_id(normalise_word(word, code), code)
        if row is None:
            raise PolyglanceError(
                f"the lexicon has no word {word!r} in {code!r}: try another, or make vectors from"
                " texts that contain it"
            )
        chosen = [code] if languages is None else [normalise_language(other) for other in languages]
        if unknown := [other for other in chosen if other not in self.lexicon.languages]:
            raise PolyglanceError(
                f"the lexicon has no words of {unknown[0]!r}, only of "
                f"{', '.join(self.lexicon.languages)}"
            )
        places = [self.lexicon.languages.index(other) for other in chosen]
        rows = np.flatnonzero(np.isin(self.lexicon.language_ids, places))
        rows = rows[rows != row]
        cosines = l2_normalise(self.vectors[rows]) @ l2_normalise(self.vectors[row : row + 1])[0]
        best = np.argsort(-cosines, kind="stable")[:count]
        return [
            Neighbour(
                self.lexicon.words[rows[i]],
                self.lexicon.languages[self.lexicon.language_ids[rows[i]]],
                float(cosines[i]),
            )
            for i in best
        ]

    def save(self, folder: str | Path) -> None:
        """Write ``lexicon.json`` and ``vectors.npy``."""
        folder = Path(folder)
        self.lexicon.save(folder)
        np.save(folder / _FILE, self.vectors, allow_pickle=False)

    @classmethod
    def open(cls, folder: str | Path) -> WordSpace:
        """Open a saved folder; the vectors are memory-mapped."""
        folder = Path(folder)
        lexicon = Lexicon.open(folder)
        path = folder / _FILE
        try:
            vectors = np.load(path, mmap_mode="r", allow_pickle=False)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error_reason(error)})") from error
        except (ValueError, EOFError) as error:
            raise DataError(f"{path}: expected an array of vectors ({error})") from error
        return cls(lexicon, vectors)
