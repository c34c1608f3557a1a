"""Write a calibration into the folder of an exported model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from polyglance.encoders.calibration import Calibration
from polyglance.encoders.model_folder import CALIBRATION, DESCRIPTION_FILE, ModelFolder, checksum
from polyglance.records import atomic_write


def write_calibration(folder: str | Path, calibration: Calibration) -> Path:
    """Write ``calibration.npz`` and its checksum; libraries of the model stay valid.

    Returns:
        The path of the file.
    """
    model = ModelFolder.open(folder)
    path, content = model.path / CALIBRATION, calibration.to_bytes()
    path.write_bytes(content)
    files = {**model.description.files, CALIBRATION: checksum(content)}
    with atomic_write(model.path / DESCRIPTION_FILE) as file:
        file.write(replace(model.description, files=files).to_json())
    return path
