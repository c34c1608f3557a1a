from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from helpers.colour_encoder import write_image
from polyglance.cli import app, main
from polyglance.search.bulk import encoding as bulk
from polyglance.search.bulk.encoding import BulkReport, Worker
from polyglance.search.bulk.shards import ShardFolder


def error_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> str:
    monkeypatch.setattr("sys.argv", ["polyglance", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    return message


def test_encode_and_import_print_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace Ray by one worker in this process."""

    class LocalCluster:
        def __enter__(self) -> int:
            return 1

        def __exit__(self, *_: object) -> None:
            pass

    def outcomes(folder: ShardFolder, pending: list[int], _: int, threads: int, limits: object):
        worker = Worker(folder.path, threads)
        return (worker.encode(number) for number in pending)

    monkeypatch.setattr(bulk, "cluster", lambda *_: LocalCluster())
    monkeypatch.setattr(bulk, "_run_workers", outcomes)
    photos, shards = tmp_path / "photos", str(tmp_path / "shards")
    for number in range(3):
        write_image(photos / f"{number}.png", (number, 0, 0))
    (photos / "torn.jpg").write_bytes(b"x")

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    output = run("encode", str(photos), "--out", shards, "--shard-size", "2")
    assert "torn.jpg: is not a picture of a known kind" in output
    assert "3 encoded in" in output
    assert "2 shards, 0 of them from before" in output
    (tmp_path / "shards" / "shards" / "000001.parquet").unlink()
    library = str(tmp_path / "my.polyglance")
    output = run("library", "import", shards, "-l", library)
    assert "2 added" in output
    assert "1 shards not encoded yet" in output
    assert f"the folder {photos} was not added, since you have not confirmed it" in output
    assert "1 encoded" in run("encode", "--out", shards)
    assert "nothing to encode" in run("encode", "--out", shards)
    output = run("library", "import", shards, "-l", library)
    assert "1 added, 2 unchanged" in output
    assert "was not added" not in run("library", "import", shards, "-l", library, "--trust")
    assert f"folder      {photos}" in run("library", "info", "-l", library)
    assert "3 in all" in output
    assert "1 skipped" not in output
    assert "torn.jpg" in output


def test_report_is_one_sentence() -> None:
    done = BulkReport(files=3000, shards=4, previous_shards=1, seconds=100.0)
    assert str(done) == "3,000 encoded in 100 s, 30.0 a second; 4 shards, 1 of them from before"


def test_errors_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = str(tmp_path / "shards")
    for arguments, message in (
        (("encode", "--out", shards), "there are no shards here"),
        (("encode", str(tmp_path / "no"), "--out", shards), "no such file or folder"),
        (("library", "import", shards, "-l", str(tmp_path / "l")), "there are no shards here"),
    ):
        assert message in error_of(capsys, monkeypatch, *arguments)


def test_missing_ray_names_the_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    message = error_of(capsys, monkeypatch, "encode", str(tmp_path), "--out", str(tmp_path / "s"))
    assert "pip install 'polyglance[ray]'" in message
