"""How fast features are extracted, and whether a killed extraction ends with the same store.

Extracts the test images of a folder of research data with the default settings
(EfficientNet-Lite2 at 224 pixels, a grid of 7 x 7, the whole image, ten labels per cell) several
times, then once more in a process that is killed twice, and compares the stores byte by byte.

    python -m benchmarks.speed.extraction --data FOLDER              # a folder with test.jsonl
    python -m benchmarks.speed.extraction --data FOLDER --runtimes   # torch beside ONNX Runtime

Writes results/extraction.json.
"""

from __future__ import annotations

import argparse
import copy
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.results_io import write_results
from polyglance.vision.backbone import open_backbone
from polyglance.vision.efficientnet import EfficientNetLite
from polyglance.vision.extraction import extract, find_items
from polyglance.vision.pictures import read_square
from polyglance.vision.shard_encoding import ExtractionSettings
from polyglance.vision.store import FeatureStore, shard_count

WORKER = """
import sys
from polyglance.vision.extraction import extract
from polyglance.vision.shard_encoding import ExtractionSettings
extract(sys.argv[1], sys.argv[2], ExtractionSettings(backbone=sys.argv[3]), quiet=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with test.jsonl")
    parser.add_argument("--backbone", default="efficientnet-lite2")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--runtimes", action="store_true", help="compare runtimes of the network alone"
    )
    parser.add_argument("--out", type=Path, help="folder for the results")
    options = parser.parse_args()
    manifest = options.data / "test.jsonl"
    figures: dict[str, Any] = {
        "backbone": options.backbone,
        "torch": torch.__version__,
    }
    with tempfile.TemporaryDirectory() as scratch:
        figures |= measure_speed(manifest, Path(scratch), options.backbone, options.repeats)
        figures |= measure_kills(manifest, Path(scratch), options.backbone)
    if options.runtimes:
        figures["ms_per_image"] = time_runtimes(manifest, options.backbone)
    write_results("extraction", figures, options.out)


def measure_speed(manifest: Path, scratch: Path, backbone: str, repeats: int) -> dict[str, Any]:
    """Measure images a second, from reading the manifest to the store on disk.

    A run with less than nine tenths of the CPU had to share it.
    """
    runs = []
    for repeat in range(repeats):
        out = scratch / f"store{repeat}"
        load, before = os.getloadavg()[0], time.process_time()
        result = extract(manifest, out, ExtractionSettings(backbone=backbone))
        spent = time.process_time() - before
        runs.append(
            {
                "pictures_per_second": result.items / result.seconds,
                "cpu_ms_per_image": 1000 * spent / result.items,
                "cpu_share": spent / result.seconds / (os.cpu_count() or 1),
                "load_average_before": load,
            }
        )
        rate, share = runs[-1]["pictures_per_second"], runs[-1]["cpu_share"]
        print(f"{result.items} pictures, {len(result.bad)} bad: {rate:.1f} a second ({share:.0%})")
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return {
        "pictures": result.items,
        "bad": len(result.bad),
        "pictures_per_second": max(run["pictures_per_second"] for run in runs),
        "runs": runs,
        "kilobytes_per_image": size / result.items / 1000,
    }


def measure_kills(manifest: Path, scratch: Path, backbone: str) -> dict[str, Any]:
    """Check that an extraction that was killed twice ends with the same bytes."""
    reference, other = scratch / "store0", scratch / "killed"
    shards = shard_count(FeatureStore(reference).info)
    command = [sys.executable, "-c", WORKER, str(manifest), str(other), backbone]
    finished_shards = []
    for min_shards in (1, 2):
        process = subprocess.Popen(command)
        while len(list(other.glob("shards/*.safetensors"))) < min_shards and process.poll() is None:
            time.sleep(0.05)
        time.sleep(1)  # into the next shard
        process.kill()
        process.wait()
        finished_shards.append(len(list(other.glob("shards/*.safetensors"))))
    subprocess.run(command, check=True)
    identical = _files(reference) == _files(other)
    print(f"killed with {finished_shards} of {shards} shards done: {identical=}")
    if not identical:
        raise SystemExit("the stores differ")
    return {"killed_after_shards": finished_shards, "shards": shards, "identical": identical}


def time_runtimes(
    manifest: Path, backbone_name: str, batch: int = 16, rounds: int = 7
) -> dict[str, float]:
    """Return milliseconds per image of the network alone: torch in two layouts, ONNX Runtime.

    Runtimes take turns, so that other load on the machine affects all of them alike.
    """
    backbone = open_backbone(backbone_name, threads=os.cpu_count())
    assert isinstance(backbone, EfficientNetLite)
    items = find_items(manifest)[:batch]
    pictures = np.stack([read_square(item.path, backbone.size).pixels for item in items])
    last = torch.from_numpy((pictures.astype(np.float32) - 127) / 128).permute(0, 3, 1, 2)
    first = last.contiguous()

    class CellNetwork(torch.nn.Module):
        """What one call computes: features and logits of the cells."""

        def __init__(self) -> None:
            super().__init__()
            self.network = backbone.network

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            cells = self.network(x).permute(0, 2, 3, 1).flatten(1, 2)
            return cells, self.network.classifier(cells)

    channels_last = CellNetwork().eval()
    channels_first = copy.deepcopy(channels_last)
    for parameter in channels_first.parameters():
        parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)
    session = _onnx_session(channels_last, first)
    feed = {session.get_inputs()[0].name: first.numpy()}
    torch.set_num_threads(os.cpu_count() or 1)
    candidates: dict[str, Callable[[], Any]] = {
        "torch, channels last": lambda: channels_last(last),
        "torch, channels first": lambda: channels_first(first),
        "ONNX Runtime": lambda: session.run(None, feed),
    }
    times: dict[str, list[float]] = {name: [] for name in candidates}
    with torch.inference_mode():
        for _ in range(rounds + 1):
            for name, run in candidates.items():
                start = time.perf_counter()
                run()
                times[name].append(1000 * (time.perf_counter() - start) / batch)
    return {name: min(spent[1:]) for name, spent in times.items()}


def _onnx_session(module: torch.nn.Module, example: torch.Tensor) -> Any:
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        torch.onnx.export(module, (example,), path, dynamo=True, external_data=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = os.cpu_count() or 1
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _files(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


if __name__ == "__main__":
    main()
