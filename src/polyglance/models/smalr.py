"""SMALR: many languages in few parameters.

Burns et al., "Learning to Scale Multilingual Representations for Vision-Language
Tasks" (ECCV 2020). Words of all languages meet in a universal embedding, and
sentences and pictures in one space of meaning:

    words -> hybrid embedding -> GRU, linear layer -> sentence
    picture's features -> two fully connected layers -> picture

Both ends are unit vectors; their cosine says how well they fit. After training
the words are one table (`SMALR.folded`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.config import validate_fields
from polyglance.errors import PolyglanceError
from polyglance.nn.character_embedding import CharacterEmbedding
from polyglance.nn.gradient_reversal import ReversalSchedule
from polyglance.nn.hybrid_embedding import (
    MASK,
    HybridEmbedding,
    Projection,
    principal_components,
)
from polyglance.nn.latent_vocabulary import ChoiceGradient, LatentVocabulary
from polyglance.nn.packing import Packing
from polyglance.nn.sentence_gru import LanguageBranches, SentenceGRU
from polyglance.objectives.language_adversary import language_adversary
from polyglance.objectives.masked_cross_language import mask_random_words, mclm_loss
from polyglance.objectives.top_triplets import (
    PAPER_RULE,
    TripletRule,
    matching_triplets,
    neighbour_triplets,
)


@dataclass(frozen=True)
class SMALRConfig:
    """The shape of a SMALR model, or of a baseline in its frame. The defaults are the paper's."""

    own_words: int | None = 5000
    """K: how many words of each language own a vector; None for all of them."""
    own_width: int = 50
    projection: Projection = "language"
    """See `HybridEmbedding`."""
    latent_tokens: int = 40_000
    """How many the pre-training begins with; 0 for no latent vocabulary."""
    explore: float = 0.2
    candidates: int = 20
    choice_gradient: ChoiceGradient = "weighted"
    """The exploration of the pre-training and how its choice learns: see `LatentVocabulary`."""
    universal_width: int = 512
    gru_width: int = 512
    """The paper's 7.1M parameters at test time fit this width; MULE's code has 1024."""
    branches: Literal["one", "language"] = "one"
    """One sentence branch for all languages, or one for each (parallel EmbN)."""
    visual_width: int = 2048
    visual_hidden: int = 2048
    dropout: float = 0.5
    width: int = 512
    """The width of the space where sentences and pictures meet."""
    masked_modelling: bool = True
    """Whether there are layers that predict what masks hide (equation 2)."""
    adversary: bool = True
    """Whether there is a classifier of languages."""

    def __post_init__(self) -> None:
        sizes = ("own_width", "universal_width", "gru_width", "visual_width", "visual_hidden")
        validate_fields(self, lambda value: value >= 1, "1 or more", *sizes, "width", "candidates")
        validate_fields(self, lambda value: value >= 0, "0 or more", "own_words", "latent_tokens")
        validate_fields(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", "explore")
        validate_fields(
            self, lambda value: 0 <= value < 1, "a share from 0 to less than 1", "dropout"
        )
        if self.own_words == 0 and self.latent_tokens < 1:
            raise PolyglanceError(
                "with own_words and latent_tokens both 0 no word has a vector: raise one of them"
            )
        if self.projection == "none" and self.own_width != self.universal_width:
            raise PolyglanceError(
                f"own vectors of {self.own_width} need a projection to {self.universal_width}:"
                " set projection to language or shared, or make both widths the same"
            )


class ImageBranch(nn.Module):
    """Two fully connected layers, between them batch norm, ReLU and dropout; of unit length."""

    def __init__(self, features: int, hidden: int, width: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, width),
        )

    def forward(self, features: Tensor) -> Tensor:
        """One unit vector a picture."""
        return F.normalize(self.layers(features), dim=1)

    def train(self, mode: bool = True) -> ImageBranch:
        """A frozen branch stays as it was, running means and all."""
        return super().train(mode and any(p.requires_grad for p in self.parameters()))


class SMALR(nn.Module):
    """A branch for sentences in any language and one for pictures."""

    def __init__(
        self,
        config: SMALRConfig,
        words: HybridEmbedding | CharacterEmbedding,
        *,
        num_languages: int,
        steps: int = 1,
    ) -> None:
        """``steps`` of training is how long the adversary takes to come to its full strength."""
        super().__init__()
        self.config = config
        self.words = words
        self.num_languages = num_languages
        shape = (words.width, config.gru_width, config.width)
        self.sentences: nn.Module = (
            SentenceGRU(*shape)
            if config.branches == "one"
            else LanguageBranches(num_languages, *shape)
        )
        self.image_branch = ImageBranch(
            config.visual_width, config.visual_hidden, config.width, config.dropout
        )
        levels = (words.width, config.width) if config.masked_modelling else ()
        self.mclm_layers = nn.ModuleList(nn.Linear(2 * width, 2 * width) for width in levels)
        self.language_classifier = (
            nn.Linear(words.width, num_languages) if config.adversary else None
        )
        self.reversal_schedule = ReversalSchedule(steps)

    def encode_text(
        self, ids: Tensor, sentences: Packing, languages: Tensor | None = None
    ) -> Tensor:
        """A unit vector for each sentence; ``languages`` matter to a model of several branches."""
        vectors: Tensor = self.sentences(self.words(ids), sentences, languages)
        return vectors

    def encode_visual(self, features: Tensor, visuals: Packing) -> Tensor:
        """A unit vector for each picture, from the mean of its features."""
        vectors: Tensor = self.image_branch(visuals.mean(features))
        return vectors

    def fold(self) -> FoldedText:
        """The sentence side without whatever only training needs."""
        return FoldedText(self.words.table().detach(), self.words.slots, self.sentences)

    def add_language(self, vectors: Tensor) -> None:
        """Take in another language, by vectors of its words, the commonest first; freeze all else.

        As ever, its commonest K words own a vector, and each of the others takes a
        latent token by what pre-training learned, so the vectors must be of the space
        that it learned from. Besides K own words that costs one projection, where each
        language has one: 26,112 parameters with the paper's widths.
        """
        if not isinstance(self.words, HybridEmbedding) or self.config.branches != "one":
            raise PolyglanceError(
                "only a model with a table of words and one sentence branch takes in a language"
                " later: train this one anew with all languages"
            )
        most = len(vectors) if self.config.own_words is None else self.config.own_words
        tokens = self.words.assign_tokens(vectors[most:])
        own = principal_components(vectors, self.config.own_width) if most else vectors
        self.requires_grad_(False)
        self.words.add_language(own[:most], tokens)
        self.num_languages += 1

    def num_trainable_parameters(self) -> int:
        """How many numbers training moves, those of layers that only training needs included."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    def num_test_time_parameters(self) -> int:
        """How many are left in use once words are a table, whose rows are data, as in the paper.

        A model that spells its words goes on reading letters.
        """
        used: list[nn.Module] = [self.sentences, self.image_branch]
        if isinstance(self.words, CharacterEmbedding):
            used.append(self.words)
        return sum(p.numel() for part in used for p in part.parameters())


class FoldedText(nn.Module):
    """Sentences to vectors with a table of words and the sentence branch."""

    table: Tensor
    slots: Tensor

    def __init__(self, table: Tensor, slots: Tensor, sentences: nn.Module) -> None:
        super().__init__()
        self.register_buffer("table", table)
        self.register_buffer("slots", slots)
        self.sentences = sentences

    def encode_text(
        self, ids: Tensor, sentences: Packing, languages: Tensor | None = None
    ) -> Tensor:
        """The same vectors as the model that was folded."""
        rows = F.embedding(self.slots[ids], self.table)
        vectors: Tensor = self.sentences(rows, sentences, languages)
        return vectors


def latent_vocabulary(config: SMALRConfig, vectors: Tensor) -> LatentVocabulary:
    """What is pre-trained before the model is made: tokens for words with these ``vectors``."""
    return LatentVocabulary(
        vectors,
        tokens=config.latent_tokens,
        width=config.universal_width,
        explore=config.explore,
        candidates=config.candidates,
        gradient=config.choice_gradient,
    )


def word_table(
    config: SMALRConfig,
    vectors: Tensor,
    language_of: Tensor,
    rank_in_language: Tensor,
    latent: LatentVocabulary | None = None,
) -> HybridEmbedding:
    """The hybrid embedding of a lexicon, with the tokens that pre-training assigned."""
    return HybridEmbedding.build(
        vectors,
        language_of,
        rank_in_language,
        own_words=config.own_words,
        own_width=config.own_width,
        width=config.universal_width,
        projection=config.projection,
        tokens=None if latent is None else latent.assign().cpu(),
        latent=None if latent is None else latent.latent.detach().cpu(),
        chooser=None if latent is None else latent.chooser().cpu(),
    )


@dataclass(frozen=True, eq=False)
class CaptionGrid:
    """Sentences about some pictures: as many columns in each language, where there are any."""

    ids: Tensor
    packing: Packing
    languages: Tensor
    """The language of each sentence, as the lexicon counts them."""
    grid_positions: Tensor
    """Where each sentence stands in the grid, read row after row."""
    present: Tensor
    """``(languages, columns)``: where there is a sentence."""
    image_ids: Tensor
    """The picture that each column is about."""

    def to_grid(self, rows: Tensor) -> Tensor:
        """Vectors of the sentences as ``(languages, columns, width)``, zero where there is none."""
        grid = rows.new_zeros(self.present.numel(), rows.shape[1])
        return grid.index_copy(0, self.grid_positions, rows).view(*self.present.shape, -1)


@dataclass(frozen=True)
class SMALRObjective:
    """What is minimised (equation 4). The defaults are the paper's for Multi30K."""

    triplets: TripletRule = PAPER_RULE
    sentence_weight: float = 1.5
    """Lambda 1, of sentences that look for their picture."""
    mask_rate: float = 0.2
    mask_weight: float = 1e-4
    """Lambda 2, of equation 2."""
    match_masked: bool = True
    """Whether masked sentences look for their pictures as well."""
    adversary_weight: float = 1e-6
    """Lambda 3."""
    reversal: float = 1.0
    """Multiplies the reversed gradient; MULE's code weighs it with lambda 3 once more."""
    neighbour_weight: float = 5e-2
    """Lambda 4."""
    universal: bool = True
    """Whether neighbourhood constraints hold for averaged words too, not for sentences alone."""
    drift_weight: float = 5e-7
    """MULE's: own vectors stay near where they began."""

    def __post_init__(self) -> None:
        weights = ("sentence_weight", "mask_weight", "adversary_weight", "neighbour_weight")
        validate_fields(
            self, lambda value: value >= 0, "0 or more", *weights, "drift_weight", "reversal"
        )
        validate_fields(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", "mask_rate")


def smalr_losses(
    model: SMALR,
    features: Tensor,
    visuals: Packing,
    captions: CaptionGrid,
    objective: SMALRObjective,
) -> dict[str, Tensor]:
    """The losses of a batch of pictures with sentences in several languages, to be summed."""
    masks = objective.match_masked or (objective.mask_weight > 0 and len(model.mclm_layers) > 0)
    ids, packing, languages = captions.ids, captions.packing, captions.languages
    if masks:  # whole and masked sentences go through the model together
        hidden = mask_random_words(ids, mask_id=MASK, rate=objective.mask_rate)
        ids, languages = torch.cat([ids, hidden]), languages.repeat(2)
        packing = _twice(packing)
    rows = model.words(ids)
    averages = packing.mean(rows)
    encoded = model.sentences(rows, packing, languages)
    parts = 2 if masks else 1
    universal = [captions.to_grid(part) for part in averages.chunk(parts)]
    final = [captions.to_grid(part) for part in encoded.chunk(parts)]
    pictures = model.encode_visual(features, visuals)

    present, describes, rule = captions.present, captions.image_ids, objective.triplets
    losses = {
        name: matching_triplets(
            pictures, sentences, present, describes, rule, objective.sentence_weight
        )
        for name, sentences in zip(("match", "match_masked"), final, strict=False)
        if name == "match" or objective.match_masked
    }
    if objective.mask_weight > 0 and model.mclm_layers:
        missing = [
            mclm_loss(masked, whole, present, predict)
            for (whole, masked), predict in zip((universal, final), model.mclm_layers, strict=True)
        ]
        losses["masked"] = objective.mask_weight * torch.stack(missing).sum()
    if objective.neighbour_weight > 0:
        levels = [universal[0], final[0]] if objective.universal else [final[0]]
        near = [neighbour_triplets(level, present, describes, rule) for level in levels]
        losses["neighbours"] = objective.neighbour_weight * torch.stack(near).sum()
    if objective.adversary_weight > 0 and model.language_classifier is not None:
        told, spoken = averages.chunk(parts)[0], captions.languages
        if model.num_languages > (known := model.language_classifier.out_features):
            # It was never taught languages that came later.
            told, spoken = told[spoken < known], spoken[spoken < known]
        if len(spoken):
            guessed = language_adversary(
                told,
                spoken,
                model.language_classifier,
                objective.reversal * model.reversal_schedule(),
            )
            losses["adversary"] = objective.adversary_weight * guessed
    if objective.drift_weight > 0 and isinstance(model.words, HybridEmbedding):
        losses["drift"] = objective.drift_weight * model.words.drift()
    return losses


def _twice(packing: Packing) -> Packing:
    """The same sequences once more after themselves."""
    again = packing.cu_seqlens[1:] + packing.num_tokens
    return Packing(
        torch.cat([packing.cu_seqlens, again]), packing.max_seqlen, 2 * packing.num_tokens
    )
