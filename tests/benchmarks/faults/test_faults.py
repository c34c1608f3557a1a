"""The fault campaign notices what it is there to notice."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

import pytest

from benchmarks.faults import checkpoints, damage, hostile_files, trials
from benchmarks.faults.trials import Command, Tally, compare
from benchmarks.reports.durability_page import table
from polyglance.errors import DataError


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        ({"a": b"1", "b": b"2"}, "right"),
        ({"a": b"1"}, "lost"),
        ({"a": b"2", "b": b"1"}, "wrong"),
        ({"a": b"1", "b": b"2", "c": b"3"}, "wrong"),
        ({}, "lost"),
    ],
)
def test_contents_are_compared(found: trials.Contents, outcome: str) -> None:
    assert compare(found, {"a": b"1", "b": b"2"})[0] == outcome


def _hang() -> None:
    while True:
        os.sched_yield()


def _fail() -> None:
    raise ValueError("a mistake of ours")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_ends_of_commands_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(prepare: object, *arguments: str) -> tuple[str | None, int | None]:
        command = Command(*arguments, prepare=prepare, log=tmp_path / "log")  # type: ignore[arg-type]
        return command.finish(), command.status

    place = str(tmp_path / "nowhere.polyglance")
    assert end(None, "library", "info", "--library", place) == (None, 2)
    assert "nowhere.polyglance" in (tmp_path / "log").read_text()
    assert end(_fail)[0] == "traceback"
    assert end(_die)[0] == "traceback"
    monkeypatch.setattr(trials, "DEADLINE", 0.3)
    assert end(_hang)[0] == "endless"


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Path]:
    """The weights of an undisturbed run, and a run that was stopped half-way."""
    return checkpoints.prepare(tmp_path_factory.mktemp("training"))


def test_a_resumed_run_ends_with_the_same_weights(half: tuple[bytes, Path]) -> None:
    expected, folder = half
    assert checkpoints.Run(folder).judge(expected) == ("right", "")
    assert checkpoints.Run(folder).judge(expected[::-1])[0] == "wrong"


def test_ways_of_damage_change_a_file(tmp_path: Path) -> None:
    rng = random.Random(0)
    path = tmp_path / "file"
    for way in checkpoints.WAYS:
        for content in (bytes(2000), b"words" * 400):
            path.write_bytes(content)
            way(path, rng)
            assert not path.exists() or path.read_bytes() != content


def test_the_page_says_what_went_wrong() -> None:
    good, bad = Tally("kills"), Tally("swaps")
    good.add("right")
    good.add("refused")
    bad.add("wrong", "one vector of another file")
    results = {"hardware": "a machine", "date": "today", "faults": {"kills": good.as_json()}}
    results["faults"]["kills"]["fault"] = "kills"  # type: ignore[index]
    assert "In 2 trials nothing was lost" in table(results)
    results["faults"]["swaps"] = bad.as_json() | {"fault": "swaps"}  # type: ignore[index]
    assert "In 3 trials 1 wrong (a machine, today)." in table(results)
    assert "| swaps | 1 | 0 | 0 | 0 | 1 | 0 | 0 |" in table(results)
    assert bad.as_json()["notes"] == ["wrong: one vector of another file"]


def _case(number: int, outcome: str) -> dict[str, object]:
    steps = dict.fromkeys(damage.STEPS, (outcome, ""))
    return {"number": number, "place": 7, "kind": "first", "steps": steps}


def test_flipped_bytes_go_on_where_they_were_killed(tmp_path: Path) -> None:
    log = tmp_path / "damage.partial.jsonl"
    head = {"count": 3, "pictures": 4, "seed": 0, "commit": damage.environment()["commit"]}
    lines = [head, _case(0, "wrong"), _case(2, "refused")]
    log.write_text("\n".join(map(json.dumps, lines)) + '\n{"number": 1, "pla')
    *_, figures = damage.measure(3, 4, 0, log=log)  # runs case 1 only
    assert figures["places"] == 3
    assert figures["steps"]["search"]["wrong"] == 1
    assert sum(figures["steps"]["repair"].values()) == 3
    assert not log.exists()


def test_flipped_bytes_of_other_settings_are_not_counted(tmp_path: Path) -> None:
    log = tmp_path / "damage.partial.jsonl"
    head = {"count": 1, "pictures": 4, "seed": 0, "commit": "another"}
    log.write_text(json.dumps(head) + "\n" + json.dumps(_case(0, "wrong")) + "\n")
    assert damage._read_log(log, {**head, "commit": "this"}) == {}
    assert not log.exists()


def test_files_changed_to_harm_decoders_are_told_apart() -> None:
    def fail(error: Exception) -> tuple[str, str]:
        def work() -> None:
            raise error

        return hostile_files.attempt(work)

    assert hostile_files.attempt(lambda: None)[0] == "right"
    assert fail(DataError("a.heic: is damaged"))[0] == "refused"
    assert fail(DataError("a.heic: is damaged\nin two lines"))[0] == "wrong"
    assert fail(DataError("a" * 1000))[0] == "wrong"
    assert fail(KeyError("meta"))[0] == "traceback"


def test_changed_files_are_reproducible_and_other_than_the_sound_one() -> None:
    data, other = bytes(range(256)) * 8, b"other" * 400
    made = [
        [hostile_files.changed(data, other, rng) for _ in range(50)]
        for rng in (random.Random(1), random.Random(1), random.Random(2))
    ]
    assert made[0] == made[1] != made[2]
    assert sum(content != data for content in made[0]) > 45
    assert all(made[0])
