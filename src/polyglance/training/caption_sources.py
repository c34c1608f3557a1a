"""Where a step takes its captions from: as they are, or code-switched, always tokenised ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from polyglance.config import check
from polyglance.data.captions import CaptionTable, EncodesBatches
from polyglance.errors import PolyglanceError
from polyglance.nn.joint import Text
from polyglance.nn.packing import Packing
from polyglance.records import Record
from polyglance.text.code_switching import CodeSwitcher
from polyglance.training.mixture import step_of

Indices = NDArray[np.int64]


def read_captions(table: CaptionTable, rows: Indices, languages: Indices | None = None) -> Text:
    """Captions by row, packed on the processor.

    ``languages`` says how the model counts the languages of the table, if it does.
    """
    ids, lengths = table.gather(rows)
    told = None if languages is None else torch.from_numpy(languages[table.languages[rows]])
    return Text(torch.from_numpy(ids.astype(np.int64)), Packing.of(lengths), told)


class CaptionSource(Protocol):
    """Captions of pictures, drawn by picture."""

    @property
    def table(self) -> CaptionTable:
        """Where drawn captions lie at present."""
        ...

    @property
    def items(self) -> Indices:
        """The pictures that have a caption to draw."""
        ...

    def sample(
        self, items: Indices, generator: np.random.Generator, *, like: Indices | None = None
    ) -> Indices:
        """One caption for each picture, as rows of `table`.

        In the language of the caption ``like`` it, wherever the picture has one in that.
        """
        ...


class PlainCaptions:
    """Captions as people wrote them, in some languages, drawn evenly or by weight."""

    def __init__(
        self,
        table: CaptionTable,
        *,
        languages: Sequence[str] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self._table = table
        chosen = table.names if languages is None else languages
        unknown = sorted(set(chosen) - set(table.names))
        if unknown:
            raise PolyglanceError(
                f"no caption is in {', '.join(unknown)}: choose from {', '.join(table.names)}"
            )
        self._weights = {name: 1.0 if weights is None else weights.get(name, 0) for name in chosen}

    @property
    def table(self) -> CaptionTable:
        """All captions."""
        return self._table

    @property
    def items(self) -> Indices:
        """The pictures with a caption in a language that is drawn."""
        drawn = np.array([self._weights.get(name, 0) > 0 for name in self._table.names], bool)
        return np.unique(self._table.owners[drawn[self._table.languages]])

    def sample(
        self, items: Indices, generator: np.random.Generator, *, like: Indices | None = None
    ) -> Indices:
        """One caption for each picture: first a language that it has, then a caption."""
        if like is None:
            return self._table.sample(items, generator, weights=self._weights)
        rows = self._table.sample_in(items, self._table.languages[like], generator)
        lacking = rows < 0
        rows[lacking] = self._table.sample(items[lacking], generator, weights=self._weights)
        return rows


class CodeSwitchedCaptions:
    """Captions of which the share ``alpha`` is code-switched (M3P, section 3.1).

    Each caption lies here as it is and in several ``variants``, all tokenised, so
    that a draw is a gather. Every ``refresh`` steps the variants are drawn anew;
    which ones depends on ``seed`` and step alone, so that a resumed run sees the
    same. Their language stays that of the original, as the paper has it.
    """

    def __init__(
        self,
        records: Sequence[Record],
        switcher: CodeSwitcher,
        tokenizer: EncodesBatches,
        *,
        alpha: float = 0.5,
        variants: int = 4,
        refresh: int = 2000,
        longest: int | None = None,
        seed: int = 0,
    ) -> None:
        self.alpha, self.variants, self.refresh, self.seed = alpha, variants, refresh, seed
        check(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", "alpha")
        check(self, lambda value: value >= 1, "1 or more", "variants")
        check(self, lambda value: value >= 0, "a number of steps, or 0 for never", "refresh")
        self._tokenizer, self._longest = tokenizer, longest
        language = switcher.source
        self._originals = [record.captions.get(language, ()) for record in records]
        texts = [text for captions in self._originals for text in captions]
        if not texts:
            raise PolyglanceError(
                f"code-switching starts from {language!r}, and no caption is in it"
            )
        self._language = language
        self._prepared = switcher.prepare(texts)
        self._epoch = -1
        self._draw(0)

    @property
    def table(self) -> CaptionTable:
        """Each caption, followed by its variants."""
        return self._table

    @property
    def items(self) -> Indices:
        """The pictures with a caption in the language that is switched from."""
        return np.unique(self._table.owners)

    def sample(
        self, items: Indices, generator: np.random.Generator, *, like: Indices | None = None
    ) -> Indices:
        """One caption for each picture, as it is or one of its variants."""
        del like  # All are in one language.
        if self.refresh:
            self._draw(step_of(generator) // self.refresh)
        rows = self._table.sample(items, generator)
        originals = rows - rows % (1 + self.variants)
        switched = generator.random(len(items)) < self.alpha
        variant = generator.integers(1, 1 + self.variants, len(items))
        return originals + np.where(switched, variant, 0)

    def _draw(self, epoch: int) -> None:
        if epoch == self._epoch:
            return
        self._epoch = epoch
        generator = np.random.default_rng([self.seed, epoch])
        draws = [iter(self._prepared.texts(generator)) for _ in range(self.variants)]

        def versions(captions: Sequence[str]) -> tuple[str, ...]:
            return tuple(
                version for text in captions for version in (text, *(next(d) for d in draws))
            )

        records = (
            Record(captions={self._language: versions(c)} if c else {}) for c in self._originals
        )
        table = CaptionTable.build(records, self._tokenizer, longest=self._longest)
        if len(table) != (1 + self.variants) * len(self._prepared):
            raise PolyglanceError(
                "the tokenizer leaves nothing of some captions: code-switching needs one that"
                " begins and ends every sentence with a sign"
            )
        self._table = table
