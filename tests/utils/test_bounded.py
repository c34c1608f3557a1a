"""Files from others that unpack to far more than they are, or are nested too deeply."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import pytest

from polyglance.data.readers.json_files import JsonMembers, load_json
from polyglance.encoders import load
from polyglance.encoders.json_tokenizer import JsonTokenizer
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.encoders.word_vocabulary import WordVocabulary
from polyglance.errors import DataError, Problems
from polyglance.text.dictd import read_dictd
from polyglance.text.translation.ctranslate2_translator import open_argos
from polyglance.utils.bounded import check_zip, decompress_xz, parse_json, read_gzip

DEEP = "[" * 200_000
LIMIT = 1 << 20
BOMB = bytes(32 * LIMIT)


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small bombs are as much over a small limit as large ones over the real one."""
    monkeypatch.setattr("polyglance.utils.bounded.MIN_LIMIT", LIMIT)


@pytest.fixture(scope="module")
def xz_bomb() -> bytes:
    return lzma.compress(BOMB, preset=0)


@pytest.fixture(scope="module")
def gzip_bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gzip") / "captions.json.gz"
    path.write_bytes(gzip.compress(BOMB))
    return path


def test_whole_files_are_read(tmp_path: Path) -> None:
    content = b"some words of a vocabulary\n" * 1000
    assert decompress_xz(lzma.compress(content)) == content
    (tmp_path / "file.gz").write_bytes(gzip.compress(content))
    assert read_gzip(tmp_path / "file.gz") == content
    assert parse_json('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


def test_little_that_unpacks_to_much_is_refused_in_little_memory(
    xz_bomb: bytes, gzip_bomb: Path
) -> None:
    assert 200 * len(xz_bomb) < len(BOMB)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="bytes unpack to more than"):
            decompress_xz(xz_bomb)
        with pytest.raises(ValueError, match="bytes unpack to more than"):
            read_gzip(gzip_bomb)
        assert tracemalloc.get_traced_memory()[1] < len(BOMB)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("damage", ["half", "tail", "empty", "noise"])
def test_damaged_xz_is_an_error(damage: str) -> None:
    whole = lzma.compress(b"words" * 1000)
    content = {"half": whole[:-20], "tail": whole + b"x", "empty": b"", "noise": b"words"}[damage]
    with pytest.raises(ValueError, match=r"\w"):
        decompress_xz(content)


def test_xz_with_a_dictionary_of_a_gigabyte_is_refused() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]
    content = bytearray(lzma.compress(b"words", filters=filters))
    # The block header's byte of the dictionary size, and the header's own checksum.
    place = content.index(bytes([0x21, 0x01])) + 2
    content[place] = 37  # 1.5 GiB
    end = 12 + (content[12] + 1) * 4
    content[end - 4 : end] = zlib.crc32(content[12 : end - 4]).to_bytes(4, "little")
    with pytest.raises(ValueError, match=r"[Mm]emory"):
        decompress_xz(bytes(content))


@pytest.mark.parametrize("kind", [Vocabulary, WordVocabulary, JsonTokenizer])
def test_a_vocabulary_that_is_a_bomb_is_refused_in_one_sentence(
    kind: type[Vocabulary | WordVocabulary | JsonTokenizer], xz_bomb: bytes
) -> None:
    with pytest.raises(DataError, match=r"vocabulary\.xz is damaged \(its .* unpack to more than"):
        kind.from_bytes(xz_bomb, "vocabulary.xz")


def test_a_data_file_that_is_a_bomb_is_reported(gzip_bomb: Path) -> None:
    problems = Problems()
    assert load_json(gzip_bomb, problems, dict) == {}
    assert list(JsonMembers(gzip_bomb, problems).byte_ranges(Problems())) == []
    assert [str(problem).split(" bytes ")[1][:20] for problem in problems.items] == [
        "unpack to more than "
    ] * 2


def test_a_dictionary_that_is_a_bomb_is_refused(gzip_bomb: Path, tmp_path: Path) -> None:
    (tmp_path / "words.index").write_text("word\tA\tB\n")
    (tmp_path / "words.dict.dz").hardlink_to(gzip_bomb)
    with pytest.raises(DataError, match=r"the dictionary is damaged .*unpack to more than"):
        list(read_dictd(tmp_path / "words.index"))


def test_a_package_that_is_a_bomb_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYGLANCE_CACHE", str(tmp_path / "cache"))
    package = tmp_path / "bomb.argosmodel"
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("model/model.bin", BOMB)
    with pytest.raises(DataError, match=r"expected an Argos package .*unpack to more than"):
        open_argos(package, "en", "de")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_package_of_endless_entries_is_not_unpacked() -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for number in range(10_001):
            archive.writestr(str(number), b"")
    with zipfile.ZipFile(content) as archive, pytest.raises(ValueError, match="10,001 entries"):
        check_zip(archive, 1 << 20)


@pytest.mark.parametrize("content", [DEEP, '{"format": ' + DEEP, '{"a":' * 200_000])
def test_a_deep_model_json_is_one_sentence(content: str, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(content)
    with pytest.raises(DataError, match=r"does not describe a model \(it is nested thousands deep"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "modules.json"])
def test_deep_settings_of_other_formats_are_one_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(DEEP)
    with pytest.raises(DataError, match=r"nested thousands deep|holds no known model"):
        load(tmp_path)


def test_deep_metadata_of_a_package_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text(json.dumps({"from_code": "en"})[:-1] + ', "x":' + DEEP)
    with pytest.raises(DataError, match="nested thousands deep"):
        open_argos(tmp_path, "en", "de")
