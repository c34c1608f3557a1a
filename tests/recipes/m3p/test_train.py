"""Train M3P on the toy dataset: all stages, evaluation, and what can be left out."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import polyglance
from helpers.small_mmp import WIDTH as DUAL_WIDTH
from helpers.small_mmp import cosines, small_model
from polyglance.cli import app
from polyglance.errors import PolyglanceError
from polyglance.export.split_model import split_model
from polyglance.models.m3p import M3P
from polyglance.recipes import open_recipe
from polyglance.recipes.cross_encoder.build import load_initial_weights
from polyglance.recipes.cross_encoder.config import (
    CaptionedImages,
    ContrastiveStage,
    DistillationStage,
    RerankingConfig,
    TextFile,
)
from polyglance.recipes.cross_encoder.data import ImageBackboneConfig
from polyglance.recipes.cross_encoder.distillation import teacher_vectors
from polyglance.recipes.m3p import train as m3p_train
from polyglance.recipes.m3p.config import FineTuning, M3PRecipe, Pretraining
from polyglance.recipes.m3p.data import load_data
from polyglance.recipes.m3p.train import build_model, train
from polyglance.recipes.stages import load_stage
from polyglance.records import read_manifest
from polyglance.training.loop import LoopConfig

LANGUAGES = ("en", "de")
COUNTS = {"train": 40, "val": 10, "test": 12}


def write_images(data: Path) -> None:
    """Write random pixels for every image of the manifests."""
    generator = np.random.default_rng(0)
    for split in COUNTS:
        for record in read_manifest(data / f"{split}.jsonl"):
            pixels = generator.integers(256, size=(40, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(data / str(record.image))


def test_both_stages_run_and_both_evaluations_are_reported(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    report = train(recipe, data, tmp_path / "run")
    assert report["languages"] == ["en", "de"]
    assert report["pretraining"]["best_score"] is None
    assert report["fine_tuning"]["best_step"] == 2
    assert set(report["test"]) == {"all_pairs", "dual", "reranked"}
    for results in report["test"].values():
        assert set(results) == {"en", "de", "average"}
        assert 0 <= results["average"]["mR"] <= 100
    assert json.loads((tmp_path / "run" / "report.json").read_text()) == report
    entries = (tmp_path / "run" / "pretraining" / "log.jsonl").read_text().splitlines()
    losses = {name for name in json.loads(entries[0]) if "." in name}
    assert losses == {
        "mct.mc_mlm", "mct.mc_mrm_features", "mct.mc_mrm_labels", "mct.mc_vlm", "text.xmlm",
    }  # fmt: skip

    # The same pre-training, another fine-tuning: on code-switched English, no dual encoder.
    other = replace(
        recipe,
        pretraining=None,
        initialise_from=str(tmp_path / "run" / "pretraining"),
        fine_tuning=FineTuning(batch=4, code_switched=True),
        test_images=5,
        reranking=None,
    )
    report = train(other, data, tmp_path / "other")
    assert set(report["test"]) == {"all_pairs"}
    assert "pretraining" not in report


def test_dual_weight_is_tuned_on_validation(data: Path, recipe: M3PRecipe, tmp_path: Path) -> None:
    (data / "perfect").mkdir(exist_ok=True)
    captions = json.loads((data / "val.jsonl").read_text().splitlines()[0])["captions"]
    for name in ("pictures", *LANGUAGES):
        repeats = 1 if name == "pictures" else len(captions[name])
        np.save(data / "perfect" / f"{name}.npy", np.repeat(np.eye(12), repeats, axis=0))
    untrained = replace(
        recipe,
        pretraining=None,
        fine_tuning=None,
        reranking=RerankingConfig("dual", validation_embeddings="perfect", candidates=5),
        all_pairs=False,
    )
    report = train(untrained, data, tmp_path)
    assert report["validation"]["dual"] == 100
    by_weight = report["validation"]["by_dual_weight"]
    assert by_weight["8.0"] == 100 > by_weight["0.0"]
    best = [float(weight) for weight, recall in by_weight.items() if recall == 100]
    assert report["validation"]["dual_weight"] == min(best)


def test_regions_of_several_corpora_are_computed_from_pixels(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    model = small_model(text_pooling="mean").export(tmp_path / "model")
    _, backbone, heads = split_model(model, tmp_path / "split")
    write_images(data)
    from_pixels = replace(
        recipe,
        image_backbone=ImageBackboneConfig(backbone=str(backbone), size=64, views=3),
        extra_train=(CaptionedImages("val.jsonl", "none"),),
        pretraining=None,
        fine_tuning=FineTuning(batch=4, language_alpha=0.5),
        loop=LoopConfig(steps=1, learning_rate=1e-3, save_every=0),
    )
    m3p_data = load_data(from_pixels, data, "cpu")
    assert len(m3p_data.train.regions) == len(m3p_data.train.records) == 50
    assert m3p_data.train.regions.views == 3
    assert m3p_data.test is not None
    assert m3p_data.test.regions.views == 1
    assert m3p_data.test.regions.lengths.tolist() == [5] * 12  # 2 x 2 cells and the whole
    report = train(from_pixels, data, tmp_path / "run")
    assert set(report["test"]) == {"all_pairs", "dual", "reranked"}

    # The dual encoder encodes the candidates again: two sizes, each also mirrored.
    (data / "wide").mkdir()
    generator = np.random.default_rng(0)
    for name in ("pictures", *LANGUAGES):
        np.save(data / "wide" / f"{name}.npy", generator.standard_normal((500, DUAL_WIDTH)))
    reranking = RerankingConfig("wide", candidates=5, dual_weight=1e9, projection_heads=str(heads))
    tta = replace(
        from_pixels,
        image_backbone=ImageBackboneConfig(
            backbone=str(backbone), size=64, views=1, grid=2, tta_sizes=(96,)
        ),
        fine_tuning=None,
        reranking=reranking,
        all_pairs=False,
    )
    report = train(tta, data, tmp_path / "tta")
    assert set(report["test"]) == {"dual", "dual_tta", "reranked"}
    assert report["test"]["dual_tta"] == report["test"]["reranked"]  # nothing else has weight
    assert report["test"]["dual_tta"] != report["test"]["dual"]
    other = replace(reranking, dual_embeddings="dual")
    with pytest.raises(PolyglanceError, match="of another dual encoder"):
        train(replace(tta, reranking=other), data, tmp_path / "other")
    with pytest.raises(PolyglanceError, match="needs image_backbone"):
        train(replace(tta, image_backbone=None), data, tmp_path / "stored")


def test_dual_encoder_is_distilled_before_fine_tuning(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    dual = small_model().export(tmp_path / "model")
    text, backbone, _ = split_model(dual, tmp_path / "split")
    write_images(data)
    distilled = replace(
        recipe,
        encoder=str(text),
        max_text_tokens=30,
        image_backbone=ImageBackboneConfig(backbone=str(backbone), size=64, views=1),
        pretraining=None,
        distillation=DistillationStage(
            str(dual), texts=(TextFile("test.jsonl"),), batch=8, steps=2
        ),
        fine_tuning=FineTuning(batch=4),
        loop=LoopConfig(steps=1, learning_rate=1e-3, save_every=0),
    )
    m3p_data = load_data(distilled, data, "cpu")
    split = m3p_data.train
    assert len(split.files) == len(split.records)
    teacher = teacher_vectors(str(dual), split.files, split.captions, m3p_data.tokenizer)
    encoder = polyglance.load(dual)
    records = list(read_manifest(data / "train.jsonl"))
    captions = [text for record in records for texts in record.captions.values() for text in texts]
    complete = np.diff(split.captions.offsets) < 30  # the others are truncated
    assert complete.sum() > 20
    by_caption = cosines(teacher.texts.float().numpy(), encoder.encode_texts(captions))
    assert by_caption[complete].min() > 0.99
    by_image = cosines(teacher.images.float().numpy(), encoder.encode_pictures(split.files))
    assert by_image.min() > 0.99
    report = train(distilled, data, tmp_path / "run")
    assert report["distillation"]["steps"] == 2
    assert report["fine_tuning"]["steps"] == 1
    with pytest.raises(PolyglanceError, match="has another vocabulary than the encoder"):
        train(replace(distilled, encoder=recipe.encoder), data, tmp_path / "other")


def test_contrastive_stage_encodes_images_and_captions_separately(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    contrastive = replace(
        recipe,
        contrastive_stage=ContrastiveStage(batch=4, steps=2),
        pretraining=None,
        fine_tuning=None,
        test=None,
    )
    report = train(contrastive, data, tmp_path)
    assert set(report) == {"languages", "contrastive_stage"}
    assert report["contrastive_stage"]["steps"] == 2
    assert 0 < report["contrastive_stage"]["validation"]["score"] <= 100


def test_stages_and_tasks_can_be_left_out(data: Path, recipe: M3PRecipe, tmp_path: Path) -> None:
    stage = Pretraining(batch=4, text_batch=0, tasks=("mc_mrm",), code_switched=False, steps=2)
    short = replace(
        recipe, pretraining=stage, fine_tuning=None, texts=(), variant="reference", test=None
    )
    report = train(short, data, tmp_path)
    assert set(report) == {"languages", "pretraining"}


def test_new_layers_may_learn_faster_than_the_encoder(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    def largest_changes(multiplier: float) -> tuple[float, float]:
        """Return how far one step moves a new layer, and the encoder."""
        stage = Pretraining(batch=4, text_batch=4, steps=1, learning_rate=1e-3)
        short = replace(
            recipe, pretraining=stage, fine_tuning=None, test=None, head_lr_multiplier=multiplier
        )
        run = tmp_path / str(multiplier)
        train(short, data, run)
        model = build_model(short, load_data(short, data, "cpu"))
        before = {name: value.clone() for name, value in model.state_dict().items()}
        load_stage(model, run / "pretraining")
        after = model.state_dict()
        changes = (
            (after[name] - before[name]).abs().max().item()
            for name in ("match.weight", "encoder.layers.0.widen.weight")
        )
        return next(changes), next(changes)

    new, pretrained = largest_changes(1.0)
    faster, same = largest_changes(5.0)
    assert faster == pytest.approx(5 * new, rel=0.01)
    assert same == pytest.approx(pretrained, rel=0.01)


def test_the_reference_variant_predicts_at_least_one_word_or_region(
    data: Path, recipe: M3PRecipe
) -> None:
    m3p_data = load_data(recipe, data, "cpu")
    for variant, chosen, expected in (
        ("paper", None, False),
        ("reference", None, True),
        ("paper", True, True),
        ("reference", False, False),
    ):
        stage = Pretraining(batch=4, text_batch=4, steps=2, mask_at_least_one=chosen)
        changed = replace(recipe, variant=variant, pretraining=stage, fine_tuning=None)
        stages = m3p_train.build_stages(changed, build_model(changed, m3p_data), m3p_data)
        (_, mct, _), (_, text, _) = stages[-1].tasks.tasks["all"].tasks
        assert mct.objective.at_least_one_region == expected
        assert mct.objective.masking.at_least_one == ("drawn" if expected else "no")
        assert text.masking.at_least_one == "no"
    assert M3PRecipe().max_text_tokens == 64


def test_pretraining_may_begin_with_mc_vlm_alone(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    stage = Pretraining(batch=4, text_batch=4, steps=2, itm_only_steps=3, learning_rate=1e-3)
    short = replace(recipe, pretraining=stage, fine_tuning=None, test=None)
    report = train(short, data, tmp_path / "first")
    assert set(report) == {"languages", "itm_only", "pretraining"}
    assert report["itm_only"]["steps"] == 3
    entries = (tmp_path / "first" / "itm_only" / "log.jsonl").read_text().splitlines()
    logged = {name for entry in map(json.loads, entries) for name in entry}
    assert "mc_vlm" in logged
    assert not {"mct.mc_mlm", "mc_mlm", "text.xmlm"} & logged
    # Without MC-VLM, the other tasks take its steps.
    without = replace(stage, tasks=("mc_mlm",))
    report = train(replace(short, pretraining=without), data, tmp_path / "without")
    assert set(report) == {"languages", "pretraining"}
    assert report["pretraining"]["steps"] == 5


def test_language_keeps_its_embedding_among_other_languages(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    train(replace(recipe, fine_tuning=None, test=None), data, tmp_path / "first")
    stage = tmp_path / "first" / "pretraining"
    before = build_model(recipe, load_data(recipe, data, "cpu"))
    assert before.config.languages == ("en", "de")
    load_stage(before, stage)
    english, german = before.languages.weight.tolist()
    assert any(english)
    assert any(german)

    def load_into_more_languages(folder: Path) -> M3P:
        model = M3P(replace(before.config, languages=("en", "ar", "de", "zh")))
        begun = replace(recipe, initialise_from=str(folder))
        fit = partial(m3p_train._match_languages, model, begun)
        load_initial_weights(model, begun, fit=fit)
        return model

    for folder in (stage, stage / "latest"):
        after = load_into_more_languages(folder)
        zeros = [0.0] * len(english)
        assert after.languages.weight.tolist() == [english, zeros, german, zeros]
        others = {k: v for k, v in before.state_dict().items() if k != "languages.weight"}
        assert all(torch.equal(after.state_dict()[name], others[name]) for name in others)
    changed = M3P(replace(before.config, languages=("en", "fr")))  # the data has changed since
    with pytest.raises(PolyglanceError, match=r"in other languages \(en, de\): train into another"):
        m3p_train._require_same_languages(changed, tmp_path / "first")
    lost = shutil.copytree(stage / "latest", tmp_path / "lost" / "pretraining" / "latest").parent
    with pytest.raises(PolyglanceError, match="does not say which languages"):
        load_into_more_languages(lost)


def test_weights_of_another_variant_are_refused_without_advice_to_remove_them(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    train(replace(recipe, fine_tuning=None, test=None), data, tmp_path / "first")
    start = str(tmp_path / "first" / "pretraining")
    with pytest.raises(PolyglanceError) as caught:
        train(
            replace(recipe, variant="reference", initialise_from=start), data, tmp_path / "second"
        )
    assert "start from a run of the same system" in str(caught.value)
    assert "remove" not in str(caught.value)


def test_included_recipe_trains_from_the_command_line(data: Path, tmp_path: Path) -> None:
    included = open_recipe("m3p-flickr8k")
    assert included.system == "m3p"
    assert included.settings.fine_tuning.negatives == 3
    split = "={manifest: %s.jsonl, features: regions}"
    dictionaries = "dictionaries/{source}-{target}.tsv"
    changes = [
        f"encoder={data / 'encoder'}", "train" + split % "train",
        "validation" + split % "val", "test" + split % "test",
        "texts=[{manifest: texts.jsonl}]", f"code_switching.dictionaries={dictionaries}",
        "code_switching.languages=[de]", "reranking={dual_embeddings: dual}",
        "word_head={batch: 4, steps: 1}",
        "pretraining.steps=1", "pretraining.itm_only_steps=1", "pretraining.batch=4",
        "pretraining.text_batch=4", "fine_tuning.batch=4", "loop.steps=1",
        "loop.precision=float32",
    ]  # fmt: skip
    options = [part for change in changes for part in ("--set", change)]
    command = ["train", "m3p-flickr8k", "--data", str(data), "--out", str(tmp_path), *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    again = CliRunner().invoke(app, command)  # nothing is left to train: it only evaluates
    assert again.exit_code == 0, again.output
    assert "reranked" in json.loads((tmp_path / "report.json").read_text())["test"]
