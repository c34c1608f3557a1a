"""M3P by recipe on the toy world: both stages, measuring, and what can be left out."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import polyglance
from helpers.text_encoder import save_text_encoder
from helpers.toy_regions import WIDTH, records_in, region_table, toy_dictionary
from polyglance.cli import app
from polyglance.data.toy import Picture, ToyDataset
from polyglance.errors import PolyglanceError
from polyglance.export.split_model import split_model
from polyglance.recipes import open_recipe
from polyglance.recipes.cross_encoder.build import begin_with_stage, keep_languages, untrained_m3p
from polyglance.recipes.cross_encoder.contrastive_stage import ContrastiveStage
from polyglance.recipes.cross_encoder.data import CaptionedImages, ImageBackboneConfig, TextFile
from polyglance.recipes.cross_encoder.distillation_stage import DistillationStage, teacher_vectors
from polyglance.recipes.cross_encoder.evaluation import RerankingConfig
from polyglance.recipes.m3p.config import CodeSwitching, FineTuning, M3PRecipe, Pretraining
from polyglance.recipes.m3p.data import World
from polyglance.recipes.m3p.train import build_model, run
from polyglance.recipes.stages import begin_from
from polyglance.records import read_manifest, write_manifest
from polyglance.text import open_tokenizer
from polyglance.training.loop import LoopConfig
from polyglance.training.mixture import seed_step
from polyglance.vision.store import StoreInfo, hash_keys
from polyglance.vision.store_writer import StoreWriter
from polyglance.vision.tokens import VisualTokens, zero_spans
from helpers.small_mmp import WIDTH as TOWER_WIDTH
from helpers.small_mmp import cosines, small_model

LANGUAGES = ("en", "de")
COUNTS = {"train": 40, "val": 10, "test": 12}


def write_regions(folder: Path, pictures: list[Picture]) -> None:
    """A feature store of what a detector finds."""
    keys = [picture.key for picture in pictures]
    info = StoreInfo({"backbone": "toy"}, WIDTH, "float16", 1, 16, len(keys), hash_keys(keys))
    table = region_table(pictures)
    tokens = {}
    for number, key in enumerate(keys):
        regions, labels = table.take(np.array([number]))
        features = regions.features.numpy()
        tokens[key] = VisualTokens(
            features=features,
            boxes=regions.boxes.numpy(),
            global_feature=features.mean(0),
            label_ids=labels.numpy()[:, None].astype(np.uint16),
            label_probs=np.ones((len(features), 1), np.float16),
            spans=zero_spans(len(features)),
        )
    writer = StoreWriter(folder, info, keys)
    for number in writer.pending:
        writer.write(number, [tokens[key] for key in writer.keys_of(number)])
    writer.finish()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    world = ToyDataset(seed=0, languages=LANGUAGES, captions_per_language=1)
    pictures = {split: list(world.pictures(n, split)) for split, n in COUNTS.items()}  # type: ignore[arg-type]
    everything = [picture for some in pictures.values() for picture in some]
    for split, some in pictures.items():
        records = [
            replace(record, image=f"{record.id}.png", questions=(), regions=())
            for record in records_in(some, *LANGUAGES)
        ]
        write_manifest(folder / f"{split}.jsonl", records)
    write_regions(folder / "regions", everything)
    records = records_in(everything, *LANGUAGES)
    texts = [replace(r, questions=(), regions=(), id=None) for r in records]
    write_manifest(folder / "texts.jsonl", texts)
    (folder / "dictionaries").mkdir()
    toy_dictionary("de").save(folder / "dictionaries" / "en-de.tsv")
    said = [text for record in records for texts in record.captions.values() for text in texts]
    save_text_encoder(folder / "encoder", said)
    (folder / "dual").mkdir()
    generator = np.random.default_rng(0)
    for name in ("pictures", *LANGUAGES):
        np.save(folder / "dual" / f"{name}.npy", generator.standard_normal((12, 8)))
    return folder


@pytest.fixture
def recipe(data: Path) -> M3PRecipe:
    return M3PRecipe(
        encoder=str(data / "encoder"),
        labels=48,
        train=CaptionedImages("train.jsonl", "regions"),
        validation=CaptionedImages("val.jsonl", "regions"),
        test=CaptionedImages("test.jsonl", "regions"),
        texts=(TextFile("texts.jsonl"),),
        code_switching=CodeSwitching(languages=("de",), variants=2),
        pretraining=Pretraining(batch=4, text_batch=4, steps=2),
        fine_tuning=FineTuning(batch=4, hard_negative_pool=5),
        loop=LoopConfig(steps=2, learning_rate=1e-3, save_every=0),
        reranking=RerankingConfig("dual", candidates=5),
    )


def test_both_stages_run_and_the_report_tells_of_both_ways_of_measuring(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    report = run(recipe, data, tmp_path / "run")
    assert report["languages"] == ["en", "de"]
    assert report["pretraining"]["best_score"] is None
    assert report["fine_tuning"]["best_step"] == 2
    assert set(report["test"]) == {"all_pairs", "dual", "reranked"}
    for found in report["test"].values():
        assert set(found) == {"en", "de", "average"}
        assert 0 <= found["average"]["mR"] <= 100
    assert json.loads((tmp_path / "run" / "report.json").read_text()) == report
    entries = (tmp_path / "run" / "pretraining" / "log.jsonl").read_text().splitlines()
    losses = {name for name in json.loads(entries[0]) if "." in name}
    assert losses == {
        "pairs.words", "pairs.features", "pairs.labels", "pairs.matching", "text.words",
    }  # fmt: skip

    # The same pre-training, another fine-tuning: on code-switched English, no dual encoder.
    other = replace(
        recipe,
        pretraining=None,
        initialise_from=str(tmp_path / "run" / "pretraining"),
        fine_tuning=FineTuning(batch=4, code_switched=True),
        test_on=5,
        reranking=None,
    )
    report = run(other, data, tmp_path / "other")
    assert set(report["test"]) == {"all_pairs"}
    assert "pretraining" not in report


def test_how_far_the_dual_encoder_is_trusted_is_found_out_on_validation(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    (data / "knowing").mkdir(exist_ok=True)
    captions = json.loads((data / "val.jsonl").read_text().splitlines()[0])["captions"]
    for name in ("pictures", *LANGUAGES):
        repeats = 1 if name == "pictures" else len(captions[name])
        np.save(data / "knowing" / f"{name}.npy", np.repeat(np.eye(12), repeats, axis=0))
    untrained = replace(
        recipe,
        pretraining=None,
        fine_tuning=None,
        reranking=RerankingConfig("dual", validation_embeddings="knowing", candidates=5),
        all_pairs=False,
    )
    report = run(untrained, data, tmp_path)
    assert report["validation"]["dual"] == 100
    by_trust = report["validation"]["by_trust"]
    assert by_trust["8.0"] == 100 > by_trust["0.0"]
    best = [float(trust) for trust, found in by_trust.items() if found == 100]
    assert report["validation"]["trust"] == min(best)


def test_eyes_look_at_the_pictures_of_several_corpora_themselves(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    model = small_model(text_pooling="mean").export(tmp_path / "model")
    _, backbone, meeting = split_model(model, tmp_path / "towers")
    pixels = np.random.default_rng(0)
    for split in COUNTS:
        for record in read_manifest(data / f"{split}.jsonl"):
            colours = pixels.integers(256, size=(40, 30, 3), dtype=np.uint8)
            Image.fromarray(colours).save(data / str(record.image))
    seeing = replace(
        recipe,
        eyes=ImageBackboneConfig(backbone=str(backbone), size=64, views=3),
        more=(CaptionedImages("val.jsonl", "none"),),
        pretraining=None,
        fine_tuning=FineTuning(batch=4, language_alpha=0.5),
        loop=LoopConfig(steps=1, learning_rate=1e-3, save_every=0),
    )
    world = World.open(seeing, data, "cpu")
    assert len(world.train.regions) == len(world.train.records) == 50
    assert world.train.regions.views == 3
    assert world.test is not None
    assert world.test.regions.views == 1
    assert world.test.regions.lengths.tolist() == [5] * 12  # 2 x 2 cells and the whole
    report = run(seeing, data, tmp_path / "run")
    assert set(report["test"]) == {"all_pairs", "dual", "reranked"}

    # The dual encoder looks at the candidates again, in two sizes, plain and mirrored.
    (data / "wide").mkdir()
    for name in ("pictures", *LANGUAGES):
        np.save(data / "wide" / f"{name}.npy", pixels.standard_normal((500, TOWER_WIDTH)))
    dual = RerankingConfig("wide", candidates=5, dual_weight=1e9, projection_heads=str(meeting))
    closer = replace(
        seeing,
        eyes=ImageBackboneConfig(backbone=str(backbone), size=64, views=1, grid=2, tta_sizes=(96,)),
        fine_tuning=None,
        reranking=dual,
        all_pairs=False,
    )
    report = run(closer, data, tmp_path / "closer")
    assert set(report["test"]) == {"dual", "closer", "reranked"}
    assert report["test"]["closer"] == report["test"]["reranked"]  # trusted without bounds
    assert report["test"]["closer"] != report["test"]["dual"]
    other = replace(dual, dual="dual")
    with pytest.raises(PolyglanceError, match="of another dual encoder"):
        run(replace(closer, reranking=other), data, tmp_path / "other")
    with pytest.raises(PolyglanceError, match="needs eyes"):
        run(replace(closer, eyes=None), data, tmp_path / "blind")


def test_a_dual_encoder_may_teach_before_fine_tuning(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    dual = small_model().export(tmp_path / "model")
    text, backbone, _ = split_model(dual, tmp_path / "towers")
    colours = np.random.default_rng(0)
    for split in COUNTS:
        for record in read_manifest(data / f"{split}.jsonl"):
            pixels = colours.integers(256, size=(40, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(data / str(record.image))
    taught = replace(
        recipe,
        encoder=str(text),
        longest_text=30,
        eyes=ImageBackboneConfig(backbone=str(backbone), size=64, views=1),
        pretraining=None,
        imitation=DistillationStage(str(dual), texts=(TextFile("test.jsonl"),), batch=8, steps=2),
        fine_tuning=FineTuning(batch=4),
        loop=LoopConfig(steps=1, learning_rate=1e-3, save_every=0),
    )
    world = World.open(taught, data, "cpu")
    assert len(world.train.files) == len(world.train.records)
    found = teacher_vectors(str(dual), world.train.files, world.train.captions, world.tokenizer)
    encoder = polyglance.load(dual)
    records = list(read_manifest(data / "train.jsonl"))
    said = [text for record in records for texts in record.captions.values() for text in texts]
    whole = np.diff(world.train.captions.offsets) < 30  # the rest is cut short
    assert whole.sum() > 20
    alike = cosines(found.texts.float().numpy(), encoder.encode_texts(said))
    assert alike[whole].min() > 0.99
    seen = encoder.encode_pictures(world.train.files)
    assert cosines(found.pictures.float().numpy(), seen).min() > 0.99
    report = run(taught, data, tmp_path / "run")
    assert report["imitation"]["steps"] == 2
    assert report["fine_tuning"]["steps"] == 1
    with pytest.raises(PolyglanceError, match="reads other sub-words than the encoder"):
        run(replace(taught, encoder=recipe.encoder), data, tmp_path / "other")


def test_pictures_and_captions_may_first_be_read_apart(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    apart = replace(
        recipe,
        alignment=ContrastiveStage(batch=4, steps=2),
        pretraining=None,
        fine_tuning=None,
        test=None,
    )
    report = run(apart, data, tmp_path)
    assert set(report) == {"languages", "alignment"}
    assert report["alignment"]["steps"] == 2
    assert 0 < report["alignment"]["validation"]["score"] <= 100


def test_stages_and_tasks_can_be_left_out(data: Path, recipe: M3PRecipe, tmp_path: Path) -> None:
    plain = Pretraining(batch=4, text_batch=0, tasks=("regions",), code_switched=False, steps=2)
    few = replace(
        recipe, pretraining=plain, fine_tuning=None, texts=(), layout="reference", test=None
    )
    report = run(few, data, tmp_path)
    assert set(report) == {"languages", "pretraining"}


def test_what_is_new_may_learn_faster_than_the_encoder(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    def moved(rate: float) -> tuple[float, float]:
        """How far one step takes what is new, and the encoder."""
        stage = Pretraining(batch=4, text_batch=4, steps=1, learning_rate=1e-3)
        few = replace(recipe, pretraining=stage, fine_tuning=None, test=None, new_rate=rate)
        out = tmp_path / str(rate)
        run(few, data, out)
        model = build_model(few, World.open(few, data, "cpu"))
        before = {name: value.clone() for name, value in model.state_dict().items()}
        begin_from(model, out / "pretraining")
        after = model.state_dict()
        steps = (
            (after[name] - before[name]).abs().max().item()
            for name in ("match.weight", "encoder.layers.0.widen.weight")
        )
        return next(steps), next(steps)

    new, known = moved(1.0)
    faster, same = moved(5.0)
    assert faster == pytest.approx(5 * new, rel=0.01)
    assert same == pytest.approx(known, rel=0.01)


def test_matching_may_come_first(data: Path, recipe: M3PRecipe, tmp_path: Path) -> None:
    stage = Pretraining(batch=4, text_batch=4, steps=2, itm_only_steps=3, learning_rate=1e-3)
    few = replace(recipe, pretraining=stage, fine_tuning=None, test=None)
    report = run(few, data, tmp_path / "first")
    assert set(report) == {"languages", "matching", "pretraining"}
    assert report["matching"]["steps"] == 3
    entries = (tmp_path / "first" / "matching" / "log.jsonl").read_text().splitlines()
    learned = {name for entry in map(json.loads, entries) for name in entry}
    assert "matching" in learned
    assert not {"pairs.words", "words", "text.words"} & learned
    # Where matching is left out, it does not come first either: others take its steps.
    without = replace(stage, tasks=("words",))
    report = run(replace(few, pretraining=without), data, tmp_path / "without")
    assert set(report) == {"languages", "pretraining"}
    assert report["pretraining"]["steps"] == 5


@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_as_many_captions_are_switched_as_the_recipe_says(
    data: Path, recipe: M3PRecipe, alpha: float
) -> None:
    switching = replace(recipe.code_switching, alpha=alpha, variants=3)
    world = World.open(replace(recipe, switching=switching), data, "cpu")
    source = world.captions(switched=True, languages=None)
    rows = source.sample(np.resize(source.items, 4000), seed_step(0, 0, 0))
    assert np.mean(rows % 4 > 0) == pytest.approx(alpha, abs=0.04)  # each, then its variants


def test_every_seed_switches_other_words(data: Path, recipe: M3PRecipe) -> None:
    def switched(seed: int) -> list[int]:
        world = World.open(replace(recipe, loop=replace(recipe.loop, seed=seed)), data, "cpu")
        return world.captions(switched=True, languages=None).table.token_ids.tolist()

    assert switched(0) == switched(0)
    assert switched(0) != switched(1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": ()}, "xMLM needs texts"),
        ({"switching": CodeSwitching()}, "needs languages to switch to"),
        ({"labels": 3}, "the store of regions has more"),
        ({"initialise_from": "nowhere"}, "no checkpoint to start from"),
        ({"reranking": RerankingConfig("nowhere")}, "no embeddings of the dual encoder"),
    ],
)
def test_what_is_missing_is_said_plainly(
    data: Path, recipe: M3PRecipe, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(PolyglanceError, match=message):
        run(replace(recipe, **changes), data, tmp_path)


def test_all_that_is_missing_is_said_at_once_and_nothing_is_written(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    lacking = replace(
        recipe,
        train=CaptionedImages("train.jsonl", "nowhere"),
        validation=CaptionedImages("dev.jsonl", "regions"),
        texts=(TextFile("novel.jsonl"),),
        switching=CodeSwitching("none/{source}-{target}.tsv", ("de", "fr")),
        reranking=RerankingConfig("far"),
    )
    with pytest.raises(PolyglanceError) as told:
        run(lacking, data, tmp_path / "run")
    kinds = str(told.value).split("; ", 1)[0], str(told.value)
    assert kinds[0].startswith(f"{data / 'dev.jsonl'}, {data / 'novel.jsonl'}: there is no such")
    for name in ("nowhere: there is no store", "far: there are no emb", "en-de.tsv", "en-fr.tsv"):
        assert name in kinds[1]
    assert kinds[1].count("text align --dictionary") == 1
    assert not (tmp_path / "run").exists()


def test_dictionaries_are_asked_for_where_words_are_switched_alone(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    none = replace(recipe, switching=CodeSwitching("none/{source}-{target}.tsv", ("de",)))
    plain = replace(none, pretraining=replace(recipe.pretraining, switched=False))
    assert plain.missing(data) == []
    assert World.open(plain, data, "cpu").switcher is None
    assert none.missing(data)
    assert replace(plain, fine_tuning=FineTuning(code_switched=True)).missing(data)
    # Whichever file of a dictionary of dictd is named, all of it is there or it is not.
    for ending in (".index", ".dict.dz"):
        (tmp_path / f"en-de{ending}").write_bytes(b"")
    for ending in (".index", ".dict.dz", ".dict"):
        named = CodeSwitching("{source}-{target}" + ending, ("de",))
        assert not any(
            "dictionary" in said for said in replace(none, switching=named).missing(tmp_path)
        )
    (tmp_path / "en-de.index").unlink()
    assert any("dictionary" in said for said in replace(none, switching=named).missing(tmp_path))


def test_what_cannot_be_fine_tuned_on_is_found_out_before_anything_is_trained(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    with pytest.raises(PolyglanceError, match="no caption is in cs"):
        run(replace(recipe, fine_tuning=FineTuning(languages=("cs",))), data, tmp_path)
    assert not (tmp_path / "pretraining").exists()


def test_a_language_keeps_its_embedding_beside_others(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    run(replace(recipe, fine_tuning=None, test=None), data, tmp_path / "first")
    stage = tmp_path / "first" / "pretraining"
    tokenizer = open_tokenizer(recipe.encoder)
    before = untrained_m3p(recipe, tokenizer, WIDTH, ("en", "de"))
    begin_from(before, stage)
    english, german = before.languages.weight.tolist()
    assert any(english)
    assert any(german)
    for folder in (stage, stage / "latest"):
        after = untrained_m3p(recipe, tokenizer, WIDTH, ("en", "ar", "de", "zh"))
        begin_with_stage(after, replace(recipe, initialise_from=str(folder)))
        unknown = [0.0] * len(english)
        assert after.languages.weight.tolist() == [english, unknown, german, unknown]
        learned = {k: v for k, v in before.state_dict().items() if k != "languages.weight"}
        assert all(torch.equal(after.state_dict()[name], learned[name]) for name in learned)
    with pytest.raises(PolyglanceError, match=r"in other languages \(en, de\): train into another"):
        keep_languages(("en", "fr"), tmp_path / "first")  # of data that was changed meanwhile
    lost = shutil.copytree(stage / "latest", tmp_path / "lost" / "pretraining" / "latest").parent
    with pytest.raises(PolyglanceError, match="does not tell which languages"):
        begin_with_stage(after, replace(recipe, initialise_from=str(lost)))


def test_another_model_s_run_is_not_said_to_be_removed(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    run(replace(recipe, fine_tuning=None, test=None), data, tmp_path / "first")
    again = replace(recipe, layout="reference", initialise_from=str(tmp_path / "first/pretraining"))
    with pytest.raises(PolyglanceError) as told:
        run(again, data, tmp_path / "second")
    assert "start from a run of the same kind of model" in str(told.value)
    assert "remove" not in str(told.value)


def test_switched_english_is_no_other_language(
    data: Path, recipe: M3PRecipe, tmp_path: Path
) -> None:
    french = replace(recipe, fine_tuning=FineTuning(code_switched=True, languages=("fr",)))
    with pytest.raises(PolyglanceError, match=r"leave fine_tuning\.languages out"):
        run(french, data, tmp_path)
    replace(recipe, fine_tuning=FineTuning(code_switched=True, languages=("en",))).check_trainable()


def test_the_published_recipe_runs_by_the_real_command(data: Path, tmp_path: Path) -> None:
    published = open_recipe("m3p-flickr8k")
    assert published.kind == "m3p"
    assert published.settings.fine_tuning.negatives == 3
    described = "={manifest: %s.jsonl, features: regions}"
    files = "dictionaries/{source}-{target}.tsv"
    changes = [
        f"encoder={data / 'encoder'}", "train" + described % "train",
        "validation" + described % "val", "test" + described % "test",
        "texts=[{manifest: texts.jsonl}]", f"switching.dictionaries={files}",
        "switching.languages=[de]", "reranking={dual: dual}", "pretraining.steps=1",
        "pretraining.matching_first=1",
        "pretraining.batch=4",
        "pretraining.text_batch=4", "fine_tuning.batch=4", "loop.steps=1",
        "loop.precision=float32",
    ]  # fmt: skip
    options = [part for change in changes for part in ("--set", change)]
    command = ["train", "m3p-flickr8k", "--data", str(data), "--out", str(tmp_path), *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    again = CliRunner().invoke(app, command)  # all is done: it only measures
    assert again.exit_code == 0, again.output
    assert "reranked" in json.loads((tmp_path / "report.json").read_text())["test"]
