"""Recipes on features that ship, by the real commands.

Those of the paper run on tiny datasets laid out as they are published, made into manifests and
stores by the commands that the recipes name; ours on features made up for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import polyglance
from helpers.published import multi30k, videos
from helpers.published.sentences import WORDS as SENTENCE_WORDS
from helpers.published.sentences import all_sentences, sentence
from helpers.text_encoder import save_bert_encoder, save_text_encoder
from helpers.toy_clips import write_store
from polyglance.cli import app
from polyglance.encoders.stored_features import with_features
from polyglance.errors import PolyglanceError
from polyglance.evaluation.encoders import evaluate_encoder
from polyglance.recipes import open_recipe, recipe_names
from polyglance.recipes.mmp.config import FeatureSplit, MMPRecipe
from polyglance.records import Record, read_manifest, write_manifest

PUBLISHED = [name for name in recipe_names() if open_recipe(name).system == "mmp"]
PAPER = [name for name in PUBLISHED if open_recipe(name).settings.encoder == "xlm-roberta-large"]
OURS = [name for name in PUBLISHED if name not in PAPER]
CLIPS = 8
SMALL = ("width=32", "loop.steps=2", "loop.precision=float32")


def run(*arguments: object) -> str:
    """Run a command line and return its output."""
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def train(name: str, encoder: Path, data: Path, out: Path, *changes: str) -> dict[str, Any]:
    """Train a recipe for two steps and return its report."""
    arguments = ["train", name, "--data", data, "--out", out]
    for change in (f"encoder={encoder}", *SMALL, *changes):
        arguments += ["--set", change]
    run(*arguments)
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many layers as the recipes take their output from."""
    folder = tmp_path_factory.mktemp("encoder") / "xlm-r"
    save_text_encoder(folder, all_sentences(), layers=12)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All datasets of the paper, from their published layouts by the recipes' commands."""
    source, data = tmp_path_factory.mktemp("published"), tmp_path_factory.mktemp("data")

    def take(format: str, path: Path, out: str) -> None:
        run("data", "import", format, path, "--out", data / out, "--strict", "-q")

    tasks = multi30k.write_multi30k(data / "multi30k")
    take("multi30k-task2", tasks / "task2", "multi30k/pictures.jsonl")
    take("multi30k-task1", tasks / "task1", "multi30k/translations.jsonl")
    regions = multi30k.write_regions(source / "regions.tsv")
    run("features", "regions", regions, "--out", data / "multi30k/regions", "-q")

    vtt = videos.write_msrvtt(source)
    take("msrvtt", vtt, "msrvtt/clips.jsonl")
    take("msrvtt-jsfusion", vtt / "MSRVTT_JSFUSION_test.csv", "msrvtt/test-1k.jsonl")
    vatex = videos.write_vatex(source)
    take("vatex", vatex, "vatex/clips.jsonl")
    for half in ("val_names.npy", "tst_names.npy"):
        (data / "vatex" / half).write_bytes((vatex / "public_split" / half).read_bytes())
    take("howto100m", videos.write_howto100m(source), "howto100m/videos.jsonl")
    take("msvd", videos.write_msvd(source), "msvd/clips.jsonl")
    for name in ("msrvtt", "vatex", "howto100m", "msvd"):
        for network in videos.NETWORKS:
            features = source / f"{name}-features" / network
            run("features", "import", features, "--out", data / name / network, "-q")
    for name in ("clips", "test-1k"):
        write_translated(data / "msrvtt" / f"{name}.jsonl")
    return data


def write_translated(manifest: Path) -> None:
    """Write what `data translate` would: all captions, and theirs in eight languages."""
    numbers = {sentence("en", number): number for number in range(36)}
    records = [
        replace(
            record,
            captions={
                language: tuple(sentence(language, numbers[text]) for text in record.captions["en"])
                for language in SENTENCE_WORDS
            },
        )
        for record in read_manifest(manifest)
    ]
    write_manifest(manifest.with_name(f"{manifest.stem}-translated.jsonl"), records)


NINE = set(SENTENCE_WORDS)
TRAINED_ON = {
    "mmp-msrvtt": {"en"},
    "mmp-msrvtt-translated": NINE,
    "mmp-vatex": {"en", "zh"},
    "mmp-multi30k": {"en", "de", "fr", "cs"},
    "mmp-howto100m": NINE,
}
QUERIES = {
    "mmp-msrvtt": dict.fromkeys(NINE, 4),
    "mmp-msrvtt-translated": dict.fromkeys(NINE, 4),
    "mmp-vatex": {"en": 40, "zh": 40},
    "mmp-multi30k": {"en": 20, "de": 20, "fr": 4, "cs": 4},
}
"""Captions of the four test clips or images, by language: one query a clip on MSR-VTT."""


@pytest.mark.parametrize("name", PAPER)
def test_paper_s_recipe_runs_on_the_published_dataset(
    name: str, encoder: Path, data: Path, tmp_path: Path
) -> None:
    report = train(name, encoder, data, tmp_path / "run")
    assert set(report["trained_on"]) == TRAINED_ON[name]
    if name == "mmp-howto100m":
        assert "test" not in report
        return
    results = {code: result["text_to_visual"] for code, result in report["test"].items()}
    assert {code: result["queries"] for code, result in results.items()} == QUERIES[name]
    assert {result["candidates"] for result in results.values()} == {4}


def test_msrvtt_s_20_caption_protocol_has_its_own_name(
    encoder: Path, data: Path, tmp_path: Path
) -> None:
    changes = ("test.all_captions=msrvtt/clips.jsonl", "test.translations=null")
    report = train("mmp-msrvtt", encoder, data, tmp_path / "run", *changes)
    assert "test" not in report
    assert set(report["test_all_captions"]) == {"en"}
    result = report["test_all_captions"]["en"]["text_to_visual"]
    assert (result["queries"], result["candidates"]) == (80, 4)


YOUTUBE2TEXT = (
    "extra_tests.youtube2text.manifest=msvd/clips.jsonl",
    "extra_tests.youtube2text.split=test",
    "extra_tests.youtube2text.features=[msvd/r2plus1d, msvd/s3d]",
)


def test_pretrained_model_is_fine_tuned_and_tested_on_another_dataset(
    encoder: Path, data: Path, tmp_path: Path
) -> None:
    """Figure 2's and Table 4's pre-training with some languages, Table 12's third dataset."""
    pretrained = train("mmp-howto100m", encoder, data, tmp_path / "pre", "languages=[en, de]")
    assert pretrained["trained_on"] == ["de", "en"]
    changes = (f"initialise_from={tmp_path / 'pre'}", *YOUTUBE2TEXT)
    report = train("mmp-msrvtt", encoder, data, tmp_path / "run", *changes)
    result = report["extra_tests"]["youtube2text"]["en"]["text_to_visual"]
    assert (result["queries"], result["candidates"]) == (6, 3)


ONE_NETWORK = tuple(f"{part}.features=msrvtt/s3d" for part in ("corpora.0", "validation", "test"))
ROWS = {
    "tables 1, 2 and 9": (
        "mmp-msrvtt",
        (*ONE_NETWORK, "visual_pooling_layers=1", "text_layer=3", "frozen_layers=0"),
    ),
    "tables 2 and 3, shared heads and triplets": (
        "mmp-msrvtt",
        ("share_pooling=true", "objective.loss=triplet", "objective.intra=false"),
    ),
    "table 3, starred": (
        "mmp-msrvtt-translated",
        ("corpora.0.translation_languages=[de, fr]", "objective.cross=false"),
    ),
    "table 7, english only": (
        "mmp-multi30k",
        ("languages=[en]", "captions_per_image=1", "objective.cross=false"),
    ),
}
"""Overrides of several rows at once, which do not depend on each other."""


@pytest.mark.parametrize("row", ROWS)
def test_rows_of_the_paper_s_tables_are_overrides(
    row: str, encoder: Path, data: Path, tmp_path: Path
) -> None:
    name, changes = ROWS[row]
    report = train(name, encoder, data, tmp_path / "run", *changes, "loop.steps=1")
    assert set(report["test"]) == set(QUERIES[name])
    if row == "table 3, starred":
        assert report["trained_on"] == ["de", "en", "fr"]


def test_mbert_is_trained_exported_and_evaluated(data: Path, tmp_path: Path) -> None:
    """Rows of Tables 1, 4 and 10: another tokenizer, positions from 0, a width of its own."""
    encoder, out = tmp_path / "mbert", tmp_path / "run"
    save_bert_encoder(encoder, all_sentences(), layers=3)
    changes = ("text_layer=2", "frozen_layers=1")
    report = train("mmp-msrvtt", encoder, data, out, *changes)
    run("export", out, "--out", tmp_path / "model")
    features = [data / "msrvtt" / network for network in videos.NETWORKS]
    exported = with_features(polyglance.load(tmp_path / "model", threads=1), features)
    manifest = data / "msrvtt" / "test-1k-translated.jsonl"
    results = evaluate_encoder(exported, manifest, quiet=True).languages
    assert set(results) == NINE
    for code, result in results.items():
        expected = report["test"][code]["text_to_visual"]
        assert result.text_to_image.median_rank == expected["median_rank"]
        assert result.text_to_image.recalls[1] == pytest.approx(expected["R@1"])


def test_split_that_a_manifest_lacks_is_the_reported_cause(
    encoder: Path, data: Path, tmp_path: Path
) -> None:
    changes = [f"encoder={encoder}", *SMALL, "test.split=test_2016_flickr"]
    message = "has no record of the split 'test_2016_flickr', only of test_2016, train, val"
    with pytest.raises(PolyglanceError, match=message):
        open_recipe("mmp-multi30k", changes).train(data, tmp_path / "run")


def test_list_of_another_dataset_is_reported(encoder: Path, data: Path, tmp_path: Path) -> None:
    (data / "vatex" / "other.txt").write_text("video7010\n")
    changes = [f"encoder={encoder}", *SMALL, "test.names=vatex/other.txt"]
    with pytest.raises(PolyglanceError, match=r"no record is on the list .*such as 'video7010'"):
        open_recipe("mmp-vatex", changes).train(data, tmp_path / "run")


def test_missing_features_name_the_importer(encoder: Path, data: Path, tmp_path: Path) -> None:
    changes = [f"encoder={encoder}", *SMALL, "test.features=msrvtt/i3d"]
    with pytest.raises(PolyglanceError, match=r"i3d: .*'polyglance features import' takes those"):
        open_recipe("mmp-msrvtt", changes).train(data, tmp_path / "run")


def parts(recipe: MMPRecipe) -> Iterator[FeatureSplit]:
    yield from recipe.corpora
    yield from (part for part in (recipe.validation, recipe.test) if part is not None)


@pytest.mark.parametrize("name", OURS)
def test_our_own_recipe_runs_from_the_command_line(
    name: str, encoder: Path, tmp_path: Path
) -> None:
    recipe, data = open_recipe(name).settings, tmp_path / "data"
    features: dict[str, dict[str, np.ndarray]] = {}
    for part in parts(recipe):
        names = [f"{part.manifest}-{number}.mp4" for number in range(CLIPS)]
        captions = {code: (sentence(code, 1), sentence(code, 2)) for code in ("en", "de")}
        write_manifest(data / part.manifest, (Record(video=n, captions=captions) for n in names))
        rows = {name: np.random.default_rng(0).normal(size=(5, 6)) for name in names}
        features.setdefault(str(part.features), {}).update(rows)
    for path, rows in features.items():
        if path.endswith(".npz"):
            np.savez(data / path, ids=np.array(list(rows)), features=np.stack(list(rows.values())))
        else:
            write_store(data / path, rows)
    report = train(name, encoder, data, tmp_path / "run")
    assert report["trained_on"] == ["de", "en"]
    if recipe.test is None:  # a pre-training
        assert "test" not in report
    else:
        assert report["test"]["en"]["text_to_visual"]["candidates"] == CLIPS


@pytest.mark.parametrize("name", PAPER)
def test_published_recipes_follow_the_paper(name: str) -> None:
    recipe = open_recipe(name).settings
    assert (recipe.text_layer, recipe.frozen_layers) == (12, 9)
    assert (recipe.width, recipe.pooling_layers, recipe.pooling_heads) == (1024, 2, 4)
    assert recipe.dropout == 0.3
    objective, loop = recipe.objective, recipe.loop
    assert (objective.temperature, objective.noise, objective.intra) == (0.1, 0.05, True)
    assert (objective.loss, objective.negatives) == ("nce", "joint")
    assert objective.cross == (recipe.captions_per_image == 2)
    assert (loop.learning_rate, loop.grad_clip, loop.weight_decay) == (2e-4, 0.2, 0)
    assert (loop.schedule, loop.warmup) == ("constant", 0)
    pretraining = recipe.corpora[0].subtitles is not None
    assert recipe.corpora[0].batch == (64 if pretraining else 128)
    assert recipe.max_text_tokens == (192 if pretraining else 96)
    assert recipe.max_visual_tokens == 36
    assert len(PAPER) == 5


PAPER_S_TRAINING: dict[str, tuple[str, int, int, int]] = {
    "mmp-msrvtt": ("msrvtt/clips.jsonl", 6_513, 20, 128),
    "mmp-msrvtt-translated": ("msrvtt/clips.jsonl", 6_513, 20, 128),
    "mmp-vatex": ("vatex/clips.jsonl", 25_991, 30, 128),
    "mmp-multi30k": ("multi30k/pictures.jsonl", 29_000, 20, 128),
    "mmp-howto100m": ("", 1_238_911, 16, 64),
}
"""Clips or images (section 5.1, Table 8), epochs and batch (appendix C) of each recipe."""


def steps_per_epoch(name: str, data: Path) -> float:
    """Count pairs as appendix C does: of clips and English captions, once a video in HowTo100M.

    A batch is of 128 triples of a clip and two captions (section 3.3), so that captions in
    further languages do not make epochs longer.
    """
    manifest, clips, _, batch = PAPER_S_TRAINING[name]
    captions = 1
    if manifest:  # the published files have as many captions a clip as here
        training = [r for r in read_manifest(data / manifest) if r.split == "train"]
        (captions,) = {len(record.captions["en"]) for record in training}
    return clips * captions / batch


@pytest.mark.parametrize("name", PAPER)
def test_steps_match_the_paper_s_epochs(name: str, data: Path) -> None:
    recipe: Any = open_recipe(name).settings
    *_, epochs, batch = PAPER_S_TRAINING[name]
    steps = steps_per_epoch(name, data)
    assert recipe.corpora[0].batch == batch
    assert recipe.loop.steps == pytest.approx(epochs * steps, abs=1)
    if recipe.validation is not None:
        assert recipe.loop.validate_every == pytest.approx(steps, abs=1)


def test_vatex_has_as_many_pairs_as_appendix_c_counts(data: Path) -> None:
    assert steps_per_epoch("mmp-vatex", data) * 128 == pytest.approx(260_000, rel=1e-3)


def test_reproduced_rows_fine_tune_for_ten_epochs(data: Path) -> None:
    targets = resources.files("polyglance.reproduce") / "targets" / "mmp.yaml"
    runs = yaml.safe_load(targets.read_text(encoding="utf-8"))["runs"]
    counted = 0
    for run in runs.values():
        steps = [c.partition("=")[2] for c in run["changes"] if c.startswith("loop.steps=")]
        if not steps or "initialise_from={parent}" not in run["changes"]:
            continue
        ten_epochs = 10 * steps_per_epoch(run["recipe"], data)
        assert int(steps[0]) == pytest.approx(ten_epochs, rel=1e-3)
        counted += 1
    assert counted >= 10


def test_missing_encoder_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match="no weights called 'xlm-roberta-large'"):
        open_recipe("mmp-vatex").train(tmp_path, tmp_path / "run")
