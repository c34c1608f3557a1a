"""Lists of the clips that a published test uses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polyglance.data.name_lists import read_name_list
from polyglance.errors import DataError
from polyglance.records import Record

CSV = "key,vid_key,video_id,sentence\nret0,msr1,video1,a dog\nret1,msr2,clips/video2.mp4,a cat\n"


@pytest.mark.parametrize("form", ["txt", "npy", "csv"])
def test_records_are_on_a_list_by_path_or_name(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"names.{form}"
    if form == "npy":
        np.save(path, np.array(["video1", "clips/video2.mp4"]))
    else:
        path.write_text(CSV if form == "csv" else "video1\n\nclips/video2.mp4\n")
    names = read_name_list(path)
    assert len(names) == 2
    assert Record(video="clips/video1.mp4") in names
    assert Record(video="clips/video2.mp4") in names
    assert Record(video="upload.mp4", id="video1", span=(0, 1)) in names
    assert Record(video="other/video2.mp4") not in names
    assert Record(video="clips/video11.mp4") not in names


def test_unreadable_lists_are_reported(tmp_path: Path) -> None:
    np.save(tmp_path / "numbers.npy", np.arange(3))
    (tmp_path / "empty.txt").write_text("\n")
    for name, message in {
        "numbers.npy": "cannot be read as a list of names",
        "empty.txt": "names nothing",
        "missing.npy": "No such file",
        "missing.txt": "cannot be opened",
    }.items():
        with pytest.raises(DataError, match=message):
            read_name_list(tmp_path / name)
