"""Give hits the probability that they match, and find the fold (`polyglance.encoders.calibration`).

An exclusion lowers the cosine of what is wanted by half of that of what is excluded; the
probability is that of the lowered cosine, and never above that of what is wanted. A query that only
excludes is matched by what does not show the excluded thing. What a file's name, date, place or
text adds to a hit's rank counts like a higher cosine. What is called like the whole query is
certain. So is, where no picture fits by its pixels, what has all the words in its name or text, or
was taken at the place that was asked for: no model sees who "Oma" is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from polyglance.encoders import Encoder
from polyglance.encoders.calibration import PEOPLE, Calibration, Floats, QueryStatistics
from polyglance.encoders.protocol import Vectors
from polyglance.search.query import EncodedQuery, MediaRef, QueryText
from polyglance.search.results import SearchResults
from polyglance.search.signals.ranking import NAMED, answers_all
from polyglance.search.signals.understanding import Understood
from polyglance.text.negation import PEOPLE as PEOPLE_WORDS

PEOPLE_WEIGHT = 2.0
"""The weight of the direction of people among exclusions, whose weight is 1.

With 1, for 23 queries such as "dog without people" on 6,100 pictures, 73 to 77 % of the first 20
hits show nobody, by language; with this one 80 to 84 %, and as many of them show the dog.
"""


NUM_JUDGED = 50
"""Of so many hits, however many are shown, the best by their pixels say what the library has."""
_UNLIKELY = 0.5
"""No picture fits by its pixels where the best has less than this share of the fold."""


def exclusion_vectors(
    encoder: Encoder, excluded: Sequence[QueryText]
) -> tuple[list[QueryText], list[Vectors]]:
    """Replace words for people by the direction of people, if the model's calibration has it.

    Returns:
        Other texts, and vectors ``[width]``.
    """
    calibration = _calibration(encoder)
    direction = None if calibration is None else calibration.directions.get(PEOPLE)
    if direction is None:
        return list(excluded), []
    people = [
        isinstance(text, str) and text.strip().casefold() in PEOPLE_WORDS for text in excluded
    ]
    words = [text for text, is_people in zip(excluded, people, strict=True) if not is_people]
    return words, [direction] * sum(people)


@dataclass(frozen=True, slots=True, eq=False)
class Judge:
    """Judges the hits of one query."""

    calibration: Calibration
    query: EncodedQuery
    statistics: QueryStatistics
    language: str | None
    excludes: bool
    """Whether the query excludes something."""

    @classmethod
    def of(
        cls,
        encoder: Encoder,
        query: EncodedQuery,
        text: QueryText | None,
        excluded: Sequence[QueryText],
        language: str | None,
    ) -> Self | None:
        """Prepare for the hits of a query of words.

        Args:
            encoder: The library's model.
            query: The query's vectors.
            text: What is wanted, in words; None if nothing is.
            excluded: What is not.
            language: The query's language, if it is known.

        Returns:
            The judge, or None if the model is not calibrated.
        """
        calibration = _calibration(encoder)
        if calibration is None or (text is None and not excluded):
            return None
        vector = -query.vector if query.wanted is None else query.wanted
        words = text if isinstance(text, str) else None
        surprisal = getattr(encoder, "surprisal", None)
        nats = surprisal(words) if surprisal is not None and words else None
        code = language if isinstance(text, str) or text is None else None
        statistics = calibration.statistics(vector, nats)
        return cls(calibration, query, statistics, code, bool(excluded))

    def judge(
        self,
        results: SearchResults,
        size: int,
        vector: Callable[[MediaRef], Vectors],
        understood: Understood,
    ) -> SearchResults:
        """Give hits their probabilities, and results their fold.

        Args:
            results: Hits, best first; at least `NUM_JUDGED`, if the library has so many.
            size: The number of pictures in the library.
            vector: Returns that of a hit, ``[width]``.
            understood: The query taken apart.

        Returns:
            The same hits in the same order.
        """
        only_excludes = self.query.wanted is None
        scale = -1.0 if only_excludes else self.query.length
        cosines = np.array([hit.score * scale for hit in results], np.float64)
        wanted = self.query.wanted
        if wanted is not None and len(results) and not np.array_equal(wanted, self.query.vector):
            # A direction lies opposite to what it excludes: the score rises, but nothing fits more.
            cosines = np.minimum(cosines, np.stack([vector(hit) for hit in results]) @ wanted)
        # Only pixels say whether the library has anything alike.
        judged = cosines[:NUM_JUDGED]
        order = np.arange(len(judged)) if only_excludes else np.argsort(-judged, kind="stable")
        known = None if only_excludes or not len(order) else vector(results[order[0]])
        top = self.calibration.top_hits(cosines[order], known)
        fold = self.calibration.fold(self.language)

        def probabilities_of(values: Floats) -> Floats:
            return self.calibration.probabilities(values, self.statistics, size, self.language, top)

        certain = np.zeros(len(results), np.bool_)
        if not only_excludes:
            gains = np.array([hit.gain for hit in results], np.float64)
            certain = gains >= NAMED
            # What is excluded can only be seen, so that no name is enough.
            if not self.excludes and not (probabilities_of(judged) >= _UNLIKELY * fold).any():
                answers = [any(answers_all(one, understood) for one in hit.why) for hit in results]
                certain |= np.array(answers, np.bool_)
            cosines = cosines + gains * self.statistics.deviation
        found = probabilities_of(cosines)
        found = np.where(certain, 1.0, 1 - found if only_excludes else found)
        probabilities = found.tolist()
        results[:] = [
            replace(hit, probability=probability, above_fold=probability >= fold)
            for hit, probability in zip(results, probabilities, strict=True)
        ]
        below = (place for place, value in enumerate(probabilities) if value < fold)
        results.fold = next(below, len(results))
        return results


def _calibration(encoder: Encoder) -> Calibration | None:
    calibration: Calibration | None = getattr(encoder, "calibration", None)
    return calibration
