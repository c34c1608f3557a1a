"""Where words look: through the eyes that a model was trained with, by what it learned."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from PIL import Image, ImageOps
from polyglance.recipes.cross_encoder.folder import load_cross_encoder
from torch import nn
from typer.testing import CliRunner

from helpers.colour_encoder import write_image
from polyglance.batches.regions import RegionTable
from polyglance.cli import app
from polyglance.cross_encoders.explain import Explainer
from polyglance.cross_encoders.rerank import CrossEncoderReranker
from polyglance.cross_encoders.vqa import VQA
from polyglance.errors import PolyglanceError
from polyglance.recipes import open_recipe
from polyglance.recipes.cross_encoder.data import encode_regions
from polyglance.recipes.uc2.config import UC2Recipe
from polyglance.search.render import attribution_page
from polyglance.vision.extraction import ExtractionSettings, extract
from polyglance.vision.store import FeatureStore
from tiny_readers import make_parts, save_answerer, save_reader, tiny_m3p, tiny_uc2

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220), "white": (250,) * 3}
TEXT = "a blue picture"
QUESTION = "a red picture of blue"
GRID, SIZE = 2, 96
"""The network's own map would have three cells a side in pictures of that size."""


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [f"a {name} picture of {other}" for name in COLOURS for other in COLOURS]
    return make_parts(tmp_path_factory.mktemp("parts"), texts)


@pytest.fixture(scope="module")
def data(parts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures with captions, and their features on a grid."""
    folder = tmp_path_factory.mktemp("data")
    lines = []
    for name, rgb in COLOURS.items():
        write_image(folder / f"{name}.png", rgb, (SIZE, SIZE))
        with Image.open(folder / f"{name}.png") as plain:
            plain.paste((9, 9, 9), (0, 0, SIZE // 2, SIZE // 3))
            plain.save(folder / f"{name}.png")
        lines.append({"image": f"{name}.png", "captions": {"en": [f"a {name} picture"]}})
    (folder / "told.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = ExtractionSettings(
        backbone=str(parts / "eyes"), size=SIZE, grid=GRID, labels=0, dtype="float16"
    )
    extract(folder / "told.jsonl", folder / "features", settings, threads=1, quiet=True)
    return folder


def train(parts: Path, data: Path, out: Path, *changes: str) -> Path:
    """A UC2 of few steps on stored features, by the published recipe."""
    short = [
        f"encoder={parts / 'encoder'}", "train={manifest: told.jsonl, features: features}",
        "validation=null", "test=null", "adaptation=null", "longest_text=30", "reranking=null",
        "pretraining.mixture={itm: 1, mlm: 1, mrtm: 0, vtlm: 0}", "pretraining.steps=2",
        "pretraining.matching_first=0", "pretraining.batch=4", "fine_tuning.batch=4",
        "fine_tuning.lookalikes=0", "loop.steps=2", "loop.precision=float32",
    ]  # fmt: skip
    open_recipe("uc2-flickr8k", [*short, *changes]).run(data, out)
    return out


@pytest.fixture(scope="module")
def run(parts: Path, data: Path) -> Path:
    return train(parts, data, data.parent / "run")


@pytest.fixture(scope="module")
def wordless(parts: Path, data: Path) -> Path:
    """A run that was fine-tuned at once."""
    return train(parts, data, data.parent / "wordless", "pretraining=null")


def invoke(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result


def test_new_pictures_are_seen_as_those_of_the_store_were(
    run: Path, data: Path, tmp_path: Path
) -> None:
    picture, store = data / "red.png", data / "features"
    expected = RegionTable.from_store(
        FeatureStore(store), ["red.png"], prepend_global=True
    ).features
    assert len(expected) == 1 + GRID * GRID
    told = invoke("export", run, "--out", tmp_path / "model", "--features", store)
    assert told.stderr == (
        f"{run} never measured how far to trust the order of vectors, which is dropped among the"
        " hits that are read again: train with reranking.validation, which measures it, or with"
        " reranking.trust\n"
    )
    assert "trusts their order by 0" in told.stdout
    for opened in (
        load_cross_encoder(run, features=store),
        load_cross_encoder(tmp_path / "model"),
    ):
        seen = encode_regions([picture], opened.backbone, opened.config.image_backbone).features
        np.testing.assert_allclose(seen.float(), expected.float(), rtol=0.02, atol=0.02)
    looks = Explainer.open(run, features=store).explain(picture, TEXT)
    assert looks.heatmaps.shape == (3, GRID, GRID)


def test_a_store_that_the_recipe_names_from_the_root_need_not_be_named(
    parts: Path, data: Path, tmp_path: Path
) -> None:
    named = f"train={{manifest: told.jsonl, features: {data / 'features'}}}"
    opened = load_cross_encoder(train(parts, data, tmp_path / "run", named))
    assert (opened.config.image_backbone.grid, opened.config.image_backbone.size) == (GRID, SIZE)


def test_how_pictures_were_seen_is_never_guessed(
    run: Path, parts: Path, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(PolyglanceError, match="name their store as --features of 'polyglance exp"):
        CrossEncoderReranker.open(run, backbone=str(parts / "eyes"))
    with pytest.raises(PolyglanceError, match="is not a feature store"):
        load_cross_encoder(run, features=tmp_path)
    # A network that lies elsewhere now is named, and the rest is the store's.
    info = json.loads((data / "features" / "store.json").read_text())
    info["made_by"]["backbone"] = "gone/pictures"
    (tmp_path / "store.json").write_text(json.dumps(info))
    with pytest.raises(PolyglanceError, match="gone/pictures, which is not there: say where it is"):
        load_cross_encoder(run, features=tmp_path)
    opened = load_cross_encoder(run, features=tmp_path, backbone=str(parts / "eyes"))
    assert (opened.config.image_backbone.grid, opened.config.image_backbone.size) == (GRID, SIZE)
    for other in ("longest_regions: 4", "prepend_global: false"):
        (tmp_path / "recipe.yaml").write_text(f"kind: uc2\n{other}\n")
        with pytest.raises(PolyglanceError, match="other regions than a picture squeezed"):
            load_cross_encoder(tmp_path, features=data / "features")
    del info["made_by"]["grid"]  # as of a detector's regions
    (tmp_path / "store.json").write_text(json.dumps(info))
    with pytest.raises(PolyglanceError, match="train one with eyes, as uc2-reranking has"):
        load_cross_encoder(run, features=tmp_path)


def test_words_that_were_never_hidden_look_by_attention(
    run: Path, wordless: Path, data: Path, tmp_path: Path
) -> None:
    picture, store = data / "red.png", data / "features"
    opened = Explainer.open(wordless, features=store)
    found, attention = (
        opened.explain(picture, TEXT, method=by) for by in ("relevance", "attention")
    )  # type: ignore[arg-type]
    assert (found.method, attention.method) == ("attention", "attention")
    np.testing.assert_array_equal(found.heatmaps, attention.heatmaps)
    told = invoke(
        "explain", picture, TEXT, "--model", wordless, "--features", store, "--out", tmp_path
    )
    assert "attention is drawn: nothing says that the model learned" in told.stderr
    assert "get attention from the word" in (tmp_path / "attribution.html").read_text()
    # Whatever a model was exported from, it says what it learned.
    for place, by in ((run, "relevance"), (wordless, "attention")):
        folder = tmp_path / by
        invoke("export", place, "--out", folder, "--features", store)
        assert Explainer.open(folder).explain(picture, TEXT).method == by
        told = invoke("explain", picture, TEXT, "--model", folder, "--out", tmp_path)
        assert ("attention is drawn" in told.stderr) == (by == "attention")


def test_a_run_that_began_from_a_pretrained_one_tells_words(
    run: Path, wordless: Path, parts: Path, data: Path, tmp_path: Path
) -> None:
    for number, (begun, tells) in enumerate(
        {
            run / "pretraining": True,
            run / "fine_tuning" / "latest": True,
            wordless / "fine_tuning": False,
        }.items()
    ):
        place = tmp_path / str(number)
        train(parts, data, place, "pretraining=null", f"initialise_from={begun}", "loop.steps=1")
        assert load_cross_encoder(place, features=data / "features").config.predicts_words == tells
    matching = "pretraining.mixture={itm: 1, mlm: 0, mrtm: 0, vtlm: 0}"
    train(parts, data, tmp_path / "matching", matching)
    assert not load_cross_encoder(
        tmp_path / "matching", features=data / "features"
    ).config.predicts_words


@pytest.fixture(scope="module")
def answerer(parts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that sees pictures in two sizes, plain and mirrored."""
    folder = save_answerer(tmp_path_factory.mktemp("vqa") / "model", parts)
    told = json.loads((folder / "config.json").read_text())
    told["eyes"] |= {"grid": GRID, "looks": [SIZE]}
    (folder / "config.json").write_text(json.dumps(told))
    return folder


def test_the_answer_that_is_given_is_the_one_explained(answerer: Path, data: Path) -> None:
    asked, explained = VQA.open(answerer), Explainer.open(answerer)
    said = set()
    for picture in sorted(data.glob("*.png")):
        for language in (None, "en", "de"):
            (best,) = asked.ask(picture, QUESTION, language=language, k=1)
            found = explained.explain(picture, QUESTION, language=language, steps=2)
            assert found.words == [f"→ {best.text}"]
            said.add(best.text)
    assert len(said) > 1
    with pytest.raises(PolyglanceError, match="no answers in 'fr', only in"):
        explained.explain(data / "red.png", QUESTION, language="fr")


def test_an_answer_looks_at_the_same_things_in_a_mirror(answerer: Path, data: Path) -> None:
    """All looks count, those in the mirror turned back."""
    explained = Explainer.open(answerer)
    with Image.open(data / "red.png") as opened:
        picture = opened.convert("RGB")
    plain, mirrored = (
        explained.explain(shown, QUESTION, language="en").heatmaps
        for shown in (picture, ImageOps.mirror(picture))
    )
    assert plain.max() > 0
    np.testing.assert_allclose(mirrored, plain[:, :, ::-1], atol=0.05 * float(plain.max()))
    assert np.abs(plain - plain[:, :, ::-1]).max() > 0.1 * plain.max()


def test_what_cannot_be_looked_into_is_said_plainly(data: Path, tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError) as told:
        invoke("explain", data / "red.png", TEXT, "--model", tmp_path / "nope")
    said = str(told.value)
    assert said.startswith(f"{tmp_path / 'nope'} holds no model to look into")
    assert "polyglance train uc2-flickr8k" in said
    assert "polyglance train vqa-en-vi" in said
    # A font is tried before any model is opened.
    with pytest.raises(PolyglanceError, match=r"nofont\.ttf cannot be opened as a font .*--font"):
        invoke("explain", data / "red.png", TEXT, "--font", tmp_path / "nofont.ttf")


def test_the_model_that_is_asked_for_is_asked_for_with_its_store(
    data: Path, tmp_path: Path
) -> None:
    """What is said to be trained opens by what is said to be given."""
    recipe = open_recipe("uc2-flickr8k").settings
    assert isinstance(recipe, UC2Recipe)
    for given in ((), ("--model", tmp_path)):
        with pytest.raises(PolyglanceError) as told:
            invoke("explain", data / "red.png", TEXT, *given)
        assert f"--model RUN --features DATA/{recipe.train.features}" in str(told.value)


def test_what_a_model_does_not_use_is_refused(
    run: Path, answerer: Path, parts: Path, data: Path, tmp_path: Path
) -> None:
    store, eyes = data / "features", parts / "eyes"
    exported = save_reader(tmp_path / "model", parts, tiny_uc2(parts))
    for model in (exported, answerer, answerer.parent):
        for options, named in (
            (("--features", store), "--features: leave that out"),
            (("--backbone", eyes), "--backbone: leave that out"),
            (("--features", store, "--backbone", eyes), "--features or --backbone: leave both out"),
        ):
            with pytest.raises(PolyglanceError) as told:
                invoke("explain", data / "red.png", TEXT, "--model", model, *options)
            assert str(told.value) == (
                f"{model} sees pictures through eyes of its own and takes no {named}"
            )
    # A run with eyes sees by them, or by a network in their place.
    seeing = tmp_path / "seeing"
    shutil.copytree(run, seeing)
    recipe = (seeing / "recipe.yaml").read_text().replace("eyes: null\n", "")
    (seeing / "recipe.yaml").write_text(f"{recipe}\neyes: {{backbone: {eyes}, size: {SIZE}}}\n")
    with pytest.raises(PolyglanceError, match="takes no --features: leave that out"):
        load_cross_encoder(seeing, features=store)
    assert load_cross_encoder(seeing, backbone=str(eyes)).config.image_backbone.size == SIZE


@pytest.mark.parametrize("by", ["relevance", "attention"])
def test_a_sentence_that_is_too_long_is_said_to_be_cut(
    answerer: Path, data: Path, tmp_path: Path, by: str
) -> None:
    long = " ".join(["a red picture of blue"] * 20)
    asked = ("explain", data / "red.png", "--model", answerer, "--by", by, "--out", tmp_path)
    told = invoke(*asked, long, "--language", "en", "--translation", f"de:{QUESTION}")
    (line,) = told.stderr.splitlines()
    start = "the model reads 30 sub-words at most: 'a red picture of blue a red picture of…' was"
    assert line.startswith(f"{start} cut after '")
    assert invoke(*asked, QUESTION, "--language", "en").stderr == ""
    found = Explainer.open(answerer).explain(data / "red.png", long, method="attention")
    assert found.truncated_after == found.words[-1]


def test_looks_are_drawn_into_a_folder_of_their_name(
    answerer: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(attribution_page, "_FONTS", ())
    asked = ("explain", data / "red.png", QUESTION, "--model", answerer, "--by", "attention")
    told = invoke(*asked)
    assert told.stdout.split() == ["attribution/attribution.html", "attribution/attribution.png"]
    assert told.stderr == ""
    assert (tmp_path / "attribution" / "attribution.png").is_file()
    told = invoke(
        *asked, "--translation", "zh:红狗在雪里跑得快", "--translation", "th:หมา", "--out", "other"
    )
    assert told.stderr == (
        "attribution.png: no font has the characters of zh (红狗在雪里…) and th (หมา): add --font,"
        " or open attribution.html\n"
    )
    assert "红狗" in (tmp_path / "other" / "attribution.html").read_text(encoding="utf-8")
    told = invoke("explain", data / "red.png", "红狗", *asked[3:])
    assert "no font has letters of '红狗' (红狗): give" in told.stderr


def test_a_language_that_m3p_does_not_know_is_read_without(
    parts: Path, data: Path, tmp_path: Path
) -> None:
    model = tiny_m3p(parts)
    nn.init.normal_(model.languages.weight)
    folder, picture = save_reader(tmp_path / "model", parts, model), data / "red.png"
    explainer = Explainer.open(folder)
    untold, thai, german = (
        explainer.explain(picture, TEXT, language=code) for code in (None, "th", "de")
    )
    np.testing.assert_array_equal(thai.heatmaps, untold.heatmaps)
    assert not np.allclose(german.heatmaps, untold.heatmaps)
    assert (untold.language_unknown, thai.language_unknown, german.language_unknown) == (
        True,
        True,
        False,
    )
    asked = ("--model", folder, "--by", "attention", "--out", tmp_path)
    also = ("--translation", f"th:{TEXT}", "--translation", f"de:{TEXT}")
    told = invoke("explain", picture, TEXT, *asked, "--language", "en", *also)
    thai_said = "th: the model has no embedding of this language, so it is not told of it"
    assert told.stderr.splitlines() == [thai_said]
    told = invoke("explain", picture, TEXT, *asked, *also)
    assert told.stderr.splitlines() == [
        "the model reads a sentence with its language and is not told of one: name it as"
        " --language",
        thai_said,
    ]
    # UC2 reads all languages alike.
    save_reader(folder, parts, tiny_uc2(parts))
    assert invoke("explain", picture, TEXT, *asked, *also).stderr == ""


@pytest.mark.parametrize("also", ["de:", "de: ", "ein Hund", ":ein Hund"])
def test_a_sentence_beside_needs_its_language_and_itself(also: str) -> None:
    """Said at once: no model is opened for it."""
    with pytest.raises(PolyglanceError, match="takes a language and a sentence, as de:ein Hund"):
        invoke("explain", "p.jpg", TEXT, "--model", "none", "--translation", also)


@pytest.mark.parametrize(("of", "steps"), [("words", 3), ("answer", 4)])
def test_a_bar_counts_the_words_that_have_looked(
    of: str, steps: int, request: pytest.FixtureRequest, data: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Three words, or as many looks as an answer takes, where somebody looks."""
    model = request.getfixturevalue("answerer" if of == "answer" else "run")
    store = () if of == "answer" else ("--features", str(data / "features"))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    asked = ("explain", str(data / "red.png"), TEXT, "--language", "en", "--model", str(model))
    for quiet, shown in ((), True), (("--quiet",), False):
        app([*asked, *store, *quiet, "--out", str(tmp_path)], standalone_mode=False)
        said = capsys.readouterr()
        assert ("Looking (en)" in said.err and f"{steps}/{steps}" in said.err) == shown
        assert str(tmp_path / "attribution.html") in said.out
    # Who calls it from a service asks for none.
    Explainer.open(model, features=store[1] if store else None).explain(data / "red.png", TEXT)
    assert capsys.readouterr().err == ""
