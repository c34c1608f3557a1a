from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers

from polyglance.errors import DataError, MissingExtraError, PolyglanceError
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.text.huggingface import FastTokenizer, SlowTokenizer
from polyglance.weights.unigram import xlmr_tokenizer

PIECES = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), ("a", -1.0),
          ("▁ab", -1.5), ("b", -3.0), ("<mask>", 0.0)]  # fmt: skip
WORDPIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ein", "hund", "##e", "am", ",", "ö"]


@pytest.fixture
def bert_folder(tmp_path: Path) -> Path:
    """A folder as old mBERT checkpoints have it: a vocabulary and no tokenizer.json."""
    (tmp_path / "vocab.txt").write_text("\n".join(WORDPIECES) + "\n", encoding="utf-8")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    return tmp_path


def test_tokenizer_json_opens_without_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    xlmr_tokenizer(PIECES, None).save(str(tmp_path / "tokenizer.json"))
    monkeypatch.setattr("polyglance.text.huggingface.find_spec", lambda name: None)
    tokenizer = open_tokenizer(tmp_path)
    assert isinstance(tokenizer, Tokenizer)
    assert tokenizer.encode("ab a") == [0, 6, 4, 5, 2]
    assert open_tokenizer(tmp_path / "tokenizer.json").encode("ab a") == [0, 6, 4, 5, 2]


def test_padding_and_truncation_of_the_file_are_disabled(tmp_path: Path) -> None:
    backend = xlmr_tokenizer(PIECES, None)
    backend.enable_truncation(3)
    backend.enable_padding(pad_id=1, length=10)
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = open_tokenizer(tmp_path)
    assert tokenizer.encode_batch(["ab a ab", "b"]) == [[0, 6, 4, 5, 6, 2], [0, 4, 7, 2]]


def test_roles_come_from_the_config_files(tmp_path: Path) -> None:
    renamed = [(name.replace("<mask>", "<hidden>"), score) for name, score in PIECES]
    backend = xlmr_tokenizer(renamed, None)
    backend.save(str(tmp_path / "tokenizer.json"))
    assert open_tokenizer(tmp_path).mask_id is not None  # `<mask>`, added behind the vocabulary
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"mask_token": {"content": "<hidden>"}, "cls_token": "<s>", "bos_token": None})
    )
    tokenizer = open_tokenizer(tmp_path)
    assert tokenizer.mask_id == 8
    assert tokenizer.bos_id == 0


def test_a_vocabulary_alone_is_opened_with_transformers(bert_folder: Path) -> None:
    tokenizer = open_tokenizer(bert_folder)
    theirs = transformers.AutoTokenizer.from_pretrained(bert_folder)
    assert isinstance(tokenizer, FastTokenizer)
    assert tokenizer.encode("Ein Hunde, am Ö Berg") == theirs("Ein Hunde, am Ö Berg").input_ids
    add_special_tokens = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id)
    assert add_special_tokens == (0, 1, 2, 3)
    assert tokenizer.mask_id == 4
    assert tokenizer.encode("ein hund am", max_length=4) == [2, 5, 6, 3]
    assert tokenizer.decode([2, 5, 6, 7, 3]) == "ein hunde"


def test_without_transformers_the_extra_is_named(
    bert_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polyglance.text.huggingface.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"polyglance\[train\]"):
        open_tokenizer(bert_folder)


def test_slow_tokenizer(tmp_path: Path) -> None:
    transformers.ByT5Tokenizer().save_pretrained(tmp_path / "byt5")
    tokenizer = open_tokenizer(tmp_path / "byt5")
    assert isinstance(tokenizer, SlowTokenizer)
    assert isinstance(tokenizer, Tokenizer)
    ids = [*(byte + 3 for byte in "hé".encode()), 1]
    assert tokenizer.encode("hé") == ids
    assert tokenizer.encode("hé", add_special_tokens=False) == ids[:-1]
    assert tokenizer.encode("hé", max_length=2) == [ids[0], 1]
    assert tokenizer.encode_batch(["hé", ""]) == [ids, [1]]
    assert tokenizer.decode(ids) == "hé"
    found = tokenizer.encode_with_spans("hé")
    assert (found.ids, found.spans) == (ids, None)
    assert found.tokens[0] == "h"
    tokenizer.save(tmp_path / "again")
    assert open_tokenizer(tmp_path / "again").encode("hé") == ids


def test_save_and_open_round_trip(tmp_path: Path) -> None:
    tokenizer = FastTokenizer(xlmr_tokenizer(PIECES, None))
    tokenizer.save(tmp_path / "new" / "folder")
    again = open_tokenizer(tmp_path / "new" / "folder")
    assert again.encode("ab <mask> ba") == tokenizer.encode("ab <mask> ba")
    assert again.mask_id == tokenizer.mask_id == 8


class TestWhatIsWrong:
    def test_a_broken_tokenizer_json(self, tmp_path: Path) -> None:
        (tmp_path / "tokenizer.json").write_text('{"version": "1.0"')
        with pytest.raises(DataError, match="expected a tokenizer"):
            open_tokenizer(tmp_path)

    @pytest.mark.parametrize("content", ["[]", "{", '"x"'])
    def test_broken_settings(self, tmp_path: Path, content: str) -> None:
        xlmr_tokenizer(PIECES, None).save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "tokenizer_config.json").write_text(content)
        with pytest.raises(DataError, match=r"tokenizer_config\.json: expected a JSON object"):
            open_tokenizer(tmp_path)

    def test_a_folder_without_tokenizer(self, tmp_path: Path) -> None:
        with pytest.raises(PolyglanceError, match="no tokenizer") as caught:
            open_tokenizer(tmp_path)
        assert "\n" not in str(caught.value)

    def test_a_file_of_another_kind(self, tmp_path: Path) -> None:
        (tmp_path / "photo.jpg").touch()
        with pytest.raises(PolyglanceError, match="is not a tokenizer"):
            open_tokenizer(tmp_path / "photo.jpg")

    def test_missing_path_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(PolyglanceError, match="no such folder"):
            open_tokenizer(tmp_path / "missing")
