"""Train a model that answers questions about images, in all languages of the data at once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyglance import weights
from polyglance.cross_encoders.regions import image_vectors
from polyglance.cross_encoders.vqa import VQAConfig, write_vqa_model
from polyglance.errors import DataError, PolyglanceError
from polyglance.models.projection_heads import load_projection_heads
from polyglance.models.published_checkpoints import read_checkpoint
from polyglance.models.uc2 import UC2, UC2Config, reference_encoder
from polyglance.models.uc2_checkpoints import convert_uc2
from polyglance.models.vqa import VQAModel
from polyglance.models.vqa_checkpoints import vqa_head
from polyglance.nn.packing import Packing
from polyglance.nn.pretrained import load_encoder
from polyglance.recipes.cross_encoder.build import (
    check_published,
    published_checkpoint,
    set_dropout,
    split_dual_encoder,
)
from polyglance.recipes.cross_encoder.data import ENGLISH
from polyglance.recipes.cross_encoder.streaming import streaming_of
from polyglance.recipes.cross_encoder.word_head import initial_word_transform
from polyglance.recipes.run_folder import save_recipe, write_report
from polyglance.recipes.stages import Stage, load_stage, parameter_groups
from polyglance.recipes.vqa.config import VQARecipe
from polyglance.recipes.vqa.data import VQAData, load_data
from polyglance.recipes.vqa.evaluation import (
    evaluate,
    predict,
    validate,
    write_answers,
    write_model_card,
    write_submission,
)
from polyglance.recipes.vqa.questions import answer_targets, read_answer_classes
from polyglance.recipes.vqa.tasks import AnswerTargets, VQATask
from polyglance.records import Question
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
        `polyglance ask` opens, all test answers in ``answers.jsonl``, and for each test file with
        question ids what the VQA challenge takes (`write_submission`).
    """
    torch.set_float32_matmul_precision("high")
    if missing := recipe.missing_files(data):
        raise DataError("; ".join(missing))
    save_recipe(recipe, "vqa", run)
    recipe = _resolve_dual_encoder(recipe, run)
    vqa_data = load_data(recipe, data, device)
    targets = answer_targets(vqa_data.vocabulary, vqa_data.train.questions)
    model = build_model(recipe, vqa_data).to(device)
    initialise(model, recipe, vqa_data, targets)
    load_initial_weights(model, recipe, vqa_data)
    stage = build_stage(recipe, model, vqa_data, targets)

    report: dict[str, Any] = {
        "answers": {code: len(texts) for code, texts in vqa_data.vocabulary.by_language.items()},
        "questions": len(vqa_data.train.questions),
        stage.name: stage.run(model, run / stage.name),
    }
    if rank() == 0:  # before evaluation, so that nothing that fails there costs the model
        write_model_folder(run / "model", recipe, model, vqa_data)
    if vqa_data.tests:
        report["test"] = _test(model, recipe, vqa_data, data, run)
    if rank() == 0:
        by_language = vqa_data.vocabulary.by_language
        write_model_card(run / "model", by_language, report.get("test", {}))
    write_report(report, run)
    return report


def build_model(recipe: VQARecipe, data: VQAData) -> VQAModel:
    """Build a classifier on UC2, on a pretrained text encoder or a published checkpoint."""
    width, published = data.train.regions.width, published_checkpoint(recipe)
    head_width = None
    if published is not None:
        if recipe.variant != "reference":
            raise PolyglanceError(
                f"{published} is a checkpoint of the published code: set variant to reference"
            )
        parameters = read_checkpoint(published).parameters
        cross_encoder = convert_uc2(parameters, allow_missing_heads=True)
        head = vqa_head(parameters, task=recipe.published_task)
        if head and recipe.answers.classes is not None:
            head_width = len(head["1.bias"])
        check_published(published, cross_encoder, data.tokenizer, width)
        set_dropout(cross_encoder, recipe.dropout)
        torch.manual_seed(recipe.loop.seed)
    else:
        adapt = reference_encoder if recipe.variant == "reference" else None
        encoder = load_encoder(weights.folder(recipe.encoder), dropout=recipe.dropout, adapt=adapt)
        transform = initial_word_transform(recipe) or False
        config = UC2Config(encoder.config, width, recipe.variant, word_transform=transform)
        torch.manual_seed(recipe.loop.seed)
        cross_encoder = UC2(config, encoder)
    similarity = None
    if recipe.projection_heads is not None and recipe.answers.image_similarity:
        assert recipe.image_backbone is not None
        similarity = load_projection_heads(recipe.projection_heads).config
        backbone = weights.folder(recipe.image_backbone.backbone) / "model.safetensors"
        similarity.check_compatible(
            width, file_sha256(backbone), cross_encoder.config.encoder.hidden_size
        )
    return VQAModel(
        cross_encoder,
        len(data.vocabulary),
        head_width=head_width,
        dropout=recipe.head_dropout,
        answer_embeddings=recipe.answers.embeddings,
        similarity=similarity,
    )


def initialise(model: VQAModel, recipe: VQARecipe, data: VQAData, targets: AnswerTargets) -> None:
    """Initialise the classifier from the answers' texts and frequencies.

    Args:
        model: changed in place.
        recipe: says which of both; may name projection heads.
        data: questions, images and answers.
        targets: the training targets.
    """
    device = next(model.parameters()).device
    mean_targets = targets.mean().to(device) if recipe.answers.init_bias else None
    embeddings = None
    from_text = recipe.answers.embeddings and recipe.answers.init_from_text
    if from_text or model.similarity is not None:
        rows, packing = encode_answers(model, data)
        embeddings = packing.mean(rows) if from_text else None
        if model.similarity is not None and recipe.projection_heads is not None:
            heads = load_projection_heads(recipe.projection_heads).to(device)
            images = image_vectors(heads, data.train.regions)
            model.similarity.initialise(heads, heads.encode_texts(rows, packing), images)
    model.initialise_head(mean_targets, embeddings)


def load_initial_weights(model: VQAModel, recipe: VQARecipe, data: VQAData) -> None:
    """Load the weights of a UC2 run's stage, or the head of a published checkpoint.

    Args:
        model: changed in place; a published checkpoint's cross-encoder is in it already.
        recipe: with ``initialise_from``.
        data: for the number of classes.
    """
    published = published_checkpoint(recipe)
    if recipe.initialise_from is None:
        return
    if published is None:
        fit = partial(_without_word_head, model.cross_encoder)
        load_stage(model.cross_encoder, Path(recipe.initialise_from), fit=fit)
        return
    head = vqa_head(read_checkpoint(published).parameters, task=recipe.published_task)
    if not head or recipe.answers.classes is None:
        return
    if len(head["4.bias"]) != len(data.vocabulary):
        raise PolyglanceError(
            f"{published} has {len(head['4.bias']):,} answers and {recipe.answers.classes}"
            f" {len(data.vocabulary):,}: give the list that it was trained with as"
            " answers.classes, or set that to null for a new head"
        )
    model.head.load_state_dict(head)


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
        unmatched=data.train_unmatched,
        streaming=streaming_of(
            data.train.regions,
            recipe.streaming,
            per_batch=recipe.batch,
            seed=recipe.loop.seed,
            orders=len(data.train.table.language_codes),
        ),
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
        answer_embeddings=recipe.answers.embeddings,
        head_width=model.head_width,
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


def _without_word_head(model: UC2, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Leave out layers before the word head, which answering does not use, if a model has none."""
    own = model.state_dict()
    return {
        name: value
        for name, value in tensors.items()
        if name in own or not name.startswith("word_transform.")
    }


def _test(
    model: VQAModel, recipe: VQARecipe, data: VQAData, folder: Path, run: Path
) -> dict[str, Any]:
    """Answer every test question, write the answers, and score those that can be scored."""
    questions: list[Question] = []
    answers: list[str] = []
    names = None
    if recipe.test_classes is not None:
        names = read_answer_classes(folder / recipe.test_classes, "").names
        if len(names) != len(data.vocabulary):
            raise PolyglanceError(
                f"{recipe.test_classes} has {len(names):,} classes and {recipe.answers.classes}"
                f" {len(data.vocabulary):,}: give two lists of the same classes"
            )
    for file, split in zip(recipe.test, data.tests, strict=True):
        own = predict(model, split, data.vocabulary)
        if names is not None:
            class_ids = data.vocabulary.class_ids
            own = [names[class_ids[ENGLISH, answer]][1] for answer in own]
        if rank() == 0:
            write_submission(run, file.manifest, split.questions, own)
        questions += split.questions
        answers += own
    if rank() == 0:
        write_answers(run / "answers.jsonl", questions, answers)
    return evaluate(questions, answers, _all_training_questions(data))


def _resolve_dual_encoder(recipe: VQARecipe, run: Path) -> VQARecipe:
    """Use the encoder, image backbone and projection heads of a dual encoder."""
    if recipe.init_from_dual_encoder is None or recipe.image_backbone is None:
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
