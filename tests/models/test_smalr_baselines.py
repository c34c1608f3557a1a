from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from polyglance.errors import PolyglanceError
from polyglance.models.smalr import SMALR, latent_vocabulary
from polyglance.models.smalr_baselines import WORD_MODELS, build_word_model
from polyglance.nn.character_embedding import CharacterEmbedding
from polyglance.nn.hybrid_embedding import HybridEmbedding

# 40 words of one language and 30 of another, with vectors of size 300.
WORDS = ["<pad>", "<mask>", *(f"en{n}" for n in range(40)), *(f"de{n}" for n in range(30))]
LANGUAGE_OF = torch.tensor([-1, -1] + [0] * 40 + [1] * 30)
RANKS = torch.tensor([-1, -1, *range(40), *range(30)])
VECTORS = torch.randn(72, 300, generator=torch.Generator().manual_seed(0))
SMALL = {"visual_width": 16, "visual_hidden": 8}


def make(name: str, *, own_words: int | None = 10, languages: int = 2) -> SMALR:
    model = WORD_MODELS[name]
    if model.needs_pretraining:
        own = model.config.own_words and own_words
        config = replace(model.config, latent_tokens=25, own_words=own, **SMALL)
    else:
        config = replace(model.config, **SMALL)
    torch.manual_seed(0)
    latent = latent_vocabulary(config, VECTORS) if model.needs_pretraining else None
    included = languages > LANGUAGE_OF
    words = [word for word, is_included in zip(WORDS, included, strict=True) if is_included]
    return build_word_model(
        replace(model, config=config),
        words,
        VECTORS[included],
        LANGUAGE_OF[included],
        RANKS[included],
        steps=10,
        latent=latent,
    )


GRU = 3 * (512 * 512 + 512 * 512 + 2 * 512) + 512 * 512 + 512
GRU_300 = 3 * (300 * 512 + 512 * 512 + 2 * 512) + 512 * 512 + 512
PICTURES = 16 * 8 + 8 + 2 * 8 + 8 * 512 + 512
ADVERSARY = 2 * 512 + 2
MASK = 512


def latent_rows(model: SMALR) -> int:
    assert isinstance(model.words, HybridEmbedding)
    return len(model.words.latent)


def test_baselines_differ_only_in_own_vectors_and_tokens() -> None:
    hem, smalr, agnostic = (make(name) for name in ("hem", "smalr", "language-agnostic"))
    frame = GRU + PICTURES + ADVERSARY + MASK
    own = 20 * 50 + 2 * (50 * 512 + 512)
    assert hem.num_trainable_parameters() == frame + own + 512 * latent_rows(hem)
    missing = 2 * (1024 * 1024 + 1024)
    assert smalr.num_trainable_parameters() == hem.num_trainable_parameters() + missing
    assert agnostic.num_trainable_parameters() == frame + 512 * latent_rows(agnostic)
    assert {m.num_test_time_parameters() for m in (hem, smalr, agnostic)} == {GRU + PICTURES}


@pytest.mark.parametrize(("name", "width"), [("mule", 300), ("pca-100", 100), ("pca-50", 50)])
def test_mule_has_a_vector_for_every_word(name: str, width: int) -> None:
    model = make(name)
    own = 70 * width + 2 * (width * 512 + 512)
    assert model.num_trainable_parameters() == GRU + PICTURES + ADVERSARY + MASK + own
    assert model.num_test_time_parameters() == GRU + PICTURES


def test_embn_is_for_one_language_and_parallel_embn_has_a_branch_for_each() -> None:
    alone = make("embn", languages=1)
    assert alone.num_trainable_parameters() == 40 * 300 + 300 + GRU_300 + PICTURES
    parallel = make("parallel-embn")
    assert parallel.num_trainable_parameters() == 70 * 300 + 300 + 2 * GRU_300 + PICTURES
    assert parallel.num_test_time_parameters() == 2 * GRU_300 + PICTURES
    with pytest.raises(PolyglanceError, match="one language, and the lexicon has 2"):
        make("embn")


@pytest.mark.parametrize(("name", "width"), [("small-liwe", 24), ("large-liwe", 120)])
def test_liwe_encodes_characters_at_test_time_too(name: str, width: int) -> None:
    model = make(name)
    assert isinstance(model.words, CharacterEmbedding)
    letters = len(set("".join(WORDS[2:]))) + 2
    spelling = letters * width + 2 * 3 * (256 * width + 256 * 256 + 2 * 256)
    assert model.num_trainable_parameters() == spelling + GRU + PICTURES
    assert model.num_test_time_parameters() == model.num_trainable_parameters()


def test_latent_tokens_must_be_pretrained_first() -> None:
    with pytest.raises(PolyglanceError, match="pre-train a latent vocabulary first"):
        build_word_model(WORD_MODELS["smalr"], WORDS, VECTORS, LANGUAGE_OF, RANKS, steps=1)
