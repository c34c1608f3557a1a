"""Feature extraction from files to a store, in one run or several."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polyglance.errors import MissingExtraError, PolyglanceError, Problems
from polyglance.records import Record, write_manifest
from polyglance.vision import backbone as backbones
from polyglance.vision import clips, extraction
from polyglance.vision.extraction import extract, find_items
from polyglance.vision.shard_encoding import ExtractionSettings
from polyglance.vision.store import FeatureStore

SHADES = [(10 * i, 5 * i, 255 - 10 * i) for i in range(25)]


def files(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_folder_of_pictures_is_extracted(toy, colours, tmp_path):
    result = extract(colours(*SHADES), tmp_path / "store", toy.SETTINGS)
    store = FeatureStore(tmp_path / "store")
    assert (result.items, result.bad, result.done_before) == (25, {}, 0)
    assert store.keys == tuple(f"{i:03d}.png" for i in range(25))
    for number, shade in enumerate(SHADES):
        tokens = store[f"{number:03d}.png"]
        assert tokens.features.tolist() == [list(shade)] * 4
        assert tokens.global_feature.tolist() == list(shade)
        assert tokens.label_ids[0, 0] == max(range(3), key=shade.__getitem__)
    assert store.info.made_by["backbone"] == "toy"
    assert store.info.made_by["grid"] == 2


def test_labels_can_come_from_another_backbone(toy, colours, tmp_path, monkeypatch):
    class Backwards(toy.Toy):
        """Gives zero features and labels of its own."""

        def encode(self, pictures, *, grid, labels):
            tokens = super().encode(pictures, grid=grid, labels=labels)
            return [
                replace(one, features=0 * one.features, label_ids=2 - one.label_ids)
                for one in tokens
            ]

    monkeypatch.setitem(backbones.LOADERS, "backwards", lambda name, size, *_: Backwards(size))
    folder = colours(*SHADES)
    extract(folder, tmp_path / "plain", toy.SETTINGS)
    extract(folder, tmp_path / "both", replace(toy.SETTINGS, labels_by="backwards"))
    plain, both = FeatureStore(tmp_path / "plain"), FeatureStore(tmp_path / "both")
    assert both.info.made_by["labels_by"] == "backwards"
    assert "labels_by" not in plain.info.made_by
    assert both.info.made_by["weights_sha256"] != plain.info.made_by["weights_sha256"]
    for key in plain.keys:
        assert both[key].features.tolist() == plain[key].features.tolist()
        assert both[key].label_ids.tolist() == (2 - plain[key].label_ids).tolist()


def test_folders_are_scanned_in_order_without_hidden_files(tmp_path):
    for name in ("b/2.PNG", "a.jpg", ".hidden/3.png", "b/.4.png", "b/notes.txt", "é/5.webp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert [item.key for item in find_items(tmp_path)] == ["a.jpg", "b/2.PNG", "é/5.webp"]


def test_the_pictures_and_clips_of_a_manifest_are_extracted(toy, colours, clip, tmp_path):
    colours((200, 100, 0))
    clip("clip.mp4", [i / 10 for i in range(26)])
    manifest = tmp_path / "manifest.jsonl"
    records = [
        Record(image="pictures/000.png", id="one", captions={"en": ("orange",)}),
        Record(image="pictures/000.png", id="two", captions={"de": ("orange",)}),
        Record(captions={"en": ("words alone",)}),
        Record(video="clip.mp4"),
        Record(video="clip.mp4", span=(1.0, 2.0)),
        Record(video="missing.mp4"),
    ]
    write_manifest(manifest, records)
    result = extract(manifest, tmp_path / "store", toy.SETTINGS)
    store = FeatureStore(tmp_path / "store")
    assert store.keys == ("pictures/000.png", "clip.mp4", "clip.mp4#t=1,2")
    assert len(store["clip.mp4"]) == 3
    assert len(store["clip.mp4#t=1,2"]) == 1
    assert store["clip.mp4#t=1,2"].spans.tolist() == [[1, 2]]
    assert [store.find(record) for record in records[:2]] == ["pictures/000.png"] * 2
    assert list(result.bad) == ["missing.mp4"]


def test_malformed_lines_of_a_manifest_are_reported(toy, colours, tmp_path):
    colours((1, 2, 3))
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text('{"image": "pictures/000.png"}\n{broken\n')
    problems = Problems()
    assert extract(manifest, tmp_path / "store", toy.SETTINGS, problems=problems).items == 1
    assert [problem.line for problem in problems.items] == [2]
    with pytest.raises(PolyglanceError, match=r"manifest\.jsonl:2"):
        extract(manifest, tmp_path / "another", toy.SETTINGS)


def test_bad_files_are_named_skipped_and_counted(toy, colours, tmp_path):
    folder = colours(*SHADES[:6])
    (folder / "001.png").write_bytes(b"")
    (folder / "004.png").write_bytes(b"nothing of the kind")
    data = (folder / "005.png").read_bytes()
    (folder / "005.png").write_bytes(data[:60])
    result = extract(folder, tmp_path / "store", toy.SETTINGS)
    store = FeatureStore(tmp_path / "store")
    assert result.items == 6
    assert store.keys == ("000.png", "002.png", "003.png")
    assert list(result.bad) == list(store.bad) == ["001.png", "004.png", "005.png"]
    lines = (tmp_path / "store" / "bad.txt").read_text().splitlines()
    assert lines[0] == "001.png\tthe file is empty"
    assert lines[1] == "004.png\tis not a picture of a known kind"
    assert str(tmp_path) not in "".join(lines)
    # A picture's features do not depend on its neighbours.
    assert store["002.png"].features.tolist() == [list(SHADES[2])] * 4


def test_a_store_with_only_bad_files_can_be_opened(toy, tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(b"")
    extract(tmp_path / "pictures", tmp_path / "store", toy.SETTINGS)
    store = FeatureStore(tmp_path / "store")
    assert len(store) == 0
    assert store.gather([]).lengths.tolist() == []
    assert list(store.bad) == ["a.png"]


def test_boxes_of_centre_crops_refer_to_the_uncropped_picture(toy, tmp_path):
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (200, 100)).save(tmp_path / "pictures" / "wide.png")
    extract(tmp_path / "pictures", tmp_path / "store", replace(toy.SETTINGS, resize="centre"))
    boxes = FeatureStore(tmp_path / "store")["wide.png"].boxes
    assert boxes.tolist()[0] == [0.25, 0, 0.5, 0.5]
    assert boxes.tolist()[-1] == [0.5, 0.5, 0.75, 1]


def test_resuming_gives_the_same_bytes_without_repeated_work(toy, colours, tmp_path, monkeypatch):
    folder = colours(*SHADES)
    extract(folder, tmp_path / "one", toy.SETTINGS)
    encode, calls = toy.Toy.encode, []

    def interrupted(self, pictures, **options):
        calls.append(len(pictures))
        if len(calls) in (4, 9):  # a shard of four is two batches of three
            raise KeyboardInterrupt
        return encode(self, pictures, **options)

    monkeypatch.setattr(toy.Toy, "encode", interrupted)
    for done_after in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            extract(folder, tmp_path / "two", toy.SETTINGS)
        assert len(list((tmp_path / "two" / "shards").iterdir())) == done_after
    result = extract(folder, tmp_path / "two", toy.SETTINGS)
    assert result.done_before == 12
    assert files(tmp_path / "one") == files(tmp_path / "two")
    calls.clear()
    assert extract(folder, tmp_path / "two", toy.SETTINGS).done_before == 25
    assert calls == []


def test_a_store_killed_twice_is_the_same_to_the_byte(toy, colours, tmp_path):
    """A real process, killed without warning between its first and its last shard."""
    folder = colours(*SHADES)
    (folder / "003.png").write_bytes(b"")
    (folder / "017.png").write_bytes(b"not a picture")
    extract(folder, tmp_path / "one", toy.SETTINGS)
    shards = tmp_path / "two" / "shards"
    script = [sys.executable, str(Path(__file__).with_name("toy.py")), str(folder)]

    def done() -> int:
        return len(list(shards.glob("*.safetensors"))) if shards.exists() else 0

    for after in (1, 3):
        process = subprocess.Popen([*script, str(tmp_path / "two"), "0.1", "1"])
        deadline = time.monotonic() + 60
        while done() < after and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert after <= done() < 7
    subprocess.run([*script, str(tmp_path / "two"), "0", "1"], check=True)
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert set(FeatureStore(tmp_path / "two").bad) == {"003.png", "017.png"}


def test_several_processes_write_the_same_store(toy, colours, tmp_path):
    folder = colours(*SHADES)
    (folder / "017.png").write_bytes(b"not a picture")
    extract(folder, tmp_path / "one", toy.SETTINGS)
    script = [sys.executable, str(Path(__file__).with_name("toy.py")), str(folder)]
    subprocess.run([*script, str(tmp_path / "two"), "0", "2"], check=True)
    assert files(tmp_path / "one") == files(tmp_path / "two")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are listed by Linux")
def test_an_interrupt_while_processes_start_is_told_once(toy, colours, tmp_path):
    """Ctrl-C reaches every process of a terminal, here as soon as a worker exists."""
    folder, store = colours(*SHADES), tmp_path / "store"
    script = [sys.executable, str(Path(__file__).with_name("toy.py")), str(folder), str(store)]
    process = subprocess.Popen(
        [*script, "0.1", "2"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def workers() -> list[bytes]:
        found = []
        for child in children.read_text().split():
            with suppress(OSError):
                found.append(Path(f"/proc/{child}/cmdline").read_bytes())
        return [command for command in found if b"spawn_main" in command]

    while process.poll() is None and len(workers()) < 2:
        time.sleep(0.001)
    time.sleep(0.1)  # workers import meanwhile
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert said.count("Traceback") == said.count("KeyboardInterrupt") == 1, said
    subprocess.run([*script, "0", "2"], check=True)
    extract(folder, tmp_path / "one", toy.SETTINGS)
    assert files(tmp_path / "one") == files(store)


def test_a_process_that_ends_is_reported_and_the_store_is_kept(toy, colours, tmp_path):
    folder, store = colours(*SHADES), tmp_path / "store"
    script = [sys.executable, str(Path(__file__).with_name("toy.py")), str(folder), str(store)]
    ended = subprocess.run([*script, "-1", "2"], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "a process that extracts features ended; is memory short?" in ended.stderr
    subprocess.run([*script, "0", "2"], check=True)
    extract(folder, tmp_path / "one", toy.SETTINGS)
    assert files(tmp_path / "one") == files(store)


def test_why_a_process_cannot_begin_is_said(toy, colours, tmp_path):
    """Workers do not know the toy backbone, which this process alone has registered."""
    with pytest.raises(PolyglanceError, match="there is no backbone called 'toy'"):
        extract(colours(*SHADES), tmp_path / "store", toy.SETTINGS, workers=2)


def test_other_settings_or_pictures_are_refused(toy, colours, tmp_path):
    folder = colours(*SHADES[:3])
    extract(folder, tmp_path / "store", toy.SETTINGS)
    with pytest.raises(PolyglanceError, match="made with grid 2, not 4"):
        extract(folder, tmp_path / "store", replace(toy.SETTINGS, grid=4))
    with pytest.raises(PolyglanceError, match="made with batch_size 3, not 5"):
        extract(folder, tmp_path / "store", replace(toy.SETTINGS, batch_size=5))
    Image.new("RGB", (4, 4)).save(folder / "new.png")
    with pytest.raises(PolyglanceError, match="another list of pictures"):
        extract(folder, tmp_path / "store", toy.SETTINGS)


@pytest.mark.parametrize(
    "change",
    [{"grid": 0}, {"grid": 65}, {"labels": -1}, {"batch_size": 0}, {"batch_size": 1025},
     {"shard_size": 0}, {"resize": "stretch"}, {"dtype": "int4"}, {"backbone": "none"},
     {"size": 31}, {"size": 99999999}],
)  # fmt: skip
def test_invalid_settings_are_refused_before_anything_is_written(toy, colours, tmp_path, change):
    ((name, value),) = change.items()
    with pytest.raises(PolyglanceError, match=rf"{name}.*{value}"):
        extract(colours((0, 0, 0)), tmp_path / "store", replace(toy.SETTINGS, **change))
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("workers", [0, 10**6])
def test_impossible_numbers_of_processes_are_refused(toy, colours, tmp_path, workers):
    with pytest.raises(PolyglanceError, match=f"workers must be .* not {workers}"):
        extract(colours(*SHADES), tmp_path / "store", toy.SETTINGS, workers=workers)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("threads", [-2, 0, 100_000])
def test_too_many_threads_are_refused_before_anything_is_loaded(
    toy, colours, tmp_path, monkeypatch, threads
):
    monkeypatch.setattr(extraction, "ShardEncoder", None)
    with pytest.raises(PolyglanceError, match=f"threads must be from 1 to 256, not {threads}"):
        extract(colours((0, 0, 0)), tmp_path / "store", toy.SETTINGS, threads=threads)
    assert not (tmp_path / "store").exists()


def test_an_unwritable_folder_is_refused(toy, colours, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PolyglanceError, match=r"cannot be written .*; give a writable folder"):
        extract(colours((0, 0, 0)), tmp_path / "file" / "store", toy.SETTINGS)


def test_a_single_picture_or_clip_is_extracted(toy, colours, clip, tmp_path):
    picture = colours((9, 8, 7)) / "000.png"
    extract(picture, tmp_path / "one", toy.SETTINGS)
    assert FeatureStore(tmp_path / "one")["000.png"].global_feature.tolist() == [9, 8, 7]
    extract(clip("clip.mp4", [0.0, 0.5, 1.0, 1.5]), tmp_path / "other", toy.SETTINGS)
    assert FeatureStore(tmp_path / "other").keys == ("clip.mp4",)


def test_clips_in_a_folder_need_pyav(toy, colours, clip, tmp_path, monkeypatch):
    folder = colours((9, 8, 7))
    clip("pictures/a.MP4", [0.0, 0.5, 1.0, 1.5])
    extract(folder, tmp_path / "store", toy.SETTINGS)
    store = FeatureStore(tmp_path / "store")
    assert store.keys == ("000.png", "a.MP4")
    assert store["a.MP4"].spans[0].tolist() == [0, 1]
    for suffix in ("webm", "mkv", "mov", "avi", "m4v"):
        (folder / f"b.{suffix}").write_bytes(b"")
    assert sum(item.video for item in find_items(folder)) == 6
    monkeypatch.setattr(clips, "find_spec", lambda name: None)
    assert [item.key for item in find_items(folder)] == ["000.png"]
    (folder / "000.png").unlink()
    with pytest.raises(MissingExtraError, match=r"polyglance\[video\]"):
        extract(folder, tmp_path / "another", toy.SETTINGS)


def test_urls_are_reported_as_not_fetched(toy, colours, tmp_path):
    colours((0, 0, 0))
    records = [
        Record(image="https://example.org/a.jpg"),
        Record(video="HTTP://example.org/a.mp4", span=(0.0, 1.0)),
        Record(image="pictures/000.png"),
    ]
    write_manifest(tmp_path / "manifest.jsonl", records)
    bad = extract(tmp_path / "manifest.jsonl", tmp_path / "store", toy.SETTINGS).bad
    assert len(bad) == 2
    assert all("not fetched: download the pictures first" in reason for reason in bad.values())


def test_repaired_files_are_added_and_the_store_equals_one_run(
    toy, colours, clip, tmp_path, monkeypatch
):
    folder = colours(*SHADES[:10])
    clip("pictures/z.mp4", [0.0, 0.5, 1.0, 1.5])
    sound = {name: (folder / name).read_bytes() for name in ("001.png", "006.png", "z.mp4")}
    for name in sound:
        (folder / name).write_bytes(b"")
    extract(folder, tmp_path / "store", toy.SETTINGS)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")}
    encode, batches = toy.Toy.encode, []

    def counted(self, pictures, **options):
        batches.append(len(pictures))
        return encode(self, pictures, **options)

    monkeypatch.setattr(toy.Toy, "encode", counted)
    assert extract(folder, tmp_path / "store", toy.SETTINGS).done_before == 11
    assert batches == []  # bad files are only decoded again, and nothing is written
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")}

    (folder / "001.png").write_bytes(sound["001.png"])
    (folder / "006.png").write_bytes(b"bad for another reason")
    result = extract(folder, tmp_path / "store", toy.SETTINGS)
    assert result.done_before == 3  # the last shard, whose clip is still bad
    assert list(result.bad) == ["006.png", "z.mp4"]
    assert "006.png\tis not a picture" in (tmp_path / "store" / "bad.txt").read_text()

    for name, data in sound.items():
        (folder / name).write_bytes(data)
    assert extract(folder, tmp_path / "store", toy.SETTINGS).bad == {}
    extract(folder, tmp_path / "one", toy.SETTINGS)
    assert files(tmp_path / "one") == files(tmp_path / "store")
    assert not (tmp_path / "store" / "bad.txt").exists()


def test_a_source_without_pictures_is_refused(toy, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(PolyglanceError, match="no picture or clip"):
        extract(tmp_path / "empty", tmp_path / "store", toy.SETTINGS)
    sentence = "nope: no such file or folder; give a manifest, a folder or a picture"
    with pytest.raises(PolyglanceError, match=sentence):
        extract(tmp_path / "nope", tmp_path / "store", toy.SETTINGS)


def test_linked_folders_are_not_scanned(tmp_path):
    folder, elsewhere = tmp_path / "links", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    Image.new("RGB", (8, 8)).save(elsewhere / "a.png")
    (folder / "images").symlink_to(elsewhere)
    with pytest.raises(PolyglanceError, match="linked folders are not scanned"):
        find_items(folder)


def test_clips_without_pyav_are_refused_at_once(toy, tmp_path, monkeypatch, colours):
    colours((0, 0, 0))
    records = [Record(image="pictures/000.png"), Record(video="clip.mp4")]
    write_manifest(tmp_path / "manifest.jsonl", records)

    def missing() -> None:
        raise MissingExtraError("reading clips", "video")

    monkeypatch.setattr(extraction, "require_video", missing)
    with pytest.raises(MissingExtraError, match=r"polyglance\[video\]"):
        extract(tmp_path / "manifest.jsonl", tmp_path / "store", toy.SETTINGS)
    assert not (tmp_path / "store").exists()


def test_decoder_warnings_are_silenced(toy, colours, tmp_path):
    folder = colours((1, 2, 3))
    Image.new("RGB", (8, 8)).save(folder / "a.jpg", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff garbage")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        extract(folder, tmp_path / "store", toy.SETTINGS)
    assert caught == []
    assert len(FeatureStore(tmp_path / "store")) == 2


def test_default_settings_work_with_efficientnet(tmp_path):
    import skimage.data

    (tmp_path / "photos").mkdir()
    Image.fromarray(skimage.data.coffee()).save(tmp_path / "photos" / "coffee.jpg")
    Image.fromarray(skimage.data.chelsea()).save(tmp_path / "photos" / "cat.webp")
    settings = ExtractionSettings(batch_size=2)
    extract(tmp_path / "photos", tmp_path / "store", settings, threads=2)
    store = FeatureStore(tmp_path / "store")
    assert store["coffee.jpg"].features.shape == (49, 1280)
    assert store["coffee.jpg"].label_ids[24, 0] == 967  # the middle of the cup: espresso
    info = json.loads((tmp_path / "store" / "store.json").read_text())
    assert len(info["made_by"]["weights_sha256"]) == 64
    global_feature = store["cat.webp"].global_feature
    assert np.allclose(global_feature, store["cat.webp"].features.mean(0), atol=0.05)
