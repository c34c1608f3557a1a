"""Tars of WebDataset's layout: written, indexed, found by records, and read whole."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import fsspec
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from polyglance.cli import app
from polyglance.data.readers import ReadOptions, read_dataset
from polyglance.data.tar_index import scan_tar, tar_key
from polyglance.data.tar_writer import write_tars
from polyglance.data.tars import TarSet, build_index, open_tars
from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.records import Record, read_manifest, write_manifest
from polyglance.vision import decoding
from polyglance.vision.decoding import DecodePool, ImageBytes, decode
from polyglance.vision.pictures import PictureError


def picture(shade: int, format: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (9, 7), (shade, 2 * shade % 256, 99)).save(out, format)
    return out.getvalue()


def write_tar(
    path: Path,
    members: Mapping[str, bytes] | Iterable[tuple[str, bytes]],
    format: int = tarfile.PAX_FORMAT,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=format) as tar:
        for name, content in dict(members).items() if isinstance(members, dict) else members:
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), 1.5  # a PAX header, as of a fraction
            if name.endswith("/"):
                member.type = tarfile.DIRTYPE
            tar.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_samples_are_grouped_as_webdataset_does(tmp_path: Path, format: int) -> None:
    long = "d" * 90 + "/" + "k" * 90
    members = [
        ("./", b""),
        ("images/", b""),
        ("images/1.jpg", picture(1)),
        ("images/1.seg.png", b"mask"),
        ("images/1.JSON", b"{}"),
        ("__meta__/x.txt", b"skipped"),
        (".hidden", b"skipped"),
        ("._2.jpg", b"skipped"),
        ("2.jpeg", picture(2)),
        ("2.cls.txt", b"7"),
        ("README", b"no extension"),
        ("a.b.c.png", picture(3)),
        (f"{long}.png", picture(4)),
    ]
    write_tar(tmp_path / "t.tar", members, format)
    with (tmp_path / "t.tar").open("rb") as file:
        samples = list(scan_tar(file, "t.tar"))
    assert [(s.key, sorted(s.members), s.image) for s in samples] == [
        ("images/1", ["jpg", "json", "seg.png"], "jpg"),
        ("2", ["cls.txt", "jpeg"], "jpeg"),
        ("a", ["b.c.png"], "b.c.png"),
        (long, ["png"], "png"),
    ]
    images = open_tars(tmp_path)
    names = [f"t.tar/{key}" for key in ("images/1.jpg", "2.jpeg", "a.b.c.png", f"{long}.png")]
    assert [images.tar_index.name(number) for number in range(4)] == names
    expected = [picture(shade) for shade in (1, 2, 3, 4)]
    assert [image.read() for image in images] == expected
    # A record finds its image by tar and member, by path, by file name, or by id.
    assert images.tar_index.find(Record(image="x/t.tar/a.b.c.png")) == 2
    assert images.tar_index.find(Record(image="images/1.jpg")) == 0
    assert images.tar_index.find(Record(image="elsewhere/2.png")) == 1
    assert images.tar_index.find(Record(image="y.jpg", id="2")) == 1
    assert images.tar_index.find(Record(image="t.tar/3.jpg")) is None
    with pytest.raises(PolyglanceError, match=r"has no image 'nothing\.jpg'"):
        images.find([Record(image="nothing.jpg")])


def test_manifest_becomes_tars_with_an_index(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "images").mkdir(parents=True)
    records = [
        Record(image=f"images/{n}.v1.png", captions={"en": (f"picture {n}",)}) for n in range(7)
    ]
    for number in range(7):
        content = picture(number)
        (folder / "images" / f"{number}.v1.png").write_bytes(
            content[:30] if number == 3 else content
        )
    write_manifest(folder / "m.jsonl", records)
    result = write_tars(folder / "m.jsonl", tmp_path / "tars" / "train", max_images=3)
    assert (result.images, result.tars) == (6, 2)
    assert list(result.damaged) == ["images/3.v1.png"]
    assert "3.v1.png: " in result.damaged["images/3.v1.png"]
    with tarfile.open(tmp_path / "tars" / "train-000000.tar") as tar:
        keys = [f"images/{n}_v1" for n in range(3)]
        assert tar.getnames() == [f"{key}{end}" for key in keys for end in (".png", ".json")]
    images = open_tars(tmp_path / "tars" / "train-{000000..000001}.tar")
    assert (tmp_path / "tars" / "train.index" / "tars.json").is_file()
    numbers = images.find(records)
    assert numbers.tolist() == [0, 1, 2, -1, 3, 4, 5]
    chosen = images.select(numbers[[6, 1]])
    for image, number in zip(chosen, (6, 1), strict=True):
        expected = decode(folder / "images" / f"{number}.v1.png", 5)
        assert np.array_equal(decode(image, 5), expected)
    # The tars alone give the records again.
    again = read_dataset("webdataset", tmp_path / "tars", ReadOptions(), Problems(strict=True))
    captions = [record.captions for record in again]
    assert captions == [r.captions for n, r in enumerate(records) if n != 3]
    with pytest.raises(PolyglanceError, match="there already"):
        write_tars(folder / "m.jsonl", tmp_path / "tars" / "train")
    (folder / "images" / "5.v1.png").unlink()
    with pytest.raises(DataError, match=r"5\.v1\.png: cannot be read"):
        write_tars(folder / "m.jsonl", tmp_path / "other" / "train")
    assert not list((tmp_path / "other").iterdir())


def test_captions_of_others_tars(tmp_path: Path) -> None:
    write_tar(
        tmp_path / "a-0.tar",
        {
            "1.jpg": picture(1),
            "1.json": b'{"caption": " A dog. ", "url": "u"}',
            "2.png": picture(2),
            "2.txt": b"Ein Hund.\n",
            "3.png": picture(3),
            "4.txt": b"no image",
            "5.png": picture(5),
            "5.json": b"[1]",
        },
    )
    problems = Problems()
    options = ReadOptions(language="de", split="train")
    records = list(read_dataset("webdataset", tmp_path, options, problems))
    assert [(r.image, r.id, dict(r.captions), r.split) for r in records] == [
        ("a-0.tar/1.jpg", "1", {"de": ("A dog.",)}, "train"),
        ("a-0.tar/2.png", "2", {"de": ("Ein Hund.",)}, "train"),
        ("a-0.tar/3.png", "3", {}, "train"),
    ]
    assert "expected a JSON object in 5" in str(problems.items[0])
    write_manifest(tmp_path / "m.jsonl", records)
    assert open_tars(tmp_path).find(list(read_manifest(tmp_path / "m.jsonl"))).tolist() == [0, 1, 2]


def cut(content: bytes) -> bytes:
    return content[:700]


def break_second_header(content: bytes) -> bytes:
    assert content[1024:1025] == b"2"
    return content[:1024] + b"\xff" + content[1025:]


@pytest.mark.parametrize("damage", [cut, break_second_header])
def test_damaged_tars_are_no_shorter_tars(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "t.tar"
    write_tar(path, {"1.png": picture(1), "2.png": picture(2)}, tarfile.GNU_FORMAT)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"t\.tar: cannot be read as a tar after \d members"):
        open_tars(tmp_path)
    assert not (tmp_path / "t.index").exists()


def test_what_cannot_be_indexed_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there are no tars"):
        open_tars(tmp_path)
    write_tar(tmp_path / "t-0.tar", [("1.png", picture(1)), ("1.png", picture(2))])
    with pytest.raises(DataError, match=r"1\.png is there twice"):
        open_tars(tmp_path)
    with pytest.raises(DataError, match=r"t-1\.tar is missing"):
        TarSet(tmp_path / "t-{0..1}.tar")
    write_tar(tmp_path / "t-0.tar", {"1.png": picture(1)})
    write_tar(tmp_path / "t-1.tar", {"1.png": picture(1)})
    images = open_tars(tmp_path)
    with pytest.raises(DataError, match="have the same key"):
        images.tar_index.find(Record(image="1.png"))
    assert images.tar_index.find(Record(image="t-1.tar/1.png")) == 1


def test_index_is_made_again_for_other_tars_and_elsewhere_if_need_be(tmp_path: Path) -> None:
    write_tar(tmp_path / "t-0.tar", {"1.png": picture(1)})
    assert len(open_tars(tmp_path)) == 1
    write_tar(tmp_path / "t-1.tar", {"2.png": picture(2), "3.png": b"broken", "4.txt": b"x"})
    images = open_tars(tmp_path)
    assert (len(images), images.tar_index.info["without_image"]) == (3, 1)
    assert images.tar_index.damaged is None
    index = build_index(TarSet(tmp_path), check=True)
    assert index.damaged == {2}
    assert open_tars(tmp_path).tar_index.damaged == {2}
    assert open_tars(tmp_path).find([Record(image="3.png")]).tolist() == [-1]
    (tmp_path / "blocked").mkdir()
    write_tar(tmp_path / "blocked" / "t-0.tar", {"1.png": picture(1)})
    (tmp_path / "blocked" / "t.index.partial").write_text("a file in the way")
    (tmp_path / "blocked" / "t.index").write_text("another")
    assert len(open_tars(tmp_path / "blocked", cache_dir=tmp_path / "cache")) == 1
    assert [path.name.partition("-")[0] for path in (tmp_path / "cache").iterdir()] == ["t.index"]


def test_tars_at_an_address_are_copied_within_a_bound(tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    system.mkdirs("/shelf", exist_ok=True)
    for number in range(4):
        members = {f"{number}{k}.png": picture(10 * number + k) for k in range(3)}
        write_tar(tmp_path / "x.tar", members)
        system.pipe_file(f"/shelf/train-{number}.tar", (tmp_path / "x.tar").read_bytes())
    size = system.size("/shelf/train-0.tar")
    images = open_tars(
        "memory://shelf/train-{0..3}.tar", cache_dir=tmp_path / "cache", cache_bytes=2 * size
    )
    assert not images.is_local
    for number in (0, 11, 5, 8, 2, 10):
        assert images[number].read() == picture(10 * (number // 3) + number % 3)
        copies = list((tmp_path / "cache").rglob("*.tar"))
        assert 1 <= len(copies) <= 2
    again = open_tars("memory://shelf", cache_dir=tmp_path / "cache", cache_bytes=2 * size)
    assert len(again) == 12
    system.rm("/shelf", recursive=True)


def test_processes_and_threads_decode_alike_and_name_what_is_damaged(tmp_path: Path) -> None:
    contents = [picture(shade, "JPEG") for shade in range(11)]
    write_tar(tmp_path / "t.tar", {f"{n}.jpg": content for n, content in enumerate(contents)})
    sources = list(open_tars(tmp_path))
    processes = DecodePool(1)
    try:
        ours = processes.squares(sources, 6)
        assert np.array_equal(ours, DecodePool().squares(sources, 6))
        broken = ImageBytes("t.tar/x.jpg", content=b"nothing")
        with pytest.raises(PictureError, match=r"t\.tar/x\.jpg: is not a picture"):
            processes.squares([*sources[:9], broken], 6)
        assert list(processes.damaged([*sources[:9], broken, *sources])) == [9]
    finally:
        processes.close()
    late = ImageBytes("t.tar/y.jpg", str(tmp_path / "t.tar"), 10**6, 10)
    with pytest.raises(DataError, match=r"ends before t\.tar/y\.jpg"):
        DecodePool().squares([late], 6)


def test_keys_end_at_the_first_dot() -> None:
    assert tar_key("images/a.b.jpg") == "images/a_b"
    assert tar_key("./1.PNG") == "1"
    assert tar_key("no-suffix") == "no-suffix"
    assert decoding.default_workers(1000) == 1


def test_commands_write_and_index_tars(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(picture(number) if number else b"broken")
    write_manifest(tmp_path / "m.jsonl", [Record(image=f"{n}.png") for n in range(3)])
    runner, tars = CliRunner(), tmp_path / "tars" / "t"
    command = ["data", "shard", str(tmp_path / "m.jsonl"), "--out", str(tars), "--workers", "0"]
    result = runner.invoke(app, command)
    assert result.exit_code == 0
    assert "2 images in 1 tar\n" in result.output
    assert "0.png: is not a picture" in result.output
    write_tar(tmp_path / "tars" / "t-000001.tar", {"9.jpg": b"broken"})
    result = runner.invoke(app, ["data", "index", str(tars.parent), "--check"])
    assert result.exit_code == 0
    assert "t.index: 3 images in 2 tars, 1 damaged image\n" in result.output
