"""What is stored says its format: a newer one is refused in a sentence, and older ones open.

Libraries and their shards are in tests/search/test_compatibility.py, model folders of earlier
formats in tests/encoders/test_model_formats.py.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import polyglance
from helpers.tiny_cross_encoders import (
    save_cross_encoder,
    save_vqa_model,
    tiny_uc2,
    write_colour_images,
    write_colour_parts,
)
from polyglance.errors import DataError
from polyglance.export.from_run import export_run
from polyglance.models.mmp_folder import load_mmp
from polyglance.models.smalr_folder import load_smalr
from polyglance.training.checkpoints import read_state
from polyglance.vision.store import parse_info

FIXTURES = Path(__file__).parent / "fixtures"
NEWER = "was made by a newer Polyglance: pip install --upgrade polyglance"


def change(file: Path, **values: Any) -> None:
    """Change entries of a JSON file; None removes one."""
    plain = json.loads(file.read_text()) if file.exists() else {}
    plain = {name: value for name, value in (plain | values).items() if value is not None}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(plain))


def test_cross_encoders_and_vqa_models_say_their_format(tmp_path: Path) -> None:
    parts = write_colour_parts(tmp_path / "parts")
    image = write_colour_images(tmp_path)[0]
    for save in (save_vqa_model, lambda f, p: save_cross_encoder(f, p, tiny_uc2(p))):
        folder = save(tmp_path / "model", parts)
        assert json.loads((folder / "config.json").read_text())["format"] == 1
        change(folder / "config.json", format=None)  # as version 0.1 wrote it
        model = polyglance.CrossEncoder(folder)
        if model.answers_questions:
            assert model.ask(image, "red picture")
        else:
            assert model.score("a red picture", [image]).shape == (1,)
        change(folder / "config.json", format=99)
        with pytest.raises(DataError, match=NEWER):
            polyglance.CrossEncoder(folder)
        change(folder / "config.json", format="two")
        with pytest.raises(DataError, match="its format is 'two' and should be a whole number"):
            polyglance.CrossEncoder(folder)
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("file", "values", "read"),
    [
        ("config.json", {"system": "mmp"}, load_mmp),
        ("config.json", {}, load_smalr),
        ("compact/config.json", {}, lambda run: export_run(run, run / "out", name="x")),
        ("state.json", {"step": 3}, read_state),
    ],
    ids=["mmp", "smalr", "compressed", "checkpoint"],
)
def test_runs_and_their_models_of_a_newer_version_are_refused(
    file: str, values: dict[str, Any], read: Callable[[Path], object], tmp_path: Path
) -> None:
    change(tmp_path / file, **values, format=99)
    with pytest.raises(DataError, match=NEWER):
        read(tmp_path)
    # Without a format it is an earlier one, in which something else may be missing.
    change(tmp_path / file, format=None)
    try:
        assert read(tmp_path) == values
    except DataError as error:
        assert "newer" not in str(error)  # noqa: PT017


def test_dual_encoders_and_feature_stores_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(FIXTURES / "model_format_2", folder)
    change(folder / "model.json", format=99)
    with pytest.raises(DataError, match=NEWER):
        polyglance.load(folder)
    with pytest.raises(DataError, match=NEWER):
        parse_info('{"version": 99}', "store.json")
    with pytest.raises(DataError, match="is not version 1; extract the features again"):
        parse_info('{"version": 0}', "store.json")
