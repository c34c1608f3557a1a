"""What M3P is trained and measured on: regions, captions, texts and dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polyglance.data.captions import CaptionTable
from polyglance.data.readers import read_all
from polyglance.errors import PolyglanceError
from polyglance.objectives.masked_language import WordMasking
from polyglance.recipes.common import spoken
from polyglance.recipes.pairs.m3p_recipe import CodeSwitching, M3PRecipe
from polyglance.recipes.pairs.region_splits import ENGLISH, Split, word_masking
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.text.code_switching import CodeSwitcher
from polyglance.text.dictionaries import open_dictionary
from polyglance.training.caption_sources import (
    CaptionSource,
    CodeSwitchedCaptions,
    PlainCaptions,
)


@dataclass(frozen=True, eq=False)
class World:
    """What a model is trained and measured on."""

    recipe: M3PRecipe
    tokenizer: Tokenizer
    train: Split
    validation: Split | None
    test: Split | None
    texts: CaptionTable | None
    switcher: CodeSwitcher | None

    @classmethod
    def open(cls, recipe: M3PRecipe, data: Path, device: str) -> World:
        """Read what a recipe names; what is missing is found out before training."""
        tokenizer = open_tokenizer(recipe.encoder)
        reader = recipe.reader(data, tokenizer, device)
        sentences = [
            record
            for text in recipe.texts
            for record in read_all(text.format, data / text.manifest)
        ]
        return cls(
            recipe=recipe,
            tokenizer=tokenizer,
            train=reader.training(recipe.train, *recipe.more),
            validation=reader.measured(recipe.validation, recipe.validate_on),
            test=reader.measured(recipe.test, recipe.test_on),
            texts=(
                CaptionTable.build(sentences, tokenizer, longest=recipe.longest_text)
                if sentences
                else None
            ),
            switcher=_switcher(recipe.switching, data) if recipe.switches else None,
        )

    @property
    def languages(self) -> tuple[str, ...]:
        """All that anything is in, English first."""
        tables = [s.captions for s in (self.train, self.validation, self.test) if s is not None]
        names = set().union(*map(spoken, tables), spoken(self.texts) if self.texts else ())
        return (ENGLISH, *sorted(names - {ENGLISH}))

    def captions(
        self, *, switched: bool, languages: Sequence[str] | None, smoothing: float = 0.0
    ) -> CaptionSource:
        """Captions to train on: in these languages, or English ones code-switched.

        A language is drawn by the number of its captions to the power of ``smoothing``.
        """
        recipe = self.recipe.switching
        if not switched:
            table = self.train.captions
            counts = np.bincount(table.languages, minlength=len(table.names)).astype(float)
            shares = dict(zip(table.names, (counts**smoothing).tolist(), strict=True))
            return PlainCaptions(table, languages=languages, weights=shares)
        if self.switcher is None:
            raise PolyglanceError(
                "code-switching needs languages to switch to: name them in switching.languages,"
                " or set switched to false"
            )
        return CodeSwitchedCaptions(
            self.train.records,
            self.switcher,
            self.tokenizer,
            alpha=recipe.alpha,
            variants=recipe.variants,
            refresh=recipe.refresh,
            longest=self.recipe.longest_text,
            seed=self.recipe.loop.seed,
        )

    @property
    def masking(self) -> WordMasking:
        """BERT's rates, with the mask and the words of the tokenizer."""
        return word_masking(self.tokenizer, self.recipe.encoder)


def _switcher(settings: CodeSwitching, data: Path) -> CodeSwitcher | None:
    if not settings.languages:
        return None
    dictionaries = {}
    for language in settings.languages:
        name = settings.file(language)
        dictionaries[language] = open_dictionary(data / name, source=ENGLISH)
    return CodeSwitcher(
        dictionaries,
        beta=settings.beta,
        preference=settings.preference,
        one_a_sentence=settings.one_a_sentence,
    )
