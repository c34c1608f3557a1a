"""Samplers of captions: as they are, balanced by language, or code-switched.

All captions are tokenized beforehand; a sampler returns rows of a `CaptionTable`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from polyglance.batches.order import GroupedOrder
from polyglance.batches.order import Streaming as Streaming
from polyglance.config import validate_fields
from polyglance.data.captions import BatchTokenizer, CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.records import Record
from polyglance.text.code_switching import CodeSwitcher
from polyglance.training.mixture import step_of, take_in_order
from polyglance.utils.ragged import ragged_arange

Indices = NDArray[np.int64]


class LanguageBalancedSampler:
    """Samples a language, then an image that has it, then one of its captions.

    UC2 samples the language of a caption "with even probability 1/|L|" (section 3.3.1).
    """

    def __init__(
        self,
        table: CaptionTable,
        *,
        languages: Sequence[str] | None = None,
        language_alpha: float = 0.0,
        streaming: Streaming | None = None,
        repeats: Indices | None = None,
    ) -> None:
        """Group the captions by language and image.

        Args:
            table: all captions.
            languages: those to sample from; None for all. Each needs two images or more.
            language_alpha: a language's probability is proportional to the number of its
                captions to this power; 0 for equal probabilities.
            streaming: go through each language's images in shuffled order instead of drawing
                them with replacement, for a corpus on disk.
            repeats: ``(images,)``: sample an image as if it were in the table so many times, 1 or
                more; None for once. Not with ``streaming``.
        """
        if streaming is not None and repeats is not None:
            raise PolyglanceError("a corpus on disk is gone through in order: leave repeats out")
        self.table = table
        self.languages = tuple(table.language_codes if languages is None else languages)
        starts, sizes, counts, repeated = [], [], [], []
        for language in self.languages:
            rows = table.rows_in_language(language)
            images, first, size = np.unique(
                table.record_ids[rows], return_index=True, return_counts=True
            )
            if len(images) < 2:
                raise PolyglanceError(
                    f"training needs at least two images with captions in {language}: choose"
                    " languages that the corpus has"
                )
            # The captions of one image in one language are contiguous in the table.
            starts.append(rows[first])
            sizes.append(size)
            counts.append(len(images))
            repeated.append(np.ones_like(images) if repeats is None else repeats[images])
        self._start, self._size = np.concatenate(starts), np.concatenate(sizes)
        self._count = np.array(counts, np.int64)
        captions = [size @ number for size, number in zip(sizes, repeated, strict=True)]
        weights = np.array(captions, float) ** language_alpha
        self._probabilities = weights / weights.sum()
        self._order: GroupedOrder | None = None
        if streaming is not None:
            self._order = streaming.order(self._count, self._probabilities)
        self._base = np.cumsum(self._count) - self._count
        self._repeated = np.repeat(np.arange(len(self._start)), np.concatenate(repeated))
        self._num_repeated = np.array([number.sum() for number in repeated], np.int64)
        self._repeated_base = np.cumsum(self._num_repeated) - self._num_repeated
        self._group = np.full(len(table), -1, np.int64)
        groups = np.repeat(np.arange(len(self._start)), self._size)
        self._group[ragged_arange(self._start, self._size)] = groups

    @property
    def images(self) -> Indices:
        """The images that may be sampled."""
        return np.unique(self.table.record_ids[self._start])

    def sample(self, count: int, generator: np.random.Generator) -> Indices:
        """Sample captions, as rows of the table."""
        if self._order is not None:
            language, image = take_in_order(self._order, count, generator)
            group = self._base[language] + image
        else:
            language = generator.choice(len(self._count), size=count, p=self._probabilities)
            place = generator.integers(self._num_repeated[language])
            group = self._repeated[self._repeated_base[language] + place]
        return self._sample_caption(group, generator)

    def sample_other_images(self, rows: Indices, generator: np.random.Generator) -> Indices:
        """Sample for each caption one in the same language, of another image.

        From a corpus on disk, the images of the same captions are taken where they suffice,
        since these are read anyway.
        """
        group = self._group[rows]
        language = np.searchsorted(self._base, group, side="right") - 1
        if self._order is not None:
            others = _others_of_same(group, language, generator)
            if (others >= 0).all():
                return self._sample_caption(others, generator)
        base, count = self._base[language], self._count[language]
        shift = generator.integers(1, count)
        return self._sample_caption(base + (group - base + shift) % count, generator)

    def _sample_caption(self, group: Indices, generator: np.random.Generator) -> Indices:
        rows: Indices = self._start[group] + generator.integers(self._size[group])
        return rows


def _others_of_same(group: Indices, kind: Indices, generator: np.random.Generator) -> Indices:
    """Draw for each entry another group among the entries of its kind; -1 where there is none."""
    groups, first = np.unique(group, return_index=True)  # sorted, and so are their kinds
    kinds = kind[first]
    low, high = np.searchsorted(kinds, kind), np.searchsorted(kinds, kind, side="right")
    place = np.searchsorted(groups, group)
    shift = 1 + (generator.random(len(group)) * (high - low - 1)).astype(np.int64)
    other = low + (place - low + shift) % (high - low)
    return np.where(high - low > 1, groups[other], -1)


class CaptionSource(Protocol):
    """Samples captions of given images."""

    @property
    def table(self) -> CaptionTable:
        """The table that sampled rows refer to."""
        ...

    @property
    def images(self) -> Indices:
        """The images with captions to sample."""
        ...

    def sample(
        self, images: Indices, generator: np.random.Generator, *, like: Indices | None = None
    ) -> Indices:
        """Sample one caption for each image.

        Args:
            images: the images.
            generator: the source of randomness.
            like: a caption for each image, whose language to prefer.

        Returns:
            Rows of `table`.
        """
        ...


class PlainCaptions:
    """Captions as people wrote them, in chosen languages."""

    def __init__(
        self,
        table: CaptionTable,
        *,
        languages: Sequence[str] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Choose the captions.

        Args:
            table: all captions.
            languages: those to sample from; None for all.
            weights: a language's relative probability among those that an image has; None
                for equal ones.
        """
        self._table = table
        chosen = table.language_codes if languages is None else languages
        if unknown := sorted(set(chosen) - set(table.language_codes)):
            raise PolyglanceError(
                f"no caption is in {', '.join(unknown)}: choose from"
                f" {', '.join(table.language_codes)}"
            )
        self._weights = {name: 1.0 if weights is None else weights.get(name, 0) for name in chosen}

    @property
    def table(self) -> CaptionTable:
        """All captions."""
        return self._table

    @property
    def images(self) -> Indices:
        """The images with a caption in a sampled language."""
        codes = self._table.language_codes
        sampled = np.array([self._weights.get(code, 0) > 0 for code in codes], bool)
        return np.unique(self._table.record_ids[sampled[self._table.language_ids]])

    def sample(
        self, images: Indices, generator: np.random.Generator, *, like: Indices | None = None
    ) -> Indices:
        """Sample a language that the image has, then one of its captions in it."""
        if like is None:
            return self._table.sample(images, generator, weights=self._weights)
        rows = self._table.sample_in_languages(images, self._table.language_ids[like], generator)
        lacking = rows < 0
        rows[lacking] = self._table.sample(images[lacking], generator, weights=self._weights)
        return rows


class CodeSwitchedCaptions:
    """Captions of which a share ``alpha`` is code-switched (M3P, section 3.1).

    Each caption is in the table as it is and in several code-switched variants, all tokenized,
    so that sampling is a gather. The variants are replaced every ``refresh`` steps; they depend
    on seed and step alone, so that a resumed run sees the same ones. Their language id stays
    that of the original, as in the paper.
    """

    def __init__(
        self,
        records: Sequence[Record],
        switcher: CodeSwitcher,
        tokenizer: BatchTokenizer,
        *,
        alpha: float = 0.5,
        variants: int = 4,
        refresh: int = 2000,
        max_tokens: int | None = None,
        seed: int = 0,
    ) -> None:
        """Tokenize the captions and their first variants.

        Args:
            records: captioned images.
            switcher: replaces words by translations.
            tokenizer: of the captions.
            alpha: the share of captions that are code-switched.
            variants: of each caption.
            refresh: steps after which variants are replaced; 0 for never.
            max_tokens: longer captions are truncated.
            seed: of the replaced words.
        """
        self.alpha, self.variants, self.refresh, self.seed = alpha, variants, refresh, seed
        validate_fields(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", "alpha")
        validate_fields(self, lambda value: value >= 1, "1 or more", "variants")
        validate_fields(self, lambda value: value >= 0, "a number of steps, or 0", "refresh")
        self._tokenizer, self._max_tokens = tokenizer, max_tokens
        self._language = switcher.source
        self._originals = [record.captions.get(self._language, ()) for record in records]
        texts = [text for captions in self._originals for text in captions]
        if not texts:
            raise PolyglanceError(
                f"code-switching replaces words of {self._language!r} captions, and there are"
                " none: choose a corpus that has some"
            )
        self._prepared = switcher.prepare(texts)
        self._epoch = -1
        self._draw_variants(0)

    @property
    def table(self) -> CaptionTable:
        """Each caption, followed by its variants."""
        return self._table

    @property
    def images(self) -> Indices:
        """The images with a caption in the source language."""
        return np.unique(self._table.record_ids)

    def sample(
        self, images: Indices, generator: np.random.Generator, *, like: Indices | None = None
    ) -> Indices:
        """Sample one caption for each image, as it is or one of its variants."""
        del like  # all captions are in one language
        if self.refresh:
            self._draw_variants(step_of(generator) // self.refresh)
        rows = self._table.sample(images, generator)
        originals = rows - rows % (1 + self.variants)
        switched = generator.random(len(images)) < self.alpha
        variant = generator.integers(1, 1 + self.variants, len(images))
        return originals + np.where(switched, variant, 0)

    def _draw_variants(self, epoch: int) -> None:
        if epoch == self._epoch:
            return
        self._epoch = epoch
        generator = np.random.default_rng([self.seed, epoch])
        draws = [iter(self._prepared.draw_texts(generator)) for _ in range(self.variants)]

        def versions(captions: Sequence[str]) -> tuple[str, ...]:
            return tuple(
                version for text in captions for version in (text, *(next(d) for d in draws))
            )

        records = (
            Record(captions={self._language: versions(c)} if c else {}) for c in self._originals
        )
        table = CaptionTable.build(records, self._tokenizer, max_tokens=self._max_tokens)
        if len(table) != (1 + self.variants) * len(self._prepared):
            raise PolyglanceError(
                "some captions have no tokens: code-switching needs a tokenizer that adds special"
                " tokens to every sentence"
            )
        self._table = table
