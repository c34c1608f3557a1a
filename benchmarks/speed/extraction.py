"""How fast are features extracted, and does a killed extraction end in the same store?

Extracts the test pictures of a folder of research data with the default settings
(EfficientNet-Lite2 on 224 pixels, a grid of 7 x 7, the whole, ten labels a cell),
as often as asked, then once more in a process that is killed twice on its way,
and compares the two stores byte by byte.

    python -m benchmarks.speed.extraction --data FOLDER             # a folder with test.jsonl
    python -m benchmarks.speed.extraction --data FOLDER --ways      # and torch beside ONNX Runtime
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
from polyglance.vision.extraction import ExtractionSettings, extract, find_items
from polyglance.vision.pictures import read_square
from polyglance.vision.store import FeatureStore, shard_count

WORKER = """
import sys
from polyglance.vision.extraction import ExtractionSettings, extract
extract(sys.argv[1], sys.argv[2], ExtractionSettings(backbone=sys.argv[3]), quiet=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with test.jsonl")
    parser.add_argument("--backbone", default="efficientnet-lite2")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ways", action="store_true", help="compare ways to run the network")
    parser.add_argument("--out", type=Path, help="folder for the results")
    arguments = parser.parse_args()
    manifest = arguments.data / "test.jsonl"
    figures: dict[str, Any] = {
        "backbone": arguments.backbone,
        "torch": torch.__version__,
    }
    with tempfile.TemporaryDirectory() as scratch:
        figures |= speed(manifest, Path(scratch), arguments.backbone, arguments.repeats)
        figures |= killed(manifest, Path(scratch), arguments.backbone)
    if arguments.ways:
        figures["milliseconds_a_picture"] = ways(manifest, arguments.backbone)
    write_results("extraction", figures, arguments.out)


def speed(manifest: Path, scratch: Path, backbone: str, repeats: int) -> dict[str, Any]:
    """Pictures a second, from reading the manifest to the store on the disk.

    A run that got less than nine tenths of the processor had to share it.
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
                "processor_milliseconds_a_picture": 1000 * spent / result.items,
                "share_of_the_processor": spent / result.seconds / (os.cpu_count() or 1),
                "load_average_before": load,
            }
        )
        rate, share = runs[-1]["pictures_per_second"], runs[-1]["share_of_the_processor"]
        print(f"{result.items} pictures, {len(result.bad)} bad: {rate:.1f} a second ({share:.0%})")
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return {
        "pictures": result.items,
        "bad": len(result.bad),
        "pictures_per_second": max(run["pictures_per_second"] for run in runs),
        "runs": runs,
        "kilobytes_a_picture": size / result.items / 1000,
    }


def killed(manifest: Path, scratch: Path, backbone: str) -> dict[str, Any]:
    """Whether an extraction that was killed twice ends in the bytes of one that was not."""
    whole, other = scratch / "store0", scratch / "killed"
    shards = shard_count(FeatureStore(whole).info)
    command = [sys.executable, "-c", WORKER, str(manifest), str(other), backbone]
    finished_when_killed = []
    for wanted in (1, 2):
        process = subprocess.Popen(command)
        while len(list(other.glob("shards/*.safetensors"))) < wanted and process.poll() is None:
            time.sleep(0.05)
        time.sleep(1)  # into the next shard
        process.kill()
        process.wait()
        finished_when_killed.append(len(list(other.glob("shards/*.safetensors"))))
    subprocess.run(command, check=True)
    same = _files(whole) == _files(other)
    print(f"killed with {finished_when_killed} of {shards} shards done: {same=}")
    if not same:
        raise SystemExit("the stores differ")
    return {"killed_after_shards": finished_when_killed, "shards": shards, "identical": same}


def ways(manifest: Path, name: str, batch: int = 16, rounds: int = 7) -> dict[str, float]:
    """The network alone, per picture: torch as we run it, torch's own layout, ONNX Runtime.

    The ways take turns, so that whatever else the machine does hits all of them.
    """
    backbone = open_backbone(name, threads=os.cpu_count())
    assert isinstance(backbone, EfficientNetLite)
    items = find_items(manifest)[:batch]
    pictures = np.stack([read_square(item.path, backbone.size).pixels for item in items])
    last = torch.from_numpy((pictures.astype(np.float32) - 127) / 128).permute(0, 3, 1, 2)
    first = last.contiguous()

    class Whole(torch.nn.Module):
        """What one call computes: the map and the logits of its cells."""

        def __init__(self) -> None:
            super().__init__()
            self.network = backbone.network

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            cells = self.network(x).permute(0, 2, 3, 1).flatten(1, 2)
            return cells, self.network.classifier(cells)

    whole = Whole().eval()
    plain = copy.deepcopy(whole)
    for parameter in plain.parameters():
        parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)
    session = _onnx_session(whole, first)
    feed = {session.get_inputs()[0].name: first.numpy()}
    torch.set_num_threads(os.cpu_count() or 1)
    candidates: dict[str, Callable[[], Any]] = {
        "torch, channels last": lambda: whole(last),
        "torch, channels first": lambda: plain(first),
        "ONNX Runtime": lambda: session.run(None, feed),
    }
    times: dict[str, list[float]] = {way: [] for way in candidates}
    with torch.inference_mode():
        for _ in range(rounds + 1):
            for way, run in candidates.items():
                start = time.perf_counter()
                run()
                times[way].append(1000 * (time.perf_counter() - start) / batch)
    return {way: min(spent[1:]) for way, spent in times.items()}


def _onnx_session(module: torch.nn.Module, example: torch.Tensor) -> Any:
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        torch.onnx.export(module, (example,), path, dynamo=True, external_data=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = os.cpu_count() or 1
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


if __name__ == "__main__":
    main()
