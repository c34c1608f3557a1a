"""The part of `Library` that searches: from what a user typed to hits with probabilities."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace

from polyglance.encoders import Picture
from polyglance.encoders.protocol import Vectors
from polyglance.errors import PolyglanceError
from polyglance.languages import check_language
from polyglance.search.judging import NUM_JUDGED, PEOPLE_WEIGHT, Judge, exclusion_vectors
from polyglance.search.query import (
    DateLike,
    Hit,
    ImageQuery,
    MediaRef,
    OneOrMore,
    PathLike,
    QueryText,
    add_translations,
    as_list,
    build_filter,
    encode_query,
)
from polyglance.search.query_syntax import Weighted, parse_query
from polyglance.search.results import SearchResults
from polyglance.search.signal_library import SignalLibrary
from polyglance.search.signals.understanding import Understood
from polyglance.search.signals.words import query_words
from polyglance.search.store import Filter
from polyglance.text.translation.translators import Translator


class SearchableLibrary(SignalLibrary):
    """Searches by words, pictures and both."""

    _counted: tuple[Hashable, int] | None = None

    def search(
        self,
        text: QueryText | None = None,
        *,
        picture: OneOrMore[ImageQuery | Weighted[ImageQuery]] = None,
        exclude: OneOrMore[QueryText] = None,
        exclude_picture: OneOrMore[ImageQuery | Weighted[ImageQuery]] = None,
        k: int = 20,
        offset: int = 0,
        min_score: float | None = None,
        folder: OneOrMore[PathLike] = None,
        kind: str | None = None,
        since: DateLike = None,
        until: DateLike = None,
        camera: OneOrMore[str] = None,
        place: OneOrMore[str] = None,
        language: str | None = None,
        correct: bool = True,
        literal: bool = False,
        translators: Sequence[Translator] = (),
        all_segments: bool = False,
        candidates: int | None = None,
        off: Collection[str] = (),
        stack: bool = False,
    ) -> SearchResults:
        """Return the best hits for a text, for images, or for both together.

        Args:
            text: Words in any language, or the same in several, by language: then the average
                counts. ``beach without people``, ``beach -people``, ``beach^2 dog`` and
                ``"no parking"`` are understood (`polyglance.search.query_syntax`).
            picture: Find what looks like these images; ``Weighted(image, 2)`` counts twice.
            exclude: Words for what should not be shown.
            exclude_picture: Images of what should not be shown.
            k: The maximum number of hits.
            offset: Leave out so many of the best.
            min_score: Leave out hits with a lower probability, or with a lower cosine where there
                are no probabilities. Of a date or place alone all hits fit.
            folder: Only files in these folders.
            kind: Only ``"picture"`` or ``"clip"``.
            since: Only files taken then or later.
            until: Only files taken then or earlier.
            camera: Only files taken with one of these, by the names that the library has.
            place: Only files taken at one of these, by the names that the library has.
            language: The language of texts that do not say theirs.
            correct: Correct typing mistakes in ``text``.
            literal: Take ``text`` as it is: no exclusions, weights and corrections.
            translators: Translate ``text`` from ``language``, and average over all languages.
            all_segments: Return every good span of a clip, not only the best.
            candidates: How many of the best hits a re-ranker scores; None for 20 with a model's
                reader and 50 with others. It scores ``text`` alone;
                images count by their vectors.
            off: Signals to search without: ``"names"`` of files and folders, ``"dates"`` and
                ``"places"`` in words, ``"text"`` inside pictures (`polyglance.search.signals`).
            stack: Of copies, near-duplicates and bursts return the best, with the others in
                `Hit.stack`.

        Returns:
            Up to ``k`` hits, best first, and how many of them fit well. Where ``text`` is a date or
            a place and nothing else is asked for, they are sorted by date, the newest first.
        """
        if k < 1:
            raise PolyglanceError(f"k must be 1 or more, not {k}")
        if offset < 0:
            raise PolyglanceError(f"offset must be 0 or more, not {offset}")
        language = None if language is None else check_language(language)
        where = replace(
            build_filter(folder, kind, since, until),
            cameras=None if camera is None else tuple(as_list(camera)),
            places=None if place is None else tuple(as_list(place)),
        )
        encoder = self._encoder()
        understood, asked, parsed = self._take_apart(text, language, off), None, None
        if text is not None:
            if isinstance(text, str):
                text = understood.text
                if not translators:
                    parsed = parse_query(
                        text,
                        language,
                        correct=correct,
                        literal=literal,
                        known=self._have_words,
                        surprisal=getattr(encoder, "surprisal", None),
                    )
                    text = parsed.text
            text = add_translations(text, language, translators)
            asked = self._signals().ask(understood, text, off)
            where = asked.restrict(where)
        texts: list[QueryText] = [] if text is None else [text]
        text_weights = [1.0] * len(texts)
        excluded: list[QueryText] = as_list(exclude)
        if parsed is not None:
            texts = [one.part for one in parsed.wanted]
            text_weights = [one.weight for one in parsed.wanted]
            excluded += parsed.excluded
        pictures, weights = _split_weights(picture)
        unwanted, unwanted_weights = _split_weights(exclude_picture)
        words, directions = exclusion_vectors(encoder, excluded)
        code = language if parsed is None else parsed.language
        only_filters = understood.only_filters and not (pictures or unwanted or excluded)
        if only_filters and not understood.ranked_places:
            hits = self._newest(where, k, offset, understood, stack=stack)
            page = SearchResults(hits, language=code)
            page.understood, page.library = understood.parts, self
            return page
        query = encode_query(
            encoder,
            texts,
            self._with_vectors(pictures),
            weights=[*text_weights, *weights],
            exclude=words,
            exclude_pictures=[*directions, *self._with_vectors(unwanted)],
            exclude_weights=[
                *[1.0] * len(words),
                *[PEOPLE_WEIGHT] * len(directions),
                *unwanted_weights,
            ],
            language=language,
        )
        reranker = self._reranker() if text else None
        if reranker and candidates is None:
            candidates = reranker.num_candidates
        count = max(k + offset, NUM_JUDGED, candidates or 0 if reranker else 0)
        one_per_item = not all_segments
        hits = self._find(query.vector, count, where, asked, one_per_item=one_per_item, stack=stack)
        if reranker and text:
            best, others = hits[:candidates], hits[candidates:]
            hits = [*reranker.rerank(best, text, query.vector, language=language), *others]
        judge = None
        if not pictures and not unwanted and (understood.rest or not understood.parts):
            judge = Judge.of(encoder, query, text or None, excluded, code)
        results = SearchResults(
            hits,
            searched_for=parsed.searched_for if parsed else None,
            excluded=parsed.excluded if parsed else (),
            language=code,
        )
        if judge is not None:
            results = judge.judge(results, self._size(), self.vector, understood)
        page = results.cut(offset, k, min_score)
        page.understood, page.library = understood.parts, self
        return page

    def _newest(
        self, where: Filter, k: int, offset: int, understood: Understood, *, stack: bool
    ) -> list[Hit]:
        """Return what matches a filter, the newest first; of a stack, the newest stands for all."""
        view, end = self.browser.view(where, fresh=True), offset + k
        why = understood.filter_reasons

        def hits(first: int, count: int) -> list[Hit]:
            page = self.browser.page(view, first, count)
            return [Hit.from_media(media, score=0.0, why=why, by_date=True) for _, media in page]

        if not stack:
            return hits(offset, k)
        wanted = end * 2
        while True:
            folded = self._stacks().fold(hits(0, wanted))
            if len(folded) >= end or wanted >= len(view):
                return folded[offset:end]
            wanted *= 4

    def _size(self) -> int:
        """Return the number of vectors, which is read again after a change."""
        store = self._store()
        revision = store.revision()
        if self._counted is None or self._counted[0] != revision:
            self._counted = revision, sum(store.vector_counts(0))
        return self._counted[1]

    def _have_words(self, words: Sequence[str]) -> set[str]:
        """Return those words that names, places or texts of the library have."""
        index = self._signals().words()
        if index is None:
            return set()
        terms = {term: word for word in words for term in query_words(word)}
        found = index.postings([f"{kind}:{term}" for kind in "npt" for term in terms])
        return {terms[name.partition(":")[2]] for name in found}

    def _with_vectors(self, pictures: Sequence[ImageQuery]) -> list[Picture | Vectors]:
        """Replace references into the library by their vectors."""
        return [self.vector(one) if isinstance(one, MediaRef) else one for one in pictures]


def _split_weights(
    pictures: OneOrMore[ImageQuery | Weighted[ImageQuery]],
) -> tuple[list[ImageQuery], list[float]]:
    """Return images and their weights."""
    given: list[ImageQuery | Weighted[ImageQuery]] = as_list(pictures)
    bare = [one.part if isinstance(one, Weighted) else one for one in given]
    return bare, [one.weight if isinstance(one, Weighted) else 1.0 for one in given]
