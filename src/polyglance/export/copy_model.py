"""Copy a model to a folder with everything that other libraries read; needs no torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from polyglance.encoders.hub_files import CARD
from polyglance.encoders.model_folder import (
    CALIBRATION,
    PICTURE,
    READER_CONFIG,
    STANDARD_NAMES,
    TEXT,
    ModelDescription,
    ModelFolder,
    checksum,
)
from polyglance.encoders.model_writer import write_copy, write_folder
from polyglance.encoders.reader_files import has_reader, read_reader_config
from polyglance.errors import MissingExtraError, PolyglanceError

MIN_IMAGE_SIZE, MAX_IMAGE_SIZE = 64, 1024
"""Below, the feature map of an image network has next to no cells; at the upper one, a picture
takes most of a second on a core."""


def copy_model(
    name_or_folder: str | Path | None, out: Path, image_size: int | None = None
) -> ModelDescription:
    """Write a model as a complete folder of the newest format.

    Args:
        name_or_folder: The model by name or folder; None for the one that comes with Polyglance.
        out: Where to write; a model that is there is replaced.
        image_size: Encode pictures at so many pixels a side; None for the model's own size. At
            another one, vectors of pictures are others, and a calibration and the recorded
            evaluation, which belong to the vectors of before, are left out.

    Returns:
        The description of the copy; libraries of the model stay valid with it, but for another
        image size.
    """
    source = ModelFolder.open(name_or_folder)
    is_old = source.description.format < STANDARD_NAMES
    settings = source.description.pictures
    if image_size is None or (settings is not None and image_size == settings.size):
        return write_copy(source, out, _standard_graphs(source) if is_old else {})
    if settings is None:
        raise PolyglanceError(
            f"{source.path} takes features, not pictures, and has no image size: leave it out"
        )
    if not MIN_IMAGE_SIZE <= image_size <= MAX_IMAGE_SIZE:
        wrong = "small" if image_size < MIN_IMAGE_SIZE else "large"
        raise PolyglanceError(
            f"an image size of {image_size} is too {wrong}: give {MIN_IMAGE_SIZE} to"
            f" {MAX_IMAGE_SIZE} pixels"
        )
    if is_old:
        raise PolyglanceError(
            f"{source.path} is of an earlier format: export it without an image size first"
        )
    return _write_resized(source, out, image_size)


def _write_resized(source: ModelFolder, out: Path, image_size: int) -> ModelDescription:
    """Write a model that encodes pictures at another size; its reader comes along."""
    before = source.description
    assert before.pictures is not None
    contents = {name: source.read_file(name) for name in before.files if name != CALIBRATION}
    contents[PICTURE] = _resized_graph(contents[PICTURE], image_size)
    description = replace(
        before,
        pictures=replace(before.pictures, size=image_size),
        files={name: checksum(content) for name, content in contents.items()},
        figures={},
        same_vectors_as=None,
        same_pictures_as=(),
    )
    if has_reader(source):
        reader = read_reader_config(source)
        # What it reads was encoded at the size of before, or at one of its own.
        size = reader.image_size or before.pictures.size
        reader = replace(reader, model=description.fingerprint, image_size=size)
        contents[READER_CONFIG] = reader.to_bytes()
        files = {**description.files, READER_CONFIG: checksum(contents[READER_CONFIG])}
        description = replace(description, files=files)
    card = source.path / CARD  # it has the figures of the other size
    copied = card.read_bytes() if card.is_file() else None
    write_folder(out, contents, description, copied_card=copied)
    return description


def _resized_graph(graph: bytes, image_size: int) -> bytes:
    try:
        from onnx import ModelProto
    except ModuleNotFoundError as error:
        raise MissingExtraError("another image size", "train") from error
    from polyglance.export.inputs import with_image_size

    resized: bytes = with_image_size(ModelProto.FromString(graph), image_size).SerializeToString()
    return resized


def _standard_graphs(source: ModelFolder) -> dict[str, bytes]:
    """Return the graphs of a folder of an earlier format with the standard names."""
    try:
        from onnx import ModelProto
    except ModuleNotFoundError as error:
        raise MissingExtraError("a model of an earlier format", "train") from error
    from polyglance.export.inputs import with_standard_names

    return {
        name: with_standard_names(ModelProto.FromString(source.read_file(name))).SerializeToString()
        for name in (TEXT, PICTURE)
        if name in source.description.files
    }
