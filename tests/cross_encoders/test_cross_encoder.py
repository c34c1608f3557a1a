"""`polyglance.CrossEncoder`: score texts, answer questions, explain words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import polyglance
from helpers.tiny_cross_encoders import (
    ANSWERS,
    save_cross_encoder,
    save_vqa_model,
    tiny_m3p,
    tiny_uc2,
)
from polyglance import CrossEncoder, PolyglanceError
from polyglance.cross_encoders.explain import Explainer
from polyglance.cross_encoders.rerank import CrossEncoderReranker
from polyglance.cross_encoders.vqa import VQA
from polyglance.errors import DataError

TEXT = "a blue picture"


def test_cross_encoder_is_public() -> None:
    assert "CrossEncoder" in dir(polyglance)
    assert polyglance.CrossEncoder is CrossEncoder


@pytest.mark.parametrize("system", ["uc2", "m3p"])
def test_texts_are_scored_as_in_re_ranking(
    parts: Path, images: list[Path], tmp_path: Path, system: str
) -> None:
    model = tiny_uc2(parts) if system == "uc2" else tiny_m3p(parts)
    folder = save_cross_encoder(tmp_path / "model", parts, model)
    cross_encoder, reranker = CrossEncoder(folder), CrossEncoderReranker.open(folder)
    assert not cross_encoder.answers_questions
    expected = reranker.score(TEXT, reranker.encode_images(images), language="de")
    scores = cross_encoder.score(TEXT, images, language="de")
    assert scores.shape == (len(images),)
    np.testing.assert_array_equal(scores, expected)
    opened = [Image.open(image).convert("RGB") for image in images]
    np.testing.assert_allclose(
        cross_encoder.score(TEXT, opened, language="de"), expected, atol=1e-4
    )
    assert cross_encoder.score(TEXT, []).shape == (0,)


def test_run_scores_and_explains_words(run: Path, images: list[Path]) -> None:
    cross_encoder = CrossEncoder(run)
    reranker = CrossEncoderReranker.open(run)
    expected = reranker.score(TEXT, reranker.encode_images(images))
    np.testing.assert_array_equal(cross_encoder.score(TEXT, images), expected)
    attribution = cross_encoder.explain(images[0], TEXT)
    assert attribution.words == ["a", "blue", "picture"]
    assert attribution.method == "relevance"
    by_explainer = Explainer.open(run).explain(images[0], TEXT)
    np.testing.assert_array_equal(attribution.heatmaps, by_explainer.heatmaps)


def test_questions_are_answered_and_explained(
    parts: Path, images: list[Path], tmp_path: Path
) -> None:
    folder = save_vqa_model(tmp_path / "run" / "model", parts)
    question = "a red picture of blue"
    for path in (folder, folder.parent):  # a run keeps its model in RUN/model
        cross_encoder = CrossEncoder(path)
        assert cross_encoder.answers_questions
        answers = cross_encoder.ask(images[0], question, language="de", k=2)
        assert answers == VQA.open(folder).ask(images[0], question, language="de", k=2)
        assert {answer.text for answer in answers} <= set(ANSWERS["de"])
        assert answers[0].probability >= answers[1].probability
        attribution = cross_encoder.explain(images[0], question, language="de")
        assert attribution.words == [f"→ {answers[0].text}"]


def test_what_a_model_cannot_do_is_refused(parts: Path, images: list[Path], tmp_path: Path) -> None:
    uc2 = save_cross_encoder(tmp_path / "uc2", parts, tiny_uc2(parts))
    vqa = save_vqa_model(tmp_path / "vqa", parts)
    with pytest.raises(PolyglanceError, match=r"uc2 answers no questions: train a model that does"):
        CrossEncoder(uc2).ask(images[0], "why?")
    with pytest.raises(PolyglanceError, match=r"vqa answers questions .* use ask\(\)"):
        CrossEncoder(vqa).score(TEXT, images)
    with pytest.raises(PolyglanceError, match="the question is empty"):
        CrossEncoder(vqa).ask(images[0], " ")
    with pytest.raises(PolyglanceError, match=r"there is no word in '\.\.\.' to explain"):
        CrossEncoder(uc2).explain(images[0], "...")


def test_unusable_folder_fails_when_it_is_opened(parts: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no trained UC2 or M3P: train one with"):
        CrossEncoder(tmp_path)
    with pytest.raises(DataError, match="holds no trained UC2 or M3P"):
        CrossEncoder(tmp_path / "missing")
    vqa = save_vqa_model(tmp_path / "vqa", parts)
    with pytest.raises(PolyglanceError, match="brings its own image backbone"):
        CrossEncoder(vqa, backbone="efficientnet-lite2")
    (vqa / "model.safetensors").unlink()
    with pytest.raises(DataError, match="holds no question-answering model"):
        CrossEncoder(vqa)
