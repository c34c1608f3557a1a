"""Runs on the toy dataset: the changes that make any recipe small, and the check that it learned.

A run keeps its own changes (objectives, languages, stages), then gets those of its system here:
toy data, a tiny encoder, a few dozen steps. Sizes by which rows differ are scaled, not replaced.
Languages that the toy dataset lacks are left out, and so are rows that it cannot tell apart: see
`polyglance.reproduce.toy_rows`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from polyglance.data.toy.grammars import LANGUAGES
from polyglance.models.smalr_baselines import VECTOR_WIDTH, WORD_MODELS
from polyglance.recipes import open_recipe
from polyglance.reproduce.needs import note_missing_packages
from polyglance.reproduce.results import Measured, report_path, value_at
from polyglance.reproduce.run import (
    Options,
    Progress,
    Reproduced,
    needed_runs,
    select_rows,
    train_and_write,
    with_data,
    write_published,
)
from polyglance.reproduce.runs import PARENT, Run
from polyglance.reproduce.target import Column, RunSpec, Target, find_target
from polyglance.reproduce.toy_data import (
    CLIP_LANGUAGES,
    CORPORA,
    QUESTION_LANGUAGES,
    ToySize,
    make_toy_data,
)
from polyglance.reproduce.toy_rows import leave_out_same

_LANGUAGES = re.compile(r"((?:^|.*[._])languages)=\[(.*)\]$")
_DICTIONARIES = "dictionaries/{source}-{target}.tsv"
_RERANKING = "reranking={dual_embeddings: dual-test, validation_embeddings: dual-val}"
_ANSWERS = ("answers.classes=vqa-en/answers.json", "test_classes=vqa-ja/answers.json")
_LOOP = (
    "loop.precision=float32", "loop.validate_every=0", "loop.save_every=0", "loop.log_every=50",
    "loop.grad_clip=1.0", "loop.schedule=cosine", "loop.weight_decay=0",
    "loop.grad_accumulation_steps=1",
)  # fmt: skip


@dataclass(frozen=True)
class ToySteps:
    """How long a toy run trains; everything else follows."""

    stage: int = 60
    """Steps of each stage of a cross-encoder; other systems train a little longer."""

    def times(self, factor: float) -> int:
        """Return so many times the steps of a stage, at least one."""
        return max(1, round(factor * self.stage))


def toy_run(run: Run, spec: RunSpec, data: Path, steps: ToySteps) -> Run | None:
    """Return a run on toy data; None if the toy dataset has none of its languages.

    Args:
        run: as on the real data.
        spec: names the toy corpus that stands for the data.
        data: the folder of the toy dataset.
        steps: how long to train.

    Returns:
        The run with changes for toy data.
    """
    assert run.recipe is not None
    languages = _corpus_languages(spec.toy)
    changes: list[str] = []
    for change in run.changes:
        kept = _filter_languages(change, languages)
        if kept is None:
            return None
        changes.append(kept)
    recipe = open_recipe(run.recipe, [change.replace(PARENT, "parent") for change in changes])
    own = _SYSTEMS[recipe.system](recipe.settings, spec.toy, data, steps)
    return replace(run, changes=(*changes, *own))


def _corpus_languages(corpus: str) -> tuple[str, ...]:
    if corpus in CORPORA:
        return CORPORA[corpus]
    return QUESTION_LANGUAGES if corpus.startswith("vqa") else CLIP_LANGUAGES


def _filter_languages(change: str, known: Sequence[str]) -> str | None:
    """Leave unknown languages out of a list of them; None if none is left."""
    match = _LANGUAGES.fullmatch(change)
    if match is None:
        return change
    given = [code.strip() for code in match[2].split(",") if code.strip()]
    kept = [code for code in given if code in known]
    return f"{match[1]}=[{', '.join(kept)}]" if kept or not given else None


def _pictures(corpus: str) -> tuple[str, ...]:
    """Return the changes for all splits of a corpus of pictures with regions."""

    def split(name: str) -> str:
        return f"{{manifest: {corpus}/{name}.jsonl, features: store}}"

    return (
        f"train={split('train')}", f"validation={split('val')}", f"test={split('test')}",
        "extra_train=[]", "extra_validation=[]", "extra_test=[]", "test_images=null",
    )  # fmt: skip


def _cross_encoder(settings: Any, corpus: str, data: Path, steps: ToySteps) -> tuple[str, ...]:
    changes = [
        f"encoder={data / 'encoder'}", *_pictures(corpus), *_LOOP, "dropout=0", "max_regions=8",
        "prepend_global=false", "word_head=null", "contrastive_stage=null", "distillation=null",
        "reranking=null" if settings.reranking is None else _RERANKING,
        "image_backbone=null", "init_from_dual_encoder=null",
        "head_lr_multiplier=1", f"loop.steps={steps.times(1.5)}", "loop.learning_rate=6e-3",
        f"loop.warmup={steps.times(0.1)}",
    ]  # fmt: skip
    if settings.pretraining is not None:
        changes += [
            # Matching leaves chance with large batches; steps of few pairs cost as much.
            "pretraining.batch=128", f"pretraining.steps={steps.stage}",
            f"pretraining.itm_only_steps={steps.times(1.5)}", "pretraining.learning_rate=6e-3",
            f"pretraining.warmup={steps.times(0.1)}",
        ]  # fmt: skip
    if settings.fine_tuning is not None:
        changes += [
            "fine_tuning.batch=96", "fine_tuning.epochs=null", "fine_tuning.hard_negative_pool=0"
        ]  # fmt: skip
    return tuple(changes)


def _uc2(settings: Any, corpus: str, data: Path, steps: ToySteps) -> tuple[str, ...]:
    changes = [
        "labels={names: labels.tsv, dictionaries: null}",
        "translations={pairing: same-place, texts: [], cache_dir: null}",
    ]
    if settings.early_adaptation is not None:
        changes += [
            "early_adaptation.batch=128", f"early_adaptation.steps={steps.stage}",
            "early_adaptation.learning_rate=1e-2", "early_adaptation.warmup=0",
            "early_adaptation.temperature=0.05",
        ]  # fmt: skip
    if settings.translate_test is not None:
        changes.append(f"translate_test={_DICTIONARIES}")
    return (*_cross_encoder(settings, corpus, data, steps), *changes)


def _m3p(settings: Any, corpus: str, data: Path, steps: ToySteps) -> tuple[str, ...]:
    wanted = settings.code_switching.languages or CORPORA["conceptual-captions"][1:]
    languages = [code for code in wanted if code in LANGUAGES]  # the toy dataset's
    changes = [
        "labels=48", "texts=[{manifest: texts.jsonl}]", "code_switching.variants=1",
        f"code_switching.dictionaries={_DICTIONARIES}",
        f"code_switching.languages=[{', '.join(languages)}]",
    ]  # fmt: skip
    if settings.pretraining is not None:
        # Matching is learned alone, with as many steps as it takes to leave chance.
        changes += [
            "pretraining.batch=96", "pretraining.negatives=1",
            f"pretraining.steps={steps.times(0.5)}",
            f"pretraining.itm_only_steps={steps.times(3)}",
        ]  # fmt: skip
        if settings.pretraining.text_batch:
            changes.append("pretraining.text_batch=24")
    if settings.fine_tuning is not None:
        changes.append("fine_tuning.batch=32")  # with three negatives of each kind a pair
    return (*_cross_encoder(settings, corpus, data, steps), *changes)


def _vqa(settings: Any, corpus: str, data: Path, steps: ToySteps) -> tuple[str, ...]:
    def split(folder: str, name: str) -> str:
        return f"[{{manifest: {folder}/{name}.jsonl, features: store}}]"

    folder = test = "vqa-ja" if corpus.endswith("-ja") else "vqa-en"
    names: tuple[str, ...] = ("answers.classes=null",)
    if settings.translate_test is not None:
        test, names = "vqa-ja", (f"translate_test={_DICTIONARIES}", *_ANSWERS)
    return (
        f"encoder={data / 'encoder'}", *_LOOP, *names,
        f"train={split(folder, 'train')}", f"test={split(test, 'test')}",
        "init_from_dual_encoder=null", "image_backbone=null", "object_tags=null",
        "projection_heads=null", "max_regions=8", "prepend_global=false", "held_out=0", "batch=48",
        "dropout=0", "head_dropout=0", "head_lr_multiplier=2",
        "answers.min_score=1", "answers.max_answers=60", "answers.init_bias=true",
        f"loop.steps={steps.times(2)}",
        "loop.learning_rate=6e-3", f"loop.warmup={steps.times(0.2)}",
    )  # fmt: skip


def _languages(settings: Any, corpus: str) -> tuple[str, ...]:
    """Leave languages of a recipe out that the toy dataset lacks.

    Its clips have captions in all languages: of translations (translate-train) only those are
    trained on that the run takes.
    """
    taken = settings.languages
    translated = [one.translation_languages for one in settings.corpora if one.translations]
    if taken is None and translated and None not in translated:
        taken = ("en", *(code for some in translated for code in some))
        if corpus == "mmp-multi30k":
            taken = ("de", *taken)  # task 2 has German itself
    if taken is None:
        return ()
    kept = [code for code in dict.fromkeys(taken) if code in _corpus_languages(corpus)]
    return (f"languages=[{', '.join(kept)}]",)


def _mmp(settings: Any, corpus: str, data: Path, steps: ToySteps) -> tuple[str, ...]:
    if corpus in CORPORA:  # pictures instead of clips
        features = {name: f"manifest: {corpus}/{name}.jsonl, features: store" for name in _SPLITS}
    else:
        features = {
            name: f"manifest: clips/{name}.jsonl, features: clips/features.npz" for name in _SPLITS
        }
    training = f"{{{features['train']}, batch: 48}}"
    languages = _languages(settings, corpus)
    # Translations share the steps: each language of many is learned as long as one of few.
    length = 3.0 if any(one.translations for one in settings.corpora) else 2.0
    if any(one.subtitles is not None for one in settings.corpora):
        length = 1.0
        sampling = "subtitles: {min_seconds: 4, max_seconds: 4}"
        files = "manifest: clips/videos.jsonl, features: clips/videos.npz"
        training = f"{{{files}, batch: 48, {sampling}}}"
    changes = [
        f"encoder={data / 'encoder'}", f"corpora=[{training}]",
        f"validation={{{features['val']}}}", *languages,
        "text_layer=null", "frozen_layers=0", "width=32",
        "pooling_heads=4", "dropout=0", "encoder_dropout=0", "objective.temperature=0.05", *_LOOP,
        f"loop.steps={steps.times(length)}", "loop.learning_rate=5e-3",
        f"loop.warmup={steps.times(0.15)}",
    ]  # fmt: skip
    if settings.test is not None:
        changes.append(f"test={{{features['test']}}}")
    changes += [f"extra_tests.{name}={{{features['test']}}}" for name in settings.extra_tests]
    return tuple(changes)


def _smalr(settings: Any, corpus: str, data: Path, steps: ToySteps) -> tuple[str, ...]:
    del corpus, data
    known = CORPORA["smalr"]
    languages = [code for code in settings.languages if code in known]
    human = [code for code in settings.human_languages if code in languages]

    def split(name: str) -> str:
        return f"{{manifest: smalr/{name}.jsonl, features: features.npz}}"

    config = {**asdict(WORD_MODELS[settings.model].config), **settings.model_config}
    every_word = config["own_words"] is None
    sizes = {
        "own_words": "null" if every_word else min(config["own_words"] // 50, 40),
        # All words have vectors in MULE and its PCA rows, which differ in their size.
        "own_width": max(2, config["own_width"] * 24 // VECTOR_WIDTH) if every_word else 24,
        "latent_tokens": min(config["latent_tokens"], 60),
        "candidates": max(1, config["candidates"] // 5),
        "universal_width": 24, "gru_width": 32, "visual_hidden": 48, "width": 24, "dropout": 0.0,
    }  # fmt: skip
    return (
        "corpus=null", f"train={split('train')}", f"validation={split('val')}",
        f"test={split('test')}", f"languages=[{', '.join(languages)}]",
        f"human_languages=[{', '.join(human)}]", "word_vectors=skipgram", "word_vector_dim=24",
        "translators=[]", f"dictionaries={_DICTIONARIES}", "parallel_text=null", "cache_dir=null",
        "captions_per_language=1", f"clc_iterations={min(3, steps.stage)}", "batch=48",
        "triplets.margin=0.2", "hard_negative_warmup=0.5",
        *(f"model_config.{name}={value}" for name, value in sizes.items()),
        f"pretraining.steps={steps.times(0.4)}", "pretraining.learning_rate=1e-2",
        "pretraining.batch=48", *_LOOP, f"loop.steps={steps.times(1.5)}",
        "loop.learning_rate=1e-2", f"loop.warmup={steps.times(0.1)}",
    )  # fmt: skip


_SPLITS = ("train", "val", "test")
_SYSTEMS = {"uc2": _uc2, "m3p": _m3p, "vqa": _vqa, "mmp": _mmp, "smalr": _smalr}


@dataclass(frozen=True)
class Learned:
    """Whether a toy run learned what its target asks for."""

    row: str
    measured: float
    chance: float
    margin: float

    @property
    def reached(self) -> bool:
        """Whether the mean is above chance by the margin."""
        return self.measured >= self.chance + self.margin

    def __str__(self) -> str:
        """Say it in one sentence."""
        return (
            f"{self.row}: {self.measured:.1f}, by chance {self.chance:.1f}; at least"
            f" {self.margin:g} above it: {'yes' if self.reached else 'no'}"
        )


def check_learning(measured: Measured, test_images: int) -> Learned | None:
    """Compare a target's main row with chance.

    Args:
        measured: the figures on toy data.
        test_images: candidates of the toy test.

    Returns:
        The outcome; None where the target asks for nothing.
    """
    target = measured.target
    if target.learning is None:
        return None
    row = target.row(target.learning.row)
    figures, chances = [], []
    for column in target.columns:
        wanted = not target.learning.columns or column.name in target.learning.columns
        values = measured.cell(row.name, column.name)
        if wanted and not column.mean_of and values:
            figures.append(sum(values.values()) / len(values))
            chances.append(_chance(measured, target, row.name, column, test_images))
    if not figures:
        return Learned(row.name, float("nan"), 0.0, target.learning.margin)
    count = len(figures)
    return Learned(row.name, sum(figures) / count, sum(chances) / count, target.learning.margin)


def _chance(measured: Measured, target: Target, row: str, column: Column, images: int) -> float:
    """Return what guessing gives: recalls by the number of candidates, answers by the baseline."""
    path = report_path(target, target.row(row), column)
    metric = path.rpartition(".")[2]
    if metric == "mR":
        return 100 * (1 + 5 + 10) / 3 / images
    if metric.startswith("R@"):
        return 100 * int(metric.removeprefix("R@")) / images
    run = target.row(row).run_of(column)
    reports: Mapping[Any, Any] = measured.reports
    for (name, _), report in reports.items():
        if name == run:
            baseline = value_at(report, path.replace(".model.", ".baseline."))
            return 0.0 if baseline is None else baseline
    return 0.0


def _word_by_word(target: Target) -> Target:
    """Read CLC with dictionaries, since the toy dataset has no machine translators."""
    rows = tuple(
        replace(row, protocol=row.protocol.replace(".translation.", ".dictionary."))
        for row in target.rows
    )
    return replace(target, rows=rows)


def reproduce_toy(
    name: str,
    options: Options,
    *,
    size: ToySize | None = None,
    steps: ToySteps | None = None,
    progress: Progress = print,
) -> tuple[Reproduced, Learned | None]:
    """Run a target's whole chain on the toy dataset.

    Args:
        name: of the target.
        options: folders, device and seeds; its data are not used.
        size: of the toy dataset, which is made in OUT/toy-data.
        steps: how long each run trains.
        progress: called with a line after each run.

    Returns:
        What was written, and whether the target's main row is above chance.
    """
    paper, target = find_target(name)
    if not target.measured:
        return write_published(target, options.out), None
    size, steps = size or ToySize(), steps or ToySteps()
    target = note_missing_packages(_word_by_word(select_rows(target, options.rows)))
    data = make_toy_data(options.out.resolve() / "toy-data", size)
    plan: list[Run] = []
    for run in needed_runs(target, paper.plan()):
        if run.parent is None or run.parent in {one.name for one in plan}:
            small = toy_run(with_data(run, data), paper.runs[run.name], data, steps)
            plan += [] if small is None else [small]
    target, kept = leave_out_same(target, plan)
    plan = [run for run in plan if run.name in kept]
    result = train_and_write(
        paper, target, plan, data, options, progress, {"toy": True, "toy_steps": steps.stage}
    )
    return result, check_learning(result.measured, size.test)
