"""Baselines of SMALR: its ablations, and the models it builds on.

Each is a shape and an objective of `polyglance.models.smalr`, so that all differences between
two of them are in this file. Frequency thresholding and dictionary mapping are MULE with a
smaller lexicon, and translation into English is EmbN for English: these change the words
before the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from polyglance.errors import PolyglanceError
from polyglance.models.smalr import SMALR, SMALRConfig, SMALRObjective, word_table
from polyglance.nn.character_embedding import CharacterEmbedding
from polyglance.nn.latent_vocabulary import LatentVocabulary

VECTOR_WIDTH = 300
"""The size of fastText vectors."""


@dataclass(frozen=True)
class WordModel:
    """The shape and the training objective of a model over words."""

    config: SMALRConfig = SMALRConfig()  # noqa: RUF009 - frozen
    objective: SMALRObjective = SMALRObjective()  # noqa: RUF009 - frozen
    character_width: int | None = None
    """The size of a character's embedding; None for a model with word vectors."""
    monolingual: bool = False
    """Whether there is a separate model for each language."""

    @property
    def needs_pretraining(self) -> bool:
        """Whether a latent vocabulary must be pre-trained first."""
        return self.character_width is None and self.config.latent_tokens > 0


_UNMASKED = SMALRObjective(mask_weight=0.0, match_masked=False)
_HEM = SMALRConfig(masked_modelling=False)
_MULE = replace(_HEM, own_words=None, own_width=VECTOR_WIDTH, latent_tokens=0)
# Word vectors enter the sentence branch directly: there is no universal embedding to align.
_EMBN = replace(_MULE, projection="none", universal_width=VECTOR_WIDTH, adversary=False)
_SENTENCES_ALONE = replace(_UNMASKED, universal=False)
_LIWE = replace(_HEM, own_words=None, latent_tokens=0, adversary=False)

WORD_MODELS: dict[str, WordModel] = {
    "smalr": WordModel(),
    "hem": WordModel(_HEM, _UNMASKED),
    "language-agnostic": WordModel(replace(_HEM, own_words=0), _UNMASKED),
    "mule": WordModel(_MULE, _UNMASKED),
    "pca-200": WordModel(replace(_MULE, own_width=200), _UNMASKED),
    "pca-100": WordModel(replace(_MULE, own_width=100), _UNMASKED),
    "pca-50": WordModel(replace(_MULE, own_width=50), _UNMASKED),
    "embn": WordModel(_EMBN, _SENTENCES_ALONE, monolingual=True),
    "parallel-embn": WordModel(replace(_EMBN, branches="language"), _SENTENCES_ALONE),
    "small-liwe": WordModel(_LIWE, _SENTENCES_ALONE, character_width=24),
    "single-liwe": WordModel(_LIWE, _SENTENCES_ALONE, character_width=24, monolingual=True),
    "large-liwe": WordModel(_LIWE, _SENTENCES_ALONE, character_width=120),
}
"""By name; "single-liwe" is the paper's (1) S-LIWE, a model for each language.

LIWE has the same image features as the others, not those of a detector, and the same words:
those outside the lexicon, which it could encode by character, are dropped as well."""


def build_word_model(
    model: WordModel,
    words: Sequence[str],
    vectors: Tensor,
    language_of: Tensor,
    rank_in_language: Tensor,
    *,
    steps: int,
    latent: LatentVocabulary | None = None,
) -> SMALR:
    """Build an untrained model for a lexicon.

    Args:
        model: shape and objective.
        words: the words by id.
        vectors: ``(words, VECTOR_WIDTH)`` pretrained vectors.
        language_of: ``(words,)``.
        rank_in_language: ``(words,)`` frequency ranks, from 0.
        steps: training steps, for the adversary's schedule.
        latent: the pre-trained latent vocabulary, if the model needs one.
    """
    languages = int(language_of.max()) + 1
    if model.monolingual and languages != 1:
        raise PolyglanceError(
            f"this model is for one language, and the lexicon has {languages}: build one for each"
        )
    if model.needs_pretraining and latent is None:
        raise PolyglanceError("this model has latent tokens: pre-train a latent vocabulary first")
    if model.character_width is not None:
        width = model.config.universal_width
        table = CharacterEmbedding(words, characters_width=model.character_width, width=width)
        return SMALR(model.config, table, num_languages=languages, steps=steps)
    hybrid = word_table(model.config, vectors, language_of, rank_in_language, latent)
    return SMALR(model.config, hybrid, num_languages=languages, steps=steps)
