"""The model that a recipe begins with: on a pretrained text encoder, or one that others published.

``initialise_from`` may name the file of a published checkpoint, under the names of its own
code. The model then has the checkpoint's shape, and ``encoder`` is read for its tokenizer
alone: that of the XLM-R which it was trained from.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from polyglance import weights
from polyglance.errors import PolyglanceError
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.models.m3p_checkpoints import load_m3p
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.models.uc2_checkpoints import load_uc2
from polyglance.nn.pretrained import load_encoder
from polyglance.recipes.common import has_begun
from polyglance.recipes.pairs.m3p_recipe import M3PRecipe
from polyglance.recipes.pairs.recipe import PairRecipe
from polyglance.recipes.pairs.uc2_recipe import UC2Recipe
from polyglance.recipes.stages import begin_from
from polyglance.records import replacing
from polyglance.text import Tokenizer
from polyglance.training.distribution import rank

_PUBLISHED = (".bin", ".ckpt", ".pt", ".pth")
_LANGUAGES = "languages.weight"


def untrained_uc2(recipe: UC2Recipe, tokenizer: Tokenizer, width: int) -> UC2:
    """UC2 for features of this width."""
    if (path := _published(recipe)) is not None:
        if recipe.form != "reference":
            raise PolyglanceError(
                f"{path} has the form of the published code: set form to reference"
            )
        model = load_uc2(path)
        _check(path, tokenizer, width, model.config.encoder.vocabulary, model.config.visual_width)
        _drop(model, recipe.dropout)
        return model
    encoder = load_encoder(weights.folder(recipe.encoder), dropout=recipe.dropout)
    torch.manual_seed(recipe.loop.seed)
    return UC2(UC2Config(encoder.config, width, form=recipe.form), encoder)


def untrained_m3p(
    recipe: M3PRecipe, tokenizer: Tokenizer, width: int, languages: Sequence[str]
) -> M3P:
    """M3P for features of this width; a published one's languages are numbered, ours begin anew."""
    if (path := _published(recipe)) is not None:
        if recipe.layout != "reference":
            raise PolyglanceError(
                f"{path} has the layout of the published code: set layout to reference"
            )
        found = load_m3p(path)
        _check(path, tokenizer, width, found.config.encoder.vocabulary, found.config.visual_width)
        model = M3P(replace(found.config, languages=tuple(languages)))
        own = {_LANGUAGES: model.languages.weight}
        model.load_state_dict(dict(found.state_dict()) | own)
        _drop(model, recipe.dropout)
        return model
    encoder = load_encoder(weights.folder(recipe.encoder), dropout=recipe.dropout)
    config = M3PConfig(
        encoder=encoder.config,
        languages=tuple(languages),
        visual_width=width,
        labels=recipe.labels,
        layout=recipe.layout,
    )
    torch.manual_seed(recipe.loop.seed)
    return M3P(config, encoder)


def begin_with_stage(model: nn.Module, recipe: PairRecipe) -> None:
    """Give a model the weights of the stage of another run that a recipe names, if it does."""
    if recipe.initialise_from is not None and _published(recipe) is None:
        folder = Path(recipe.initialise_from)
        fit = partial(_rows_by_language, model, folder) if isinstance(model, M3P) else None
        begin_from(model, folder, fit=fit)


def _rows_by_language(model: M3P, folder: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give each language its own embedding of another run; those it did not know begin anew."""
    known = kept_languages(folder.parent) or kept_languages(folder.parent.parent)
    before, rows = tensors[_LANGUAGES], torch.zeros_like(model.languages.weight)
    if len(known) != len(before):
        raise ValueError("its run does not tell which languages its model knows")
    for number, name in enumerate(model.config.languages):
        if name in known:
            rows[number] = before[known.index(name)]
    return tensors | {_LANGUAGES: rows}


def keep_languages(names: Sequence[str], run: Path) -> None:
    """Write into a run which languages its M3P has embeddings of, in their order.

    A run that has begun goes on with the same alone.
    """
    if has_begun(run) and kept_languages(run) not in ((), tuple(names)):
        raise PolyglanceError(
            f"{run} holds a run in other languages ({', '.join(kept_languages(run))}): train into"
            " another folder"
        )
    if rank() == 0:
        with replacing(run / "languages.json") as file:
            file.write(json.dumps(list(names)) + "\n")


def kept_languages(run: Path) -> tuple[str, ...]:
    """Read them again, if need be from the report; none where there is neither."""
    for name in ("languages.json", "report.json"):
        try:
            found = json.loads((run / name).read_bytes())
        except (OSError, ValueError):
            continue
        told = found.get("languages") if isinstance(found, dict) else found
        if isinstance(told, list):
            return tuple(map(str, told))
    return ()


def _published(recipe: PairRecipe) -> Path | None:
    """The checkpoint of others that a recipe begins with; stages of runs are folders."""
    if recipe.initialise_from is None:
        return None
    place = Path(recipe.initialise_from).expanduser()
    return place if place.is_file() or place.suffix in _PUBLISHED else None


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
    """Take the dropout of a recipe, which a file of weights does not tell."""
    for module in model.modules():
        if isinstance(module, nn.Dropout) and dropout is not None:
            module.p = dropout
