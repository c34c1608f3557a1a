"""Write a static page that searches pictures inside the browser.

The folder holds the page, the model's graphs, its vocabulary, ONNX Runtime for browsers, the
pictures and their vectors. Any file server can serve it; nothing is computed there.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

from polyglance.demo.onnxruntime_web import FILES, runtime_folder
from polyglance.demo.photographs import FOLDER, photographs
from polyglance.demo.queries import QUERIES
from polyglance.encoders.half_precision import without_float16
from polyglance.encoders.model_folder import (
    PICTURE,
    STANDARD_NAMES,
    TEXT,
    VOCABULARY,
    ModelFolder,
)
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.errors import PolyglanceError
from polyglance.utils.bounded import decompress_xz

_PAGE = Path(__file__).parent / "browser"
_OWN = ("index.html", "page.js", "search.js", "tokenizer.js")


def write_static_page(
    out: Path, *, model: str | Path | None = None, onnxruntime_web: Path | None = None
) -> int:
    """Write the page for the demo's photographs.

    Args:
        out: Folder to write; its files are replaced.
        model: A model of sub-words and pictures by name or folder; None for the default.
        onnxruntime_web: Folder of that npm package; None to fetch it once.

    Returns:
        The bytes of the folder.
    """
    source = ModelFolder.open(model)
    description = source.description
    pictures = description.pictures
    if description.text != "sub-words" or pictures is None:
        raise PolyglanceError(
            f"{description.name} cannot run on the page: it needs a model of sub-words and pictures"
        )
    if description.format < STANDARD_NAMES:
        raise PolyglanceError(
            f"{source.path} has an earlier format: polyglance export {source.path} --out FOLDER"
            " writes the newest one, for this page as well"
        )
    runtime = runtime_folder(onnxruntime_web)
    encoder, photos = OnnxEncoder(source), photographs()
    for name in ("model", "ort", "photos"):
        (out / name).mkdir(parents=True, exist_ok=True)
    for name in _OWN:
        shutil.copyfile(_PAGE / name, out / name)
    for name in FILES:
        shutil.copyfile(runtime / name, out / "ort" / name)
    (out / "model" / TEXT).write_bytes(source.read_file(TEXT))
    # WebAssembly computes in float32.
    (out / "model" / PICTURE).write_bytes(without_float16(source.read_file(PICTURE)))
    vocabulary = gzip.compress(decompress_xz(source.read_file(VOCABULARY)), mtime=0)
    (out / "model" / "vocabulary.bin.gz").write_bytes(vocabulary)
    settings = {
        "name": description.name,
        "width": description.width,
        "maxLength": description.max_length,
        "size": pictures.size,
        "mean": pictures.mean,
        "std": pictures.std,
        "queries": [query.text for query in QUERIES],
    }
    _write_json(out / "model" / "settings.json", settings)
    entries = []
    for photo in photos:
        shutil.copyfile(photo.path, out / "photos" / photo.file)
        source_path = f"photos/{photo.file}"
        entries.append({"source": source_path, "title": photo.title, "credit": photo.credit})
    shutil.copyfile(FOLDER / "LICENCES.md", out / "photos" / "LICENCES.md")
    _write_json(out / "photos.json", entries)
    vectors = encoder.encode_pictures([photo.path for photo in photos])
    vectors.astype("<f4").tofile(out / "vectors.bin")
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file())


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
