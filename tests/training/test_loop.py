from __future__ import annotations

import itertools
import json
import math
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from polyglance.batches.batch import Batch
from polyglance.errors import DataError, PolyglanceError
from polyglance.training import checkpoints, loop
from polyglance.training.checkpoints import load_checkpoint, read_state
from polyglance.training.loop import LoopConfig, TrainingResult, train_loop
from polyglance.training.mixture import Mixture, seed_torch, step_generator


@dataclass(frozen=True, eq=False)
class Points(Batch):
    x: Tensor


class Line(nn.Module):
    """Learns y = 3 x - 1 from noisy samples, with dropout so that randomness matters."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 1)
        self.tied = self.layer  # a parameter under two names
        self.dropout = nn.Dropout(0.02)

    def sample(self, generator: np.random.Generator) -> Points:
        return Points(torch.tensor(generator.normal(size=(64, 4)), dtype=torch.float32))

    def losses(self, batch: Points) -> dict[str, Tensor]:
        x = batch.x
        y = 3 * x.sum(1, keepdim=True) - 1
        return {"square": (self.layer(self.dropout(x)) - y).square().mean()}


class Interrupted(Exception):  # noqa: N818
    pass


def run(
    folder: Path, *, stop_at: int | None = None, **changes: Any
) -> tuple[Line, TrainingResult | None]:
    model = Line()
    settings = {"steps": 60, "learning_rate": 0.1, "save_every": 7, "validate_every": 10}
    config = LoopConfig(**{**settings, **changes})
    calls = Counter[str]()

    def validate() -> dict[str, float]:
        calls["validate"] += 1
        if stop_at is not None and calls["validate"] == stop_at:
            raise Interrupted
        assert not model.training
        return {"score": -abs(float(model.layer.bias.detach()) + 1)}

    try:
        return model, train_loop(model, Mixture({"line": model}), config, folder, validate=validate)
    except Interrupted:
        return model, None


def test_train_loop_learns_logs_and_keeps_the_best_state(tmp_path: Path) -> None:
    model, result = run(tmp_path, steps=300, schedule="cosine")
    assert result is not None
    assert result.best is not None
    assert result.best > -0.1
    assert -abs(float(model.layer.bias.detach()) + 1) == pytest.approx(result.best)
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    losses = [entry["square"] for entry in log if "square" in entry]
    assert losses[-1] < losses[0] / 5
    assert sum("validation" in entry for entry in log) == 30


def test_resumed_run_equals_uninterrupted_run(tmp_path: Path) -> None:
    whole, _ = run(tmp_path / "whole")
    for number in (2, 1):  # stopped twice, at different steps
        _, result = run(tmp_path / "pieces", stop_at=number)
        assert result is None
    pieces, result = run(tmp_path / "pieces")
    assert result is not None
    assert torch.equal(whole.layer.weight, pieces.layer.weight)
    for name in ("log.jsonl", "latest/model.safetensors", "latest/optimiser.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "pieces" / name).read_bytes()


def test_gradient_accumulation_averages_micro_batches(tmp_path: Path) -> None:
    run(tmp_path, steps=1, grad_accumulation_steps=3, log_every=1, validate_every=0)
    logged = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[0])
    model = Line()
    losses = []
    for part in range(3):
        seed_torch(0, 0, 0, part)
        loss = model.losses(model.sample(step_generator(0, 0, part)))["square"]
        losses.append(loss.item())
        loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]) / 3
    assert len(set(losses)) == 3
    assert logged["square"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert logged["grad_norm"] == pytest.approx(gradient.norm().item(), rel=1e-5)


def test_accumulated_steps_resume_exactly_and_new_settings_default(tmp_path: Path) -> None:
    whole, _ = run(tmp_path / "whole", grad_accumulation_steps=2)
    run(tmp_path / "parts", grad_accumulation_steps=2, stop_at=3)
    resumed, _ = run(tmp_path / "parts", grad_accumulation_steps=2)
    assert torch.equal(whole.layer.weight, resumed.layer.weight)
    # What was saved before there was such a setting had one batch a step.
    run(tmp_path / "old", stop_at=3)
    path = tmp_path / "old" / "latest" / "state.json"
    state = json.loads(path.read_text())
    del state["config"]["grad_accumulation_steps"]
    path.write_text(json.dumps(state))
    with pytest.raises(PolyglanceError, match="grad_accumulation_steps = 1, not 2"):
        run(tmp_path / "old", grad_accumulation_steps=2)
    old, _ = run(tmp_path / "old")
    assert torch.equal(old.layer.weight, run(tmp_path / "new")[0].layer.weight)


def test_resuming_with_other_settings_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(PolyglanceError, match=r"learning_rate = 0\.1, not 0\.5"):
        run(tmp_path, learning_rate=0.5)
    _, longer = run(tmp_path, steps=80)
    assert longer is not None
    assert longer.steps == 80
    with pytest.raises(PolyglanceError, match="steps = 80, not 70"):
        run(tmp_path, steps=70)


def test_log_is_valid_json(tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    run(tmp_path, steps=11, log_every=4)
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    entries = [json.loads(line, parse_constant=refuse) for line in lines]
    assert [entry["step"] for entry in entries if "square" in entry] == [4, 8, 11]
    assert all(entry["grad_norm"] > 0 for entry in entries if "square" in entry)
    run(tmp_path / "rare", steps=5, log_every=0, validate_every=0, save_every=0)
    lines = (tmp_path / "rare" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [5, 5]


def test_without_validation_the_last_state_is_the_result(tmp_path: Path) -> None:
    model = Line()
    result = train_loop(model, Mixture({"line": model}), LoopConfig(steps=3), tmp_path, quiet=True)
    assert (result.best, result.best_step) == (None, 0)
    again = Line()
    state = load_checkpoint(tmp_path / "latest", again)
    assert state is not None
    assert state["best"] is None
    assert torch.equal(model.layer.weight, again.layer.weight)


def test_truncated_log_is_repaired(tmp_path: Path) -> None:
    run(tmp_path, stop_at=2)
    log = tmp_path / "log.jsonl"
    log.write_text(log.read_text() + '{"step": 21, "squ')
    run(tmp_path)
    assert all(json.loads(line)["step"] <= 60 for line in log.read_text().splitlines())


def test_diverging_loss_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match="lower learning_rate"):
        run(tmp_path, learning_rate=1e30, log_every=1)


@pytest.mark.parametrize("broken", ["loss", "gradient"])
def test_non_finite_values_are_never_saved(tmp_path: Path, broken: str) -> None:
    class Breaking(Line):
        steps = 0

        def losses(self, batch: Points) -> dict[str, Tensor]:
            self.steps += 1
            loss = super().losses(batch)["square"]
            if self.steps == 5:
                # The root of nothing is nothing, but its slope is endless.
                loss = loss * torch.nan if broken == "loss" else (loss - loss).sqrt()
            return {"square": loss}

    model = Breaking()
    config = LoopConfig(steps=9, save_every=1, log_every=100)
    with pytest.raises(PolyglanceError, match="at step 5: lower learning_rate"):
        train_loop(model, Mixture({"line": model}), config, tmp_path)
    saved = Line()
    state = load_checkpoint(tmp_path / "latest", saved)
    assert state is not None
    assert state["step"] == 4
    assert saved.layer.weight.isfinite().all()


def test_weight_decay_skips_vectors(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()

    class Nothing:
        def sample(self, generator: np.random.Generator) -> Batch:
            return Batch()

        def losses(self, batch: Batch) -> dict[str, Tensor]:
            return {"zero": 0 * (model.weight.sum() + model.bias.sum())}

    config = LoopConfig(steps=1, learning_rate=0.1, weight_decay=0.5)
    train_loop(model, Mixture({"nothing": Nothing()}), config, tmp_path)
    torch.testing.assert_close(model.weight.detach(), 0.95 * weight)
    assert torch.equal(model.bias.detach(), bias)


def test_lr_multiplier_of_parameter_groups(tmp_path: Path) -> None:
    model = nn.ModuleDict({"slow": nn.Linear(2, 2), "fast": nn.Linear(2, 2)})
    before = {name: p.detach().clone() for name, p in model.named_parameters()}

    class Sum:
        def sample(self, generator: np.random.Generator) -> Batch:
            return Batch()

        def losses(self, batch: Batch) -> dict[str, Tensor]:
            return {"sum": torch.stack([p.sum() for p in model.parameters()]).sum()}

    groups = [
        {"params": list(model["slow"].parameters()), "lr_multiplier": 1.0},
        {"params": list(model["fast"].parameters()), "lr_multiplier": 2.0},
    ]
    config = LoopConfig(steps=1, learning_rate=0.01)
    train_loop(model, Mixture({"sum": Sum()}), config, tmp_path / "a", param_groups=groups)
    moved = {name: (before[name] - p).abs().max().item() for name, p in model.named_parameters()}
    assert moved["slow.weight"] == pytest.approx(0.01, rel=1e-3)
    assert moved["fast.weight"] == pytest.approx(0.02, rel=1e-3)


def test_mixture_draws_by_ratio_and_deterministically() -> None:
    model = Line()
    tasks = {"itm": model, "mlm": model, "mrtm": model, "vtlm": model}
    mixture = Mixture(tasks, {"itm": 9, "mlm": 12, "mrtm": 9, "vtlm": 3})
    drawn = [mixture.choose(5, step)[0] for step in range(4000)]
    assert drawn == [mixture.choose(5, step)[0] for step in range(4000)]
    for name, ratio in {"itm": 9, "mlm": 12, "mrtm": 9, "vtlm": 3}.items():
        assert drawn.count(name) / 4000 == pytest.approx(ratio / 33, abs=0.025)


def test_steps_and_micro_batches_have_generators_of_their_own() -> None:
    draws = {
        (step, part): step_generator(0, step, part).random() for step in range(5) for part in (0, 1)
    }
    assert len(set(draws.values())) == 10
    assert step_generator(0, 3, 1).random() == draws[3, 1]


def test_processes_have_dropout_of_their_own() -> None:
    draws = {}
    for step, rank in itertools.product(range(5), range(2)):
        seed_torch(0, step, rank)
        draws[step, rank] = torch.rand(1).item()
    assert len(set(draws.values())) == 10


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", -1),
        ("learning_rate", 0.0),
        ("learning_rate", -1e-4),
        ("learning_rate", math.nan),
        ("warmup", -1),
        ("weight_decay", -0.1),
        ("betas", (0.9, 1.0)),
        ("betas", (-0.1, 0.9)),
        ("grad_accumulation_steps", 0),
        ("grad_clip", 0.0),
        ("grad_clip", -1.0),
        ("seed", -1),
        ("seed", 2**32),
        ("validate_every", -1),
        ("save_every", -1),
        ("log_every", -1),
    ],
)
def test_out_of_range_settings_are_rejected(name: str, value: Any) -> None:
    with pytest.raises(PolyglanceError, match=f"{name} is .*: give "):
        LoopConfig(**{name: value})


def test_boundary_settings_are_accepted() -> None:
    LoopConfig(steps=0, warmup=0, weight_decay=0.0, betas=(0.0, 0.0), seed=2**32 - 1, log_every=0)
    seed_torch(2**32 - 1, 10**6, 1000)  # torch takes no more than 64 bits


def test_a_best_checkpoint_that_is_gone_is_not_replaced_by_the_latest(tmp_path: Path) -> None:
    run(tmp_path, steps=20)
    shutil.rmtree(tmp_path / "best")
    with pytest.raises(DataError, match=r"best, the checkpoint of step \d+, is gone"):
        run(tmp_path, steps=20)


def test_the_best_state_reaches_the_disk_with_the_next_checkpoint_or_when_training_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def best_steps(limit: int, **changes: Any) -> list[tuple[str, int | None]]:
        """Return which best state was on the disk at each write of a checkpoint."""
        folder, seen = tmp_path / str(limit), list[tuple[str, int | None]]()
        original = checkpoints._write

        def spy(target: Path, *arguments: Any) -> None:
            original(target, *arguments)
            best = read_state(folder / "best") if (folder / "best").exists() else {}
            seen.append((target.name, best.get("step")))

        monkeypatch.setattr(checkpoints, "_write", spy)
        monkeypatch.setattr(loop, "_BEST_IN_MEMORY", limit)
        run(folder, **changes)
        monkeypatch.setattr(checkpoints, "_write", original)
        return seen

    # It improves at steps 2, 4 and 6; latest is saved at 5 and at the end.
    changes = {"steps": 6, "validate_every": 2, "save_every": 5}
    assert best_steps(10**9, **changes) == [("best", 4), ("latest", 4), ("best", 6), ("latest", 6)]
    at_once = best_steps(0, **changes)
    assert at_once == [("best", 2), ("best", 4), ("latest", 4), ("best", 6), ("latest", 6)]
    # Without checkpoints to resume from, best ones are all that a killed run leaves.
    unsaved = best_steps(10**9 + 1, **{**changes, "save_every": 0})
    assert unsaved == [("best", 2), ("best", 4), ("best", 6), ("latest", 6)]
    # Interrupted at the third validation, before any checkpoint: nothing of the best is lost.
    run(tmp_path / "interrupted", stop_at=3, validate_every=2, save_every=50)
    written = read_state(tmp_path / "interrupted" / "best")
    assert written["step"] == 4
    # What was kept in memory is of its step, not of what training made of it since.
    weights = load_file(tmp_path / "interrupted" / "best" / "model.safetensors")
    assert -abs(float(weights["layer.bias"]) + 1) == pytest.approx(written["best"])
