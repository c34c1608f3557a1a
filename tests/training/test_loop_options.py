"""Early stopping, averaged weights, activation checkpointing and the logs of a run."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyglance.batches.batch import Batch
from polyglance.errors import PolyglanceError
from polyglance.nn.compilation import compiled
from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.packing import Packing
from polyglance.nn.transformer import TransformerLayer, compile_layers
from polyglance.recipes.stages import load_stage
from polyglance.training import throughput as throughput_module
from polyglance.training.event_files import EventFile, crc32c
from polyglance.training.loop import LoopConfig, TrainingResult, train_loop
from polyglance.training.mixture import Mixture, MultiTask, TurnTask
from polyglance.training.run_log import RunLog
from polyglance.training.throughput import (
    Throughput,
    count_flops,
    count_training_flops,
    describe_speed,
    pairs_of,
)


@dataclass(frozen=True, eq=False)
class Points(Batch):
    x: Tensor


class Line(nn.Module):
    """Learns y = 3 x from samples: a model and its task in one."""

    batch = 16

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 1)
        self.dropout = nn.Dropout(0.1)

    def sample(self, generator: np.random.Generator) -> Points:
        return Points(torch.tensor(generator.normal(size=(self.batch, 2)), dtype=torch.float32))

    def losses(self, batch: Points) -> dict[str, Tensor]:
        y = 3 * batch.x.sum(1, keepdim=True)
        return {"square": (self.layer(self.dropout(batch.x)) - y).square().mean()}


class Interrupted(Exception):  # noqa: N818
    pass


def train(
    folder: Path, scores: list[float] | None = None, *, stop_at: int = -1, **settings: Any
) -> tuple[Line, TrainingResult]:
    """Train with scores given beforehand; a validation that is to stop raises."""
    model, calls = Line(), iter(range(100))
    defaults = {"learning_rate": 0.05, "save_every": 3, "log_every": 2}
    config = LoopConfig(**(defaults | settings))

    def validate() -> dict[str, float]:
        number = next(calls)
        if number == stop_at:
            raise Interrupted
        return {"score": (scores or [])[number]}

    mixture = Mixture({"line": model})
    return model, train_loop(
        model, mixture, config, folder, validate=None if scores is None else validate
    )


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_training_stops_early_and_stays_stopped(tmp_path: Path) -> None:
    scores = [1.0, 3.0, 2.0, 2.5, 9.0, 9.0]
    settings = {"steps": 24, "validate_every": 4, "patience": 2}
    model, result = train(tmp_path, scores, **settings)
    assert (result.steps, result.best, result.best_step) == (16, 3.0, 8)
    again, repeated = train(tmp_path, [], **settings)  # validates no more
    assert (repeated.steps, repeated.best, repeated.best_step) == (16, 3.0, 8)
    assert torch.equal(model.layer.weight, again.layer.weight)
    longer = train(tmp_path / "patient", scores, **{**settings, "patience": 3})[1]
    assert (longer.steps, longer.best) == (24, 9.0)


def test_patience_is_resumed(tmp_path: Path) -> None:
    """Validations before the interruption count as those after it."""
    settings = {"steps": 24, "validate_every": 4, "patience": 3, "save_every": 4}
    with pytest.raises(Interrupted):
        train(tmp_path, [3.0, 2.0, 1.0], stop_at=3, **settings)
    _, result = train(tmp_path, [1.0, 9.0], **settings)
    assert (result.steps, result.best, result.best_step) == (16, 3.0, 4)


def test_average_of_weights_is_evaluated_saved_and_resumed(tmp_path: Path) -> None:
    # Slow recurrence over the weights that the same run has without an average.
    settings = {"steps": 7, "save_every": 1, "keep_checkpoints": 9}
    train(tmp_path / "plain", **settings)
    names = [f"latest-{step:08d}" for step in range(1, 7)] + ["latest"]
    average = Line().layer.weight.detach().clone()
    for step, name in enumerate(names, 1):
        weights = Line()
        load_stage(weights, tmp_path / "plain" / name)
        decay = min(0.5, (1 + step) / (10 + step))
        average = decay * average + (1 - decay) * weights.layer.weight.detach()
    whole, _ = train(tmp_path / "average", ema_decay=0.5, **settings)
    torch.testing.assert_close(whole.layer.weight.detach(), average)
    assert not torch.allclose(weights.layer.weight, average)
    started = Line()
    load_stage(started, tmp_path / "average")
    assert torch.equal(started.layer.weight, whole.layer.weight)

    # Interrupted and resumed; validation sees the average.
    scores: list[float] = [0.0, 1.0]
    run = {"steps": 7, "save_every": 2, "validate_every": 4, "ema_decay": 0.5}
    with pytest.raises(Interrupted):
        train(tmp_path / "parts", scores, stop_at=1, **run)
    seen, resumed = [], Line()

    def validate() -> dict[str, float]:
        seen.append(resumed.layer.weight.detach().clone())
        return {"score": 2.0}

    config = LoopConfig(learning_rate=0.05, log_every=2, **run)
    train_loop(resumed, Mixture({"line": resumed}), config, tmp_path / "parts", validate=validate)
    assert torch.equal(resumed.layer.weight, whole.layer.weight)
    assert torch.equal(seen[-1], whole.layer.weight)
    with pytest.raises(PolyglanceError, match=r"ema_decay = 0\.5, not None"):
        train(tmp_path / "average", **settings)


def test_settings_that_keep_the_weights_may_change(tmp_path: Path) -> None:
    whole, _ = train(tmp_path / "whole", steps=8)
    with pytest.raises(Interrupted):
        train(tmp_path / "parts", [0.0], stop_at=0, steps=8, validate_every=5)
    state = json.loads((tmp_path / "parts" / "latest" / "state.json").read_text())
    assert state["step"] == 3
    changed = {"save_every": 2, "log_every": 1, "keep_checkpoints": 1, "tensorboard": True}
    train(tmp_path / "parts", [0.0, 0.0], steps=8, validate_every=5, **changed)
    assert sorted(path.name for path in (tmp_path / "parts").glob("latest*")) == ["latest"]
    latest = Line()
    load_stage(latest, tmp_path / "parts" / "latest")
    assert torch.equal(latest.layer.weight, whole.layer.weight)


def test_damaged_checkpoint_is_replaced_by_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, _ = train(tmp_path / "whole", steps=12)
    train(tmp_path / "run", steps=9)
    (tmp_path / "run" / "latest" / "model.safetensors").write_bytes(b"garbage")
    resumed, _ = train(tmp_path / "run", steps=12)
    assert torch.equal(resumed.layer.weight, whole.layer.weight)
    assert "resuming from" in capsys.readouterr().err
    assert read(tmp_path / "run" / "log.jsonl")[:3] == read(tmp_path / "whole" / "log.jsonl")[:3]


def test_only_parameters_of_the_groups_have_gradients(tmp_path: Path) -> None:
    model = Line()
    bias = model.layer.bias.detach().clone()
    groups = [{"params": [model.layer.weight]}]
    seen = []

    class Watched(Line):
        def losses(self, batch: Points) -> dict[str, Tensor]:
            seen.append(model.layer.bias.requires_grad)
            return model.losses(batch)

    config = LoopConfig(steps=2, learning_rate=0.1)
    train_loop(model, Mixture({"line": Watched()}), config, tmp_path, param_groups=groups)
    assert torch.equal(model.layer.bias, bias)
    assert seen == [False, False]
    assert model.layer.bias.requires_grad


class Reader(nn.Module):
    """A small transformer that learns to sum the first components of its output."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        shape = {"hidden_size": 8, "num_heads": 2, "intermediate_size": 16, "num_layers": 2}
        self.encoder = Encoder(EncoderConfig(vocab_size=20, max_position_embeddings=12, **shape))
        self.kept: list[bool] = []

    def sample(self, generator: np.random.Generator) -> Points:
        return Points(torch.from_numpy(generator.integers(20, size=12)))

    def losses(self, batch: Points) -> dict[str, Tensor]:
        self.kept.append(self.encoder.gradient_checkpointing)
        rows = self.encoder(batch.x, Packing.of([4, 8]))
        return {"first": rows[:, 0].square().mean()}


def test_gradient_checkpointing_changes_no_weights(tmp_path: Path) -> None:
    models = []
    for wanted in (False, True):
        model = Reader()
        config = LoopConfig(steps=3, learning_rate=1e-2, gradient_checkpointing=wanted)
        train_loop(model, Mixture({"text": model}), config, tmp_path / str(wanted))
        assert model.kept == [wanted] * 3
        assert not model.encoder.gradient_checkpointing
        models.append(model)
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one, other)
    with pytest.raises(PolyglanceError, match=r"set loop\.gradient_checkpointing to false"):
        train(tmp_path / "line", steps=1, gradient_checkpointing=True)


def test_speed_is_logged_apart_from_losses(tmp_path: Path) -> None:
    train(tmp_path, steps=5)
    speed = read(tmp_path / "speed.jsonl")
    assert [entry["step"] for entry in speed] == [2, 4, 5]
    assert all(entry["pairs_per_second"] > 0 and "tflops" not in entry for entry in speed)


def test_throughput_divides_work_by_time() -> None:
    times = iter([0.0, 10.0, 10.0, 14.0, 20.0, 24.0, 24.0])
    throughput = Throughput("cpu", clock=lambda: next(times))
    for _ in range(5):
        throughput.add("mlm", 100, micro_batches=2)
    assert throughput.report() == {"pairs_per_second": 100.0}
    throughput.count("mlm", lambda: torch.ones(3, 4) @ torch.ones(4, 5))  # from 14 to 20
    assert throughput.flops == {"mlm": 6 * 3 * 4 * 5}
    throughput.add("mlm", 64)
    throughput.pause(4.0)
    throughput.peak = 360.0
    rates = throughput.report()  # 24 - 10, less 6 and 4
    assert rates["pairs_per_second"] == pytest.approx(16)
    assert rates["tflops"] == pytest.approx(90e-12)
    assert rates["peak_share"] == pytest.approx(0.25)
    assert describe_speed({**rates, "tflops": 301.0}) == "16 pairs/s, 301 TFLOP/s (25% of peak)"
    wrapped = MultiTask([("a", Line(), 1.0), ("b", Line(), 0.5)])
    assert pairs_of(wrapped) == 32
    assert pairs_of(object()) == 0
    turns = TurnTask([("a", wrapped, 1.0), ("b", Line(), 1.0)])
    assert pairs_of(turns) == 24  # the mean, of which each step has one


def test_counting_operations_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on an accelerator, where the first batch of each task is computed once more."""
    plain, _ = train(tmp_path / "plain", steps=4)
    counted: list[str] = []
    monkeypatch.setattr(Throughput, "must_count", lambda self, task: task not in self.flops)
    monkeypatch.setattr(
        "polyglance.training.throughput.measure_peak", lambda *_: counted.append("peak") or 1e12
    )
    other, _ = train(tmp_path / "counted", steps=4)
    assert torch.equal(plain.layer.weight, other.layer.weight)
    for name in ("log.jsonl", "latest/model.safetensors", "latest/optimiser.safetensors"):
        files = [(tmp_path / run / name).read_bytes() for run in ("plain", "counted")]
        assert files[0] == files[1]
    assert all(entry["tflops"] > 0 for entry in read(tmp_path / "counted" / "speed.jsonl"))
    assert counted == ["peak"]

    def fail(function: Any) -> float:
        raise NotImplementedError("no formula")

    monkeypatch.setattr("polyglance.training.throughput.count_flops", fail)
    third, _ = train(tmp_path / "uncounted", steps=4)
    assert torch.equal(plain.layer.weight, third.layer.weight)
    assert "operations of line cannot be counted: no formula" in capsys.readouterr().err


def test_operations_are_six_for_each_weight_and_token() -> None:
    layers = nn.Sequential(nn.Linear(8, 16, bias=False), nn.Linear(16, 4, bias=False))
    rows = torch.randn(10, 8, requires_grad=True)
    weights = 8 * 16 + 16 * 4
    assert count_flops(lambda: layers(rows)) == 2 * weights * 10
    assert count_flops(lambda: layers(rows).sum().backward()) == 6 * weights * 10
    assert count_training_flops(lambda: layers(rows)) == 6 * weights * 10
    # With a dtype, which torch's own formula takes for the shape of the result.
    mapping = throughput_module._FORMULAS[torch.ops.aten.addmm]
    assert mapping((8, 4), (8, 16), (16, 4), torch.float32, out_shape=(8, 4)) == 2 * 8 * 16 * 4


def test_operations_of_compiled_layers_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counter sees nothing of what a compiled function does.

    A function that runs under it before it is compiled would never be compiled after it.
    """
    layer, packing = TransformerLayer(8, 2, 16), Packing.of(np.array([2, 3]))
    rows = torch.randn(5, 8, requires_grad=True)
    expected = count_flops(lambda: layer(rows, packing).sum().backward())
    runs: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            runs.append(len(args))
            return graph.forward(*args)

        return run

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    monkeypatch.setattr(
        "polyglance.nn.transformer._compiled_after_attention",
        compiled(TransformerLayer.after_attention),
    )
    compile_layers(layer)
    assert count_flops(lambda: layer(rows, packing).sum().backward()) == expected
    assert expected >= 6 * 5 * (4 * 8 * 8 + 2 * 8 * 16)
    assert not runs
    layer(rows, packing).sum().backward()
    assert len(runs) == 1


def events(path: Path) -> list[tuple[int, bytes]]:
    """Return step and content of each record, having checked its checksums."""
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        content = data[12 : 12 + length]
        for part, crc in ((data[:8], data[8:12]), (content, data[12 + length : 16 + length])):
            plain = crc32c(part)
            rotated = ((plain >> 15) | (plain << 17)) & 0xFFFFFFFF
            assert struct.unpack("<I", crc)[0] == (rotated + 0xA282EAD8) % 2**32
        step, shift, position = 0, 0, 10  # after the time, a double, and the key of the step
        while True:
            step |= (content[position] & 0x7F) << shift
            shift, position = shift + 7, position + 1
            if not content[position - 1] & 0x80:
                break
        found.append((step, content[position:]))
        data = data[16 + length :]
    return found


def test_event_files_hold_scalars(tmp_path: Path) -> None:
    assert crc32c(b"123456789") == 0xE3069283
    file = EventFile(tmp_path, 4)
    file.write(300, {"loss": 0.5})
    version, start, scalars = events(file.path)
    assert version == (0, b"\x1a\x0dbrain.Event:2")
    assert start == (5, b"\x3a\x02\x08\x01")  # what an interrupted run logged from 5 on is void
    value = b"\x0a\x04loss\x15" + struct.pack("<f", 0.5)
    assert scalars == (300, b"\x2a\x0d\x0a\x0b" + value)
    train(tmp_path / "run", [1.0, 2.0], steps=4, validate_every=2, tensorboard=True)
    (path,) = (tmp_path / "run" / "tensorboard").iterdir()
    logged = b"".join(content for _, content in events(path))
    for tag in (b"line/square", b"line/grad_norm", b"validation/score", b"speed/pairs_per_second"):
        assert tag in logged


def test_log_that_cannot_be_written_ends_in_one_sentence(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "run", 0)
    (tmp_path / "run" / "log.jsonl").unlink()
    (tmp_path / "run" / "log.jsonl").mkdir()
    with pytest.raises(PolyglanceError, match=r"cannot write to .*resumes from the last"):
        log.write_losses(1, "line", {"square": 1.0})


@pytest.mark.parametrize(
    ("name", "value"),
    [("ema_decay", 1.0), ("ema_decay", 0.0), ("patience", 0), ("keep_checkpoints", 0)],
)
def test_out_of_range_options_are_rejected(name: str, value: float) -> None:
    with pytest.raises(PolyglanceError, match=f"{name} is .*: give "):
        LoopConfig(**{name: value})
