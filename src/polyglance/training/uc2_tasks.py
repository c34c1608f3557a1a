"""What UC2 learns in one step (section 3.3): one objective, drawn by a `Mixture` 9 : 12 : 9 : 3.

`PictureMatching` is ITM, `PictureWords` MLM, `RegionNames` MRTM and `TranslatedWords`
VTLM; without pictures that is XLM's TLM, by which the paper pivots on English (Table 4).
`PictureRanking` is the fine-tuning for retrieval. A step of any reads ``batch`` pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.config import check
from polyglance.errors import PolyglanceError
from polyglance.models.uc2 import UC2, Form
from polyglance.nn.joint import Regions, Text
from polyglance.nn.sending import sent
from polyglance.objectives.co_masking import co_mask
from polyglance.objectives.masked_language import WordMasking, mask_words, masked_language
from polyglance.objectives.masked_regions import NO_LABEL, hide_regions
from polyglance.objectives.matching import matching
from polyglance.objectives.ranking import sigmoid_triplet
from polyglance.text.flat import spread
from polyglance.training.caption_pairs import CaptionPairs
from polyglance.training.caption_sources import read_captions
from polyglance.training.even_captions import EvenCaptions
from polyglance.training.label_words import LabelWords
from polyglance.training.mixture import step_of
from polyglance.training.region_table import RegionTable

Indices = NDArray[np.int64]
RankingLoss = Literal["triplet", "matching"]


@dataclass(frozen=True, eq=False)
class Corpus:
    """What objectives on pictures draw from."""

    regions: RegionTable
    captions: EvenCaptions

    @property
    def device(self) -> torch.device:
        """Where regions lie, and the model with them."""
        return self.regions.features.device

    def pictures(self, rows: Indices) -> Indices:
        """Those that captions describe."""
        return self.captions.table.owners[rows]

    def text(self, rows: Indices) -> Text:
        """Captions by row, packed on the processor."""
        return read_captions(self.captions.table, rows)

    def pairs(
        self, model: UC2, captions: Indices, pictures: Indices, generator: np.random.Generator
    ) -> Tensor:
        """The vector that stands for each pair, read with nothing hidden."""
        regions, _ = self.regions.take(pictures, generator)
        return model.pair(self.text(captions).to(self.device), model.embed_regions(regions))


class PictureWords:
    """MLM: hidden words of captions, told from the words around them and the picture."""

    def __init__(self, model: UC2, corpus: Corpus, masking: WordMasking, *, batch: int) -> None:
        self.model, self.corpus, self.masking, self.batch = model, corpus, masking, batch

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw captions, all languages alike, and tell their hidden words."""
        rows = self.corpus.captions.draw(self.batch, generator)
        text = self.corpus.text(rows)
        hidden = mask_words(text.ids, text.packing, self.masking)
        regions, _ = self.corpus.regions.take(self.corpus.pictures(rows), generator)
        read = self.model.read_at(
            hidden.places,
            replace(text, ids=hidden.ids).to(self.corpus.device),
            self.model.embed_regions(regions),
        )
        return {"mlm": _told(self.model, read, hidden.targets)}


class PictureMatching:
    """ITM: do a caption and a picture belong together? Half of the pairs do.

    In the others the picture or the caption, each half of the time, is that of another
    pair, in the same language; the published code replaces pictures alone.
    """

    def __init__(self, model: UC2, corpus: Corpus, *, batch: int, form: Form = "paper") -> None:
        self.model, self.corpus, self.batch, self.form = model, corpus, batch, form

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw pairs and tell the true ones."""
        captions, pictures, matched = self.draw(generator)
        logits = self.model.matching(self.corpus.pairs(self.model, captions, pictures, generator))
        return {"itm": matching(logits, torch.from_numpy(matched))}

    def draw(self, generator: np.random.Generator) -> tuple[Indices, Indices, NDArray[np.bool_]]:
        """Captions, pictures, and whether they belong together."""
        true = self.corpus.captions.draw(self.batch // 2, generator)
        false = self.corpus.captions.draw(self.batch - len(true), generator)
        others = self.corpus.captions.others(false, generator)
        retold = generator.random(len(false)) < (0.5 if self.form == "paper" else 0.0)
        own, other = self.corpus.pictures(false), self.corpus.pictures(others)
        captions = np.concatenate([true, np.where(retold, others, false)])
        pictures = np.concatenate([self.corpus.pictures(true), np.where(retold, own, other)])
        return captions, pictures, np.arange(self.batch) < len(true)


class RegionNames:
    """MRTM: what a hidden region is called in the caption's language, of all words there are."""

    def __init__(
        self,
        model: UC2,
        corpus: Corpus,
        words: LabelWords,
        *,
        batch: int,
        rate: float = 0.15,
        form: Form = "paper",
    ) -> None:
        """The published code hides all chosen regions, the paper nine of ten."""
        self.model, self.corpus, self.words, self.batch = model, corpus, words, batch
        self.rate, self.hidden = rate, 0.9 if form == "paper" else 1.0
        self.languages = words.numbers(corpus.captions.table.names)
        self._labels = corpus.regions.labels.cpu().numpy()
        if not (self._labels != NO_LABEL).any():
            raise PolyglanceError(
                "no region has a label to be named by: extract features with labels, or leave"
                " MRTM out"
            )

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw captions and name hidden regions of their pictures."""
        rows = self.corpus.captions.draw(self.batch, generator)
        table, pictures = self.corpus.regions, self.corpus.pictures(rows)
        regions, _ = table.take(pictures, generator)
        lengths = table.lengths[pictures]
        labels = self._labels[spread(table.starts[pictures], lengths)]
        named = torch.from_numpy(labels != NO_LABEL)
        hidden = hide_regions(
            regions.features,
            rate=self.rate,
            hidden=self.hidden,
            mask=self.model.region_mask,
            maskable=named,
            wholes=table.wholes(pictures),
        )
        places = hidden.places.numpy()
        spoken = self.languages[self.corpus.captions.table.languages[rows]]
        language = np.repeat(spoken, lengths)[places]
        targets = torch.from_numpy(self.words.draw(language, labels[places], generator))
        text = self.corpus.text(rows)
        read = self.model.read_at(
            text.packing.num_tokens + hidden.places,
            text.to(self.corpus.device),
            self.model.embed_regions(Regions(hidden.features, regions.boxes, regions.packing)),
        )
        return {"mrtm": _told(self.model, read, targets)}


class TranslatedWords:
    """VTLM: words hidden in two captions at once, told from the picture; TLM without pictures."""

    def __init__(
        self,
        model: UC2,
        regions: RegionTable | None,
        pairs: CaptionPairs,
        masking: WordMasking,
        *,
        batch: int,
        co_masked: float = 1.0,
    ) -> None:
        """``co_masked`` of the pairs lose a word in both captions, the rest any words."""
        self.model, self.regions, self.pairs, self.masking = model, regions, pairs, masking
        self.batch, self.co_masked = batch, co_masked
        check(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", "co_masked")

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw pairs of captions, all languages beside English alike, and tell hidden words."""
        drawn = self.pairs.draw(self.batch, generator)
        pair = self.pairs.gather(drawn)
        hidden = co_mask(pair, self.masking, share=self.co_masked)
        device = self.model.word_bias.device
        cut = pair.first.num_tokens
        seen = None
        if self.regions is not None:
            owners = self.pairs.table.owners[self.pairs.first[drawn]]
            regions, _ = self.regions.take(owners, generator)
            seen = self.model.embed_regions(regions)
        read = self.model.read_at(
            hidden.places,
            Text(hidden.ids[:cut], pair.first).to(device),
            seen,
            Text(hidden.ids[cut:], pair.second).to(device),
        )
        return {"vtlm": _told(self.model, read, hidden.targets)}


class PictureRanking:
    """Fine-tuning for retrieval: a true pair before those with another picture or caption."""

    def __init__(
        self,
        model: UC2,
        corpus: Corpus,
        *,
        batch: int,
        negatives: int = 1,
        margin: float = 0.2,
        loss: RankingLoss = "triplet",
        neighbours: Indices | None = None,
        easy_steps: int = 0,
    ) -> None:
        """A step has ``batch`` true pairs, and for each so many ``negatives`` of either kind.

        ``neighbours`` names pictures that are hard to tell from each picture, a row of
        numbers for each: negatives are then drawn from these, in the first ``easy_steps``
        a share of them that grows from none to all. Captions give way to some in their own
        language, of any picture where the neighbour has none in that.
        """
        self.model, self.corpus, self.batch, self.negatives = model, corpus, batch, negatives
        self.margin, self.loss, self.neighbours = margin, loss, neighbours
        self.easy_steps = easy_steps
        check(self, lambda value: value >= 1, "1 or more", "batch", "negatives")

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw true pairs with their false ones and rank each."""
        captions, pictures = self.draw(generator)
        pairs = self.corpus.pairs(self.model, captions.ravel(), pictures.ravel(), generator)
        scores = self.model.ranking(pairs).view(self.batch, -1)
        if self.loss == "triplet":
            return {"ranking": sigmoid_triplet(scores[:, 0], scores[:, 1:], margin=self.margin)}
        return {"ranking": matching(scores, torch.arange(scores.shape[1]).expand_as(scores) == 0)}

    def draw(self, generator: np.random.Generator) -> tuple[Indices, Indices]:
        """Captions and pictures, a row for each true pair: that, other pictures, other captions."""
        table, count = self.corpus.captions.table, self.negatives
        true = self.corpus.captions.draw(self.batch, generator)
        own = self.corpus.pictures(true)
        many = np.repeat(true, 2 * count)
        retold = self.corpus.captions.others(many, generator)
        shown = self.corpus.pictures(retold)
        if self.neighbours is not None:
            alike = self.neighbours[self.corpus.pictures(many)]
            picked = alike[
                np.arange(len(alike)), generator.integers(alike.shape[1], size=len(alike))
            ]
            near = step_of(generator) / self.easy_steps if self.easy_steps else 1.0
            hard = generator.random(len(many)) < near
            told = table.sample_in(picked, table.languages[many], generator)
            shown = np.where(hard, picked, shown)
            retold = np.where(hard & (told >= 0), told, retold)
        captions = np.repeat(true[:, None], 1 + 2 * count, axis=1)
        captions[:, 1 + count :] = retold.reshape(self.batch, 2 * count)[:, count:]
        pictures = np.repeat(own[:, None], 1 + 2 * count, axis=1)
        pictures[:, 1 : 1 + count] = shown.reshape(self.batch, 2 * count)[:, :count]
        return captions, pictures


def _told(model: UC2, hidden: Tensor, targets: Tensor) -> Tensor:
    """Words from the vectors of what was hidden."""
    return masked_language(model.word_logits(hidden), sent(targets, hidden.device))
