"""SMALR: a dual encoder for many languages with few parameters.

Burns et al., "Learning to Scale Multilingual Representations for Vision-Language
Tasks" (ECCV 2020). Words of all languages share a universal embedding; sentences and images
share one embedding space:

    words -> hybrid embedding -> GRU, linear layer -> sentence
    image features -> two fully connected layers -> image

Both outputs are unit vectors; their cosine is the similarity. After training, word embeddings
are folded into one table (`SMALR.fold`).
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
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.language_adversary import language_adversary
from polyglance.objectives.masked_cross_language import (
    PairReduction,
    mask_random_words,
    mclm_loss,
)
from polyglance.objectives.top_triplets import (
    PAPER_RULE,
    TripletRule,
    matching_triplets,
    neighbour_triplets,
)


@dataclass(frozen=True)
class SMALRConfig:
    """The shape of a SMALR model or of a baseline. The defaults are the paper's."""

    own_words: int | None = 5000
    """K: how many words of each language have their own vector; None for all."""
    own_width: int = 50
    projection: Projection = "language"
    """See `HybridEmbedding`."""
    latent_tokens: int = 40_000
    """Latent tokens before pre-training; 0 for no latent vocabulary."""
    explore: float = 0.2
    candidates: int = 20
    choice_gradient: ChoiceGradient = "weighted"
    """With ``explore`` and ``candidates``, see `LatentVocabulary`."""
    universal_width: int = 512
    gru_width: int = 512
    """The paper's 7.1M parameters at test time imply 512; MULE's code has 1024."""
    branches: Literal["one", "language"] = "one"
    """One sentence branch for all languages, or one for each (parallel EmbN)."""
    visual_width: int = 2048
    visual_hidden: int = 2048
    dropout: float = 0.5
    width: int = 512
    """The size of the embedding space of sentences and images."""
    masked_modelling: bool = True
    """Whether there are layers for masked cross-language modelling (equation 2)."""
    adversary: bool = True
    """Whether there is an adversarial language classifier."""

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
                "own_words and latent_tokens are both 0, so that no word has a vector: raise one"
            )
        if self.projection == "none" and self.own_width != self.universal_width:
            raise PolyglanceError(
                f"own vectors of size {self.own_width} need a projection to {self.universal_width}:"
                " set projection to language or shared, or make both sizes equal"
            )


class ImageBranch(nn.Module):
    """Two linear layers with batch norm, ReLU and dropout between them, then unit length."""

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
        """Return a unit vector per image, ``(images, width)``."""
        return F.normalize(self.layers(features), dim=1)

    def train(self, mode: bool = True) -> ImageBranch:
        """Set the mode; a frozen branch stays in evaluation mode, with fixed running means."""
        return super().train(mode and any(p.requires_grad for p in self.parameters()))


class SMALR(nn.Module):
    """A branch for sentences in any language and one for images."""

    def __init__(
        self,
        config: SMALRConfig,
        words: HybridEmbedding | CharacterEmbedding,
        *,
        num_languages: int,
        steps: int = 1,
    ) -> None:
        """Build an untrained model.

        Args:
            config: its shape.
            words: the word embedding.
            num_languages: the number of languages.
            steps: training steps over which the adversary reaches its full strength.
        """
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
        """Return a unit vector per sentence; ``languages`` select among several branches."""
        vectors: Tensor = self.sentences(self.words(ids), sentences, languages)
        return vectors

    def encode_visual(self, features: Tensor, visuals: Packing) -> Tensor:
        """Return a unit vector per image, from the mean of its features."""
        vectors: Tensor = self.image_branch(visuals.mean(features))
        return vectors

    def fold(self) -> FoldedText:
        """Return the sentence branch with a fixed word table, without what only training needs."""
        return FoldedText(self.words.table().detach(), self.words.slots, self.sentences)

    def add_language(self, vectors: Tensor) -> None:
        """Add a language, given vectors of its words, the most frequent first; freeze all else.

        Its K most frequent words get their own vectors, and the others the latent tokens that
        the pre-trained layer assigns, so the vectors must be of the space of that pre-training.
        Besides K vectors this adds one projection, if each language has one: 26,112 parameters
        with the paper's sizes.
        """
        if not isinstance(self.words, HybridEmbedding) or self.config.branches != "one":
            raise PolyglanceError(
                "a language can only be added to a model with a hybrid embedding and one sentence"
                " branch: train a new model with all languages"
            )
        own_words = len(vectors) if self.config.own_words is None else self.config.own_words
        tokens = self.words.assign_tokens(vectors[own_words:])
        own = principal_components(vectors, self.config.own_width) if own_words else vectors
        self.requires_grad_(False)
        self.words.add_language(own[:own_words], tokens)
        self.num_languages += 1

    def num_trainable_parameters(self) -> int:
        """Return the number of trainable parameters, including layers that only training needs."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    def num_test_time_parameters(self) -> int:
        """Return the number of parameters in use once words are a table.

        The table counts as data, as in the paper; a character embedding stays in use.
        """
        used: list[nn.Module] = [self.sentences, self.image_branch]
        if isinstance(self.words, CharacterEmbedding):
            used.append(self.words)
        return sum(p.numel() for part in used for p in part.parameters())


class FoldedText(nn.Module):
    """A fixed word table and the sentence branch."""

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
        """Return the same vectors as the model that was folded."""
        rows = F.embedding(self.slots[ids], self.table)
        vectors: Tensor = self.sentences(rows, sentences, languages)
        return vectors


def latent_vocabulary(config: SMALRConfig, vectors: Tensor) -> LatentVocabulary:
    """Build the latent vocabulary, to be pre-trained, for words with these ``vectors``."""
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
    """Build the hybrid embedding of a lexicon.

    Args:
        config: the model's shape.
        vectors: ``(words, vector size)``.
        language_of: ``(words,)``.
        rank_in_language: ``(words,)``.
        latent: the pre-trained latent vocabulary, if there is one.
    """
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
    """Packed sentences about some images, with their places in a grid of languages x columns."""

    ids: Tensor
    packing: Packing
    languages: Tensor
    """The language of each sentence, by its number in the lexicon."""
    grid_positions: Tensor
    """The position of each sentence in the flattened grid."""
    present: Tensor
    """``(languages, columns)``: true where there is a sentence."""
    image_ids: Tensor
    """``(columns,)``: the image that each column describes."""
    draws: ItemDraws
    """Random numbers of the sentences, for masking."""

    def to_grid(self, rows: Tensor) -> Tensor:
        """Return sentence vectors as ``(languages, columns, width)``, zero where there is none."""
        grid = rows.new_zeros(self.present.numel(), rows.shape[1])
        return grid.index_copy(0, self.grid_positions, rows).view(*self.present.shape, -1)


@dataclass(frozen=True)
class SMALRObjective:
    """The training objective (equation 4). The defaults are the paper's for Multi30K."""

    triplets: TripletRule = PAPER_RULE
    sentence_weight: float = 1.5
    """Lambda 1: the weight of sentences ranking images."""
    mask_rate: float = 0.2
    mask_weight: float = 1e-4
    """Lambda 2: the weight of equation 2."""
    mask_reduction: PairReduction = "mean"  # see `mclm_loss`
    match_masked: bool = True
    """Whether masked sentences are matched with images too."""
    adversary_weight: float = 1e-6
    """Lambda 3: the weight of the language classifier."""
    reversal: float = 1.0
    """Multiplies the reversed gradient; MULE's code multiplies it by lambda 3 once more."""
    neighbour_weight: float = 5e-2
    """Lambda 4: the weight of neighbourhood constraints."""
    universal: bool = True
    """Whether neighbourhood constraints apply to mean word vectors too, not only sentences."""
    drift_weight: float = 5e-7
    """Weight of MULE's penalty, which keeps own vectors near their initial values."""

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
    """Return the weighted losses of equation 4, to be summed.

    Args:
        model: the model.
        features: ``(rows, visual_width)``.
        visuals: the packing of ``features``, one sequence per image.
        captions: sentences in several languages.
        objective: weights and settings.
    """
    masking = objective.match_masked or (objective.mask_weight > 0 and len(model.mclm_layers) > 0)
    ids, packing, languages = captions.ids, captions.packing, captions.languages
    if masking:  # original and masked sentences go through the model together
        masked_ids = mask_random_words(
            ids, packing, captions.draws, mask_id=MASK, rate=objective.mask_rate
        )
        ids, languages = torch.cat([ids, masked_ids]), languages.repeat(2)
        packing = _repeat_twice(packing)
    rows = model.words(ids)
    averages = packing.mean(rows)
    encoded = model.sentences(rows, packing, languages)
    parts = 2 if masking else 1
    universal = [captions.to_grid(part) for part in averages.chunk(parts)]
    final = [captions.to_grid(part) for part in encoded.chunk(parts)]
    images = model.encode_visual(features, visuals)

    present, image_ids, rule = captions.present, captions.image_ids, objective.triplets
    losses = {
        name: matching_triplets(
            images, sentences, present, image_ids, rule, objective.sentence_weight
        )
        for name, sentences in zip(("match", "match_masked"), final, strict=False)
        if name == "match" or objective.match_masked
    }
    if objective.mask_weight > 0 and model.mclm_layers:
        predictions = [
            mclm_loss(masked, whole, present, predict, objective.mask_reduction)
            for (whole, masked), predict in zip((universal, final), model.mclm_layers, strict=True)
        ]
        losses["masked"] = objective.mask_weight * torch.stack(predictions).sum()
    if objective.neighbour_weight > 0:
        levels = [universal[0], final[0]] if objective.universal else [final[0]]
        near = [neighbour_triplets(level, present, image_ids, rule) for level in levels]
        losses["neighbours"] = objective.neighbour_weight * torch.stack(near).sum()
    if objective.adversary_weight > 0 and model.language_classifier is not None:
        means, languages = averages.chunk(parts)[0], captions.languages
        classes = model.language_classifier.out_features
        if model.num_languages > classes:
            # The classifier was never trained on languages added later.
            means, languages = means[languages < classes], languages[languages < classes]
        if len(languages):
            strength = objective.reversal * model.reversal_schedule()
            adversary = language_adversary(means, languages, model.language_classifier, strength)
            losses["adversary"] = objective.adversary_weight * adversary
    if objective.drift_weight > 0 and isinstance(model.words, HybridEmbedding):
        losses["drift"] = objective.drift_weight * model.words.drift()
    return losses


def _repeat_twice(packing: Packing) -> Packing:
    """Return the packing of all sequences followed by the same sequences."""
    again = packing.cu_seqlens[1:] + packing.num_tokens
    return Packing(
        torch.cat([packing.cu_seqlens, again]), packing.max_seqlen, 2 * packing.num_tokens
    )
