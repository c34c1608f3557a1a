"""CLIP, SigLIP, SigLIP 2 and MetaCLIP 2 folders, compared with transformers itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file

import polyglance
from helpers.clip_models import (
    TEXTS,
    pictures,
    save_clip,
    save_metaclip2,
    save_siglip,
    save_siglip2,
)
from polyglance.encoders import Encoder
from polyglance.encoders.translated_queries import consistency_scores, translate_queries
from polyglance.errors import DataError, PolyglanceError
from polyglance.text.dictionaries import Dictionary
from polyglance.text.translation.translators import WordByWord

KINDS: dict[str, tuple[Callable[[Path], Path], str, dict[str, Any]]] = {
    "clip": (save_clip, "CLIPModel", {"max_length": 20}),
    "metaclip2": (save_metaclip2, "MetaClip2Model", {"max_length": 20}),
    "siglip": (save_siglip, "SiglipModel", {"max_length": 24, "padding": "max_length"}),
    "siglip2": (save_siglip2, "Siglip2Model", {"max_length": 24, "padding": "max_length"}),
}


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return KINDS[kind][0](tmp_path_factory.mktemp("transformers") / f"tiny-{kind}")


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Encoder:
    return polyglance.load(folder, threads=1)


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return save_clip(tmp_path / "tiny-clip")


def units(rows: list[torch.Tensor]) -> np.ndarray:
    return torch.nn.functional.normalize(torch.cat(rows), dim=1).numpy()


def apart(vectors: np.ndarray) -> float:
    """The smallest difference between two vectors: agreement means nothing if all are equal."""
    return float(1 - np.sort((vectors @ vectors.T)[np.triu_indices(len(vectors), 1)])[-1])


def test_the_model_is_an_encoder(encoder: Encoder, kind: str) -> None:
    assert isinstance(encoder, Encoder)
    assert (encoder.name, encoder.width) == (f"tiny-{kind}", 16 if "sig" in kind else 12)
    assert encoder.encode_texts([]).shape == encoder.encode_pictures([]).shape == (0, encoder.width)


@torch.inference_mode()
def test_text_vectors_agree_with_transformers(encoder: Encoder, folder: Path, kind: str) -> None:
    """The package encodes each text alone; the encoder sorts and pads batches."""
    _, model_class, options = KINDS[kind]
    model = getattr(transformers, model_class).from_pretrained(folder)
    processor = transformers.AutoProcessor.from_pretrained(folder)
    texts = ["", "dog", *TEXTS, " ".join(TEXTS), *(text[:15] for text in TEXTS), "a", "cat"]
    assert len(texts) > 64
    rows = []
    for text in texts:
        tokens = processor.tokenizer([text], truncation=True, return_tensors="pt", **options)
        rows.append(model.get_text_features(**tokens).pooler_output)
    vectors = encoder.encode_texts(texts, language="en")
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, units(rows), atol=1e-5)
    assert apart(vectors[[-1, -2, 0, 1, 2, 3, 4]]) > 1e-4


@torch.inference_mode()
def test_picture_vectors_agree_with_transformers(encoder: Encoder, folder: Path, kind: str) -> None:
    model = getattr(transformers, KINDS[kind][1]).from_pretrained(folder)
    processor = transformers.AutoProcessor.from_pretrained(folder)
    rows = [
        model.get_image_features(
            **processor.image_processor([picture], return_tensors="pt")
        ).pooler_output
        for picture in pictures()
    ]
    vectors = encoder.encode_pictures(pictures())
    np.testing.assert_allclose(vectors, units(rows), atol=1e-5)
    assert apart(vectors) > 1e-4


@torch.inference_mode()
def test_clip_preprocessing_is_that_of_the_paper(clip: Path) -> None:
    """Shorter side to 32 with Pillow's bicubic filter, centre crop, normalised."""
    model, rows = transformers.CLIPModel.from_pretrained(clip), []
    mean = np.float32([0.48145466, 0.4578275, 0.40821073])
    std = np.float32([0.26862954, 0.26130258, 0.27577711])
    for picture in pictures():
        shorter = min(picture.size)
        small = picture.resize(
            (32 * picture.width // shorter, 32 * picture.height // shorter),
            Image.Resampling.BICUBIC,
        )
        left, top = (small.width - 32) // 2, (small.height - 32) // 2
        pixels = np.asarray(small.crop((left, top, left + 32, top + 32)), np.float32) / 255
        normal = torch.from_numpy((pixels - mean) / std).permute(2, 0, 1)[None]
        rows.append(model.get_image_features(normal).pooler_output)
    vectors = polyglance.load(clip).encode_pictures(pictures())
    np.testing.assert_allclose(vectors, units(rows), atol=1e-4)


def test_a_folder_of_an_older_transformers_is_opened(clip: Path, tmp_path: Path) -> None:
    """As openai/clip-vit-base-patch32 on the hub: other files and names of the same things."""
    old = tmp_path / "old"
    shutil.copytree(clip, old)
    settings = json.loads((old / "processor_config.json").read_text())["image_processor"]
    (old / "processor_config.json").unlink()
    del settings["image_processor_type"], settings["do_rescale"], settings["rescale_factor"]
    settings |= {"feature_extractor_type": "CLIPFeatureExtractor", "size": 32, "crop_size": 32}
    (old / "preprocessor_config.json").write_text(json.dumps(settings))
    vocabulary = json.loads((old / "tokenizer.json").read_text())["model"]["vocab"]
    (old / "tokenizer.json").unlink()
    (old / "vocab.json").write_text(json.dumps(vocabulary))
    (old / "merges.txt").write_text("#version: 0.2\n")
    config = json.loads((old / "config.json").read_text())
    config["text_config"]["eos_token_id"] = 2  # a mistake in all old configs
    (old / "config.json").write_text(json.dumps(config))
    new, encoder = polyglance.load(clip), polyglance.load(old)
    np.testing.assert_allclose(encoder.encode_texts(TEXTS), new.encode_texts(TEXTS), atol=1e-5)
    np.testing.assert_allclose(
        encoder.encode_pictures(pictures()), new.encode_pictures(pictures()), atol=1e-5
    )


def test_a_picture_has_the_same_vector_in_every_form(encoder: Encoder, tmp_path: Path) -> None:
    picture = pictures()[0]
    path, turned = tmp_path / "picture.png", tmp_path / "turned.png"
    picture.save(path)
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees for display
    picture.transpose(Image.Transpose.ROTATE_90).save(turned, exif=exif)
    vectors = encoder.encode_pictures([picture, path, str(path), np.asarray(picture), turned])
    np.testing.assert_allclose(vectors, np.repeat(vectors[:1], 5, 0), atol=1e-5)


def test_translated_queries_work_with_any_encoder(encoder: Encoder) -> None:
    picture_vectors = encoder.encode_pictures(pictures())
    german = WordByWord(Dictionary([("dog", "Hund"), ("cat", "Katze")]), "en", "de")
    queries = translate_queries(["dog", "cat", "bird"], "en", [german])
    assert queries["de"] == ["Hund", "Katze", ""]
    english, others = encoder.encode_texts(queries["en"]), encoder.encode_texts(["Hund", "Katze"])
    expected = picture_vectors @ english.T
    expected[:, :2] = (expected[:, :2] + picture_vectors @ others.T) / 2
    np.testing.assert_allclose(
        consistency_scores(encoder, queries, picture_vectors), expected, atol=1e-5
    )


def test_a_library_is_built_and_searched_with_it(clip: Path, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number, picture in enumerate(pictures()):
        picture.save(photos / f"{number}.png")
    library = polyglance.Library(tmp_path / "my.polyglance", model=clip)
    library.add(photos)
    hits = library.search("a dog", k=3)
    encoder = polyglance.load(clip)
    scores = encoder.encode_pictures(pictures()) @ encoder.encode_texts(["a dog"])[0]
    best = np.argsort(-scores)[:3]
    assert [hit.path.stem for hit in hits] == [str(number) for number in best]
    assert [hit.score for hit in hits] == pytest.approx(scores[best].tolist(), abs=1e-4)


def test_opening_is_offline_and_quiet(
    clip: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked for")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(f"socket.socket.{name}", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    encoder = polyglance.load(clip)
    encoder.encode_texts(["a dog"])
    encoder.encode_pictures(pictures()[:1])
    assert capfd.readouterr() == ("", "")


def test_thread_count_is_set_and_restored(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", counts.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    polyglance.load(clip, threads=3).encode_pictures(pictures()[:1])
    assert counts[:2] == [3, 8]
    assert counts[0::2] == [3] * (len(counts) // 2)


def test_missing_weights_are_refused(clip: Path) -> None:
    """transformers initialises missing weights randomly and only warns."""
    weights = load_file(clip / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, clip / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"lacks 1 of its model's weights.*visual_projection"):
        polyglance.load(clip).encode_texts(["a dog"])


def test_a_model_without_an_image_encoder_is_refused(clip: Path, tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 9}
    BertModel(BertConfig(**tiny, intermediate_size=8)).save_pretrained(tmp_path / "bert")
    with pytest.raises(DataError, match="holds a bert, which does not encode both"):
        polyglance.load(tmp_path / "bert").encode_texts(["a dog"])


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "processor_config.json"])
def test_a_damaged_folder_is_refused(clip: Path, name: str) -> None:
    path = clip / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    encoder = polyglance.load(clip)
    with pytest.raises(DataError, match="tiny-clip cannot be opened by transformers"):
        encoder.encode_pictures(pictures()[:1])


def test_remote_code_is_not_run(clip: Path, tmp_path: Path) -> None:
    config = json.loads((clip / "config.json").read_text())
    config |= {
        "model_type": "mine",
        "auto_map": {"AutoModel": "mine.Model", "AutoConfig": "mine.C"},
    }
    (clip / "config.json").write_text(json.dumps(config))
    (clip / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass C: pass\n")
    for refused in (r"code of its own \(auto_map\)", r"code of its own \(mine\.py\)"):
        with pytest.raises(PolyglanceError, match=refused):
            polyglance.load(clip)
        config.pop("auto_map", None)
        (clip / "config.json").write_text(json.dumps(config))
    assert not (tmp_path / "ran").exists()


def test_invalid_arguments_are_refused(clip: Path) -> None:
    encoder = polyglance.load(clip)
    with pytest.raises(PolyglanceError, match="brackets"):
        encoder.encode_texts("a dog")
    with pytest.raises(PolyglanceError, match="number 1 of the texts is 7"):
        encoder.encode_texts(["a dog", 7])  # type: ignore[list-item]
    with pytest.raises(PolyglanceError, match="brackets"):
        encoder.encode_pictures("dog.jpg")
    with pytest.raises(PolyglanceError, match="threads"):
        polyglance.load(clip, threads=0)
    with pytest.raises(PolyglanceError, match="the device 'abacus' cannot be used"):
        polyglance.load(clip, device="abacus")
    with pytest.raises(PolyglanceError, match="the device 'abacus' cannot be used"):
        polyglance.load(device="abacus")
