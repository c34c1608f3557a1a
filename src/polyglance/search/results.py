"""`SearchResults`: the hits of a search, and what is known of all of them together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from polyglance.search.query import Hit

if TYPE_CHECKING:
    from polyglance.search.library_contents import LibraryContents
    from polyglance.search.signals.understanding import Part


class SearchResults(list[Hit]):
    """Hits, best first, with the fold between those that fit and less certain ones."""

    def __init__(
        self,
        hits: Iterable[Hit] = (),
        *,
        fold: int | None = None,
        searched_for: str | None = None,
        excluded: tuple[str, ...] = (),
        language: str | None = None,
    ) -> None:
        """Collect hits.

        Args:
            hits: Best first.
            fold: How many of the first hits fit well. None if that is unknown: the model has no
                calibration, or the query is not one of words.
            searched_for: The query as it was corrected, if it was.
            excluded: What the query excludes.
            language: The query's language, if it is known.
        """
        super().__init__(hits)
        self.fold = fold
        self.searched_for = searched_for
        self.excluded = excluded
        self.language = language
        self.understood: tuple[Part, ...] = ()
        """The parts of the query that became filters."""
        self.library: LibraryContents | None = None
        """Where they were found, for thumbnails in notebooks."""

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows: thumbnails, probabilities or scores, and names."""
        from polyglance.search.render.notebook import results_html

        return None if self.library is None else results_html(self.library, self)

    @property
    def nothing_fits(self) -> bool:
        """Whether there are hits and none of them fits well."""
        return self.fold == 0 and bool(self)

    def cut(self, offset: int, k: int, min_score: float | None = None) -> Self:
        """Return one page.

        Args:
            offset: Hits to leave out at the beginning.
            k: The maximum number of hits.
            min_score: Leave out hits with a lower probability, or cosine where there is none.

        Returns:
            The page, with the fold counted from its beginning.
        """
        hits = [hit for hit in self if min_score is None or _worth(hit) >= min_score]
        fold = self.fold
        if fold is not None:
            fold = min(max(0, min(fold, len(hits)) - offset), k)
        return type(self)(
            hits[offset : offset + k],
            fold=fold,
            searched_for=self.searched_for,
            excluded=self.excluded,
            language=self.language,
        )


def _worth(hit: Hit) -> float:
    return hit.score if hit.probability is None else hit.probability
