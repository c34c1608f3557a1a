"""Write a model's folder: the files that Polyglance reads, and those of other libraries."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from polyglance.encoders.hub_files import CARD, hub_files, model_card
from polyglance.encoders.model_folder import (
    DESCRIPTION_FILE,
    FORMAT,
    STANDARD_NAMES,
    VOCABULARY,
    ModelDescription,
    ModelFolder,
    checksum,
)
from polyglance.errors import PolyglanceError, error_reason


def write_copy(
    source: ModelFolder,
    folder: Path,
    graphs: Mapping[str, bytes],
    extra: Mapping[str, bytes] | None = None,
) -> ModelDescription:
    """Write a model as a complete folder, which fastembed, transformers and others open too.

    Args:
        source: The model.
        folder: Where to write; a model that is there is replaced.
        graphs: For a model of an earlier format, its graphs with the standard names.
        extra: Further files that leave the vectors as they are, such as a reader's.

    Returns:
        The description of the copy; libraries of the model stay valid with it.
    """
    description = source.description
    if description.format < STANDARD_NAMES and not graphs:
        raise PolyglanceError(f"{source.path} has graphs of an earlier format: convert them first")
    contents = {name: source.read_file(name) for name in description.files} | dict(graphs)
    contents |= extra or {}
    copied = replace(
        description,
        files={name: checksum(content) for name, content in contents.items()},
        same_vectors_as=description.fingerprint if graphs or extra else description.same_vectors_as,
        format=FORMAT,
    )
    card = source.path / CARD
    if card.is_file():
        contents[CARD] = card.read_bytes()
    write_folder(folder, contents, copied)
    return copied


def write_folder(
    folder: Path,
    contents: Mapping[str, bytes],
    description: ModelDescription,
    *,
    copied_card: bytes | None = None,
) -> None:
    """Write a model's folder atomically, replacing a model that is there.

    Files that other libraries read (`hub_files`) are added. Files that someone put beside an
    earlier model, such as a card of their own, stay; those that belong to it do not.

    Args:
        folder: Where to write.
        contents: The files that the description lists.
        description: The model.
        copied_card: A card that an earlier copy may have brought, which is nobody's own.
    """
    contents = {**hub_files(description, contents[VOCABULARY]), **contents}
    contents[DESCRIPTION_FILE] = description.to_json().encode()
    folder = folder.resolve()
    partial, old = (folder.with_name(folder.name + end) for end in (".partial", ".old"))
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, content in contents.items():
            with (partial / name).open("wb") as file:
                file.write(content)
                os.fsync(file.fileno())
        if folder.exists():
            _copy_other_files(folder, partial, copied_card)
            shutil.rmtree(old, ignore_errors=True)
            os.replace(folder, old)
        os.replace(partial, folder)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise PolyglanceError(
            f"the model cannot be written to {folder} ({error_reason(error)}): give another folder"
        ) from error


def _copy_other_files(folder: Path, partial: Path, copied_card: bytes | None) -> None:
    """Copy files that were added to a model, such as its card; refuse a folder of other things."""
    entries = list(folder.iterdir())
    if not entries:
        return
    if not (folder / DESCRIPTION_FILE).is_file():
        shutil.rmtree(partial)
        raise PolyglanceError(f"{folder} holds other files and no model: give another folder")
    before = ModelFolder.open(folder).description
    generated = model_card(before).encode()
    for path in entries:
        if path.is_dir():
            shutil.copytree(path, partial / path.name)
        elif path.name == CARD:
            if path.read_bytes() not in (generated, copied_card):
                shutil.copy2(path, partial / path.name)
        elif not (partial / path.name).exists() and path.name not in before.files:
            shutil.copy2(path, partial / path.name)
