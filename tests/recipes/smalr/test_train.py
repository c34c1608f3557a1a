"""Word models by recipe on the toy corpus: training, measuring, keeping, and what changes words."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.steps import losses_of
from helpers.toy_clips import write_store
from helpers.toy_smalr_corpus import LANGUAGES, RECIPE, few_steps
from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.models.smalr import SMALRConfig
from polyglance.models.smalr_folder import load_smalr
from polyglance.nn.hybrid_embedding import HybridEmbedding
from polyglance.nn.packing import Packing
from polyglance.objectives.top_triplets import TripletRule
from polyglance.recipes import open_recipe
from polyglance.recipes.smalr import consistency
from polyglance.recipes.smalr.config import FeatureSplit, PretrainingConfig
from polyglance.recipes.smalr.data import load_data
from polyglance.recipes.smalr.pretraining import align_words, pretrain_latent
from polyglance.recipes.smalr.tasks import CaptionGridSampler, SentenceAlignmentTask, SMALRTask
from polyglance.recipes.smalr.train import train
from polyglance.records import read_manifest
from polyglance.reproduce.results import query_scores, value_at


@pytest.fixture(scope="module")
def data(toy_corpus: Path) -> Path:
    return toy_corpus


@pytest.fixture
def new_cache(data: Path, tmp_path: Path) -> Path:
    """Return a cache that has captions and word vectors, but no latent tokens."""
    ignore = shutil.ignore_patterns("latent-*")
    return Path(shutil.copytree(data / "cache", tmp_path / "cache", ignore=ignore))


@pytest.fixture(scope="module")
def trained(data: Path) -> tuple[Path, dict[str, Any]]:
    recipe = replace(RECIPE, cache_dir=str(data / "cache"), consistency=True, clc_iterations=4)
    return data / "run", train(recipe, data, data / "run")


def test_smalr_learns_and_reports(data: Path, trained: tuple[Path, dict[str, Any]]) -> None:
    folder, report = trained
    assert report["test"]["average"]["mR"] > 25  # random ranking gives 9
    recalls = [report["test"][language]["mR"] for language in LANGUAGES]
    assert report["test"]["average"]["mR"] == pytest.approx(sum(recalls) / 3)
    both = [
        report["test"]["de"][way][f"R@{k}"]
        for way in ("text_to_image", "image_to_text")
        for k in (1, 5, 10)
    ]
    assert report["test"]["de"]["mR"] == pytest.approx(np.mean(both))
    assert report["best_score"] == pytest.approx(report["validation"]["average"]["mR"])
    assert report["test_time_parameters"] < report["trainable_parameters"]
    assert json.loads((folder / "report.json").read_text()) == report
    assert (folder / "log.jsonl").is_file()
    assert (folder / "pretraining" / "log.jsonl").is_file()


def test_saved_model_gives_the_reported_recall(
    data: Path, trained: tuple[Path, dict[str, Any]]
) -> None:
    saved = load_smalr(trained[0] / "words")
    assert saved.languages == LANGUAGES
    records = list(read_manifest(data / "flickr8k" / "test.jsonl"))
    with np.load(data / "flickr8k" / "features.npz") as arrays:
        features_of = dict(zip(arrays["ids"].tolist(), arrays["features"][:, 0], strict=True))
    features = torch.tensor(np.stack([features_of[r.image] for r in records])).float()
    texts = [text for record in records for text in record.captions["de"]]
    owners = np.repeat(np.arange(len(records)), [len(r.captions["de"]) for r in records])
    ids = saved.lexicon.encode_batch(texts, "de")
    flat = torch.tensor([number for one in ids for number in one])
    sentences = saved.text.encode_text(flat, Packing.of([len(one) for one in ids]))
    found = evaluate_retrieval(saved.image_branch(features).numpy(), sentences.numpy(), owners)
    # The table is in half precision.
    assert found.mean_recall == pytest.approx(trained[1]["test"]["de"]["mR"], abs=1.0)


def test_consistency_improves_recall(trained: tuple[Path, dict[str, Any]]) -> None:
    measured = trained[1]["consistency"]
    alone = trained[1]["test"]["average"]["mR"]
    for source in ("dictionary", "dataset"):
        of_one = 32 * 3 + 32
        sizes = {"clc-a": 0, "clc-c": 3 * of_one, "clc-c-paper": of_one}
        assert measured[source]["parameters"] == sizes
        for way in (*sizes, "clc-c-search", "clc-c-paper-search"):
            assert measured[source][way]["average"]["mR"] > alone + 1, (source, way)
        assert set(measured[source]["training"]) == {*LANGUAGES, "shared"}
    # Combined captions of an image give the same scores in every language.
    by_language = measured["dataset"]["clc-a"]
    assert by_language["en"]["mR"] == pytest.approx(by_language["fr"]["mR"])
    # The ranks of all queries are kept for comparisons.
    for way in ("clc-a", "clc-c", "clc-c-paper"):
        path = f"consistency.dictionary.{way}.de.mR"
        shares = query_scores(trained[0], path)
        assert shares is not None
        assert shares.mean() == pytest.approx(value_at(trained[1], path))


def test_trained_consistency_is_saved_with_the_model(
    data: Path, trained: tuple[Path, dict[str, Any]]
) -> None:
    saved = load_smalr(trained[0] / "words").consistency
    assert saved is not None
    assert saved.languages == LANGUAGES
    assert {name: network.languages.shape for name, network in saved.networks.items()} == {
        "shared": (32, 3)
    }


def test_consistency_trains_on_validation_and_evaluates_on_test(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def recalls(
        learned_from: Any, measured: Any, owners: Any, _: Any, **__: Any
    ) -> tuple[Any, Any]:
        asked.append((learned_from("de"), measured("de"), owners["de"]))
        return {}, {}

    monkeypatch.setattr(consistency, "consistency_recalls", recalls)
    for name in ("scores_by_dataset", "scores_by_dictionary"):
        monkeypatch.setattr(consistency, name, lambda captions, language, *_: (captions, language))
    recipe = few_steps(data, consistency=True)
    train(recipe, data, tmp_path)
    assert len(asked) == 2
    captions = load_data(recipe, data, "cpu").captions
    for learned_from, measured, owners in asked:
        for (table, language), split, owner in zip(
            (learned_from, measured), ("validation", "test"), owners, strict=True
        ):
            assert language == "de"
            assert table.token_ids.tolist() == captions[split].token_ids.tolist()
            assert owner.tolist() == table.record_ids[table.rows_in_language("de")].tolist()
    assert asked[0][0][0].token_ids.tolist() != asked[0][1][0].token_ids.tolist()


def test_latent_tokens_are_shared_between_models(
    data: Path, new_cache: Path, tmp_path: Path
) -> None:
    recipe = few_steps(data, cache_dir=str(new_cache))
    smalr = train(recipe, data, tmp_path / "smalr")
    hem = train(replace(recipe, model="hem"), data, tmp_path / "hem")
    slots = [load_smalr(tmp_path / name / "words").text.slots for name in ("smalr", "hem")]
    assert torch.equal(*slots)
    assert len(list(new_cache.glob("latent-*"))) == 1
    # Both report the training time of the tokens, not the second one's time to open them.
    assert hem["pretraining_seconds"] == smalr["pretraining_seconds"]
    tokens, vectors, width = 40, 24, 24
    assert hem["pretraining_parameters"] == tokens * (vectors + 1 + width)
    other = replace(recipe.loop, seed=1)
    train(replace(recipe, loop=other), data, tmp_path / "other")
    assert len(list(new_cache.glob("latent-*"))) == 2


def test_latent_tokens_depend_on_the_captions(data: Path, tmp_path: Path) -> None:
    """The same words in the same order, of other images."""
    corpus = load_data(few_steps(data), data, "cpu")
    captions = corpus.captions["train"]
    moved = np.sort(captions.record_ids // 2)
    for number, table in enumerate((captions, replace(captions, record_ids=moved), captions)):
        pretrain_latent(
            SMALRConfig(latent_tokens=30, universal_width=8, candidates=2),
            corpus.vectors,
            CaptionGridSampler(table, captions_per_language=1),
            PretrainingConfig(steps=1, batch=8),
            rule=TripletRule(),
            hard_negative_warmup=0.0,
            seed=0,
            folder=tmp_path / str(number),
            cache_dir=tmp_path / "cache",
        )
    assert len(list((tmp_path / "cache").glob("latent-*"))) == 2


def test_all_models_train_equally_many_steps(data: Path, new_cache: Path, tmp_path: Path) -> None:
    def steps(log: Path) -> int:
        return int(json.loads(log.read_text().splitlines()[-1])["step"]) if log.is_file() else 0

    shape = {**RECIPE.model_config, "own_words": None, "latent_tokens": 0}
    shapes = {"smalr": {}, "mule": shape, "parallel-embn": {**shape, "own_width": 24}}
    pretraining = replace(RECIPE.pretraining, steps=3)
    for model, changes in shapes.items():
        train(
            few_steps(
                data,
                model=model,
                model_config=changes or RECIPE.model_config,
                pretraining=pretraining,
                cache_dir=str(new_cache),
            ),
            data,
            tmp_path / model,
        )
    done = {
        model: (
            steps(tmp_path / model / "pretraining" / "log.jsonl"),
            steps(tmp_path / model / "log.jsonl"),
        )
        for model in shapes
    }
    assert done == {"smalr": (3, 2), "mule": (3, 2), "parallel-embn": (0, 5)}


def test_first_stage_trains_only_projections(data: Path, tmp_path: Path) -> None:
    corpus = load_data(few_steps(data), data, "cpu")
    lexicon = corpus.lexicon
    table = HybridEmbedding.build(
        corpus.vectors,
        torch.from_numpy(lexicon.language_ids),
        torch.from_numpy(lexicon.frequency_ranks),
        own_words=None,
        own_width=16,
        width=24,
    )
    before = {name: value.clone() for name, value in table.state_dict().items()}
    captions, rule = (
        CaptionGridSampler(corpus.captions["train"]),
        TripletRule(margin=0.2, negatives=20),
    )

    def loss() -> float:
        task = SentenceAlignmentTask(table, captions, batch=64, rule=rule)
        return float(losses_of(task, np.random.default_rng(7))["neighbours"].detach())

    at_first = loss()
    num_parameters, _ = align_words(
        table,
        captions,
        PretrainingConfig(steps=30, learning_rate=1e-2, batch=64),
        rule=rule,
        hard_negative_warmup=0.5,
        seed=0,
        folder=tmp_path,
    )
    after = table.state_dict()
    changed = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"projections"}
    assert num_parameters == 3 * (16 + 1) * 24 + 24  # the last for the mask, which no caption has
    assert all(p.requires_grad for p in table.parameters())
    assert loss() < 0.8 * at_first


def test_both_stages_follow_the_triplet_curriculum(
    data: Path, new_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    negatives: dict[str, list[int]] = {"images": [], "sentences": []}

    def record(task: type, name: str, rule: Callable[[Any], TripletRule]) -> None:
        losses = task.losses  # type: ignore[attr-defined]

        def recorded(self: Any, batch: Any) -> Any:
            negatives[name].append(rule(self).negatives)
            return losses(self, batch)

        monkeypatch.setattr(task, "losses", recorded)

    record(SMALRTask, "images", lambda task: task.objective.triplets)
    record(SentenceAlignmentTask, "sentences", lambda task: task.rule)
    recipe = few_steps(
        data,
        hard_negative_warmup=0.5,
        triplets=TripletRule(negatives=16),
        cache_dir=str(new_cache),
        loop=replace(RECIPE.loop, steps=8, validate_every=0),
        pretraining=replace(RECIPE.pretraining, steps=4),
    )
    train(recipe, data, tmp_path / "run")
    assert negatives == {
        "images": [64, 45, 32, 23, 16, 16, 16, 16],  # 64 candidates a batch, by four steps to 16
        "sentences": [64, 32, 16, 16],
    }


def test_evaluate_test_false_skips_the_test_split(data: Path, tmp_path: Path) -> None:
    report = train(few_steps(data, evaluate_test=False, consistency=True), data, tmp_path)
    assert set(report["validation"]) == {*LANGUAGES, "average"}
    assert "test" not in report
    assert "consistency" not in report


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # on processors without bfloat16
def test_bfloat16_gives_about_the_same_losses(data: Path, tmp_path: Path) -> None:
    losses = []
    for precision in ("float32", "bfloat16"):
        loop = replace(RECIPE.loop, steps=3, validate_every=0, log_every=1, precision=precision)
        train(few_steps(data, loop=loop), data, tmp_path / precision)
        lines = (tmp_path / precision / "log.jsonl").read_text().splitlines()
        losses.append([json.loads(line) for line in lines if "match" in json.loads(line)])
    for whole, half in zip(*losses, strict=True):
        for name in ("match", "match_masked", "neighbours", "masked"):
            assert half[name] == pytest.approx(whole[name], rel=0.03)
            assert half[name] != whole[name]


def test_features_of_a_store_are_global_vectors(data: Path, tmp_path: Path) -> None:
    with np.load(data / "flickr8k" / "features.npz") as arrays:
        items = {
            name: np.concatenate([rows, -rows, rows])
            for name, rows in zip(arrays["ids"].tolist(), arrays["features"], strict=True)
        }
    write_store(data / "flickr8k" / "store", items)
    splits = {
        split: FeatureSplit(getattr(RECIPE, split).manifest, "flickr8k/store")
        for split in ("train", "validation", "test")
    }
    train(few_steps(data, **splits), data, tmp_path)
    assert load_smalr(tmp_path / "words").feature_info.backbone == "test"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "smaller"}, "there is no word model 'smaller': choose from smalr, hem"),
        ({"consistency": True, "dictionaries": None}, "need dictionaries"),
        ({"dictionary_min_count": 5, "dictionaries": None}, "need dictionaries"),
        ({"translate_to": "it"}, "translate_to is it: give one of languages"),
        ({"batch": 0}, "batch is 0: give 1 or more"),
    ],
)
def test_invalid_recipes_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(PolyglanceError, match=message):
        replace(RECIPE, **change)


def test_published_recipe_opens_with_changes() -> None:
    changes = [
        "model=mule",
        "model_config.own_width=64",
        "objective.mask_weight=0.5",
        "triplets.margin=1",
    ]
    recipe = open_recipe("smalr-flickr8k", changes)
    assert recipe.system == "smalr"
    settings = recipe.settings
    assert (settings.model, settings.model_config, settings.objective) == (
        "mule", {"own_width": 64}, {"mask_weight": 0.5},
    )  # fmt: skip
    assert settings.triplets.margin == 1
    assert len(settings.languages) == 7
