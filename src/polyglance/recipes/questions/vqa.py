"""Train a model that answers questions about pictures, in all languages of the data at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyglance import weights
from polyglance.models.answering import Answering
from polyglance.models.meeting import read_meeting
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.packing import Packing
from polyglance.nn.pretrained import load_encoder
from polyglance.recipes.common import check_there, keep, write_report
from polyglance.recipes.pairs.meeting_vectors import picture_vectors
from polyglance.recipes.pairs.towers import towers_of
from polyglance.recipes.questions.folder import Description, write_answerer, write_card
from polyglance.recipes.questions.measuring import measure, predict, validate, write_answers
from polyglance.recipes.questions.recipe import VQARecipe
from polyglance.recipes.questions.world import World
from polyglance.recipes.stages import begin_from, learning_faster, run_stage
from polyglance.training.distribution import rank
from polyglance.training.mixture import Mixture
from polyglance.training.questions import AnsweredQuestions


def run(recipe: VQARecipe, data: Path, out: Path, *, device: str = "cpu") -> dict[str, Any]:
    """Train by a recipe on the data under a folder; returns and writes what was measured.

    Leaves ``OUT/model``, which `polyglance ask` opens, and ``OUT/answers.jsonl``, all that it
    answered in the test.
    """
    torch.set_float32_matmul_precision("high")
    check_there(data, *(file.manifest for file in (*recipe.train, *recipe.test)))
    keep(recipe, "vqa", out)
    begun = _with_towers(recipe, out)
    world = World.open(begun, data, device)
    model = build_model(begun, world, device)
    train, classes, held = world.train, world.classes, world.validation
    targets = classes.targets(train.questions)
    rows, packing = answer_rows(model, world)
    meanings = packing.mean(rows) if recipe.answers.meanings else None
    model.begin_with(targets.mean().to(device), meanings)
    if model.sight is not None and begun.meeting is not None:
        meeting = read_meeting(begun.meeting).to(device)
        pictures = picture_vectors(meeting, train.regions)
        model.sight.begin_with(meeting, meeting.sentences(rows, packing), pictures)
    if recipe.initialise_from is not None:
        begin_from(model.reader, Path(recipe.initialise_from))
    groups = learning_faster(model, model.reader.encoder, recipe.new_rate)
    task = AnsweredQuestions(
        model,
        train.regions,
        train.table,
        targets,
        batch=recipe.batch,
        loss=recipe.loss,
        smoothing=recipe.smoothing,
    )
    done = run_stage(
        model,
        Mixture({"answering": task}),
        recipe.loop,
        out / "answering",
        choose=None if held is None else lambda: validate(model, held, classes),
        groups=groups,
    )
    report: dict[str, Any] = {
        "answers": {language: len(texts) for language, texts in classes.by_language.items()},
        "questions": len(train.questions),
        "training": done,
    }
    description = Description(
        model=model.reader.config,
        answers=dict(classes.by_language),
        loss=recipe.loss,
        eyes=begun.eyes,
        sight=None if model.sight is None else model.sight.meeting.config,
        objects=recipe.objects,
        longest_text=recipe.longest_text,
    )
    if rank() == 0:  # before it is measured: whatever happens then, it is there
        asked_in = {
            language: [q.text for q in train.questions if q.language == language]
            for language in classes.by_language
        }
        write_answerer(out / "model", model, world.tokenizer, description, asked_in)
    if world.test is not None:
        asked, answers = world.test.questions, predict(model, world.test, classes)
        report["test"] = measure(asked, answers, _known(world))
        if rank() == 0:
            write_answers(out / "answers.jsonl", asked, answers)
    if rank() == 0:
        write_card(out / "model", description, report.get("test", {}))
    write_report(report, out)
    return report


@torch.no_grad()
def answer_rows(model: Answering, world: World) -> tuple[Tensor, Packing]:
    """What the text encoder, which has yet seen no picture, makes of the words of answers."""
    model.eval()
    encoder = model.reader.encoder
    device = next(encoder.parameters()).device
    ids = world.tokenizer.encode_batch([answer for _, answer in world.classes.names])
    packing = Packing.of([len(some) for some in ids], device)
    flat = torch.tensor([number for some in ids for number in some], device=device)
    return encoder(flat, packing), packing


def build_model(recipe: VQARecipe, world: World, device: str = "cpu") -> Answering:
    """An untrained head on UC2, and that on a pretrained text encoder."""
    encoder = load_encoder(weights.folder(recipe.encoder), dropout=recipe.dropout)
    config = UC2Config(encoder.config, world.train.regions.width, form=recipe.form)
    torch.manual_seed(recipe.loop.seed)
    reader = UC2(config, encoder)
    sight = None
    if recipe.meeting is not None and recipe.answers.seen:
        sight = read_meeting(recipe.meeting).config
        eyes = weights.sha256_of(weights.folder(recipe.eyes.backbone) / "model.safetensors")
        sight.check_fits(config.visual_width, eyes, encoder.config.width)
    model = Answering(reader, len(world.classes), dropout=recipe.head_dropout, sight=sight)
    return model.to(device)


def _with_towers(recipe: VQARecipe, out: Path) -> VQARecipe:
    """The same with the encoder and the eyes of a model that is taken apart."""
    if recipe.towers is None:
        return recipe
    towers = towers_of(recipe.towers, out)
    return replace(
        recipe,
        meeting=None if towers.meeting is None else str(towers.meeting),
        encoder=str(towers.text),
        eyes=replace(recipe.eyes, backbone=str(towers.pictures)),
    )


def _known(world: World) -> list[Any]:
    """All questions whose answers are known: the baseline learns from those held out as well."""
    held = [] if world.validation is None else world.validation.questions
    return [*world.train.questions, *held]
