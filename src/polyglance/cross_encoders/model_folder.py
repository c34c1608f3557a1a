"""Self-contained model folders of cross-encoders and question-answering models.

- ``config.json``: the system, the model's shape and how images become regions;
- ``model.safetensors``: the weights, tied ones once, in half precision where size matters;
- the tokenizer's own files;
- ``image_backbone/``: the network that computes regions;
- ``projection_heads/``: where the model is combined with the dual encoder that it began from.

A training run of UC2 or M3P is such a folder too. Its weights are the checkpoints of its
stages, which ``config.json`` lists under ``stages``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from polyglance import weights
from polyglance.config import as_plain, load
from polyglance.cross_encoders.regions import ImageBackboneConfig, open_image_backbone
from polyglance.errors import DataError, PolyglanceError
from polyglance.models.cross_encoder import (
    CrossEncoderConfig,
    CrossEncoderModel,
    cross_encoder_class,
)
from polyglance.models.projection_heads import (
    ProjectionHeads,
    load_projection_heads,
    save_projection_heads,
)
from polyglance.nn.meta import on_meta_device
from polyglance.nn.pretrained import model_tensors
from polyglance.records import atomic_write
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.utils.bounded import parse_json
from polyglance.utils.folder_format import check_format
from polyglance.vision.torch_backbone import TorchBackbone
from polyglance.vision.transformers_backbone import PREPROCESSING

WEIGHTS, CONFIG = "model.safetensors", "config.json"
FORMAT = 1
"""Newest version of the folder's format; raised when older code could not read it."""
IMAGE_BACKBONE, PROJECTION_HEADS = "image_backbone", "projection_heads"
CHECKPOINTS = ("best", "latest")
"""The checkpoints of a training stage, in the order of preference."""
RANKING_STAGES = ("fine_tuning", "distillation", "pretraining", "early_adaptation")
"""Stages of a run, the best at ranking images first."""
WORD_STAGES = ("pretraining", "fine_tuning", "distillation", "early_adaptation")
"""Stages of a run, the best at predicting masked words first."""


@dataclass(frozen=True, kw_only=True)
class ModelFolderConfig:
    """What ``config.json`` holds for every system."""

    system: str
    image_backbone: ImageBackboneConfig | None
    """None for a model trained on regions that only an external detector computes."""
    max_text_tokens: int
    """Longer texts are truncated to so many sub-words."""
    format: int = FORMAT


@dataclass(frozen=True, kw_only=True)
class CrossEncoderFolderConfig(ModelFolderConfig):
    """What ``config.json`` holds for UC2, M3P and any other cross-encoder."""

    model: CrossEncoderConfig
    """The model's own configuration, of the class that its system has."""
    dual_weight: float | None = None
    """Weight of a dual encoder's cosine in re-ranking (see `Candidates.reranked` of
    `polyglance.evaluation.pair_scores`); None if it was never tuned."""
    predicts_words: bool = False
    """Whether the weights were trained to predict masked words beside images."""
    stages: Mapping[str, bool] = field(default_factory=dict)
    """Of a run: its stages, and whether the weights of each predict masked words."""


@dataclass(frozen=True, eq=False)
class LoadedCrossEncoder:
    """A cross-encoder and everything that it needs to score, rank and explain."""

    model: CrossEncoderModel
    tokenizer: Tokenizer
    backbone: TorchBackbone
    config: CrossEncoderFolderConfig
    projection_heads: ProjectionHeads | None = None
    """Heads of the dual encoder with the same image backbone, if it has one."""

    @property
    def image_backbone(self) -> ImageBackboneConfig:
        """How the backbone is applied."""
        assert self.config.image_backbone is not None
        return self.config.image_backbone


class NotACrossEncoder(DataError):  # noqa: N818 (it says what the folder is not)
    """The folder holds no cross-encoder."""


def load_cross_encoder(
    folder: str | Path,
    *,
    stages: Sequence[str] = RANKING_STAGES,
    backbone: str | None = None,
    device: str = "cpu",
) -> LoadedCrossEncoder:
    """Load a cross-encoder from an exported folder, a run, or a stage of a run.

    Args:
        folder: where it is.
        stages: of a run, the stages to prefer; the first that exists is loaded.
        backbone: image backbone, by name or folder, for a run that knows only the name of its
            own.
        device: a device of torch.

    Returns:
        The model in evaluation mode.
    """
    path = Path(folder).expanduser()
    root, stage = (path, None) if system_of(path) else (path.parent, path.name)
    config = read_config(root)
    if config is None or (stage is not None and stage not in config.stages):
        raise NotACrossEncoder(
            f"{path} holds no trained UC2 or M3P: train one with 'polyglance train uc2-flickr8k"
            " --data DATA --out RUN' and give RUN"
        )
    image_backbone = _find_backbone(root, config.image_backbone, backbone)
    if config.stages:
        stage = stage or _first_stage(root, config.stages, stages)
        config = replace(config, predicts_words=config.stages[stage])
        state_file = _checkpoint(root / stage) / WEIGHTS
    else:
        state_file = root / WEIGHTS
    try:
        state = {name: value.to(torch.float32) for name, value in load_file(state_file).items()}
        with on_meta_device():
            model = cross_encoder_class(config.system)(config.model)
        model.load_state_dict(state, assign=True)
    except (OSError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
        detail = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: the model cannot be read ({detail}): export it again") from error
    heads_folder = root / PROJECTION_HEADS
    own_backbone = backbone is None and heads_folder.is_dir()
    return LoadedCrossEncoder(
        model.to(device).eval().requires_grad_(False),
        open_tokenizer(root),
        open_image_backbone(image_backbone, device),
        replace(config, image_backbone=image_backbone),
        load_projection_heads(heads_folder).to(device) if own_backbone else None,
    )


def export_cross_encoder(
    run: Path, folder: Path, *, backbone: str | None = None, half: bool = True
) -> CrossEncoderFolderConfig:
    """Write the model of a run as a folder of its own.

    Args:
        run: the run, or one of its stages.
        folder: what to write; files there are replaced.
        backbone: as for `load_cross_encoder`.
        half: store weights in half precision.

    Returns:
        The exported folder's configuration.
    """
    loaded = load_cross_encoder(run, backbone=backbone)
    config = replace(loaded.config, stages={})
    write_model(folder, loaded.model, loaded.tokenizer, config, half=half)
    shutil.rmtree(folder / PROJECTION_HEADS, ignore_errors=True)
    if loaded.projection_heads is not None:
        save_projection_heads(loaded.projection_heads, folder / PROJECTION_HEADS)
    return config


def write_model(
    folder: Path,
    model: nn.Module,
    tokenizer: Tokenizer,
    config: ModelFolderConfig,
    *,
    half: bool = False,
) -> None:
    """Write a model folder.

    Args:
        folder: what to write.
        model: its weights.
        tokenizer: saved beside them.
        config: saved as ``config.json``; its image backbone is copied into the folder.
        half: store weights in half precision.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = model_tensors(model)
    if half:
        tensors = {name: value.half() for name, value in tensors.items()}
    save_file(tensors, folder / WEIGHTS)
    write_config(folder, tokenizer, config)


def write_config(folder: Path, tokenizer: Tokenizer, config: ModelFolderConfig) -> None:
    """Write everything of a model folder but the weights; runs begin with it.

    A backbone that is not on this machine is kept by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder)
    settings = config.image_backbone
    if settings is not None and _is_available(settings.backbone):
        copy_weights(settings.backbone, folder / IMAGE_BACKBONE)
        config = replace(config, image_backbone=replace(settings, backbone=IMAGE_BACKBONE, views=1))
    with atomic_write(folder / CONFIG) as file:
        file.write(json.dumps(as_plain(config), ensure_ascii=False, indent=1) + "\n")


def copy_weights(name: str, folder: Path) -> None:
    """Copy pretrained weights, by name or folder, into a model folder."""
    folder.mkdir(parents=True, exist_ok=True)
    source = weights.folder(name)
    files = ["config.json", "model.safetensors"]
    if (source / PREPROCESSING).is_file():  # of a vision model of transformers
        files.append(PREPROCESSING)
    for file in files:
        if source.resolve() != folder.resolve():
            shutil.copyfile(source / file, folder / file)


def system_of(folder: Path) -> str | None:
    """Return the system of the model that a folder holds, or None if it is no model folder."""
    try:
        plain = parse_json((folder / CONFIG).read_bytes())
    except (OSError, ValueError):
        return None
    return str(plain["system"]) if isinstance(plain, dict) and "system" in plain else None


Config = TypeVar("Config", bound=ModelFolderConfig)


def read_model(folder: Path, config_class: type[Config]) -> tuple[Config, dict[str, Tensor]]:
    """Read ``config.json``, with the folder's own image backbone, and weights as float32."""
    plain: dict[str, Any] = parse_json((folder / CONFIG).read_bytes())
    check_format(plain, FORMAT, folder)
    config = load(config_class, plain)
    state = {name: value.to(torch.float32) for name, value in load_file(folder / WEIGHTS).items()}
    if config.image_backbone is None:
        return config, state
    own = replace(config.image_backbone, backbone=str(folder / IMAGE_BACKBONE))
    return replace(config, image_backbone=own), state


def read_config(folder: Path) -> CrossEncoderFolderConfig | None:
    """Read the ``config.json`` of a cross-encoder; None if the folder holds none."""
    system = system_of(folder)
    if system is None:
        return None
    try:
        model_class = cross_encoder_class(system)
    except PolyglanceError:
        return None  # a question-answering model, or a dual encoder
    try:
        plain = parse_json((folder / CONFIG).read_bytes())
        check_format(plain, FORMAT, folder)
        shape = plain.pop("model", {})
        if not isinstance(shape, dict):  # `load` would take a text for the path of a file
            raise PolyglanceError(f"model: expected a mapping, not {shape!r}")
        model = load(model_class.config_class, shape)
        # `load` knows no protocols: the model's configuration is put in afterwards.
        known = load(_Plain, plain)
    except DataError:
        raise
    except PolyglanceError as error:
        raise DataError(f"{folder / CONFIG}: {error}") from error
    fields = {name: getattr(known, name) for name in known.__dataclass_fields__}
    return CrossEncoderFolderConfig(model=model, **fields)


@dataclass(frozen=True, kw_only=True)
class _Plain(ModelFolderConfig):
    """`CrossEncoderFolderConfig` without the model's configuration."""

    dual_weight: float | None = None
    predicts_words: bool = False
    stages: dict[str, bool] = field(default_factory=dict)


def _find_backbone(
    root: Path, settings: ImageBackboneConfig | None, backbone: str | None
) -> ImageBackboneConfig:
    """Return the settings with the backbone to open."""
    if settings is None:
        raise PolyglanceError(
            f"{root} was trained on stored regions that cannot be computed for new images: train"
            " one with image_backbone, as the recipe uc2-reranking does"
        )
    if settings.backbone == IMAGE_BACKBONE and (root / IMAGE_BACKBONE).is_dir():
        if backbone is not None:
            raise PolyglanceError(
                f"{root} brings its own image backbone and takes no --backbone: leave it out"
            )
        return replace(settings, backbone=str(root / IMAGE_BACKBONE))
    name = settings.backbone if backbone is None else backbone
    if not _is_available(name):
        raise PolyglanceError(
            f"the features that {root} was trained on were computed by {name}, which is not on"
            " this machine: name its folder with --backbone"
        )
    return replace(settings, backbone=name)


def _is_available(network: str) -> bool:
    return network in weights.ENTRIES or Path(network).expanduser().is_dir()


def _first_stage(run: Path, stages: Mapping[str, bool], preferred: Sequence[str]) -> str:
    for name in preferred:
        if name in stages and (run / name).is_dir():
            return name
    raise DataError(f"{run}: no stage has been trained yet: run 'polyglance train' again")


def _checkpoint(stage: Path) -> Path:
    for name in CHECKPOINTS:
        if (stage / name / WEIGHTS).is_file():
            return stage / name
    raise DataError(f"{stage}: there is no checkpoint yet: run 'polyglance train' again")
