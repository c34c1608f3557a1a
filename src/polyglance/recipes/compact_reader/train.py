"""Train a reader for a dual encoder: match, answer, then the same in 4-bit weights."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from polyglance.batches.inputs import pack_captions
from polyglance.config import as_plain
from polyglance.encoders.reader_files import ReaderConfig
from polyglance.errors import DataError
from polyglance.models.uc2 import UC2
from polyglance.models.vqa import VQAModel
from polyglance.nn.linear_compression import linear_compact_state, quantise_linears
from polyglance.nn.packing import Packing
from polyglance.nn.pooling import PoolingHead
from polyglance.nn.upper_encoder import UpperEncoder
from polyglance.recipes.compact_reader.config import ReaderRecipe
from polyglance.recipes.compact_reader.data import ReaderData, load_data
from polyglance.recipes.compact_reader.evaluation import ReaderEvaluation
from polyglance.recipes.compact_reader.tasks import (
    DistilledAnswers,
    DistilledScores,
    MatchingTask,
    TransferredQuestions,
    find_hard_negatives,
    matching_task,
)
from polyglance.recipes.cross_encoder.captions import LanguageBalancedSampler
from polyglance.recipes.run_folder import save_recipe, write_report
from polyglance.recipes.stages import Stage
from polyglance.recipes.uc2.tasks import ImageTextCorpus, Indices
from polyglance.recipes.vqa.questions import answer_targets
from polyglance.recipes.vqa.tasks import AnswerTargets
from polyglance.records import atomic_write
from polyglance.text.lexicon import Lexicon
from polyglance.training.distributed import rank
from polyglance.training.loop import LoopConfig
from polyglance.training.mixture import Mixture, MultiTask

COMPACT = "compact"
"""Folder of a run with the compressed reader, which `polyglance export` takes."""
_TEXTS_FOR_SCALE = 512
"""Captions whose rows give those of regions their scale."""
_LOCATION_SHARE = 0.2
"""Share of a region's variance that its location has at first."""
_SHARED = ("cross_encoder.encoder.words.", "cross_encoder.word_bias")
"""The table of words is the dual encoder's; no word is predicted."""


def train(recipe: ReaderRecipe, data: Path, run: Path, *, device: str = "cpu") -> dict[str, Any]:
    """Train, compress and evaluate a reader.

    Args:
        recipe: The settings.
        data: The data folder.
        run: The run folder; an interrupted run continues.
        device: A device of torch.

    Returns:
        The report, which is also in ``report.json``: ``trained`` of the reader of each seed, and
        ``compressed`` of the one in ``RUN/compact``.
    """
    torch.set_float32_matmul_precision("high")
    if missing := recipe.missing_files(data):
        raise DataError("; ".join(missing))
    save_recipe(recipe, "compact_reader", run)
    loaded = load_data(recipe, data, device)
    targets = answer_targets(loaded.answers, loaded.questions.questions)
    hard = find_hard_negatives(recipe.retrieval, loaded)
    evaluation = ReaderEvaluation(loaded, recipe.retrieval.candidates)
    report: dict[str, Any] = {
        "images": len(loaded.regions),
        "captions": len(loaded.captions),
        # Repeated questions count once.
        "questions": len({id(question) for question in loaded.questions.questions}),
        "answers": {code: len(texts) for code, texts in loaded.answers.by_language.items()},
        "trained": {},
    }
    readers: dict[str, VQAModel] = {}
    for number in range(recipe.seeds):
        seed, name = recipe.loop.seed + number, f"reader{number}"
        seeded = replace(recipe, loop=replace(recipe.loop, seed=seed))
        model = initialise_model(seeded, loaded, targets, device)
        stages = train_reader(seeded, model, loaded, targets, hard, evaluation, run / name)
        report["trained"][name] = {"seed": seed, **stages, **evaluation.report(model)}
        write_report(report, run)
        readers[name] = model
    for model in readers.values():
        model.fold_answer_embeddings()
    best_first = sorted(readers, key=lambda name: -report["trained"][name]["validation"]["score"])
    teachers = [readers[name] for name in best_first]
    small = compress(recipe, teachers, loaded, targets, hard, evaluation, run / "compressed")
    report["compressed"] = evaluation.report(small)
    if rank() == 0:  # before the tests, which take longest
        save_compact(recipe, small, loaded, report["compressed"], run / COMPACT)
    write_report(report, run)
    tested = [(report["trained"][name], reader) for name, reader in readers.items()]
    for figures, one in [(report["compressed"], small), *tested]:
        figures |= evaluation.test(one, figures["validation"]["dual_weight"])
        write_report(report, run)
    if rank() == 0:
        save_compact(recipe, small, loaded, report["compressed"], run / COMPACT)  # with figures
        _export(run)
    return report


def train_reader(
    recipe: ReaderRecipe,
    model: VQAModel,
    data: ReaderData,
    targets: AnswerTargets,
    hard_negatives: Indices | None,
    evaluation: ReaderEvaluation,
    folder: Path,
) -> dict[str, Any]:
    """Train one reader in place; return what the report says of its stages.

    Args:
        recipe: The settings.
        model: The reader as it begins.
        data: The corpora.
        targets: Of the training questions.
        hard_negatives: As for `build_tasks`.
        evaluation: Chooses the checkpoint.
        folder: A stage's folder is called like it, a hyphen and the stage's name.
    """
    answers, retrieval = build_tasks(recipe, model, data, targets, hard_negatives)
    multiplier = recipe.head_lr_multiplier if data.pretrained is None else 1.0
    stages: list[Stage] = []
    if steps := recipe.itm_only_steps:
        loop = replace(recipe.loop, steps=steps, schedule="constant", validate_every=0)
        groups = parameter_groups(model, multiplier)
        stages.append(Stage("itm_only", Mixture({"itm": retrieval}), loop, groups))
    weights = recipe.answering.weight, recipe.retrieval.weight
    tasks = MultiTask([("vqa", answers, weights[0]), ("itm", retrieval, weights[1])])
    stages.append(
        Stage(
            "training",
            Mixture({"reader": tasks}),
            recipe.loop,
            parameter_groups(model, multiplier),
            validate=lambda: evaluation.validate(model),
        )
    )
    return {
        stage.name: stage.run(model, folder.with_name(f"{folder.name}-{stage.name}"))
        for stage in stages
    }


def initialise_model(
    recipe: ReaderRecipe, data: ReaderData, targets: AnswerTargets, device: str
) -> VQAModel:
    """Build a reader as training begins with it."""
    model = build_model(recipe, data, device)
    if data.pretrained is None:
        initialise_answers(model, data, targets)
    else:
        data.pretrained.load_into(model)
        data.pretrained.fit_locations(model.cross_encoder)
    return model


def build_model(recipe: ReaderRecipe, data: ReaderData, device: str) -> VQAModel:
    """Build a reader on layers of the dual encoder's text encoder."""
    below = data.dual.model.encoder
    encoder = UpperEncoder(below, recipe.text_layers, recipe.layers, recipe.dropout)
    torch.manual_seed(recipe.loop.seed)
    dual = data.dual.model
    reader = UC2(recipe.model_config(encoder.config, dual.config), encoder)
    if recipe.image_layers:
        assert isinstance(dual.visual_pooling, PoolingHead)
        reader.region_feature.load_state_dict(dual.visual_input.state_dict())
        reader.image_layers.load_state_dict(dual.visual_pooling.layers.state_dict())
    model = VQAModel(reader, len(data.answers), dropout=recipe.answering.head_dropout)
    model.cross_encoder.word_bias.requires_grad_(False)
    model.cross_encoder.region_mask.requires_grad_(False)
    model.to(device)
    initialise_regions(model.cross_encoder, data)
    return model


@torch.no_grad()
def initialise_regions(model: UC2, data: ReaderData) -> None:
    """Let the rows of regions begin with the mean and the spread of a text's rows.

    Norms that begin with a gain of 1 make the default model's several times as long as those of
    words, so that in the first layer a region attends to few rows.
    """
    rows = np.random.default_rng(0).permutation(len(data.captions))[:_TEXTS_FOR_SCALE]
    text = pack_captions(data.captions, rows, model.word_bias.device)
    model.encoder.eval()
    spread, mean = torch.std_mean(model.embed_text(text).rows.float(), dim=0)
    model.feature_norm.bias.copy_(mean)
    for norm, share in (
        (model.feature_norm, 1 - _LOCATION_SHARE),
        (model.box_norm, _LOCATION_SHARE),
    ):
        norm.weight.copy_(spread * share**0.5)


@torch.no_grad()
def initialise_answers(model: VQAModel, data: ReaderData, targets: AnswerTargets) -> None:
    """Begin with each answer's mean score, and with the text encoder's vector of it."""
    device = model.cross_encoder.word_bias.device
    ids = data.dual.tokenizer.encode_batch([text for _, text in data.answers.names])
    packing = Packing.of([len(some) for some in ids], device)
    flat = torch.tensor([number for some in ids for number in some], device=device)
    vectors = data.dual.model.encode_text(flat, packing)
    if vectors.shape[1] != model.cross_encoder.config.encoder.hidden_size:
        vectors = packing.mean(data.dual.model.encoder(flat, packing))
    model.initialise_head(targets.mean().to(device), vectors)


def build_tasks(
    recipe: ReaderRecipe,
    model: VQAModel,
    data: ReaderData,
    targets: AnswerTargets,
    hard_negatives: Indices | None,
) -> tuple[TransferredQuestions, MatchingTask]:
    """Return what a model learns: answers, and matching.

    Args:
        recipe: The settings.
        model: The reader, trained or compressed.
        data: The corpora.
        targets: Of the training questions.
        hard_negatives: ``(images, k)``, or None for any.
    """
    answers = TransferredQuestions(
        model,
        data.regions,
        data.questions.table,
        targets,
        batch=recipe.answering.batch,
        language_alpha=recipe.answering.language_alpha,
    )
    answers.others = hard_negatives
    alpha = recipe.retrieval.language_alpha
    sampler = LanguageBalancedSampler(
        data.captions, language_alpha=alpha, repeats=data.image_repeats(recipe)
    )
    corpus = ImageTextCorpus(data.regions, sampler)
    return answers, matching_task(
        recipe.retrieval, model.cross_encoder, corpus, hard_negatives=hard_negatives
    )


def parameter_groups(model: VQAModel, head_lr_multiplier: float) -> list[dict[str, Any]]:
    """Return two parameter groups, without what is frozen: pretrained layers and new ones."""
    reader = model.cross_encoder
    pretrained = {*reader.encoder.parameters(), *reader.image_layers.parameters()}
    if reader.config.image_layers:
        pretrained |= set(reader.region_feature.parameters())
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    new = [parameter for parameter in trained if parameter not in pretrained]
    return [
        {"params": [parameter for parameter in trained if parameter in pretrained]},
        {"params": new, "lr_multiplier": head_lr_multiplier},
    ]


def compress(
    recipe: ReaderRecipe,
    teachers: Sequence[VQAModel],
    data: ReaderData,
    targets: AnswerTargets,
    hard_negatives: Indices | None,
    evaluation: ReaderEvaluation,
    folder: Path,
) -> VQAModel:
    """Return a copy of a reader with 4-bit weights, distilled from it and others.

    Args:
        recipe: The settings.
        teachers: Trained readers with folded answer embeddings, frozen here; the first is copied.
        data: The corpora.
        targets: Of the training questions.
        hard_negatives: As for `build_tasks`.
        evaluation: Validates the copy.
        folder: Run folder of the distillation.
    """
    words = teachers[0].cross_encoder.encoder.words
    student = copy.deepcopy(teachers[0], {id(words): words})
    for teacher in teachers:
        teacher.requires_grad_(False).eval()
    for module in student.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # the teachers' numbers are exact
    quantise_linears(student)
    answers, retrieval = build_tasks(recipe, student, data, targets, hard_negatives)
    answers.share = recipe.compression.transferred_questions
    weights = recipe.answering.weight, recipe.retrieval.weight
    tasks = MultiTask(
        [
            ("vqa", DistilledAnswers(answers, teachers), weights[0]),
            ("itm", DistilledScores(retrieval, teachers), weights[1]),
        ]
    )
    config = recipe.compression
    loop = LoopConfig(
        steps=config.steps,
        learning_rate=config.learning_rate,
        schedule="cosine",
        warmup=config.warmup,
        grad_clip=1.0,
        precision=recipe.loop.precision,
        seed=recipe.loop.seed,
        save_every=0,
        compile=False,  # weights are made anew in every pass
    )
    groups = parameter_groups(student, 1.0)
    stage = Stage(
        "compressed", Mixture({"reader": tasks}), loop, groups,
        validate=lambda: evaluation.validate(student),
    )  # fmt: skip
    stage.run(student, folder)
    return student


def save_compact(
    recipe: ReaderRecipe,
    model: VQAModel,
    data: ReaderData,
    figures: dict[str, Any],
    folder: Path,
) -> None:
    """Write what `polyglance export` makes ``reader.onnx`` and ``reader.json`` of.

    Args:
        recipe: The settings.
        model: The compressed reader.
        data: The corpora.
        figures: Its results.
        folder: Where to write.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = linear_compact_state(model)
    own = {name: value for name, value in state.items() if not name.startswith(_SHARED)}
    save_file(own, folder / "compact.safetensors")
    reader = ReaderConfig(
        data.dual.folder.description.fingerprint,
        recipe.max_text_tokens,
        data.grid,
        data.answers.by_language,
        text_layers=recipe.text_layers,
        image_size=recipe.image_size,
        dual_weight=float(figures["validation"]["dual_weight"]),
        lexicon=_lexicon(data, recipe.answering.lexicon_words, tuple(data.answers.by_language)),
        figures=figures,
    )
    settings = {
        "format": 1,
        "system": "compact_reader",
        "dual_encoder": recipe.dual_encoder,
        "model": as_plain(model.cross_encoder.config),
        "head_width": model.head_width,
        "reader": as_plain(reader),
    }
    with atomic_write(folder / "config.json") as file:
        file.write(json.dumps(settings, indent=1, ensure_ascii=False) + "\n")


def _lexicon(data: ReaderData, words: int, languages: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the most frequent words of the training questions by language."""
    texts = {
        code: [q.text for q in data.questions.questions if q.language == code] for code in languages
    }
    return Lexicon.from_texts(texts, max_words=words).counts


def _export(run: Path) -> None:
    """Export the model folder, or print the command where onnx is not installed."""
    if find_spec("onnx"):
        from polyglance.export.from_run import export_run

        export_run(run, run / "model", name="model")
    else:
        print(
            "onnx is not installed here; on a machine with polyglance[train], make the model with"
            f" polyglance export {run} --out {run / 'model'}",
            file=sys.stderr,
        )
