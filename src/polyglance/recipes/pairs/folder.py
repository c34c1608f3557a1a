"""A trained UC2 or M3P, opened with its eyes: from its run, or from a folder of its own.

A run lies beside the weights it began with and the pictures it saw; ``polyglance export
RUN --out FOLDER`` writes what is needed to read words beside pictures, and no more: a
folder as in `polyglance.recipes.pairs.model_folder`.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from polyglance import weights
from polyglance.config import load
from polyglance.errors import DataError, PolyglanceError
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.models.meeting import Meeting, read_meeting, write_meeting
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.recipes.pairs.m3p_recipe import M3PRecipe
from polyglance.recipes.pairs.model_folder import (
    CONFIG,
    SeesPictures,
    kind_of,
    read_model,
    write_model,
)
from polyglance.recipes.pairs.region_splits import Eyes, open_eyes
from polyglance.recipes.pairs.uc2_recipe import UC2Recipe
from polyglance.recipes.pairs.untrained import kept_languages, untrained_m3p, untrained_uc2
from polyglance.recipes.stages import begin_from
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.vision.store import read_info
from polyglance.vision.torch_backbone import TorchBackbone
from polyglance.yaml12 import parse

KIND, _MEETING = "pair", "meeting"
RANKING = ("fine_tuning", "imitation", "pretraining", "adaptation")
"""Stages of a run, that which sorts pictures best first."""
TELLING = ("pretraining", "fine_tuning", "imitation", "adaptation")
"""That which tells words best first."""
_AFTER_WORDS = ("pretraining", "imitation", "fine_tuning")
"""Stages whose weights have been through pre-training, where a run has that."""


@dataclass(frozen=True, kw_only=True)
class Description(SeesPictures):
    """What ``config.json`` says."""

    kind: str = KIND
    model: UC2Config | M3PConfig
    trust: float = 0.0
    """What a dual encoder counts beside: see `Candidates.trusting` of
    `polyglance.evaluation.pair_scores`."""
    tells_words: bool = False
    """Whether it is known that hidden words were told beside pictures before these weights."""


@dataclass(frozen=True, eq=False)
class PairModel:
    """A model that reads sentences beside pictures, and all that it needs for it."""

    model: UC2 | M3P
    tokenizer: Tokenizer
    eyes: TorchBackbone
    told: Description
    meeting: Meeting | None = None
    """What looks at candidates more closely, of a run that was measured so."""


class NoPairModel(DataError):  # noqa: N818 (it reads as what it says)
    """A folder that holds neither UC2 nor M3P."""


def open_pair_model(
    folder: str | Path,
    *,
    stages: Sequence[str] = RANKING,
    backbone: str | None = None,
    features: str | Path | None = None,
    device: str = "cpu",
) -> PairModel:
    """Open a run, a stage of one, or an exported folder.

    The first of ``stages`` that a run has is opened. ``features`` is the store that a run
    was trained on: new pictures are seen as those in it were. ``backbone`` looks at them in
    place of the network that is known. Neither is for a model that brings its own.
    """
    path = Path(folder).expanduser()
    if kind_of(path) == KIND:
        refuse_unused(path, features=features, backbone=backbone)
        return _open_folder(path, device)
    run = _run_of(path)
    recipe = _recipe(run)
    if recipe is None:
        raise NoPairModel(
            f"{path} holds no trained UC2 or M3P: train one by 'polyglance train uc2-flickr8k"
            " --data DATA --out RUN' and give RUN"
        )
    recipe = recipe.with_towers(run)
    if recipe.eyes is not None:
        refuse_unused(path, features=features)
    settings = recipe.eyes or _seen_as_stored(recipe, path, features)
    if backbone:
        settings = replace(settings, backbone=backbone)
    elif recipe.eyes is None and not _is_here(settings.backbone):
        raise PolyglanceError(
            f"the features that {path} was trained on were made by {settings.backbone}, which is"
            " not there: say where it is by --backbone"
        )
    eyes, tokenizer = open_eyes(settings, device), open_tokenizer(recipe.encoder)
    report, languages = _report(run), kept_languages(run)
    if isinstance(recipe, M3PRecipe) and not languages:
        raise DataError(f"{run / 'languages.json'}: the run has not begun")
    model: UC2 | M3P
    if isinstance(recipe, UC2Recipe):
        model = untrained_uc2(recipe, tokenizer, eyes.width)
    else:
        model = untrained_m3p(recipe, tokenizer, eyes.width, languages)
    place = _first_stage(run, stages) if path == run else path
    begin_from(model, place)
    trust = recipe.reranking.trust if recipe.reranking else 0.0
    told = Description(
        model=model.config,
        eyes=settings,
        longest_text=recipe.longest_text,
        trust=float(report.get("validation", {}).get("trust", trust)),
        tells_words=_has_told_words(place),
    )
    meeting = None
    own_eyes = recipe.eyes is not None and not backbone
    if recipe.reranking is not None and recipe.reranking.meeting is not None and own_eyes:
        meeting = read_meeting(recipe.reranking.meeting).to(device)
    return PairModel(_at_work(model, device), tokenizer, eyes, told, meeting)


def refuse_unused(
    path: Path, *, features: str | Path | None = None, backbone: str | None = None
) -> None:
    """Refuse what says how pictures are seen, for a model that sees them by its own eyes."""
    given = {"--features": features, "--backbone": backbone}
    if named := [name for name, value in given.items() if value is not None]:
        raise PolyglanceError(
            f"{path} sees pictures through eyes of its own and takes no {' or '.join(named)}: leave"
            f" {'that' if len(named) == 1 else 'both'} out"
        )


def export_pair_model(
    run: Path,
    folder: Path,
    *,
    backbone: str | None = None,
    features: Path | None = None,
    half: bool = True,
) -> Description:
    """Write the model of a run as a folder of its own, in half precision unless told otherwise.

    Where the run never measured how far to trust the order of vectors, that is said.
    """
    opened = open_pair_model(run, backbone=backbone, features=features)
    write_model(folder, opened.model, opened.tokenizer, opened.told, half=half)
    shutil.rmtree(folder / _MEETING, ignore_errors=True)
    if opened.meeting is not None:
        write_meeting(opened.meeting, folder / _MEETING)
    if opened.told.trust == 0 and "trust" not in _report(_run_of(run)).get("validation", {}):
        print(
            f"{run} never measured how far to trust the order of vectors, which is dropped among"
            " the hits that are read again: train with reranking.validation, which measures it,"
            " or with reranking.trust",
            file=sys.stderr,
        )
    return opened.told


def is_pair_run(run: Path) -> bool:
    """Whether a folder is a run of UC2 or M3P, or a stage of one."""
    return run.is_dir() and (_recipe(run) is not None or _recipe(run.parent) is not None)


def _run_of(path: Path) -> Path:
    """The run that a stage is of; a run is its own."""
    stage = (path.parent / "recipe.yaml").is_file() and not (path / "recipe.yaml").is_file()
    return path.parent if stage else path


def _open_folder(path: Path, device: str) -> PairModel:
    try:
        told, state = read_model(path, Description)
        with torch.device("meta"):
            model = UC2(told.model) if isinstance(told.model, UC2Config) else M3P(told.model)
        model.load_state_dict(state, assign=True)
    except (OSError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
        detail = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: the model cannot be read ({detail}): export it again") from error
    except PolyglanceError as error:
        raise DataError(f"{path / CONFIG}: {error}") from error
    eyes = open_eyes(told.eyes, device)
    place = path / _MEETING
    meeting = read_meeting(place).to(device) if place.is_dir() else None
    return PairModel(_at_work(model, device), open_tokenizer(path), eyes, told, meeting)


def _at_work(model: UC2 | M3P, device: str) -> UC2 | M3P:
    model.to(device).eval().requires_grad_(False)
    return model


def _recipe(run: Path) -> UC2Recipe | M3PRecipe | None:
    file = run / "recipe.yaml"
    if not file.is_file():
        return None
    plain = parse(file.read_text(encoding="utf-8"), str(file))
    kind = plain.pop("kind", None)
    if kind == "uc2":
        return load(UC2Recipe, plain)
    return load(M3PRecipe, plain) if kind == "m3p" else None


def _seen_as_stored(recipe: UC2Recipe | M3PRecipe, path: Path, features: str | Path | None) -> Eyes:
    """Eyes that see as many cells, of pictures as large, as those that made a feature store.

    A run does not know where its data lay, unless the recipe names the store from the root.
    """
    named = Path(recipe.train.features)
    if features is not None:
        store = Path(features).expanduser()
    elif named.is_absolute() and (named / "store.json").is_file():
        store = named
    else:
        raise PolyglanceError(
            f"{path} was trained on stored features: name their store as --features of"
            " 'polyglance export' or 'polyglance explain', which then see pictures in the same way"
        )
    made = read_info(store).made_by
    size, grid = made.get("size"), made.get("grid")
    if not (
        isinstance(size, int)
        and isinstance(grid, int)
        and made.get("resize") == "squash"
        and made.get("views", "one") == "one"
        and recipe.whole_first
        and recipe.longest_regions > grid * grid
    ):
        raise PolyglanceError(
            f"{path} was trained on other regions than a picture squeezed into a square and all"
            f" cells of a grid over it (see {store}), which cannot be found in new pictures: train"
            " one with eyes, as uc2-reranking has"
        )
    return Eyes(str(made["backbone"]), size=size, grid=grid)


def _is_here(network: str) -> bool:
    """Whether weights are known by name or lie in a folder; others would be sought on the hub."""
    return network in weights.ENTRIES or Path(network).expanduser().is_dir()


def _has_told_words(place: Path) -> bool:
    """Whether words were hidden beside pictures before the weights of a stage or checkpoint.

    In its run, or in the one that this began from.
    """
    for run in (place.parent, place.parent.parent):
        recipe = _recipe(run)
        if recipe is None:
            continue
        if place.relative_to(run).parts[0] in _AFTER_WORDS and _hides_words(recipe):
            return True
        before = recipe.initialise_from
        return before is not None and _has_told_words(Path(before))
    return False


def _hides_words(recipe: UC2Recipe | M3PRecipe) -> bool:
    if recipe.pretraining is None:
        return False
    if isinstance(recipe, M3PRecipe):
        return "words" in recipe.pretraining.tasks
    mixture, pivot = recipe.pretraining.mixture, recipe.pretraining.pivot
    # Without pictures, as VTLM is when English is the pivot, words have nowhere to look.
    return mixture.mlm > 0 or (mixture.vtlm > 0 and pivot == "image")


def _report(run: Path) -> dict[str, Any]:
    """What a run measured; nothing while it goes on."""
    try:
        found = json.loads((run / "report.json").read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"{run / 'report.json'} cannot be read ({error})") from error
    return found if isinstance(found, dict) else {}


def _first_stage(run: Path, stages: Sequence[str]) -> Path:
    for name in stages:
        if (run / name).is_dir():
            return run / name
    raise DataError(f"{run}: there is no stage of training to open, such as {stages[0]}")
