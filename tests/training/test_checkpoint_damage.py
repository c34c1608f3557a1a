"""Damaged checkpoints are never used, and training goes on from the one before."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.checkpoints import Pair, optimiser_of, same, save, step
from polyglance.errors import DataError
from polyglance.training.checkpoints import (
    find_checkpoint,
    find_damage,
    load_checkpoint,
    read_state,
    save_checkpoint,
)

FILES = ("model.safetensors", "optimiser.safetensors", "training.safetensors", "state.json")
Damage = Callable[[Path], object]


def _flip(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 1 << len(content) % 8
    path.write_bytes(content)


def _cut(path: Path, share: float) -> None:
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def _forge_state(folder: Path, **values: object) -> None:
    """Write a state with a checksum that fits, as another program might."""
    path = folder / "state.json"
    state = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in state.items() if value != "lacks"}))
    _forge_sums(folder)


def _forge_sums(folder: Path) -> None:
    path = folder / "SHA256SUMS"
    names = [line.split()[1] for line in path.read_text().splitlines()]
    sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    path.write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))


def damages() -> dict[str, Damage]:
    """All ways in which one file of a checkpoint may be damaged."""
    ways: dict[str, Damage] = {}
    for name in (*FILES, "SHA256SUMS"):
        for place in (0, 0.3, 0.9999, 1):
            ways[f"{name} flipped at {place}"] = lambda f, n=name, p=place: _flip(f / n, p)
        for share in (0, 0.5, 0.99):
            ways[f"{name} cut to {share}"] = lambda f, n=name, s=share: _cut(f / n, s)
        ways[f"{name} gone"] = lambda f, n=name: (f / n).unlink()
        ways[f"{name} of zeros"] = lambda f, n=name: (f / n).write_bytes(
            bytes((f / n).stat().st_size)
        )
    ways["two files swapped"] = lambda f: (
        (f / "model.safetensors").rename(f / "x"),
        (f / "training.safetensors").rename(f / "model.safetensors"),
        (f / "x").rename(f / "training.safetensors"),
    )
    lines = "SHA256SUMS"
    for number in range(4):
        ways[f"{lines} without line {number}"] = lambda f, n=number: (f / lines).write_text(
            "".join(
                line
                for index, line in enumerate((f / lines).read_text().splitlines(keepends=True))
                if index != n
            )
        )
    ways["a checkpoint that is a file"] = lambda f: (shutil.rmtree(f), f.write_text("x"))
    ways["an empty folder"] = lambda f: (shutil.rmtree(f), f.mkdir())
    return ways


@pytest.mark.parametrize("way", list(damages()))
def test_no_damaged_checkpoint_is_used(
    way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one before it is used instead, which is said; without one, the error names a way out."""
    folder = tmp_path / "latest"
    kept = {}
    for number in (1, 2):
        model = kept[number] = Pair(seed=number)
        optimiser = optimiser_of(model)
        step(model, optimiser)
        average = {name: p.detach() + 1 for name, p in model.named_parameters()}
        save_checkpoint(folder, model, optimiser, {"step": number}, average=average, keep=2)
    assert find_damage(folder) is None
    damages()[way](folder)
    with pytest.raises(DataError, match=r"is damaged .*: train into another folder"):
        load_checkpoint(folder, Pair(0))
    found = find_checkpoint(folder)
    assert found == tmp_path / "latest-00000001"
    assert "is damaged" in capsys.readouterr().err
    resumed = Pair(0)
    optimiser = optimiser_of(resumed)
    assert load_checkpoint(found, resumed, optimiser) == {"step": 1}
    assert same(resumed, kept[1])
    damages()[way](found)
    with pytest.raises(DataError, match="no other checkpoint is left: run the same command again"):
        find_checkpoint(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"step": "lacks"}, "it lacks 'step'"),
        ({"step": -1}, "its 'step' is -1"),
        ({"step": True}, "its 'step' is True"),
        ({"step": 1.5}, "its 'step' is 1.5"),
        ({"step": None}, "its 'step' is None"),
        ({"config": []}, r"its 'config' is \[\]"),
        ({"stopped": 0}, "its 'stopped' is 0"),
    ],
)
def test_a_state_must_fit_its_schema(
    values: dict[str, object], message: str, tmp_path: Path
) -> None:
    schema = {"step": (int,), "config": (dict,), "stopped": (bool,)}
    model = Pair(0)
    state = {"step": 3, "config": {}, "stopped": False}
    save_checkpoint(tmp_path / "latest", model, optimiser_of(model), state)
    assert read_state(tmp_path / "latest", schema) == state
    _forge_state(tmp_path / "latest", **values)
    assert find_damage(tmp_path / "latest") is None
    with pytest.raises(DataError, match=f"{message}.*; train into another folder"):
        read_state(tmp_path / "latest", schema)


@pytest.mark.parametrize("content", ["[]", "3", "[" * 200_000, '{"step": NaN', ""])
def test_a_state_that_is_no_object_is_one_sentence(content: str, tmp_path: Path) -> None:
    save(tmp_path / "latest")
    (tmp_path / "latest" / "state.json").write_text(content)
    with pytest.raises(DataError, match="the checkpoint does not fit this run"):
        read_state(tmp_path / "latest")
