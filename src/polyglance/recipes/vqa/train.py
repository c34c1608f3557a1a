"""Train a model that answers questions about images, in all languages of the data at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyglance import weights
from polyglance.cross_encoders.regions import image_vectors
from polyglance.cross_encoders.vqa import VQAConfig, write_vqa_model
from polyglance.models.projection_heads import load_projection_heads
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.models.vqa import VQAModel
from polyglance.nn.packing import Packing
from polyglance.nn.pretrained import load_encoder
from polyglance.recipes.cross_encoder.build import split_dual_encoder
from polyglance.recipes.run_folder import require_files, save_recipe, write_report
from polyglance.recipes.stages import Stage, load_stage, parameter_groups
from polyglance.recipes.vqa.config import VQARecipe
from polyglance.recipes.vqa.data import VQAData, answer_targets, load_data
from polyglance.recipes.vqa.evaluation import (
    evaluate,
    predict,
    validate,
    write_answers,
    write_model_card,
)
from polyglance.recipes.vqa.tasks import AnswerTargets, VQATask
from polyglance.training.distributed import rank
from polyglance.training.mixture import Mixture
from polyglance.utils.fingerprint import file_sha256


def train(recipe: VQARecipe, data: Path, run: Path, *, device: str = "cpu") -> dict[str, Any]:
    """Train and evaluate a question-answering model.

    Args:
        recipe: the settings.
        data: the data folder.
        run: the run folder; an interrupted run continues.
        device: a device of torch.

    Returns:
        The report, which is also in ``report.json``. The run has the model in ``model/``, which
        `polyglance ask` opens, and all test answers in ``answers.jsonl``.
    """
    torch.set_float32_matmul_precision("high")
    require_files(data, *(file.manifest for file in (*recipe.train, *recipe.test)))
    save_recipe(recipe, "vqa", run)
    recipe = _resolve_dual_encoder(recipe, run)
    vqa_data = load_data(recipe, data, device)
    targets = answer_targets(vqa_data.vocabulary, vqa_data.train.questions)
    model = build_model(recipe, vqa_data).to(device)
    initialise(model, recipe, vqa_data, targets)
    stage = build_stage(recipe, model, vqa_data, targets)

    report: dict[str, Any] = {
        "answers": {code: len(texts) for code, texts in vqa_data.vocabulary.by_language.items()},
        "questions": len(vqa_data.train.questions),
        stage.name: stage.run(model, run / stage.name),
    }
    if rank() == 0:  # before evaluation, so that nothing that fails there costs the model
        write_model_folder(run / "model", recipe, model, vqa_data)
    if (test := vqa_data.test) is not None:
        answers = predict(model, test, vqa_data.vocabulary)
        report["test"] = evaluate(test.questions, answers, _all_training_questions(vqa_data))
        if rank() == 0:
            write_answers(run / "answers.jsonl", test.questions, answers)
    if rank() == 0:
        by_language = vqa_data.vocabulary.by_language
        write_model_card(run / "model", by_language, report.get("test", {}))
    write_report(report, run)
    return report


def build_model(recipe: VQARecipe, data: VQAData) -> VQAModel:
    """Build an untrained classifier on UC2, on a pretrained text encoder."""
    encoder = load_encoder(weights.folder(recipe.encoder), dropout=recipe.dropout)
    config = UC2Config(encoder.config, data.train.regions.width, variant=recipe.variant)
    torch.manual_seed(recipe.loop.seed)
    cross_encoder = UC2(config, encoder)
    similarity = None
    if recipe.projection_heads is not None and recipe.answers.image_similarity:
        similarity = load_projection_heads(recipe.projection_heads).config
        backbone = weights.folder(recipe.image_backbone.backbone) / "model.safetensors"
        similarity.check_compatible(
            config.visual_width, file_sha256(backbone), encoder.config.hidden_size
        )
    return VQAModel(
        cross_encoder,
        len(data.vocabulary),
        dropout=recipe.head_dropout,
        similarity=similarity,
    )


def initialise(model: VQAModel, recipe: VQARecipe, data: VQAData, targets: AnswerTargets) -> None:
    """Initialise the classifier from the answers' texts and frequencies.

    Args:
        model: changed in place.
        recipe: may name projection heads and a UC2 checkpoint.
        data: questions, images and answers.
        targets: the training targets.
    """
    rows, packing = encode_answers(model, data)
    device = rows.device
    embeddings = packing.mean(rows) if recipe.answers.init_from_text else None
    model.initialise_head(targets.mean().to(device), embeddings)
    if model.similarity is not None and recipe.projection_heads is not None:
        heads = load_projection_heads(recipe.projection_heads).to(device)
        images = image_vectors(heads, data.train.regions)
        model.similarity.initialise(heads, heads.encode_texts(rows, packing), images)
    if recipe.initialise_from is not None:
        load_stage(model.cross_encoder, Path(recipe.initialise_from))


@torch.no_grad()
def encode_answers(model: VQAModel, data: VQAData) -> tuple[Tensor, Packing]:
    """Encode the answers with the text encoder alone, before it has seen an image."""
    model.eval()
    encoder = model.cross_encoder.encoder
    device = next(encoder.parameters()).device
    ids = data.tokenizer.encode_batch([answer for _, answer in data.vocabulary.names])
    packing = Packing.of([len(some) for some in ids], device)
    flat = torch.tensor([number for some in ids for number in some], device=device)
    return encoder(flat, packing), packing


def build_stage(recipe: VQARecipe, model: VQAModel, data: VQAData, targets: AnswerTargets) -> Stage:
    """Build the only stage of training."""
    task = VQATask(
        model,
        data.train.regions,
        data.train.table,
        targets,
        batch=recipe.batch,
        loss=recipe.loss,
        language_alpha=recipe.language_alpha,
    )
    split = data.validation
    return Stage(
        "training",
        Mixture({"vqa": task}),
        recipe.loop,
        parameter_groups(model, model.cross_encoder.encoder, recipe.head_lr_multiplier),
        validate=None if split is None else lambda: validate(model, split, data.vocabulary),
    )


def write_model_folder(folder: Path, recipe: VQARecipe, model: VQAModel, data: VQAData) -> None:
    """Write the model as a folder that opens without the recipe."""
    config = VQAConfig(
        model=model.cross_encoder.config,
        answers=dict(data.vocabulary.by_language),
        loss=recipe.loss,
        image_backbone=recipe.image_backbone,
        projection_heads=None
        if model.similarity is None
        else model.similarity.projection_heads.config,
        object_tags=recipe.object_tags,
        max_text_tokens=recipe.max_text_tokens,
    )
    questions = {
        language: [q.text for q in data.train.questions if q.language == language]
        for language in data.vocabulary.by_language
    }
    write_vqa_model(folder, model, data.tokenizer, config, questions)


def _resolve_dual_encoder(recipe: VQARecipe, run: Path) -> VQARecipe:
    """Use the encoder, image backbone and projection heads of a dual encoder."""
    if recipe.init_from_dual_encoder is None:
        return recipe
    split = split_dual_encoder(recipe.init_from_dual_encoder, run)
    return replace(
        recipe,
        projection_heads=None if split.projection_heads is None else str(split.projection_heads),
        encoder=str(split.text),
        image_backbone=replace(recipe.image_backbone, backbone=str(split.image_backbone)),
    )


def _all_training_questions(data: VQAData) -> list[Any]:
    """Return all questions with known answers; the baseline learns from held-out ones too."""
    held_out = [] if data.validation is None else data.validation.questions
    return [*data.train.questions, *held_out]
