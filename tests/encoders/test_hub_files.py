"""Model folders open in tokenizers, transformers, ONNX Runtime and fastembed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import yaml
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from fastembed.common.preprocessor_utils import load_preprocessor
from PIL import Image
from tokenizers import Tokenizer
from transformers import AutoImageProcessor, AutoTokenizer
from typer.testing import CliRunner

import polyglance
from helpers.doc_pages import ROOT, blocks
from helpers.many_texts import many_texts
from helpers.small_mmp import TEXTS, cosines
from polyglance.cli import app
from polyglance.demo.photographs import FOLDER
from polyglance.encoders import Encoder
from polyglance.encoders.model_folder import VOCABULARY, ModelFolder
from polyglance.encoders.unigram import UnigramTokenizer
from polyglance.encoders.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped model as a complete folder."""
    folder = tmp_path_factory.mktemp("hub") / "polyglance-small"
    done = CliRunner().invoke(app, ["export", "polyglance-small", "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def graph(path: Path) -> Any:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def test_the_tokenizer_gives_our_ids_in_many_languages(shipped: Path) -> None:
    model = ModelFolder.open()
    ours = UnigramTokenizer(Vocabulary.from_bytes(model.read_file(VOCABULARY)))
    theirs = Tokenizer.from_file(str(shipped / "tokenizer.json"))
    texts = many_texts()
    assert len(texts) > 1000
    encoded = theirs.encode_batch_fast(texts)
    for text, found in zip(texts, encoded, strict=True):
        assert found.ids == ours.encode(text, model.description.max_length), text


def test_fastembed_opens_a_folder(folder: Path, encoder: Encoder) -> None:
    TextEmbedding.add_custom_model(
        model="small",
        pooling=PoolingType.DISABLED,
        normalization=False,
        sources=ModelSource(url="https://localhost"),  # not asked: the folder is given
        dim=encoder.width,
        model_file="text.onnx",
    )
    embedding = TextEmbedding("small", specific_model_path=str(folder), threads=1)
    vectors = np.array(list(embedding.embed(TEXTS[::9])))
    assert cosines(vectors, encoder.encode_texts(TEXTS[::9])).min() > 0.9999


def test_the_shipped_folder_has_the_hub_s_header_and_configs(shipped: Path) -> None:
    model = ModelFolder.open()
    assert ModelFolder.open(shipped).description == model.description
    for folder in (model.path, shipped):
        header = yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])
        assert header["license"] == "apache-2.0"
        assert header["language"] == list(model.description.languages)
        assert (header["library_name"], header["pipeline_tag"]) == (
            "polyglance",
            "feature-extraction",
        )
        assert json.loads((folder / "config.json").read_text())["projection_dim"] == 384
        assert "onnx" in header["tags"]


def test_transformers_tokenizer_and_image_processor_feed_the_graphs(
    folder: Path, encoder: Encoder, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    text_graph = graph(folder / "text.onnx")
    assert [value.name for value in text_graph.get_inputs()] == ["input_ids", "attention_mask"]
    assert [value.name for value in text_graph.get_outputs()] == ["text_embeds"]
    texts = [*TEXTS[:20], " ".join(TEXTS)]  # the last is cut
    inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="np")
    [vectors] = text_graph.run(None, dict(inputs))
    assert cosines(vectors, encoder.encode_texts(texts)).min() > 0.9999
    images = [Image.open(FOLDER / f"{name}.webp").convert("RGB") for name in ("horse", "beach")]
    image_graph = graph(folder / "picture.onnx")
    assert [value.name for value in image_graph.get_inputs()] == ["pixel_values"]
    assert [value.name for value in image_graph.get_outputs()] == ["image_embeds"]
    expected = encoder.encode_pictures(images)
    processors: Any = AutoImageProcessor
    processor = processors.from_pretrained(str(folder), backend="pil")
    values = np.asarray(processor(images=images, return_tensors="np")["pixel_values"], np.float32)
    for pixel_values in (values, np.asarray(load_preprocessor(folder)(images), np.float32)):
        [vectors] = image_graph.run(None, {"pixel_values": pixel_values})
        assert cosines(vectors, expected).min() > 0.999
    assert caplog.records == []  # transformers warns of folders that it finds strange


def test_the_examples_of_the_page_run(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    Path("models/polyglance-small").symlink_to(shipped)
    with Image.open(FOLDER / "beach.webp") as image:
        image.convert("RGB").save("beach.jpg")
    examples = [
        block
        for block in blocks(ROOT / "docs" / "model-folders.md")
        if block.language == "python" and not block.is_marked
    ]
    model = polyglance.load(threads=1)
    texts = model.encode_texts(["a dog", "ein Hund"])
    names: dict[str, Any] = {}
    for block in examples:
        exec(compile(block.text, "docs/model-folders.md", "exec", dont_inherit=True), names)
        assert cosines(np.array(names["vectors"]), texts).min() > 0.9999
    assert len(examples) == 2
    assert cosines(names["pictures"], model.encode_pictures(["beach.jpg"])).min() > 0.999


def test_a_model_takes_no_options_of_runs(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["export", "polyglance-small", "--out", str(tmp_path / "x"), "--name", "mine"]
    )
    assert "is a model, not a run, and takes no --name" in str(done.exception)
