"""Where a cross-encoder starts: checks, initial weights, and the run's model folder.

``initialise_from`` may name the file of a published checkpoint, in the names of its own code.
The model then has the checkpoint's shape, and ``encoder`` is read for its tokenizer alone:
that of the XLM-R which the checkpoint was trained from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from torch import nn

from polyglance.cross_encoders.model_folder import (
    PROJECTION_HEADS,
    CrossEncoderFolderConfig,
    read_config,
    write_config,
)
from polyglance.cross_encoders.regions import ImageBackboneConfig, open_image_backbone
from polyglance.errors import DataError, PolyglanceError
from polyglance.models.cross_encoder import CrossEncoderModel
from polyglance.models.projection_heads import load_projection_heads, save_projection_heads
from polyglance.recipes.cross_encoder.config import CrossEncoderRecipe
from polyglance.recipes.cross_encoder.evaluation import check_same_dual_encoder
from polyglance.recipes.cross_encoder.streaming import open_reader
from polyglance.recipes.run_folder import has_checkpoint, save_recipe
from polyglance.recipes.stages import load_stage
from polyglance.text import Tokenizer
from polyglance.training.checkpoints import Fit
from polyglance.training.distributed import barrier, rank

if TYPE_CHECKING:
    from polyglance.export.split_model import SplitModel

Recipe = TypeVar("Recipe", bound=CrossEncoderRecipe)

_PUBLISHED_SUFFIXES = (".bin", ".ckpt", ".pt", ".pth")


def prepare_run(recipe: Recipe, system: str, data: Path, run: Path) -> Recipe:
    """Check a recipe and its data, and save it in the run folder.

    Everything that is missing is named at once, before anything is written or computed.

    Args:
        recipe: what to train.
        system: its name in `polyglance.recipes.SYSTEMS`.
        data: the data folder.
        run: the run folder.

    Returns:
        The recipe with ``init_from_dual_encoder`` resolved to folders.
    """
    recipe.check_trainable()
    if missing := recipe.missing_files(data):
        raise DataError("; ".join(missing))
    save_recipe(recipe, system, run)
    recipe = _resolve_dual_encoder(recipe, run)
    reranking, settings = recipe.reranking, recipe.image_backbone
    if reranking is not None and reranking.projection_heads is not None and settings is not None:
        backbone = open_image_backbone(settings)
        heads = load_projection_heads(reranking.projection_heads).config
        heads.check_compatible(backbone.width, backbone.fingerprint)
        for name in (reranking.dual_embeddings, reranking.validation_embeddings):
            if name is not None and (data / name).is_dir():
                check_same_dual_encoder(data / name, heads, reranking.projection_heads)
    return recipe


def split_dual_encoder(model: str, run: Path) -> SplitModel:
    """Split a dual encoder, by name or folder, into ``RUN/dual_encoder``.

    A run with checkpoints keeps what it has, whatever became of the model since.
    """
    from polyglance.export.split_model import find_split, split_model_once

    folder = run / "dual_encoder"
    if rank() == 0 and not (has_checkpoint(run) and find_split(folder)):
        split_model_once(model, folder)
    barrier()
    split = find_split(folder)
    assert split is not None
    return split


def _resolve_dual_encoder(recipe: Recipe, run: Path) -> Recipe:
    """Use the encoder, image backbone and projection heads of a dual encoder."""
    if recipe.init_from_dual_encoder is None or recipe.image_backbone is None:
        return recipe
    split, reranking = split_dual_encoder(recipe.init_from_dual_encoder, run), recipe.reranking
    if reranking is not None:
        heads = None if split.projection_heads is None else str(split.projection_heads)
        reranking = replace(reranking, projection_heads=heads)
    return replace(
        recipe,
        init_from_dual_encoder=None,
        encoder=str(split.text),
        image_backbone=replace(recipe.image_backbone, backbone=str(split.image_backbone)),
        reranking=reranking,
    )


class InitialWeights(Protocol):
    """A recipe that may begin with the weights of another run or of a published checkpoint."""

    @property
    def initialise_from(self) -> str | None:
        """A file or folder."""


def published_checkpoint(recipe: InitialWeights) -> Path | None:
    """Return the published checkpoint to begin with; stages of runs are folders."""
    if recipe.initialise_from is None:
        return None
    path = Path(recipe.initialise_from).expanduser()
    return path if path.is_file() or path.suffix in _PUBLISHED_SUFFIXES else None


def check_published(path: Path, model: CrossEncoderModel, tokenizer: Tokenizer, width: int) -> None:
    """Refuse a published checkpoint that does not fit the features or the tokenizer.

    Args:
        path: the checkpoint.
        model: what it was read into.
        tokenizer: of the recipe's encoder.
        width: the size of the corpus's feature vectors.
    """
    config = model.config
    if config.visual_width != width:
        raise PolyglanceError(
            f"{path} takes features of size {config.visual_width:,} and these have {width:,}: use"
            " features of the detector that it was trained with"
        )
    if tokenizer.vocab_size > config.encoder.vocab_size:
        raise PolyglanceError(
            f"{path} knows {config.encoder.vocab_size:,} sub-words and the tokenizer has"
            f" {tokenizer.vocab_size:,}: set encoder to what it was trained from, such as a folder"
            " of XLM-R base"
        )


def set_dropout(model: nn.Module, dropout: float | None) -> None:
    """Apply a recipe's dropout, which a file of weights does not contain."""
    for module in model.modules():
        if isinstance(module, nn.Dropout) and dropout is not None:
            module.p = dropout


def load_initial_weights(
    model: nn.Module, recipe: CrossEncoderRecipe, *, fit: Fit | None = None
) -> None:
    """Load the weights of another run's stage, if the recipe names one.

    Args:
        model: changed in place.
        recipe: with ``initialise_from``.
        fit: adapts the loaded tensors to the model.
    """
    if recipe.initialise_from is not None and published_checkpoint(recipe) is None:
        load_stage(model, Path(recipe.initialise_from), fit=fit)


def write_model_folder(
    run: Path,
    system: str,
    recipe: CrossEncoderRecipe,
    model: CrossEncoderModel,
    tokenizer: Tokenizer,
    data: Path,
    stages: Mapping[str, bool],
    *,
    dual_weight: float | None = None,
) -> None:
    """Make the run folder a model folder that opens without its recipe.

    Args:
        run: the run folder.
        system: the name of the system.
        recipe: what is trained.
        model: for its configuration.
        tokenizer: saved in the folder.
        data: where feature stores lie, which say how images became regions.
        stages: the run's stages, and whether each trains to predict masked words.
        dual_weight: the tuned weight of the dual encoder, once it is known.
    """
    if rank() > 0:
        return
    inherited = _initial_weights_predict_words(recipe)
    reranking = recipe.reranking
    if dual_weight is None and reranking is not None and reranking.dual_weight:
        dual_weight = reranking.dual_weight
    config = CrossEncoderFolderConfig(
        system=system,
        model=model.config,
        image_backbone=recipe.image_backbone or _backbone_of_store(recipe, data),
        max_text_tokens=recipe.max_text_tokens,
        dual_weight=dual_weight,
        stages={name: inherited or predicts for name, predicts in stages.items()},
    )
    write_config(run, tokenizer, config)
    if reranking is not None and reranking.projection_heads is not None:
        heads = load_projection_heads(reranking.projection_heads)
        save_projection_heads(heads, run / PROJECTION_HEADS)


def _initial_weights_predict_words(recipe: CrossEncoderRecipe) -> bool:
    """Return whether the run that this one begins from had trained to predict masked words."""
    if recipe.initialise_from is None:
        return False
    folder = Path(recipe.initialise_from)
    for stage in (folder, folder.parent):
        config = read_config(stage.parent)
        if config is not None and stage.name in config.stages:
            return config.stages[stage.name]
    return False


def _backbone_of_store(recipe: CrossEncoderRecipe, data: Path) -> ImageBackboneConfig | None:
    """Return how the regions of a feature store can be computed for new images.

    None for regions other than the whole image and all cells of a grid over it.
    """
    made_by = open_reader(data, recipe.train.features, recipe.streaming).info.made_by
    size, grid = made_by.get("size"), made_by.get("grid")
    if not (
        isinstance(size, int)
        and isinstance(grid, int)
        and made_by.get("resize") == "squash"
        and made_by.get("views", "one") == "one"
        and recipe.prepend_global
        and recipe.max_regions > grid * grid
    ):
        return None
    return ImageBackboneConfig(str(made_by["backbone"]), size=size, grid=grid)
