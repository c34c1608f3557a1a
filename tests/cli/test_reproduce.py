"""The command line of `polyglance reproduce` and of what makes its toy data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from polyglance.cli import app
from polyglance.errors import PolyglanceError
from polyglance.reproduce import toy
from polyglance.reproduce.run import Reproduced
from polyglance.reproduce.toy import Learned


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def test_list_names_all_targets_and_what_is_not_measured() -> None:
    lines = invoke("--list").output.splitlines()
    names = [line.split()[0] for line in lines]
    assert {"uc2/table1", "m3p/table2", "mmp/figure2", "smalr/table1", "flickr8k/uc2"} <= set(names)
    (drawing,) = (line for line in lines if line.startswith("uc2/figure1 "))
    assert "[not measured: a drawing" in drawing


def test_data_needed_says_how_to_lay_it_out() -> None:
    text = invoke("uc2/table1", "--data-needed").output
    assert "DATA/multi30k" in text
    assert "dataset_flickr30k.json" in text  # from the recipe's first lines
    assert "polyglance features regions" in text
    assert "needs no data" in invoke("uc2/figure2", "--data-needed").output


def test_toy_fails_where_nothing_was_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for measured, code in ((40.0, 0), (9.0, 1)):
        outcome = Learned("ours", measured, 8.9, 10)
        monkeypatch.setattr(
            toy, "reproduce_toy", lambda *_, o=outcome, **__: (Reproduced(None, []), o)
        )
        result = invoke("uc2/table4", "--toy", "--out", tmp_path)
        assert result.exit_code == code
        assert f"learned: ours: {measured}, by chance 8.9" in result.output


def test_contradictory_options_are_refused(tmp_path: Path) -> None:
    for arguments, problem in (
        ((), "name a target such as uc2/table1"),
        (("uc2/table4", "--toy", "--data", tmp_path), "leave --data and --set out"),
        (("uc2/table4", "--seeds", "0,0", "--toy"), "seeds must be different"),
        (("uc2/table4", "--jobs", "0", "--toy"), "jobs is 0"),
    ):
        error = invoke(*arguments).exception
        assert isinstance(error, PolyglanceError)
        assert problem in str(error)


def test_toy_data_reach_a_store_and_an_encoder_by_command(tmp_path: Path) -> None:
    run = CliRunner()
    made = run.invoke(
        app, ["data", "toy", str(tmp_path / "toy"), "--pictures", "20", "--clips", "0"]
    )
    assert made.exit_code == 0, made.output
    regions = ["features", "regions", str(tmp_path / "toy" / "regions")]
    stored = run.invoke(app, [*regions, "--out", str(tmp_path / "store"), "--labels", "2"])
    assert "20 of 20 stored" in stored.output
    tiny = ["weights", "tiny", str(tmp_path / "toy" / "train.jsonl")]
    encoder = tmp_path / "encoder"
    result = run.invoke(app, [*tiny, "--out", str(encoder), "--layers", "1", "--hidden-size", "8"])
    assert "1 layers, 8 wide" in result.output, result.output
    from polyglance.nn.pretrained import load_encoder
    from polyglance.text import open_tokenizer

    assert load_encoder(encoder).config.hidden_size == 8
    assert open_tokenizer(encoder).vocab_size > 50
    again = run.invoke(app, [*tiny, "--out", str(encoder)]).exception
    assert "holds a model already" in str(again)
    many = tmp_path / "many.jsonl"
    texts = ["".join(map(chr, range(start, start + 90))) for start in range(0x4E00, 0x5200, 90)]
    many.write_text(json.dumps({"captions": {"zh": texts}}), encoding="utf-8")
    chinese = ["weights", "tiny", str(many), "--out", str(tmp_path / "chinese")]
    few = run.invoke(app, chinese).exception
    assert "600 sub-words are too few for texts of 1080 different characters" in str(few)
    advised = str(few).rpartition(" ")[2]
    made = run.invoke(app, [*chinese, "--vocab-size", advised])
    assert made.exit_code == 0, made.output
