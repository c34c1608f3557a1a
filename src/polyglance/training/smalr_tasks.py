"""What SMALR learns in one step: sentences about the same pictures in all languages at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.smalr import SMALR, CaptionGrid, SMALRObjective, smalr_losses
from polyglance.nn.sending import sent
from polyglance.objectives.top_triplets import PAPER_RULE, TripletRule, neighbour_triplets
from polyglance.training.distribution import own_share
from polyglance.training.pairing import packed
from polyglance.training.visuals import Visuals

Indices = NDArray[np.int64]


class CaptionGrids:
    """Draws sentences about pictures, one or two a language a picture."""

    def __init__(
        self,
        captions: CaptionTable,
        *,
        languages: Sequence[str] | None = None,
        sentences_each: int = 2,
        languages_each: int | None = None,
    ) -> None:
        """``languages`` are drawn from, all that there are unless given.

        With ``languages_each``, so many of them a step. ``captions`` must count its
        languages as the model's lexicon does.
        """
        if sentences_each not in (1, 2):
            raise PolyglanceError(
                f"one or two sentences a language a picture are drawn, not {sentences_each}"
            )
        unknown = set(languages or ()) - set(captions.names)
        if unknown:
            raise PolyglanceError(
                f"no caption is in {', '.join(sorted(unknown))}:"
                f" choose from {', '.join(captions.names)}"
            )
        self.captions, self.sentences_each = captions, sentences_each
        names = captions.names if languages is None else languages
        self.languages = np.array([captions.names.index(name) for name in names], np.int64)
        self.languages_each = min(languages_each or len(names), len(names))
        shape = (captions.records, len(captions.names))
        self._size = np.zeros(shape, np.int64)
        np.add.at(self._size, (captions.owners, captions.languages), 1)
        # Captions lie in the order of their records, then languages.
        self._start = (np.cumsum(self._size) - self._size.ravel()).reshape(shape)

    @property
    def items(self) -> Indices:
        """The pictures with a sentence in a language that is drawn, of this process."""
        items = own_share(np.flatnonzero(self._size[:, self.languages].any(1)))
        if not len(items):
            raise PolyglanceError(
                "no picture has a caption to train on: choose languages that the corpus has"
            )
        return items

    def draw(
        self, items: Indices, generator: np.random.Generator, device: torch.device
    ) -> CaptionGrid:
        """Sentences about these pictures; the two of a language differ where it has two."""
        chosen = np.sort(generator.choice(self.languages, self.languages_each, replace=False))
        size = self._size[np.ix_(items, chosen)].T
        first = (generator.random(size.shape) * size).astype(np.int64)
        draws = [first]
        if self.sentences_each == 2:
            step = 1 + (generator.random(size.shape) * np.maximum(0, size - 1)).astype(np.int64)
            draws.append((first + step) % np.maximum(1, size))
        start = self._start[np.ix_(items, chosen)].T
        rows = np.concatenate([start + draw for draw in draws], axis=1)
        present = np.tile(size > 0, self.sentences_each)
        places = np.flatnonzero(present)
        text = packed(self.captions, rows.ravel()[places], device)

        def moved(array: NDArray[np.int64] | NDArray[np.bool_]) -> Tensor:
            return sent(torch.from_numpy(np.ascontiguousarray(array)), device)

        return CaptionGrid(
            ids=text.ids,
            packing=text.packing,
            languages=moved(np.repeat(chosen, rows.shape[1])[places]),
            places=moved(places),
            present=moved(present),
            describes=moved(np.tile(np.arange(len(items)), self.sentences_each)),
        )


class DescribedPictures:
    """Pictures with sentences in many languages: SMALR's training (equation 4)."""

    def __init__(
        self,
        model: SMALR,
        visuals: Visuals,
        captions: CaptionGrids,
        objective: SMALRObjective,
        *,
        batch: int = 450,
    ) -> None:
        self.model, self.visuals, self.captions = model, visuals, captions
        self.objective = objective
        self.items = captions.items
        self.batch = _several(min(batch, len(self.items)))

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw pictures and what is said of them."""
        items = generator.choice(self.items, self.batch, replace=False)
        features, visuals = self.visuals.rows(items, generator)
        captions = self.captions.draw(items, generator, features.device)
        return smalr_losses(self.model, features, visuals, captions, self.objective)


class AveragedSentences:
    """Sentences about the same picture lie together as the mean of their words; no picture is seen.

    With a `LatentVocabulary` this is SMALR's pre-training of latent tokens (equation
    1), with the words of a model MULE's first stage, of the universal embedding alone.
    """

    def __init__(
        self,
        words: nn.Module,
        captions: CaptionGrids,
        *,
        batch: int = 450,
        rule: TripletRule = PAPER_RULE,
    ) -> None:
        self.words, self.captions, self.rule = words, captions, rule
        self.items = captions.items
        self.batch = _several(min(batch, len(self.items)))

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw sentences about some pictures and compare all with all."""
        items = generator.choice(self.items, self.batch, replace=False)
        device = next(self.words.parameters()).device
        captions = self.captions.draw(items, generator, device)
        sentences = captions.packing.mean(self.words(captions.ids))
        grid = captions.spread(sentences)
        near = neighbour_triplets(grid, captions.present, captions.describes, self.rule)
        return {"neighbours": near}


def _several(pictures: int) -> int:
    if pictures < 2:
        raise PolyglanceError(
            f"a batch of {pictures} teaches nothing, for one picture has no other to be told from:"
            " give 2 or more, and as many pictures with captions"
        )
    return pictures
