"""`polyglance compare` with models of every kind, on photographs of the demo."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from safetensors.torch import save_file
from typer.testing import CliRunner

from helpers.clip_models import save_clip
from helpers.random_store import write_random_store
from helpers.small_mmp import small_model, tokenizer
from helpers.tiny_cross_encoders import (
    save_cross_encoder,
    save_vqa_model,
    tiny_uc2,
    write_colour_parts,
)
from polyglance import load
from polyglance.cli import app
from polyglance.cross_encoders.rerank import CrossEncoderReranker
from polyglance.demo.photographs import FOLDER
from polyglance.encoders.model_folder import find_model
from polyglance.records import Record, write_manifest

CAPTIONS = {
    "horse": ("a brown horse in the snow", "ein braunes Pferd im Schnee"),
    "pancakes": ("a pile of pancakes", "ein Stapel Pfannkuchen"),
    "giraffes": ("two giraffes", "zwei Giraffen"),
    "kitchen": ("a white kitchen", "eine weiße Küche"),
    "coffee": ("a cup of coffee", "eine Tasse Kaffee"),
}


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for name, (english, german) in CAPTIONS.items():
        (folder / f"{name}.webp").write_bytes((FOLDER / f"{name}.webp").read_bytes())
        (folder / f"{name}.txt").write_text(english)
        (folder / f"{name}.de.txt").write_text(german)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of MMP, a CLIP, a cross-encoder and a model that answers questions."""
    folder, small = tmp_path_factory.mktemp("models"), small_model()
    run = folder / "run"
    (run / "compact").mkdir(parents=True)
    tokenizer().save(folder / "words")
    save_file(small.compact, run / "compact" / "compact.safetensors")
    settings = {
        "model": asdict(small.model.config),
        "pictures": {"size": 64, "mean": list(small.pictures.mean), "std": [60.0, 61.0, 62.0]},
        "longest": 20,
        "tokenizer": str(folder / "words"),
        "languages": ["en", "de"],
    }
    (run / "compact" / "config.json").write_text(json.dumps(settings))
    (run / "report.json").write_text(json.dumps({"compressed": {}}))
    save_clip(folder / "clip")
    parts = write_colour_parts(folder / "parts")
    save_cross_encoder(folder / "uc2", parts, tiny_uc2(parts))
    save_vqa_model(folder / "vqa", parts)
    return folder


def rank(scores: list[float], right: int) -> int:
    return 1 + sum(s >= scores[right] for n, s in enumerate(scores) if n != right)


def test_models_of_every_kind_are_compared(data: Path, models: Path, tmp_path: Path) -> None:
    # What `polyglance train` makes of the included model keeps its model in a folder inside.
    tuned = models / "tuned" / "model"
    tuned.parent.mkdir()
    tuned.symlink_to(find_model())
    sources = ["polyglance-small", models / "run", models / "clip", models / "uc2", tuned.parent]
    result = invoke(
        *sources, "--data", data, "--json", tmp_path / "c.json", "--html", tmp_path / "c.html"
    )
    assert result.exit_code == 0, result.output
    assert "mR against polyglance-small" in result.output
    assert "corrected for 12 differences" in " ".join(result.output.split())
    written = json.loads((tmp_path / "c.json").read_text())
    assert [m["name"] for m in written["models"]] == [
        "polyglance-small",
        "run",
        "clip",
        "uc2",
        "tuned",
    ]
    assert written["data"]["captions"] == {"de": 5, "en": 5}
    similarity = [model["similarity"] for model in written["models"]]
    assert similarity == ["cosine", "cosine", "cosine", "all pairs", "cosine"]
    page = (tmp_path / "c.html").read_text()
    assert page.startswith("<!doctype html>")
    assert 0 < page.count("<article>") <= 3 * 2 * 6  # a model equal to the baseline has none

    # The included model's and the cross-encoder's recalls, by loops over all pairs.
    files = sorted(data.glob("*.webp"))
    encoder, reranker = load(), CrossEncoderReranker.open(models / "uc2")
    vectors = [encoder.encode_pictures([file])[0] for file in files]
    encoded = reranker.encode_images(files)
    for place, code in enumerate(("en", "de")):
        texts = [CAPTIONS[file.stem][place] for file in files]
        for model in (0, 3):
            ranks = []
            for right, text in enumerate(texts):
                if model == 0:
                    [query] = encoder.encode_texts([text])
                    scores = [float(np.dot(vector, query)) for vector in vectors]
                else:
                    scores = reranker.score(text, encoded, language=code).tolist()
                ranks.append(rank(scores, right))
            recalls = written["models"][model]["recalls"][code]["text_to_image"]["recalls"]
            assert recalls == {
                str(k): pytest.approx(100 * np.mean(np.array(ranks) <= k)) for k in (1, 5, 10)
            }
    assert written["models"][0]["mean_recall"]["en"]["value"] > 90
    assert written["models"][4]["mean_recall"] == written["models"][0]["mean_recall"]
    for query in written["queries"]:
        assert query["ranks"][query["model"]] != query["ranks"]["polyglance-small"]
        for name, first in query["first"].items():
            assert (first[0] == query["picture"]) == (query["ranks"][name] == 1)


def test_a_cross_encoder_re_ranks_candidates_of_the_first_stage(data: Path, models: Path) -> None:
    clip, uc2 = models / "clip", models / "uc2"
    options = ("--candidates", 2, "--first-stage", clip, "--languages", "en", "--json", "-", "-q")
    result = invoke(f"first={clip}", uc2, "--data", data, *options)
    assert result.exit_code == 0, result.output
    written = json.loads(result.stdout)
    assert written["baseline"] == "first"
    assert written["models"][1]["similarity"] == "re-ranks the first 2 of clip"

    files = sorted(data.glob("*.webp"))
    encoder, reranker = load(clip), CrossEncoderReranker.open(uc2)
    vectors, encoded = encoder.encode_pictures(files), reranker.encode_images(files)
    ranks = []
    for right, file in enumerate(files):
        text = CAPTIONS[file.stem][0]
        candidates = np.argsort(-(vectors @ encoder.encode_texts([text])[0]))[:2].tolist()
        scores = reranker.score(text, encoded, language="en").tolist()
        ordered = sorted(candidates, key=lambda image: -scores[image])
        ranks.append(1 + ordered.index(right) if right in ordered else len(files))
    found = written["models"][1]["recalls"]["en"]["text_to_image"]
    assert found["recalls"]["1"] == pytest.approx(100 * np.mean(np.array(ranks) == 1))
    assert found["median_rank"] == np.median(ranks)


def test_models_of_features_need_no_pictures(tmp_path: Path) -> None:
    model = Path(__file__).parent.parent / "fixtures" / "model_format_3"
    other = tmp_path / "other"
    other.mkdir()
    for file in model.iterdir():
        (other / file.name).symlink_to(file)
    names = [f"clip{number}.mp4" for number in range(4)]
    write_random_store(tmp_path / "store", dict.fromkeys(names, 2), width=432)
    records = [Record(video=name, captions={"en": ("a red circle", "two")}) for name in names]
    write_manifest(tmp_path / "clips.jsonl", records)
    arguments = (model, other, "--data", tmp_path / "clips.jsonl", "--html", tmp_path / "c.html")
    refused = invoke(*arguments)
    assert "takes features in place of pictures: add --features STORE" in str(refused.exception)
    result = invoke(*arguments, "--features", tmp_path / "store")
    assert result.exit_code == 0, result.output
    assert "other and model_format_3 cannot be told apart" in " ".join(result.output.split())
    assert "<svg" in (tmp_path / "c.html").read_text()


def test_mistakes_are_told_in_a_sentence(data: Path, models: Path, tmp_path: Path) -> None:
    def refusal(*arguments: object) -> str:
        result = invoke(*arguments)
        assert result.exit_code != 0
        return str(result.exception)

    assert "there is no model 'nowhere'" in refusal("nowhere", "--data", data)
    assert "answers questions and ranks no pictures" in refusal(models / "vqa", "--data", data)
    assert "add --candidates" in refusal("x", "--data", data, "--first-stage", "y")
    (tmp_path / "mine.html").write_text("<p>my page</p>")
    for option, path in (("--html", tmp_path / "mine.html"), ("--json", tmp_path)):
        printed = refusal("x", "--data", data, option, path)
        assert "not replaced" in printed or "is a folder" in printed
    assert (tmp_path / "mine.html").read_text() == "<p>my page</p>"
