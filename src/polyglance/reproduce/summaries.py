"""Files of results from which the docs pages of our own tables are filled.

A target with a ``summary`` writes, beside its own files, ``NAME.json`` as `benchmarks.reports`
reads it: copy it into benchmarks/results and run ``python -m benchmarks.reports``.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyglance.recipes import open_recipe
from polyglance.records import atomic_write
from polyglance.reproduce import runs as staged_runs
from polyglance.reproduce.environment import environment
from polyglance.reproduce.results import Measured
from polyglance.reproduce.runs import PARENT, Experiment, Report
from polyglance.reproduce.target import Paper, Target
from polyglance.reproduce.write import claims_json

if TYPE_CHECKING:
    from polyglance.reproduce.run import Options

Reports = Sequence[Report]
NAMES = {"uc2": "uc2_flickr8k", "m3p": "m3p_flickr8k", "mmp": "mmp_msvd", "smalr": "smalr_flickr8k",
         "smalr-masking": "smalr_masking", "vqa": "vqa_en_vi"}  # fmt: skip
STAGES = (
    "contrastive_stage", "itm_only", "early_adaptation", "pretraining", "distillation",
    "fine_tuning",
)  # fmt: skip
SIZES = (
    "trainable_parameters", "word_parameters", "test_time_parameters", "words", "latent_tokens",
    "pretraining_parameters",
)  # fmt: skip
DIRECTIONS = ("text_to_visual", "visual_to_text")
DIRECTION_METRICS = ("R@1", "R@5", "R@10", "median_rank")


def write_summary(
    paper: Paper, measured: Measured, experiment: Experiment, options: Options, seconds: float
) -> Path:
    """Write the results file of a docs page.

    Args:
        paper: the file of the target.
        measured: its figures.
        experiment: its runs.
        options: how it was reproduced.
        seconds: what that took now; runs that were finished before took none.

    Returns:
        The path of the file.
    """
    from polyglance.reproduce.run import symbolic

    target, reports = measured.target, measured.reports
    assert target.summary is not None
    by_run: dict[str, dict[int, Report]] = {}
    for (name, seed), report in reports.items():
        by_run.setdefault(name, {})[seed] = report
    first = experiment.folder(next(iter(reports)))
    figures: dict[str, Any] = {
        **environment(),
        **staged_runs.training_environment(first),
        "target": target.name,
        "commits": staged_runs.count_commits(experiment, reports),
        "recipe": paper.runs[target.runs()[0]].recipe,
        "common_changes": symbolic(options.changes, experiment.data, options.out),
        "device": options.device,
        "runs_at_once": options.jobs,
        "seeds": list(options.seeds),
        "wall_seconds": round(seconds),
        "comparisons": claims_json(measured),
        **_SUMMARIES[target.summary](paper, target, by_run, options),
    }
    name = NAMES.get(target.summary) or target.name.rpartition("/")[2].replace("-", "_")
    path = options.out / target.name / f"{name}.json"
    with atomic_write(path) as file:
        file.write(json.dumps(figures, indent=2, ensure_ascii=False) + "\n")
    return path


def over_seeds(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean, the standard deviation and the value of each seed."""
    std = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.mean(values), "std": std, "values": list(values)}


def _cross_encoder(
    paper: Paper, target: Target, by_run: Mapping[str, dict[int, Report]], options: Options
) -> dict[str, Any]:
    """Return mR by run, protocol and language, steps and seconds."""
    languages = [column.name for column in target.columns if not column.mean_of]
    return {
        "languages": languages,
        "test_images": _test_images(paper, target, options),
        "runs": {
            name: {
                **cross_encoder_run(paper.runs[name].parent, by_run[name]),
                "changes": list(paper.runs[name].changes),
            }
            for name in paper.runs
            if name in by_run
        },
    }


def _test_images(paper: Paper, target: Target, options: Options) -> int | None:
    """Return how many test images the tables are of; None for all."""
    own = (change.replace(PARENT, "parent") for change in paper.runs[target.runs()[-1]].changes)
    changes = [*options.prepared, *options.changes, *(c for c in own if "{" not in c)]
    settings = open_recipe(paper.runs[target.runs()[-1]].recipe, changes).settings
    images: int | None = settings.test_images
    return images


def cross_encoder_run(parent: str | None, reports: Mapping[int, Report]) -> dict[str, Any]:
    """Summarise the seeds of one run of UC2 or M3P."""
    stages = [[r[stage] for stage in STAGES if stage in r] for r in reports.values()]
    recalls = [recalls_by_protocol(report) for report in reports.values()]
    first = next(iter(reports.values()))
    steps = {stage: first[stage]["steps"] for stage in STAGES if stage in first}
    figures: dict[str, Any] = {
        "parent": parent,
        "seeds": list(reports),
        "seconds": statistics.mean(sum(stage["seconds"] for stage in each) for each in stages),
        "steps": sum(steps.values()),
        "stages": steps,
        "best_steps": [stage["best_step"] for each in stages for stage in each],
        "test": {
            protocol: {
                language: over_seeds([each[protocol][language]["mR"] for each in recalls])
                for language in languages
            }
            for protocol, languages in recalls[0].items()
        },
    }
    adapted = [r["early_adaptation"] for r in reports.values() if "early_adaptation" in r]
    if adapted:
        figures["early_adaptation"] = {
            **{when: _ranks([each[f"rank_{when}"] for each in adapted])
               for when in ("before", "after")},
            "named": first["labels"]["named"],
        }  # fmt: skip
    return figures


def recalls_by_protocol(report: Report) -> dict[str, Any]:
    """Return what was measured by protocol: all pairs, and captions translated into English."""
    recalls = dict(report.get("test", {}))
    if "translate_test" in report:
        recalls["translated"] = report["translate_test"]["all_pairs"]
    return recalls


def _ranks(reports: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    return {
        language: {
            name: over_seeds([ranks[language][name] for ranks in reports]) for name in metrics
        }
        for language, metrics in reports[0].items()
    }


def _settings(
    summarise: Callable[[Reports], dict[str, Any]],
) -> Callable[[Paper, Target, Mapping[str, dict[int, Report]], Options], dict[str, Any]]:
    """Return a summary by setting: the runs of a target by the name of their first row."""

    def of_target(
        paper: Paper, target: Target, by_run: Mapping[str, dict[int, Report]], options: Options
    ) -> dict[str, Any]:
        del options
        names: dict[str, str] = {}
        for row in target.rows:
            names.setdefault(row.run, row.name)
        settings = {
            name: {
                "changes": list(paper.runs[run].changes),
                "seeds": list(by_run[run]),
                **summarise(list(by_run[run].values())),
            }
            for run, name in names.items()
            if run in by_run
        }
        return {"settings": settings}

    return of_target


def mmp_setting(reports: Reports) -> dict[str, Any]:
    """Summarise the seeds of one setting of MMP."""
    figures: dict[str, Any] = {
        "validation_score": over_seeds([report["best_score"] for report in reports]),
        "seconds": statistics.mean(report["seconds"] for report in reports),
        "best_steps": [report["best_step"] for report in reports],
    }
    for split in ("validation", "test"):
        if split in reports[0]:
            figures[split] = {
                language: {
                    direction: {
                        metric: over_seeds([r[split][language][direction][metric] for r in reports])
                        for metric in DIRECTION_METRICS
                    }
                    for direction in DIRECTIONS
                }
                for language in reports[0][split]
            }
    return figures


def smalr_setting(reports: Reports) -> dict[str, Any]:
    """Summarise the seeds of one setting of SMALR: sizes, coverage, mR by language, and CLC."""
    figures: dict[str, Any] = {
        **{name: round(statistics.mean(report[name] for report in reports)) for name in SIZES},
        "seconds": statistics.mean(report["seconds"] for report in reports),
        "pretraining_seconds": statistics.mean(r["pretraining_seconds"] for r in reports),
        "best_steps": [report["best_step"] for report in reports],
        "coverage": {
            language: {
                kind: statistics.mean(report["coverage"][language][kind] for report in reports)
                for kind in shares
            }
            for language, shares in reports[0]["coverage"].items()
        },
    }
    for split in ("validation", "test"):
        if split in reports[0]:
            figures[split] = {
                language: over_seeds([report[split][language]["mR"] for report in reports])
                for language in reports[0][split]
            }
    if "consistency" in reports[0]:
        figures["consistency"] = {
            source: {
                variant: {
                    language: over_seeds(
                        [r["consistency"][source][variant][language]["mR"] for r in reports]
                    )
                    for language in reports[0]["consistency"][source][variant]
                }
                for variant in ("clc-a", "clc-c", "clc-c-paper")
            }
            | {"parameters": reports[0]["consistency"][source]["parameters"]}
            for source in reports[0]["consistency"]
        }
    return figures


def _reranking(
    paper: Paper, target: Target, by_run: Mapping[str, dict[int, Report]], options: Options
) -> dict[str, Any]:
    del paper, options
    return reranking_summary(list(by_run[target.runs()[0]].values()))


def reranking_summary(reports: Reports) -> dict[str, Any]:
    """Summarise the seeds: mR by protocol and language, steps and seconds."""
    stages = {stage: reports[0][stage] for stage in STAGES if stage in reports[0]}
    return {
        "steps": {stage: report["steps"] for stage, report in stages.items()},
        "seconds": {stage: report["seconds"] for stage, report in stages.items()},
        "dual_weight": [report["validation"]["dual_weight"] for report in reports],
        "test": {
            protocol: {
                language: over_seeds([r["test"][protocol][language]["mR"] for r in reports])
                for language in languages
            }
            for protocol, languages in reports[0]["test"].items()
        },
    }


def _vqa(
    paper: Paper, target: Target, by_run: Mapping[str, dict[int, Report]], options: Options
) -> dict[str, Any]:
    from polyglance.recipes.vqa.evaluation import read_answers
    from polyglance.reproduce.vqa_summary import examples, vqa_summary

    del paper
    (name,) = target.runs()
    group = options.out / "runs" / target.name.partition("/")[0]
    answers = [
        list(read_answers(group / staged_runs.folder_name(name) / str(seed) / "answers.jsonl"))
        for seed in by_run[name]
    ]
    reports = list(by_run[name].values())
    return {**vqa_summary(reports, answers), "examples": examples(answers[0])}


_SUMMARIES: dict[
    str, Callable[[Paper, Target, Mapping[str, dict[int, Report]], Options], dict[str, Any]]
] = {
    "uc2": _cross_encoder,
    "m3p": _cross_encoder,
    "mmp": _settings(mmp_setting),
    "smalr": _settings(smalr_setting),
    "smalr-masking": _settings(smalr_setting),
    "reranking": _reranking,
    "vqa": _vqa,
}
