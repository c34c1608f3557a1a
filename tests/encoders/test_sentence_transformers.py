"""sentence-transformers models that encode texts and pictures, or texts only."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

import polyglance
from helpers.clip_models import LAYERS, TEXTS, perturb, pictures, save_clip, word_tokenizer
from polyglance.encoders import Encoder
from polyglance.encoders.sentence_transformers_encoder import SentenceTransformersEncoder
from polyglance.encoders.translated_queries import consistency_scores
from polyglance.errors import DataError, PolyglanceError

OLD = "sentence_transformers.models"
"""The module of the classes when most published models were saved."""


@pytest.fixture(scope="module")
def package() -> Any:
    """Imported where it is used: it brings scikit-learn and pandas."""
    import sentence_transformers

    return sentence_transformers


@pytest.fixture(params=["new", "old"])
def clip(request: pytest.FixtureRequest, package: Any, tmp_path: Path) -> Path:
    """A CLIP as the package saves it now, and as clip-ViT-B-32 was saved."""
    folder = tmp_path / "tiny-clip"
    if request.param == "new":
        modules = package.sentence_transformer.modules
        inner = save_clip(tmp_path / "inner")
        package.SentenceTransformer(modules=[modules.Transformer(str(inner))]).save(str(folder))
        return folder
    save_clip(folder / "0_CLIPModel")
    _write_modules(folder, {"0_CLIPModel": f"{OLD}.CLIPModel"})
    return folder


@pytest.fixture(scope="module")
def saved_text_model(package: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text-only model like clip-ViT-B-32-multilingual-v1: words, their mean, a layer."""
    folder = tmp_path_factory.mktemp("saved") / "tiny-text-model"
    words = sorted({word for text in TEXTS for word in text.split()})
    tokenizer = word_tokenizer(["[CLS]", "[PAD]", "[UNK]", *words], start="[CLS]", end=None)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), max_position_embeddings=20, **LAYERS
    )
    perturb(transformers.BertModel(config), seed=3).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    modules = package.sentence_transformer.modules
    dense = perturb(modules.Dense(16, 12, bias=False, activation_function=torch.nn.Identity()))
    package.SentenceTransformer(
        modules=[modules.Transformer(str(folder)), modules.Pooling(16, "mean"), dense]
    ).save(str(folder))
    return folder


@pytest.fixture
def text_model(saved_text_model: Path, tmp_path: Path) -> Path:
    """A copy of it, which a test may change."""
    return Path(shutil.copytree(saved_text_model, tmp_path / saved_text_model.name))


def _write_modules(folder: Path, modules: dict[str, str]) -> None:
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": kind}
        for number, (path, kind) in enumerate(modules.items())
    ]
    (folder / "modules.json").write_text(json.dumps(listed))


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_vectors_agree_with_the_package(package: Any, clip: Path) -> None:
    encoder = polyglance.load(clip, threads=1)
    assert isinstance(encoder, SentenceTransformersEncoder)
    assert isinstance(encoder, Encoder)
    assert (encoder.name, encoder.width) == ("tiny-clip", 12)
    own = package.SentenceTransformer(str(clip), device="cpu")
    texts = ["", "a", *TEXTS, " ".join(TEXTS)] * 2
    text_vectors = encoder.encode_texts(texts)
    np.testing.assert_allclose(text_vectors, unit(own.encode(texts)), atol=1e-5)
    picture_vectors = encoder.encode_pictures(pictures())
    np.testing.assert_allclose(picture_vectors, unit(own.encode(pictures())), atol=1e-5)
    assert len(np.unique(picture_vectors.round(3), axis=0)) == len(picture_vectors)


def test_vectors_agree_with_transformers(clip: Path, tmp_path: Path) -> None:
    encoder, bare = polyglance.load(clip), polyglance.load(save_clip(tmp_path / "bare"))
    np.testing.assert_allclose(encoder.encode_texts(TEXTS), bare.encode_texts(TEXTS), atol=1e-5)
    np.testing.assert_allclose(
        encoder.encode_pictures(pictures()), bare.encode_pictures(pictures()), atol=1e-5
    )


def test_a_text_model_uses_the_image_model_inside(
    package: Any, text_model: Path, tmp_path: Path
) -> None:
    text_encoder = polyglance.load(text_model)
    own = package.SentenceTransformer(str(text_model), device="cpu")
    np.testing.assert_allclose(text_encoder.encode_texts(TEXTS), unit(own.encode(TEXTS)), atol=1e-5)
    with pytest.raises(PolyglanceError, match="only encodes texts: put its image model"):
        text_encoder.encode_pictures(pictures())
    image_model = save_clip(tmp_path / "clip")
    (text_model / "pictures").symlink_to(image_model)
    encoder = polyglance.load(text_model)
    picture_vectors = encoder.encode_pictures(pictures())
    np.testing.assert_allclose(
        picture_vectors, polyglance.load(image_model).encode_pictures(pictures()), atol=1e-6
    )
    np.testing.assert_allclose(
        encoder.encode_texts(TEXTS), text_encoder.encode_texts(TEXTS), atol=1e-6
    )
    assert (
        len(
            {
                encoder.fingerprint,
                text_encoder.fingerprint,
                polyglance.load(image_model).fingerprint,
            }
        )
        == 3
    )
    queries = {"en": TEXTS[:2], "de": TEXTS[3:5]}
    expected = (
        picture_vectors @ (encoder.encode_texts(TEXTS[:2]) + encoder.encode_texts(TEXTS[3:5])).T / 2
    )
    np.testing.assert_allclose(
        consistency_scores(encoder, queries, picture_vectors), expected, atol=1e-5
    )


def test_the_image_encoder_must_have_the_same_dimension(text_model: Path) -> None:
    save_clip(text_model / "pictures", width=8)
    with pytest.raises(DataError, match="encodes texts to 12 and pictures to 8"):
        polyglance.load(text_model).encode_pictures([Image.new("RGB", (9, 9))])


def test_the_fingerprint_covers_every_module(text_model: Path, tmp_path: Path) -> None:
    first = polyglance.load(text_model).fingerprint
    other = tmp_path / "other"
    shutil.copytree(text_model, other)
    (other / "README.md").write_text("Other words.")
    assert polyglance.load(other).fingerprint == first
    (weights,) = other.glob("*_Dense/model.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert polyglance.load(other).fingerprint != first


def test_no_module_is_opened_from_a_pickle(text_model: Path) -> None:
    (weights,) = text_model.glob("*_Dense/model.safetensors")
    weights.rename(weights.with_name("pytorch_model.bin"))
    with pytest.raises(PolyglanceError, match=r"Dense holds its weights as pytorch_model\.bin"):
        polyglance.load(text_model)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({"": "mine.Model"}, r"asks for code of its own \(mine\.Model\)"),
        ({"../elsewhere": f"{OLD}.Transformer"}, "names a module outside its folder"),
        ({"": f"{OLD}.Nonsense"}, "cannot be opened by sentence-transformers"),
    ],
)
def test_foreign_modules_are_refused(
    text_model: Path, modules: dict[str, str], message: str
) -> None:
    _write_modules(text_model, modules)
    with pytest.raises(PolyglanceError, match=message):
        polyglance.load(text_model).encode_texts(["a dog"])


def test_a_router_brings_no_class_of_its_own(text_model: Path) -> None:
    router = text_model / "1_Router"
    (router / "0_Mine").mkdir(parents=True)
    _write_modules(text_model, {"1_Router": f"{OLD}.Router"})
    for name in ("router_config.json", "config.json"):  # of today, and of earlier versions
        config = router / name
        config.write_text(json.dumps({"types": {"0_Mine": "mine.Model"}}))
        with pytest.raises(PolyglanceError, match=rf"{name} asks for code .*\(mine\.Model\)"):
            polyglance.load(text_model)
        config.unlink()
    config.write_text(json.dumps({"types": {"0_Mine": f"{OLD}.Dense"}}))
    (router / "0_Mine" / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(PolyglanceError, match="0_Mine holds its weights as pytorch_model"):
        polyglance.load(text_model)
    config.write_text(json.dumps({"types": {"../../x": f"{OLD}.Dense"}}))
    with pytest.raises(DataError, match="names a module outside its folder"):
        polyglance.load(text_model)


def test_an_activation_is_torchs_own(text_model: Path) -> None:
    """The package would compute with another one instead, and give other vectors."""
    (config,) = text_model.glob("*_Dense/config.json")
    content = json.loads(config.read_text())
    assert content["activation_function"].startswith("torch.nn.")
    config.write_text(json.dumps(content | {"activation_function": "mine.activation"}))
    with pytest.raises(PolyglanceError, match=r"asks for code of its own \(mine\.activation\)"):
        polyglance.load(text_model)


@pytest.mark.parametrize("place", ["", "*_Dense"])
def test_a_folder_with_code_is_refused(text_model: Path, place: str) -> None:
    (folder,) = text_model.glob(place) if place else [text_model]
    (folder / "modeling_mine.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(PolyglanceError, match=r"holds code of its own \(modeling_mine\.py\)"):
        polyglance.load(text_model)


@pytest.mark.parametrize("version", ["5.4.0", "6.1.9", "4"])
def test_versions_that_run_code_are_refused(
    text_model: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    polyglance.load(text_model)
    monkeypatch.setattr("polyglance.encoders.formats.metadata.version", lambda name: version)
    with pytest.raises(PolyglanceError, match=f"sentence-transformers {version} can run code"):
        polyglance.load(text_model)


@pytest.mark.parametrize("content", ["", "{}x", '["a"]', '[{"idx": 0}]', "3"])
def test_a_damaged_list_of_modules_is_refused(text_model: Path, content: str) -> None:
    (text_model / "modules.json").write_text(content)
    with pytest.raises(DataError, match="does not list its modules"):
        polyglance.load(text_model)
