"""Beginning with a checkpoint that others published, under the names of their own code.

``initialise_from`` may name such a file. The model then has the checkpoint's shape, and
``encoder`` is read for its tokenizer alone: that of XLM-R, whichever of them it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from polyglance.errors import PolyglanceError
from polyglance.models.m3p import M3P
from polyglance.models.m3p_checkpoints import load_m3p
from polyglance.models.uc2 import UC2
from polyglance.models.uc2_checkpoints import load_uc2
from polyglance.recipes.pairs.m3p_recipe import M3PRecipe
from polyglance.recipes.pairs.recipe import PairRecipe
from polyglance.recipes.pairs.uc2_recipe import UC2Recipe
from polyglance.text import Tokenizer


def published_file(recipe: PairRecipe) -> Path | None:
    """The checkpoint of others that a recipe begins with; None where it begins with none."""
    if recipe.initialise_from is None:
        return None
    place = Path(recipe.initialise_from).expanduser()
    return place if place.is_file() else None


def published_uc2(path: Path, recipe: UC2Recipe, tokenizer: Tokenizer, width: int) -> UC2:
    """UC2, UNITER or one of VOLTA's, for features of this width."""
    if recipe.form != "reference":
        raise PolyglanceError(f"{path} has the form of the published code: set form to reference")
    model = load_uc2(path)
    _check(path, tokenizer, width, model.config.encoder.vocabulary, model.config.visual_width)
    _drop(model, recipe.dropout)
    return model


def published_m3p(
    path: Path, recipe: M3PRecipe, tokenizer: Tokenizer, width: int, languages: Sequence[str]
) -> M3P:
    """M3P or VOLTA's copy of it; its languages are numbered, and ours begin anew."""
    if recipe.layout != "reference":
        raise PolyglanceError(
            f"{path} has the layout of the published code: set layout to reference"
        )
    found = load_m3p(path)
    _check(path, tokenizer, width, found.config.encoder.vocabulary, found.config.visual_width)
    model = M3P(replace(found.config, languages=tuple(languages)))
    own = {"languages.weight": model.languages.weight}
    model.load_state_dict(dict(found.state_dict()) | own)
    _drop(model, recipe.dropout)
    return model


def _check(path: Path, tokenizer: Tokenizer, width: int, words: int, seen: int) -> None:
    if seen != width:
        raise PolyglanceError(
            f"{path} sees features {seen:,} wide, and these are {width:,} wide: it takes those of"
            " the detector that it was trained with"
        )
    if tokenizer.vocab_size > words:
        raise PolyglanceError(
            f"{path} knows {words:,} sub-words, and the tokenizer has {tokenizer.vocab_size:,}:"
            " name the encoder that it was trained from, such as a folder of XLM-R base"
        )


def _drop(model: nn.Module, dropout: float | None) -> None:
    """What a file of weights does not tell."""
    for module in model.modules():
        if isinstance(module, nn.Dropout) and dropout is not None:
            module.p = dropout
