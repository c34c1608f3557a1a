"""Which parts of an image each word of a sentence uses."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from PIL import Image, ImageOps
from torch import nn
from typer.testing import CliRunner

from helpers.colour_encoder import write_image
from helpers.tiny_cross_encoders import (
    COLOURS,
    save_cross_encoder,
    save_vqa_model,
    tiny_m3p,
    tiny_uc2,
    write_parts,
)
from polyglance.batches.regions import RegionTable
from polyglance.cli import app
from polyglance.cross_encoders.explain import Explainer
from polyglance.cross_encoders.model_folder import load_cross_encoder
from polyglance.cross_encoders.regions import encode_regions
from polyglance.cross_encoders.rerank import CrossEncoderReranker
from polyglance.cross_encoders.vqa import VQA
from polyglance.errors import PolyglanceError
from polyglance.recipes import open_recipe
from polyglance.search.render import attribution_page
from polyglance.vision.extraction import extract
from polyglance.vision.shard_encoding import ExtractionSettings
from polyglance.vision.store import FeatureStore

NAMES = ("red", "green", "blue", "white")
TEXT = "a blue picture"
QUESTION = "a red picture of blue"
GRID, SIZE = 2, 96
"""The network's own map has three cells a side in images of that size."""


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [f"a {name} picture of {other}" for name in NAMES for other in NAMES]
    return write_parts(tmp_path_factory.mktemp("parts"), texts)


@pytest.fixture(scope="module")
def data(parts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write captioned images, and their features on a grid."""
    folder = tmp_path_factory.mktemp("data")
    lines = []
    for name in NAMES:
        write_image(folder / f"{name}.png", COLOURS[name], (SIZE, SIZE))
        with Image.open(folder / f"{name}.png") as image:
            image.paste((9, 9, 9), (0, 0, SIZE // 2, SIZE // 3))
            image.save(folder / f"{name}.png")
        lines.append({"image": f"{name}.png", "captions": {"en": [f"a {name} picture"]}})
    (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = ExtractionSettings(
        backbone=str(parts / "image_backbone"), size=SIZE, grid=GRID, labels=0, dtype="float16"
    )
    extract(folder / "captions.jsonl", folder / "features", settings, threads=1, quiet=True)
    return folder


def train(parts: Path, data: Path, out: Path, *changes: str) -> Path:
    """Train the included recipe of UC2 for a few steps on stored features."""
    short = [
        f"encoder={parts / 'encoder'}", "train={manifest: captions.jsonl, features: features}",
        "validation=null", "test=null", "early_adaptation=null", "max_text_tokens=30",
        "reranking=null", "pretraining.mixture={itm: 1, mlm: 1, mrtm: 0, vtlm: 0}",
        "word_head={batch: 4, steps: 1}", "pretraining.steps=2", "pretraining.itm_only_steps=0",
        "pretraining.batch=4",
        "fine_tuning.batch=4", "fine_tuning.hard_negative_pool=0", "loop.steps=2",
        "loop.precision=float32",
    ]  # fmt: skip
    open_recipe("uc2-flickr8k", [*short, *changes]).train(data, out)
    return out


@pytest.fixture(scope="module")
def run(parts: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(parts, data, tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def run_without_mlm(parts: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(parts, data, tmp_path_factory.mktemp("run_without_mlm"), "pretraining=null")


def invoke(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result


def test_new_images_are_encoded_as_those_of_the_store(
    run: Path, data: Path, tmp_path: Path
) -> None:
    image, store = data / "red.png", FeatureStore(data / "features")
    expected = RegionTable.from_store(store, ["red.png"], prepend_global=True).features
    assert len(expected) == 1 + GRID * GRID
    result = invoke("export", run, "--out", tmp_path / "model")
    assert result.stderr == (
        f"{run} has no dual_weight, so the search's own scores count nothing among the hits that"
        " are re-ranked: train with reranking.validation_embeddings, which tunes it, or with"
        " reranking.dual_weight\n"
    )
    assert "(dual_weight 0)" in result.stdout
    for loaded in (load_cross_encoder(run), load_cross_encoder(tmp_path / "model")):
        assert (loaded.image_backbone.grid, loaded.image_backbone.size) == (GRID, SIZE)
        regions = encode_regions([image], loaded.backbone, loaded.image_backbone).features
        np.testing.assert_allclose(regions.float(), expected.float(), rtol=0.02, atol=0.02)
    attribution = Explainer.open(run).explain(image, TEXT)
    assert attribution.heatmaps.shape == (3, GRID, GRID)


def test_regions_that_cannot_be_computed_are_never_guessed(
    parts: Path, data: Path, tmp_path: Path
) -> None:
    other = tmp_path / "data"
    shutil.copytree(data, other)
    info = json.loads((other / "features" / "store.json").read_text())
    # A backbone that is not on this machine is named, and the rest is the store's.
    info["made_by"]["backbone"] = "gone/image_backbone"
    (other / "features" / "store.json").write_text(json.dumps(info))
    run = train(parts, other, tmp_path / "run")
    with pytest.raises(PolyglanceError, match="gone/image_backbone, which is not on this machine"):
        load_cross_encoder(run)
    loaded = load_cross_encoder(run, backbone=str(parts / "image_backbone"))
    assert (loaded.image_backbone.grid, loaded.image_backbone.size) == (GRID, SIZE)
    image = other / "red.png"
    named = ("--backbone", parts / "image_backbone")
    invoke("explain", image, TEXT, "--model", run, *named, "--out", tmp_path / "drawn")
    invoke("export", run, "--out", tmp_path / "model", *named)
    assert load_cross_encoder(tmp_path / "model").image_backbone.grid == GRID

    message = "stored regions that cannot be computed .* with image_backbone, as the recipe uc2-re"
    for number, change in enumerate(("max_regions=4", "prepend_global=false")):
        run = train(parts, data, tmp_path / str(number), change)
        with pytest.raises(PolyglanceError, match=message):
            CrossEncoderReranker.open(run, backbone=str(parts / "image_backbone"))
    del info["made_by"]["grid"]  # as in a store of a detector's regions
    (other / "features" / "store.json").write_text(json.dumps(info))
    run = train(parts, other, tmp_path / "detector")
    with pytest.raises(PolyglanceError, match=message):
        load_cross_encoder(run)


def test_model_without_mlm_is_explained_by_attention(
    run: Path, run_without_mlm: Path, data: Path, tmp_path: Path
) -> None:
    image = data / "red.png"
    explainer = Explainer.open(run_without_mlm)
    by_default = explainer.explain(image, TEXT, method="relevance")
    attention = explainer.explain(image, TEXT, method="attention")
    assert (by_default.method, attention.method) == ("attention", "attention")
    np.testing.assert_array_equal(by_default.heatmaps, attention.heatmaps)
    result = invoke("explain", image, TEXT, "--model", run_without_mlm, "--out", tmp_path)
    assert "attention is drawn instead: relevance needs a model" in result.stderr
    assert "get attention from the word" in (tmp_path / "attribution.html").read_text()
    # An exported folder keeps whether its model predicts words.
    for source, method in ((run, "relevance"), (run_without_mlm, "attention")):
        folder = tmp_path / method
        invoke("export", source, "--out", folder)
        assert Explainer.open(folder).explain(image, TEXT).method == method
        result = invoke("explain", image, TEXT, "--model", folder, "--out", tmp_path)
        assert ("attention is drawn" in result.stderr) == (method == "attention")


def test_run_that_began_from_a_pretrained_one_predicts_words(
    run: Path, run_without_mlm: Path, parts: Path, data: Path, tmp_path: Path
) -> None:
    starts = {
        run / "pretraining": True,
        run / "fine_tuning" / "latest": True,
        run_without_mlm / "fine_tuning": False,
    }
    for number, (start, predicts_words) in enumerate(starts.items()):
        out = tmp_path / str(number)
        train(parts, data, out, "pretraining=null", f"initialise_from={start}", "loop.steps=1")
        assert load_cross_encoder(out).config.predicts_words == predicts_words
    itm_alone = "pretraining.mixture={itm: 1, mlm: 0, mrtm: 0, vtlm: 0}"
    train(parts, data, tmp_path / "itm", itm_alone)
    assert not load_cross_encoder(tmp_path / "itm").config.predicts_words


@pytest.fixture(scope="module")
def vqa_folder(parts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a question-answering model with test-time augmentation in two sizes."""
    folder = save_vqa_model(tmp_path_factory.mktemp("vqa") / "model", parts)
    config = json.loads((folder / "config.json").read_text())
    config["image_backbone"] |= {"grid": GRID, "tta_sizes": [SIZE]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_the_given_answer_is_explained(vqa_folder: Path, data: Path) -> None:
    vqa, explainer = VQA.open(vqa_folder), Explainer.open(vqa_folder)
    answers = set()
    for image in sorted(data.glob("*.png")):
        for language in (None, "en", "de"):
            (best,) = vqa.ask(image, QUESTION, language=language, k=1)
            attribution = explainer.explain(image, QUESTION, language=language, steps=2)
            assert attribution.words == [f"→ {best.text}"]
            answers.add(best.text)
    assert len(answers) > 1
    with pytest.raises(PolyglanceError, match="no answers in 'fr', only in"):
        explainer.explain(data / "red.png", QUESTION, language="fr")


def test_mirrored_image_has_mirrored_heatmaps(vqa_folder: Path, data: Path) -> None:
    """All views count; heatmaps of mirrored ones are flipped back."""
    explainer = Explainer.open(vqa_folder)
    with Image.open(data / "red.png") as opened:
        image = opened.convert("RGB")
    plain, mirrored = (
        explainer.explain(one, QUESTION, language="en").heatmaps
        for one in (image, ImageOps.mirror(image))
    )
    assert plain.max() > 0
    np.testing.assert_allclose(mirrored, plain[:, :, ::-1], atol=0.05 * float(plain.max()))
    assert np.abs(plain - plain[:, :, ::-1]).max() > 0.1 * plain.max()


def test_folder_without_a_model_is_reported(data: Path, tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError) as caught:
        invoke("explain", data / "red.png", TEXT, "--model", tmp_path / "nope")
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'nope'} holds no model to explain")
    assert "polyglance train uc2-flickr8k" in message
    assert "polyglance train vqa-en-vi" in message
    # A font is opened before any model.
    with pytest.raises(PolyglanceError, match=r"nofont\.ttf cannot be opened as a font .*--font"):
        invoke("explain", data / "red.png", TEXT, "--font", tmp_path / "nofont.ttf")


@pytest.mark.parametrize("options", [(), ("--model", ".")])
def test_missing_model_is_answered_by_a_command_that_trains_one(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("polyglance.encoders.reader_files.has_reader", lambda folder: False)
    with pytest.raises(PolyglanceError) as caught:
        invoke("explain", data / "red.png", TEXT, *options)
    assert "'polyglance train uc2-flickr8k --data DATA --out RUN' and give --model RUN" in str(
        caught.value
    )


def test_useless_backbone_is_refused(
    run: Path, vqa_folder: Path, parts: Path, data: Path, tmp_path: Path
) -> None:
    exported = save_cross_encoder(tmp_path / "model", parts, tiny_uc2(parts))
    for model in (run, exported, vqa_folder, vqa_folder.parent):
        with pytest.raises(PolyglanceError) as caught:
            invoke(
                "explain", data / "red.png", TEXT, "--model", model, "--backbone",
                parts / "image_backbone",
            )  # fmt: skip
        assert str(caught.value) == (
            f"{model} brings its own image backbone and takes no --backbone: leave it out"
        )


@pytest.mark.parametrize("by", ["relevance", "attention"])
def test_truncated_sentence_is_reported(
    vqa_folder: Path, data: Path, tmp_path: Path, by: str
) -> None:
    long = " ".join(["a red picture of blue"] * 20)
    command = ("explain", data / "red.png", "--model", vqa_folder, "--by", by, "--out", tmp_path)
    result = invoke(*command, long, "--language", "en", "--translation", f"de:{QUESTION}")
    (line,) = result.stderr.splitlines()
    start = "the model reads at most 30 tokens: 'a red picture of blue a red picture of…' was"
    assert line.startswith(f"{start} cut after '")
    assert invoke(*command, QUESTION, "--language", "en").stderr == ""
    attribution = Explainer.open(vqa_folder).explain(data / "red.png", long, method="attention")
    assert attribution.truncated_after == attribution.words[-1]


def test_attributions_are_drawn_into_a_folder(
    vqa_folder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(attribution_page, "_FONTS", ())
    command = ("explain", data / "red.png", QUESTION, "--model", vqa_folder, "--by", "attention")
    result = invoke(*command)
    assert result.stdout.split() == ["attribution/attribution.html", "attribution/attribution.png"]
    assert result.stderr == ""
    assert (tmp_path / "attribution" / "attribution.png").is_file()
    result = invoke(
        *command,
        "--translation",
        "zh:红狗在雪里跑得快",
        "--translation",
        "th:หมา",
        "--out",
        "other",
    )
    assert result.stderr == (
        "attribution.png: no font has the characters of zh (红狗在雪里…) and th (หมา): add --font,"
        " or open attribution.html\n"
    )
    assert "红狗" in (tmp_path / "other" / "attribution.html").read_text(encoding="utf-8")
    result = invoke("explain", data / "red.png", "红狗", *command[3:])
    assert "no font has the characters of '红狗' (红狗): add --font" in result.stderr


def test_language_that_m3p_does_not_know_is_left_out(
    parts: Path, data: Path, tmp_path: Path
) -> None:
    model = tiny_m3p(parts)
    nn.init.normal_(model.languages.weight)
    folder, image = save_cross_encoder(tmp_path / "model", parts, model), data / "red.png"
    explainer = Explainer.open(folder)
    none, thai, german = (
        explainer.explain(image, TEXT, language=code) for code in (None, "th", "de")
    )
    np.testing.assert_array_equal(thai.heatmaps, none.heatmaps)
    assert not np.allclose(german.heatmaps, none.heatmaps)
    assert (none.language_unknown, thai.language_unknown, german.language_unknown) == (
        True,
        True,
        False,
    )
    options = ("--model", folder, "--by", "attention", "--out", tmp_path)
    translations = ("--translation", f"th:{TEXT}", "--translation", f"de:{TEXT}")
    result = invoke("explain", image, TEXT, *options, "--language", "en", *translations)
    about_thai = "th: the model has no embedding of this language and uses none"
    assert result.stderr.splitlines() == [about_thai]
    result = invoke("explain", image, TEXT, *options, *translations)
    assert result.stderr.splitlines() == [
        "the model has language embeddings, but the language of the sentence is not given: set"
        " --language",
        about_thai,
    ]
    # UC2 has no language embeddings.
    save_cross_encoder(folder, parts, tiny_uc2(parts))
    assert invoke("explain", image, TEXT, *options, *translations).stderr == ""


def test_language_codes_are_normalised(parts: Path, data: Path, tmp_path: Path) -> None:
    model = tiny_m3p(parts)
    nn.init.normal_(model.languages.weight)
    explainer = Explainer.open(save_cross_encoder(tmp_path / "model", parts, model))
    image = data / "red.png"
    english, *german = (
        explainer.explain(image, TEXT, language=code, method="attention").heatmaps
        for code in ("en", "de", "DE", "de-DE")
    )
    assert not np.allclose(english, german[0])
    for other in german[1:]:
        np.testing.assert_array_equal(other, german[0])
    assert explainer.explain(image, TEXT, language="fr").language_unknown
    with pytest.raises(PolyglanceError, match=r"'\?' is no language: give its name or a code"):
        explainer.explain(image, TEXT, language="?")


@pytest.mark.parametrize("translation", ["de:", "de: ", "ein Hund", ":ein Hund"])
def test_translation_needs_a_language_and_a_sentence(translation: str) -> None:
    """It fails at once: no model is opened."""
    with pytest.raises(PolyglanceError, match="takes a language and a sentence, such as de:ein Hu"):
        invoke("explain", "p.jpg", TEXT, "--model", "none", "--translation", translation)


@pytest.mark.parametrize(("explained", "steps"), [("words", 3), ("answer", 4)])
def test_progress_bar_counts_words_or_views(
    explained: str, steps: int, request: pytest.FixtureRequest, data: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Three words, or the four views of an answer, on a terminal only."""
    model = request.getfixturevalue("vqa_folder" if explained == "answer" else "run")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    command = ("explain", str(data / "red.png"), TEXT, "--language", "en", "--model", str(model))
    for quiet, shown in ((), True), (("--quiet",), False):
        app([*command, *quiet, "--out", str(tmp_path)], standalone_mode=False)
        output = capsys.readouterr()
        assert ("Explaining (en)" in output.err and f"{steps}/{steps}" in output.err) == shown
        assert str(tmp_path / "attribution.html") in output.out
    # Called from Python, there is none.
    Explainer.open(model).explain(data / "red.png", TEXT)
    assert capsys.readouterr().err == ""
