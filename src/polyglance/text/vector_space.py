"""What can be asked of word vectors: fewer dimensions, nearest neighbours, a place on disk."""

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
    """Vectors in the ``width`` directions in which they vary most, (n, width), centred.

    Found from the covariance, which for words by the ten thousand is far smaller
    than they are. Directions point to where their largest part is positive, so that
    the same vectors always give the same answer. Directions beyond those that there
    are come out as zeros.
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
    """Each vector divided by its length; one of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled


@dataclass(frozen=True)
class Neighbour:
    """A word that is near another."""

    word: str
    language: str
    cosine: float


@dataclass(frozen=True, eq=False)
class WordSpace:
    """The words of a lexicon and a vector each, in one folder."""

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
        """The words of the greatest cosine with a word, in its language or ``among`` these.

        Languages compare only where their vectors are of one space, as an encoder's are.
        """
        code = normalise_language(language)
        row = self.lexicon.word_id(normalise_word(word, code), code)
        if row is None:
            raise PolyglanceError(
                f"the lexicon has no word {word!r} of {code!r}: try another, or make vectors of"
                " texts that have it"
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
        """Read what was saved; the vectors are mapped."""
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
