"""Tiny models converted by CTranslate2's own tools, against transformers with the same weights."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest
from ctranslate2.converters import TransformersConverter

from helpers.sentences import SENTENCES
from helpers.translators import marian_folder, nllb_folder
from polyglance.errors import DataError, MissingExtraError, PolyglanceError
from polyglance.text.translation import ctranslate2_translator, open_translator
from polyglance.text.translation.ctranslate2_translator import CTranslate2Translator
from polyglance.text.translation.transformers_translator import TransformersTranslator

TEXTS = SENTENCES["en"][:6]
LONGEST = 13
"""CTranslate2's limit excludes the end token; transformers' 14 includes the start token."""


def _converted(model: Path, out: Path, files: list[str]) -> Path:
    TransformersConverter(str(model), copy_files=files).convert(str(out))
    return out


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A Marian model, and the same converted."""
    folder = tmp_path_factory.mktemp("models")
    model = marian_folder(folder / "marian")
    return model, _converted(model, folder / "converted", ["source.spm", "target.spm"])


@pytest.fixture
def shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctranslate2_translator, "_MAX_TOKENS", LONGEST)


@pytest.mark.usefixtures("shortly")
def test_converted_marian_equals_transformers(pair: tuple[Path, Path]) -> None:
    model, converted = pair
    expected = TransformersTranslator(model, "en", "de").translate(TEXTS)
    translator = CTranslate2Translator(converted, "en", "de", num_beams=1)
    output = translator.translate(TEXTS)
    # Where it is cut off, transformers forces an end in place of the last piece.
    assert [text[:8] for text in output] == [text[:8] for text in expected]
    assert len({text[:8] for text in output}) > 3
    assert translator.translate([]) == []


@pytest.mark.usefixtures("shortly")
def test_converted_nllb_uses_both_language_tags(tmp_path: Path) -> None:
    model = nllb_folder(tmp_path / "nllb")
    converted = _converted(model, tmp_path / "converted", ["tokenizer.json"])
    for source, target in (("en", "de"), ("de", "zh")):
        expected = TransformersTranslator(model, source, target, num_beams=1).translate(TEXTS)
        output = CTranslate2Translator(converted, source, target, num_beams=1).translate(TEXTS)
        assert [text[:6] for text in output] == [text[:6] for text in expected]
    with pytest.raises(PolyglanceError, match="does not support Swahili"):
        CTranslate2Translator(converted, "en", "sw")


@pytest.mark.usefixtures("shortly")
def test_an_argos_package_as_a_file_and_as_a_folder(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYGLANCE_CACHE", str(tmp_path / "cache"))
    _, converted = pair
    inside = tmp_path / "translate-en_de-1_0"
    shutil.copytree(converted, inside / "model", ignore=shutil.ignore_patterns("*.spm"))
    shutil.copy(converted / "source.spm", inside / "sentencepiece.model")
    about = {"from_code": "en", "to_code": "de", "package_version": "1.0"}
    (inside / "metadata.json").write_text(json.dumps(about))
    package = tmp_path / "translate-en_de.argosmodel"
    with zipfile.ZipFile(package, "w") as zipped:
        for path in inside.rglob("*"):
            zipped.write(path, path.relative_to(tmp_path))
    installed = open_translator(str(inside), "en", "de")
    packed = open_translator(str(tmp_path / "translate-{source}_{target}.argosmodel"), "en", "de")
    output = installed.translate(TEXTS)
    assert len(set(output)) > 3
    assert packed.translate(TEXTS) == output
    assert packed.fingerprint == installed.fingerprint
    with pytest.raises(PolyglanceError, match="translates English to German, not English to Fr"):
        open_translator(str(inside), "en", "fr")
    package.write_bytes(b"no zip")
    with pytest.raises(DataError, match="expected an Argos package"):
        open_translator(str(package), "en", "de")


def test_folder_without_tokenizer_is_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    bare = shutil.copytree(pair[1], tmp_path / "bare", ignore=shutil.ignore_patterns("*.spm"))
    with pytest.raises(DataError, match=r"put the model's source\.spm and target\.spm"):
        open_translator(str(bare), "en", "de")


def test_without_ctranslate2_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctranslate2_translator, "find_spec", lambda name: None)
    (tmp_path / "model.bin").touch()
    with pytest.raises(MissingExtraError, match=r"polyglance\[translate\]"):
        open_translator(str(tmp_path), "en", "de")
