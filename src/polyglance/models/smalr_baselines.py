"""What SMALR is compared with, in the same frame: its ablations, and the models it comes from.

Each is a shape and an objective of `polyglance.models.smalr`, so that whatever
differs between two of them stands here. Frequency thresholding and dictionary
mapping are MULE over a smaller lexicon, and translation into English is EmbN for
English: they change words before any model sees them.
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
"""Of fastText's vectors."""


@dataclass(frozen=True)
class WordModel:
    """A way from words to pictures, and how it is trained."""

    config: SMALRConfig = SMALRConfig()  # noqa: RUF009 - frozen
    objective: SMALRObjective = SMALRObjective()  # noqa: RUF009 - frozen
    character_width: int | None = None
    """The width of a character's vector, in a model that spells its words."""
    monolingual: bool = False
    """Whether there is a model for each language, which knows no other."""

    @property
    def needs_pretraining(self) -> bool:
        """Whether a latent vocabulary must be learned first."""
        return self.character_width is None and self.config.latent_tokens > 0


_UNMASKED = SMALRObjective(mask_weight=0.0, match_masked=False)
_HEM = SMALRConfig(masked_modelling=False)
_MULE = replace(_HEM, own_words=None, own_width=VECTOR_WIDTH, latent_tokens=0)
# Words enter the sentence branch as they are: there is no universal embedding to align.
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
    "large-liwe": WordModel(_LIWE, _SENTENCES_ALONE, character_width=120),
}
"""By name. LIWE sees the same features of pictures as all others here, not those of a detector,
and is asked in the same words: those that are not in the lexicon, which it could spell, are dropped
before it as well."""


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
    """An untrained model for the words of a lexicon, given with vectors, languages and ranks."""
    languages = int(language_of.max()) + 1
    if model.monolingual and languages != 1:
        raise PolyglanceError(
            f"this model knows one language, and the lexicon has {languages}: make one of each"
        )
    if model.needs_pretraining and latent is None:
        raise PolyglanceError(
            "this model shares tokens among words: learn a latent vocabulary first"
        )
    if model.character_width is not None:
        width = model.config.universal_width
        table = CharacterEmbedding(words, characters_width=model.character_width, width=width)
        return SMALR(model.config, table, num_languages=languages, steps=steps)
    hybrid = word_table(model.config, vectors, language_of, rank_in_language, latent)
    return SMALR(model.config, hybrid, num_languages=languages, steps=steps)
