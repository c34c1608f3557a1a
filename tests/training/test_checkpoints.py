from __future__ import annotations

import errno
import json
import os
import resource
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from helpers.checkpoints import Pair, optimiser_of, same, save, step
from polyglance.errors import DataError, PolyglanceError
from polyglance.training.checkpoints import (
    Snapshot,
    find_checkpoint,
    has_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from polyglance.training.state_tensors import count_bytes


def test_training_resumes_exactly_from_a_checkpoint(tmp_path: Path) -> None:
    model, optimiser = save(tmp_path / "latest")
    other = Pair(seed=1)
    other_optimiser = optimiser_of(other)
    assert load_checkpoint(tmp_path / "latest", other, other_optimiser) == {"step": 1}
    assert other.again is other.second
    for _ in range(3):
        step(model, optimiser)
        step(other, other_optimiser)
    assert same(model, other)


def test_missing_checkpoint_returns_none(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path / "latest", Pair(0)) is None


def test_tied_weights_are_written_once_and_nothing_is_pickled(tmp_path: Path) -> None:
    save(tmp_path / "latest")
    names = load_file(tmp_path / "latest" / "model.safetensors").keys()
    assert "second.weight" in names
    assert "again.weight" not in names
    files = {path.name for path in (tmp_path / "latest").iterdir()}
    assert files == {"model.safetensors", "optimiser.safetensors", "state.json", "SHA256SUMS"}
    assert {path.name for path in tmp_path.iterdir()} == {"latest"}


@pytest.mark.parametrize("stop_before", ["first", "second"])
def test_interrupted_save_keeps_the_old_checkpoint(
    stop_before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saving moves two folders: the old one away, then the new one to its place."""
    old, _ = save(tmp_path / "latest", seed=0, number=1)
    moves = iter(["first", "second"])

    def stop(source: Path, target: Path) -> None:
        if next(moves) == stop_before:
            raise KeyboardInterrupt
        source.rename(target)

    with monkeypatch.context() as patched:
        patched.setattr("polyglance.training.checkpoints.os.replace", stop)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path / "latest", seed=1, number=2)
    found = Pair(seed=2)
    assert load_checkpoint(tmp_path / "latest", found) == {"step": 1}
    assert same(found, old)
    # The next attempt must not throw the old one away before the new one is in its place.
    with monkeypatch.context() as patched:
        patched.setattr("polyglance.training.checkpoints.os.replace", _stop)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path / "latest", seed=1, number=2)
    assert load_checkpoint(tmp_path / "latest", found) == {"step": 1}
    new, _ = save(tmp_path / "latest", seed=1, number=3)
    assert find_checkpoint(tmp_path / "latest") == tmp_path / "latest"
    assert load_checkpoint(tmp_path / "latest", found) == {"step": 3}
    assert same(found, new)
    assert {path.name for path in tmp_path.iterdir()} == {"latest"}


def _stop(source: Path, target: Path) -> None:
    raise KeyboardInterrupt


def test_full_disk_is_reported_and_keeps_the_old_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "latest"
    model, _ = save(folder)
    # A real limit: files of this many bytes and no more.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(PolyglanceError) as error:
            save(folder, seed=1, number=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"cannot write a checkpoint to {folder} (" in str(error.value)
    assert "free disk space" in str(error.value)
    fresh = Pair(2)
    assert load_checkpoint(folder, fresh, optimiser_of(fresh)) == {"step": 1}
    assert same(fresh, model)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest"]


@pytest.mark.parametrize("file", ["model.safetensors", "optimiser.safetensors", "state.json"])
def test_disk_that_fills_up_half_way_keeps_the_old_checkpoint(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = save(tmp_path / "latest")

    def half(path: Path) -> None:
        path.write_bytes(b"half of a file")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def save_half(tensors: dict[str, Tensor], path: Path) -> None:
        half(path) if path.name == file else save_file(tensors, path)

    def write_half(path: Path, text: str, encoding: str) -> None:
        half(path) if path.name == file else path.write_bytes(text.encode(encoding))

    with monkeypatch.context() as patched:
        patched.setattr("polyglance.training.checkpoints.save_file", save_half)
        patched.setattr(Path, "write_text", write_half)
        with pytest.raises(PolyglanceError, match=r"No space left.*: free disk space"):
            save(tmp_path / "latest", seed=1, number=2)
    assert [path.name for path in tmp_path.iterdir()] == ["latest"]
    found = Pair(seed=2)
    assert load_checkpoint(tmp_path / "latest", found, optimiser_of(found)) == {"step": 1}
    assert same(found, model)


def test_last_checkpoints_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "latest"
    assert not has_checkpoint(folder)
    models = {number: save(folder, number, number, keep=3)[0] for number in (5, 10, 15, 20)}
    names = sorted(path.name for path in folder.parent.iterdir())
    assert names == ["latest", "latest-00000010", "latest-00000015"]
    for number, name in ((20, "latest"), (15, "latest-00000015"), (10, "latest-00000010")):
        found = Pair(seed=0)
        assert load_checkpoint(folder.parent / name, found) == {"step": number}
        assert same(found, models[number])
    shutil.rmtree(folder)  # killed between the two moves of saving
    assert has_checkpoint(folder)
    assert find_checkpoint(folder) == folder.parent / "latest-00000015"
    save(folder, number=25, keep=1)
    assert [path.name for path in folder.parent.iterdir()] == ["latest"]


def test_damaged_checkpoint_gives_way_to_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "latest"
    for number in (5, 10):
        save(folder, number=number, keep=2)
    (folder / "optimiser.safetensors").write_bytes(b"garbage")
    assert find_checkpoint(folder) == tmp_path / "latest-00000005"
    message = capsys.readouterr().err
    assert f"{folder} is damaged (optimiser.safetensors does not match its checksum)" in message
    assert f"resuming from {tmp_path / 'latest-00000005'}" in message
    # The damaged one is not counted among those that are kept.
    save(folder, number=10, keep=2)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["latest", "latest-00000005", "latest.damaged"]
    for name in ("latest", "latest-00000005"):
        (tmp_path / name / "state.json").unlink()
    with pytest.raises(DataError, match="no other checkpoint is left"):
        find_checkpoint(folder)
    assert find_checkpoint(folder) is None


def test_averaged_weights_are_the_checkpoint_and_training_goes_on_from_others(
    tmp_path: Path,
) -> None:
    model = Pair(0)
    optimiser = optimiser_of(model)
    step(model, optimiser)
    average = {name: p.detach() + 1 for name, p in model.named_parameters()}
    save_checkpoint(tmp_path / "latest", model, optimiser, {"step": 1}, average=average)
    used = Pair(1)
    load_checkpoint(tmp_path / "latest", used)
    resumed, found = Pair(1), {name: torch.zeros_like(value) for name, value in average.items()}
    load_checkpoint(tmp_path / "latest", resumed, optimiser_of(resumed), average=found)
    assert same(model, resumed)
    for name, value in average.items():
        assert torch.equal(found[name], value)
        assert torch.equal(dict(used.named_parameters())[name], value)


def test_optimiser_state_is_stored_by_parameter_name(tmp_path: Path) -> None:
    save(tmp_path / "latest")
    model = Pair(seed=0)
    model.first.bias.requires_grad_(False)
    with pytest.raises(DataError, match=r"first\.bias"):
        load_checkpoint(tmp_path / "latest", model, optimiser_of(model))
    model.first.bias.requires_grad_(True)
    backwards = torch.optim.AdamW(list(model.parameters())[::-1])
    load_checkpoint(tmp_path / "latest", model, backwards)
    assert backwards.state[model.norm.bias]["exp_avg"].shape == model.norm.bias.shape
    saved = load_file(tmp_path / "latest" / "optimiser.safetensors")
    for name, parameter in model.named_parameters():
        assert torch.equal(backwards.state[parameter]["exp_avg"], saved[f"{name}/exp_avg"])


def test_mismatched_models_and_broken_files_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "latest"
    save(folder)
    for other in (Pair(0, width=4), nn.Linear(3, 3)):
        with pytest.raises(DataError, match="does not fit this run") as wide:
            load_checkpoint(folder, other)
        assert "\n" not in str(wide.value)
    whole = (folder / "model.safetensors").read_bytes()
    broken = (whole[:-4], whole[:-1] + bytes([whole[-1] ^ 1]), b"", b"garbage")
    for content in broken:
        (folder / "model.safetensors").write_bytes(content)
        with pytest.raises(DataError, match=r"is damaged \(model.* train into another folder"):
            load_checkpoint(folder, Pair(0))
    (folder / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"is damaged \(.*No such file"):
        load_checkpoint(folder, Pair(0))
    # Runs made before there were checksums are read all the same, which is said.
    (folder / "SHA256SUMS").unlink()
    (folder / "model.safetensors").write_bytes(whole)
    with pytest.raises(DataError, match=r"is damaged .SHA256SUMS is missing"):
        load_checkpoint(folder, Pair(0))
    (folder / "state.json").write_text(json.dumps({"step": 1}))
    assert load_checkpoint(folder, Pair(0)) == {"step": 1}
    assert f"{folder} has no checksums" in capsys.readouterr().err
    (folder / "model.safetensors").write_bytes(whole[:-4])
    with pytest.raises(DataError, match=r"does not fit this run .*; train into another folder"):
        load_checkpoint(folder, Pair(0))
    (folder / "state.json").write_text(json.dumps({"step": 1})[:-3])
    with pytest.raises(DataError, match=r"is damaged .*: train into another folder"):
        load_checkpoint(folder, Pair(0))


def test_files_and_folders_are_on_the_disk_before_the_old_checkpoint_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "run" / "latest")
    events: list[str] = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(descriptor: int) -> None:
        events.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)
        real_sync(descriptor)

    def replace(source: Path, target: Path) -> None:
        events.append(f"{source.name} to {target.name}")
        real_replace(source, target)

    monkeypatch.setattr("polyglance.training.checkpoints.os.fsync", sync)
    monkeypatch.setattr("polyglance.training.checkpoints.os.replace", replace)
    save(tmp_path / "run" / "latest", number=2)
    moves = [index for index, event in enumerate(events) if " to " in event]
    before = events[: moves[0]]
    assert set(before) == {
        *("model.safetensors", "optimiser.safetensors", "state.json", "SHA256SUMS"),
        "latest.partial",
    }
    assert before[-1] == "latest.partial"
    assert [events[index] for index in moves] == [
        "latest to latest-00000001",
        "latest.partial to latest",
    ]
    assert "run" in events[moves[-1] + 1 :]


def test_a_disk_that_goes_away_between_the_moves_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = save(tmp_path / "latest")

    def away(source: Path, target: Path) -> None:
        if source.name.endswith(".partial"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(target))
        source.rename(target)

    with monkeypatch.context() as patched:
        patched.setattr("polyglance.training.checkpoints.os.replace", away)
        with pytest.raises(PolyglanceError, match=r"cannot write a checkpoint .*which resumes"):
            save(tmp_path / "latest", seed=1, number=2)
    found = Pair(seed=2)
    assert find_checkpoint(tmp_path / "latest") == tmp_path / "latest-00000001"
    assert load_checkpoint(tmp_path / "latest", found) == {"step": 1}
    assert same(found, model)


def test_weights_load_without_the_optimiser_that_reproduce_deletes(tmp_path: Path) -> None:
    folder = tmp_path / "latest"
    saved, _ = save(folder)
    (folder / "optimiser.safetensors").unlink()
    fresh = Pair(seed=1)
    with pytest.raises(DataError, match=r"latest is damaged"):
        load_checkpoint(folder, fresh)
    lines = (folder / "SHA256SUMS").read_text().splitlines(keepends=True)
    kept = [line for line in lines if "optimiser" not in line]
    (folder / "SHA256SUMS").write_text("".join(kept))
    assert load_checkpoint(folder, fresh) == {"step": 1}
    assert same(fresh, saved)
    with pytest.raises(DataError, match=r"optimiser\.safetensors is not in SHA256SUMS"):
        load_checkpoint(folder, fresh, optimiser_of(fresh))


@pytest.mark.parametrize("averaged", [False, True])
def test_the_memory_of_a_snapshot_is_known_before_it_is_taken(averaged: bool) -> None:
    model = Pair(0)
    optimiser = optimiser_of(model)
    step(model, optimiser)
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    average = weights if averaged else None
    taken = Snapshot.take(model, optimiser, {}, average=average, copy=True)
    sizes = [t.numel() * t.element_size() for own in taken.files.values() for t in own.values()]
    assert count_bytes(model, optimiser, average) == sum(sizes)
