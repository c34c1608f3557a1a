"""The default model on a GPU beside the CPU: texts and pictures a second, and the same vectors.

Texts are short sentences in seven languages, pictures are decoded and resized beforehand. Cosines
are those of the device's vectors with the CPU's.

    python -m benchmarks.speed.device_speed --device cuda

Writes results/device_speed.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results_io import write_results
from polyglance.demo.photographs import photographs
from polyglance.demo.queries import QUERIES
from polyglance.encoders.model_folder import ModelFolder
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.vision.pictures import read_square


def rate(encode: Callable[[Sequence[Any]], Any], items: Sequence[Any], rounds: int) -> float:
    """Return items a second, of the fastest of some rounds after one that loads the network."""
    encode(items)
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        encode(items)
        seconds.append(time.perf_counter() - start)
    return len(items) / min(seconds)


def measure(device: str, rounds: int, texts: int, pictures: int) -> dict[str, Any]:
    """Measure the default model on a device and on the CPU.

    Args:
        device: A device of torch.
        rounds: How often everything is encoded.
        texts: Number of sentences.
        pictures: Number of pictures.
    """
    folder = ModelFolder.open()
    settings = folder.description.pictures
    assert settings is not None
    sentences = [QUERIES[number % len(QUERIES)].text for number in range(texts)]
    files = [photo.path for photo in photographs()]
    squares = [read_square(file, settings.size).pixels for file in files]
    images = [squares[number % len(squares)] for number in range(pictures)]
    cpu = OnnxEncoder(folder)
    other = OnnxEncoder(folder, device=device, runtime="torch" if device == "cpu" else None)
    figures: dict[str, Any] = {"device": device, "runtime": other.runtime}
    for name, encoder in (("cpu", cpu), ("device_figures", other)):
        figures[name] = {
            "texts_per_second": round(rate(encoder.encode_texts, sentences, rounds), 1),
            "pictures_per_second": round(rate(encoder.encode_pictures, images, rounds), 1),
        }
    for name, one, two in (
        ("texts", cpu.encode_texts(sentences[:14]), other.encode_texts(sentences[:14])),
        ("pictures", cpu.encode_pictures(squares), other.encode_pictures(squares)),
    ):
        figures[f"min_cosine_of_{name}"] = round(float(np.min((one * two).sum(1))), 6)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=4096)
    parser.add_argument("--pictures", type=int, default=512)
    parser.add_argument("--out", type=Path, default=None, help="folder of the results file")
    options = parser.parse_args()
    figures = measure(options.device, options.rounds, options.texts, options.pictures)
    write_results("device_speed", figures, options.out)
    print(figures)


if __name__ == "__main__":
    main()
