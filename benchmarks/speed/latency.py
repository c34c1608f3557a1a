"""What a query costs on one core, and how soon a new process answers its first.

A text and an image file from end to end (with tokenizer, decoding and resizing), by ONNX Runtime
as it is shipped and by torch with the same weights, in turns in one process on one thread; then
the time from the first import of a new process to its first vectors.

    python -m benchmarks.speed.latency                              # the default model
    python -m benchmarks.speed.latency --model FOLDER --rounds 50

Writes results/latency.json.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy and torch are imported

import numpy as np
import skimage.data
import torch
from PIL import Image

from benchmarks.results_io import write_results
from polyglance.encoders import load
from polyglance.encoders.model_folder import READER, READER_CONFIG, ModelFolder
from polyglance.export.to_torch import load_torch
from polyglance.models.mmp import MMP
from polyglance.nn.packing import Packing
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.vision.pictures import read_square

QUERIES = (
    "two dogs are playing with a ball in the snow",
    "ein Kind in einer roten Jacke springt in eine Pfütze",
    "une femme joue de la guitare devant une foule",
    "un uomo in bicicletta su una strada di montagna",
    "一个男人在海滩上放风筝",
    "雪の中で遊ぶ二匹の犬",
    "дети строят замок из песка на берегу моря",
)
PHOTOGRAPHS = ("astronaut", "coffee", "chelsea", "rocket")

COLD_START = """
import time
start = time.perf_counter()
import polyglance
encoder = polyglance.load({folder!r}, threads=1)
encoder.encode_texts(["two dogs are playing with a ball in the snow"])
text = time.perf_counter() - start
encoder.encode_pictures([{picture!r}])
import sys
assert "torch" not in sys.modules
print(text, time.perf_counter() - start)
"""


class TorchModel:
    """The same model in torch, one text or image at a time."""

    def __init__(self, folder: ModelFolder, tokenizer: Tokenizer) -> None:
        self.model: MMP = load_torch(folder.path)
        self.tokenizer, self.description = tokenizer, folder.description
        pictures = folder.description.pictures
        self.mean, self.std = torch.tensor(pictures.mean), torch.tensor(pictures.std)

    @torch.inference_mode()
    def text(self, text: str) -> np.ndarray[Any, Any]:
        """Return the vector of a text (1, width)."""
        ids = self.tokenizer.encode(text, max_length=self.description.max_length)
        return self.model.encode_text(torch.tensor(ids), Packing.of([len(ids)])).numpy()

    @torch.inference_mode()
    def picture(self, path: str) -> np.ndarray[Any, Any]:
        """Return the vector of an image file (1, width)."""
        pixels = torch.tensor(read_square(path, self.description.pictures.size).pixels)
        x = ((pixels.float() - self.mean) / self.std).permute(2, 0, 1)[None]
        cells = self.model.image_backbone(x.contiguous(memory_format=torch.channels_last))  # type: ignore[operator]
        rows = cells[0].flatten(1).T
        rows = torch.cat([rows.mean(0, keepdim=True), rows])
        return self.model.encode_visual(rows, Packing.of([len(rows)])).numpy()


def milliseconds(seconds: list[float]) -> dict[str, float]:
    """Summarise times in milliseconds."""
    values = 1000 * np.array(seconds)
    figures = {"median": np.median(values), "p90": np.percentile(values, 90), "best": values.min()}
    return {name: round(float(value), 2) for name, value in figures.items()}


def time_in_turns(
    encoders: dict[str, Callable[[str], np.ndarray[Any, Any]]], items: tuple[str, ...], rounds: int
) -> dict[str, Any]:
    """Time encoders in turns on every item, so that other load affects all alike."""
    vectors = {
        name: [encode(item) for item in items] for name, encode in encoders.items()
    }  # warm-up
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    for item in islice(cycle(items), rounds):
        for name, encode in encoders.items():
            start = time.perf_counter()
            encode(item)
            seconds[name].append(time.perf_counter() - start)
    first, second = (np.concatenate(rows) for rows in vectors.values())
    return {
        **{name: milliseconds(values) for name, values in seconds.items()},
        "min_cosine": round(float((first * second).sum(1).min()), 6),
    }


def time_cold_start(folder: Path, picture: str, times: int) -> dict[str, Any]:
    """Return seconds from the first import of a new process to its first vectors."""
    script = COLD_START.format(folder=str(folder), picture=picture)
    runs = [
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
        for _ in range(times)
    ]
    seconds = np.array([[float(number) for number in run.stdout.split()] for run in runs])
    return {
        name: {"median": round(float(np.median(column)), 3), "best": round(float(column.min()), 3)}
        for name, column in zip(("first_text", "first_image"), seconds.T, strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="name or folder of a model; by default the default model")
    parser.add_argument("--tokenizer", default="e5-small", help="the model's tokenizer, for torch")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = ModelFolder.open(options.model)
    sizes = {path.name: path.stat().st_size for path in folder.path.iterdir()}
    reader = sum(sizes.get(name, 0) for name in (READER, READER_CONFIG))
    encoder = load(options.model, threads=1)
    torch_model = TorchModel(folder, open_tokenizer(options.tokenizer))
    with tempfile.TemporaryDirectory() as scratch:
        paths = []
        for name in PHOTOGRAPHS:
            path = Path(scratch) / f"{name}.jpg"
            Image.fromarray(getattr(skimage.data, name)()).save(path, quality=90)
            paths.append(str(path))
        figures = {
            "model": folder.description.name,
            "bytes": sum(sizes.values()) - reader,
            "reader_bytes": reader,
            "threads": 1,
            "text_query_ms": time_in_turns(
                {"onnx": lambda text: encoder.encode_texts([text]), "torch": torch_model.text},
                QUERIES,
                options.rounds,
            ),
            "image_file_ms": time_in_turns(
                {
                    "onnx": lambda path: encoder.encode_pictures([path]),
                    "torch": torch_model.picture,
                },
                tuple(paths),
                options.rounds,
            ),
            "cold_start_s": time_cold_start(folder.path, paths[0], times=5),
        }
    for name, value in figures.items():
        print(f"{name}: {value}")
    write_results("latency", figures, options.out)


if __name__ == "__main__":
    main()
