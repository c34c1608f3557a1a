"""A picture or clip of the toy dataset, with its captions, questions and pixels.

Everything is generated on access and does not depend on the order of access.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from polyglance.data.toy.grammar import PLOTS, STYLES, Caption
from polyglance.data.toy.grammars import GRAMMARS, LANGUAGES, describe, narrate
from polyglance.data.toy.questions import film_questions, scene_questions
from polyglance.data.toy.rendering import (
    FRAMES_PER_SECOND,
    SECONDS,
    Pixels,
    bounding_box,
    render,
    render_film,
)
from polyglance.data.toy.scenes import Film, Scene
from polyglance.data.toy.semantics import CONVERSE, Fact
from polyglance.data.toy.splits import Split
from polyglance.records import Question, Record, Region

_WORDINGS, _QUESTIONS = 1, 2  # random streams of an item


@dataclass(frozen=True)
class Item(ABC):
    """What pictures and clips share: a key, a split, captions and questions."""

    key: str
    split: Split
    languages: tuple[str, ...]
    captions_per_language: int
    seed: tuple[int, ...]
    exact: bool
    """Whether every caption gives exactly the composition: both colours, no size."""

    @cached_property
    def captions(self) -> dict[str, tuple[Caption, ...]]:
        """Captions by language.

        The first captions of all languages are translations of each other and name both
        things with their colours. The others are worded independently in each language
        and may omit attributes.
        """
        rng = self._rng(_WORDINGS)
        shared_wording = self._draw_wording(rng, complete=True)
        captions = {}
        # Draw for every language, so that captions do not depend on the languages chosen.
        for language in LANGUAGES:
            wordings = [
                self._draw_wording(rng, complete=self.exact)
                for _ in range(self.captions_per_language - 1)
            ]
            if language in self.languages:
                captions[language] = tuple(
                    caption(language) for caption in (shared_wording, *wordings)
                )
        return captions

    @property
    def translations(self) -> dict[str, Caption]:
        """The captions that are translations of each other; `align_captions` links their words."""
        return {language: captions[0] for language, captions in self.captions.items()}

    @property
    @abstractmethod
    def questions(self) -> tuple[Question, ...]:
        """Questions with their answers, the same in every language."""

    @abstractmethod
    def record(self, path: str | None = None) -> Record:
        """Return the item as a manifest record whose pixels are in the file ``path``."""

    @abstractmethod
    def _draw_wording(self, rng: np.random.Generator, complete: bool) -> Callable[[str], Caption]:
        """Draw content and wording; return a function from a language to the caption."""

    def _caption_texts(self) -> dict[str, tuple[str, ...]]:
        return {
            language: tuple(caption.text for caption in captions)
            for language, captions in self.captions.items()
        }

    def _rng(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([*self.seed, stream])


@dataclass(frozen=True)
class Picture(Item):
    """A scene, rendered at any size and described in every language."""

    scene: Scene

    def pixels(self, size: int = 64) -> Pixels:
        """Render the picture; return uint8 pixels of shape (size, size, 3)."""
        return render(self.scene, size)

    def regions(self, language: str = "en") -> tuple[Region, ...]:
        """Return the box of each thing, back to front, labelled by colour and shape."""
        grammar = GRAMMARS[language]
        return tuple(
            Region(bounding_box(placed), grammar.join(grammar.label(placed.thing.without_size())))
            for placed in self.scene.things
        )

    @property
    def questions(self) -> tuple[Question, ...]:
        """Questions about a colour, a shape, a number, a place, and whether a fact holds."""
        return scene_questions(self.scene, self._rng(_QUESTIONS), self.languages, self.key)

    def record(self, path: str | None = None) -> Record:
        """Return the picture as a manifest record; region labels are in English."""
        return Record(
            image=path,
            captions=self._caption_texts(),
            split=self.split,
            id=self.key,
            questions=self.questions,
            regions=self.regions(),
        )

    def _draw_wording(self, rng: np.random.Generator, complete: bool) -> Callable[[str], Caption]:
        fact, draw = self.scene.fact, rng.random()
        if self.exact or draw >= 0.33:
            fact = fact.without_sizes()
        if not complete and draw >= 0.67:
            fact = self._without_one_colour(fact, rng)
        if fact.relation in CONVERSE and rng.random() < 0.5:
            fact = fact.converse()
        style = STYLES[int(rng.integers(len(STYLES)))]
        return lambda language: describe(language, fact, style)

    def _without_one_colour(self, fact: Fact, rng: np.random.Generator) -> Fact:
        """Drop one colour, if the shape alone still identifies the thing."""
        shapes = Counter(placed.thing.shape for placed in self.scene.things)
        if rng.random() < 0.5:
            if shapes[fact.figure.shape] == 1:
                return replace(fact, figure=fact.figure.without_colour())
        elif shapes[fact.ground.shape] == 1:
            return replace(fact, ground=fact.ground.without_colour())
        return fact


@dataclass(frozen=True)
class Clip(Item):
    """A film of one thing moving past another that stays still."""

    film: Film

    def frames(self, size: int = 64, frames: int = SECONDS * FRAMES_PER_SECOND) -> Pixels:
        """Render the clip; return uint8 pixels of shape (frames, size, size, 3)."""
        return render_film(self.film, size, frames)

    @property
    def questions(self) -> tuple[Question, ...]:
        """Questions about which thing moves, and in which direction."""
        return film_questions(self.film, self.languages, self.key)

    def record(self, path: str | None = None) -> Record:
        """Return the clip as a manifest record."""
        return Record(
            video=path,
            captions=self._caption_texts(),
            split=self.split,
            id=self.key,
            questions=self.questions,
        )

    def _draw_wording(self, rng: np.random.Generator, complete: bool) -> Callable[[str], Caption]:
        event, draw = self.film.event, rng.random()
        if self.exact or (not complete and draw < 0.5):
            event = replace(event, speed=None)
        if self.exact or rng.random() >= 0.33:
            still = None if event.still is None else event.still.without_size()
            event = replace(event, mover=event.mover.without_size(), still=still)
        plot = PLOTS[int(rng.integers(2 if complete else 3))]
        if plot == "mover_only":
            event = replace(event, still=None)
        return lambda language: narrate(language, event, plot)
