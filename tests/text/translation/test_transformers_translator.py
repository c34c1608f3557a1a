"""Against transformers' own generation, one text at a time, with models saved by it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from helpers.sentences import SENTENCES
from helpers.translators import m2m100_folder, marian_folder, mbart_folder, nllb_folder
from polyglance.errors import DataError, MissingExtraError, PolyglanceError
from polyglance.text.translation import transformers_translator
from polyglance.text.translation.transformers_translator import TransformersTranslator

TEXTS = SENTENCES["en"][:6]


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marian_folder(tmp_path_factory.mktemp("models") / "opus-mt-en-de")


@pytest.fixture(scope="module")
def nllb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nllb_folder(tmp_path_factory.mktemp("models") / "nllb")


def alone(folder: Path, texts: list[str], language: str | None = None, **options: Any) -> list[str]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    how = {} if language is None else {"forced_bos_token_id": tokenizer.get_vocab()[language]}
    output = []
    for text in texts:
        found = model.generate(**tokenizer(text, return_tensors="pt"), **how)[0]
        output.append(" ".join(tokenizer.decode(found, skip_special_tokens=True).split()))
    return output


def test_marian_batch_equals_single_texts(marian: Path) -> None:
    translator = TransformersTranslator(marian, "en", "deu")
    assert (translator.source, translator.target, translator.name) == ("en", "de", "opus-mt-en-de")
    output = translator.translate(TEXTS)
    assert output == alone(marian, TEXTS)
    assert len(set(output)) > 3, "the output must depend on the input"
    assert translator.translate([]) == []


def test_nllb_uses_both_language_tags(nllb: Path) -> None:
    german = TransformersTranslator(nllb, "en", "de").translate(TEXTS)
    chinese = TransformersTranslator(nllb, "de", "zh").translate(TEXTS)
    assert german == alone(nllb, TEXTS, "deu_Latn", src_lang="eng_Latn")
    assert chinese == alone(nllb, TEXTS, "zho_Hans", src_lang="deu_Latn")
    assert german != chinese
    with pytest.raises(PolyglanceError, match="does not support Swahili, only de, en, zh"):
        TransformersTranslator(nllb, "en", "sw")
    with pytest.raises(PolyglanceError, match="does not support Swahili"):
        TransformersTranslator(nllb, "sw", "de")


def test_m2m100_has_other_tags(tmp_path: Path) -> None:
    folder = m2m100_folder(tmp_path / "m2m100")
    output = TransformersTranslator(folder, "de", "zh").translate(TEXTS)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, src_lang="de")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    target = tokenizer.get_lang_id("zh")
    for text, one in zip(TEXTS, output, strict=True):
        found = model.generate(**tokenizer(text, return_tensors="pt"), forced_bos_token_id=target)
        assert one == " ".join(tokenizer.decode(found[0], skip_special_tokens=True).split())
    assert output != TransformersTranslator(folder, "en", "de").translate(TEXTS)
    with pytest.raises(PolyglanceError, match=r"does not support Latin, only af, am, ar.* more"):
        TransformersTranslator(folder, "en", "la")


def test_mbart_has_tags_with_countries(tmp_path: Path) -> None:
    folder = mbart_folder(tmp_path / "mbart")
    output = TransformersTranslator(folder, "de", "fr").translate(TEXTS)
    assert output == alone(folder, TEXTS, "fr_XX", src_lang="de_DE")
    assert output != alone(folder, TEXTS, "cs_CZ", src_lang="de_DE")


def test_a_marian_of_several_targets_is_given_the_tag(tmp_path: Path) -> None:
    folder = marian_folder(tmp_path / "en-mul", tags=[">>deu<<", ">>fra<<"])
    french = TransformersTranslator(folder, "en", "fr").translate(TEXTS)
    assert french == alone(folder, [f">>fra<< {text}" for text in TEXTS])
    assert french != TransformersTranslator(folder, "en", "de").translate(TEXTS)
    with pytest.raises(PolyglanceError, match="does not support Czech, only de, fr"):
        TransformersTranslator(folder, "en", "cs")


def test_another_pair_is_refused(marian: Path) -> None:
    with pytest.raises(PolyglanceError, match="has German as its target, not French"):
        TransformersTranslator(marian, "en", "fr")
    with pytest.raises(PolyglanceError, match="has English as its source, not German"):
        TransformersTranslator(marian, "de", "de")


def test_fingerprint_depends_on_weights_and_beams_not_the_name(
    marian: Path, tmp_path: Path
) -> None:
    first = TransformersTranslator(marian, "en", "de")
    copy = Path(shutil.copytree(marian, tmp_path / "renamed"))
    (copy / "README.md").write_text("a note")
    assert TransformersTranslator(copy, "en", "de").fingerprint == first.fingerprint
    assert TransformersTranslator(copy, "en", "de", num_beams=3).fingerprint != first.fingerprint
    changed = Path(shutil.copytree(marian, tmp_path / "changed"))
    weights = bytearray((changed / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (changed / "model.safetensors").write_bytes(weights)
    assert TransformersTranslator(changed, "en", "de").fingerprint != first.fingerprint


def test_weights_as_helsinki_publishes_them_run_no_code(marian: Path, tmp_path: Path) -> None:
    published = Path(shutil.copytree(marian, tmp_path / "published"))
    weights = load_file(published / "model.safetensors")
    (published / "model.safetensors").unlink()
    torch.save(weights, published / "pytorch_model.bin")
    (published / "tokenizer_config.json").write_text('{"source_lang": "en", "target_lang": "de"}')
    assert TransformersTranslator(published, "en", "de").translate(TEXTS) == alone(marian, TEXTS)
    torch.save({**weights, "code": Writes(tmp_path / "ran")}, published / "pytorch_model.bin")
    transformers_translator._model.cache_clear()
    with pytest.raises(DataError, match="cannot be opened by transformers"):
        TransformersTranslator(published, "en", "de").translate(TEXTS)
    assert not (tmp_path / "ran").exists()


class Writes:
    """Writes a file when a pickle with it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.path, "ran")


def test_unsupported_folders_are_refused(marian: Path, tmp_path: Path) -> None:
    empty = Path(shutil.copytree(marian, tmp_path / "empty"))
    (empty / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"has no weights: download its model\.safetensors"):
        TransformersTranslator(empty, "en", "de")
    other = Path(shutil.copytree(marian, tmp_path / "other"))
    (other / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(DataError, match="holds a bert"):
        TransformersTranslator(other, "en", "de")
    torn = Path(shutil.copytree(marian, tmp_path / "torn"))
    (torn / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(DataError, match="cannot be opened by transformers"):
        TransformersTranslator(torn, "en", "de").translate(["a dog"])


def test_without_transformers_the_extra_is_named(
    marian: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers_translator, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"polyglance\[train\]"):
        TransformersTranslator(marian, "en", "de")
