"""Evaluation from files: the layout, every kind of file, and every way to get it wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from polyglance.errors import DataError, MissingExtraError, PolyglanceError
from polyglance.evaluation.embeddings import evaluate_files, read_layout
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.records import Record, write_manifest

RECORDS = [
    Record(image="a.jpg", captions={"en": ("a1", "a2"), "de": ("a",)}, split="test"),
    Record(captions={"en": ("words alone",), "de": ("nur Worte",)}),
    Record(video="b.mp4", captions={"en": ("b1",)}, span=(0, 5), split="test"),
    Record(video="b.mp4", captions={"en": ("b2",)}, span=(5, 9), split="val"),
    Record(image="c.jpg", captions={"de": ("c1", "c2"), "fr": ()}, split="test"),
]


class RetrievalCase:
    """A manifest of four pictures and clips with embeddings that can be spoilt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = folder / "toy.jsonl"
        write_manifest(self.manifest, RECORDS)
        rng = np.random.default_rng(3)
        self.images = rng.normal(size=(4, 6)).astype(np.float32)
        self.image_ids = {"en": [0, 0, 1, 2], "de": [0, 3, 3]}
        self.texts = {
            language: (self.images[owner] + rng.normal(size=(len(owner), 6))).astype(np.float32)
            for language, owner in self.image_ids.items()
        }
        self.image_file = folder / "images.npy"
        np.save(self.image_file, self.images)
        self.text_file = folder / "texts.npz"
        np.savez(self.text_file, **self.texts)

    def evaluate(self, **changes):
        files = {"images": self.image_file, "texts": self.text_file, "manifest": self.manifest}
        return evaluate_files(**(files | changes))

    def expected(self):
        return {
            language: evaluate_retrieval(
                self.images, self.texts[language], self.image_ids[language]
            )
            for language in ("en", "de")
        }


@pytest.fixture
def case(tmp_path):
    return RetrievalCase(tmp_path)


class TestLayout:
    def test_rows_follow_the_manifest(self, case):
        layout = read_layout(case.manifest)
        assert [record.key for record in layout.records] == ["a.jpg", "b.mp4", "b.mp4", "c.jpg"]
        assert layout.captions == {"en": ("a1", "a2", "b1", "b2"), "de": ("a", "c1", "c2")}
        assert {k: v.tolist() for k, v in layout.image_ids.items()} == case.image_ids

    def test_one_split(self, case):
        layout = read_layout(case.manifest, "val")
        assert layout.captions == {"en": ("b2",)}
        assert layout.image_ids["en"].tolist() == [0]

    def test_unknown_split_is_an_error(self, case):
        with pytest.raises(DataError, match=r"split 'dev' \(there are: \(none\), test, val\)"):
            read_layout(case.manifest, "dev")

    def test_image_in_two_records_is_an_error(self, case):
        write_manifest(case.manifest, [*RECORDS, Record(image="a.jpg", captions={"cs": ("x",)})])
        with pytest.raises(DataError, match=r"a\.jpg is in two records"):
            read_layout(case.manifest)

    def test_malformed_line_is_an_error(self, case):
        case.manifest.write_text('{"image": "a.jpg"}\n{"image": 3}\n')
        with pytest.raises(DataError, match=r"toy\.jsonl:2"):
            read_layout(case.manifest)

    @pytest.mark.real_data
    def test_of_flickr8k(self, real_data):
        layout = read_layout(real_data / "flickr8k" / "test.jsonl")
        assert len(layout.records) == 929
        counts = {language: len(captions) for language, captions in layout.captions.items()}
        assert counts == {
            "en": 4644, "de": 4635, "fr": 929, "cs": 929, "pt": 4643, "zh": 4427, "ar": 2778,
        }  # fmt: skip


class TestFiles:
    def test_npy_and_npz(self, case):
        found = case.evaluate(human=["de"], model="toy")
        assert found.languages == case.expected()
        assert found.model == "toy"
        assert found.split == f"{case.folder.name}/toy"
        assert found.human == ("de",)
        assert found.average == pytest.approx(
            (found.languages["en"].mean_recall + found.languages["de"].mean_recall) / 2
        )
        assert found.human_average == found.languages["de"].mean_recall
        assert found.date.startswith("20")

    def test_safetensors(self, case):
        images, texts = case.folder / "i.safetensors", case.folder / "t.safetensors"
        save_file({"anything": case.images}, images)
        save_file(case.texts, texts)
        assert case.evaluate(images=images, texts=texts).languages == case.expected()

    def test_a_folder_with_a_file_for_each_language(self, case):
        folder = case.folder / "texts"
        folder.mkdir()
        np.save(folder / "en.npy", case.texts["en"])
        np.savez(folder / "de.npz", case.texts["de"])
        (folder / "README.md").write_text("not embeddings")
        assert case.evaluate(texts=folder).languages == case.expected()

    def test_one_language_in_one_npy(self, case):
        np.save(case.folder / "some.npy", case.texts["de"])
        found = case.evaluate(texts=case.folder / "some.npy", languages=["de"])
        assert found.languages == {"de": case.expected()["de"]}

    def test_language_codes_are_normalised(self, case):
        np.savez(case.text_file, eng=case.texts["en"], **{"de-AT": case.texts["de"]})
        assert case.evaluate(languages=["ger", "EN"]).languages == case.expected()

    def test_a_split_of_the_manifest(self, case):
        np.save(case.image_file, case.images[[2]])
        np.savez(case.text_file, en=case.texts["en"][[3]])
        found = case.evaluate(split="val")
        assert found.split.endswith("/toy:val")
        assert found.languages["en"].mean_recall == 100.0

    @pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8])
    def test_any_kind_of_number(self, case, dtype):
        rounded = np.round(case.images * 10).astype(dtype)
        np.save(case.image_file, rounded)
        found = case.evaluate(languages=["de"])
        again = evaluate_retrieval(rounded, case.texts["de"], case.image_ids["de"])
        assert found.languages["de"] == again

    def test_inner_product(self, case):
        np.save(case.image_file, case.images * np.array([[1], [100], [1], [1]]))
        assert case.evaluate(cosine=False).similarity == "inner product"
        assert case.evaluate().languages == case.expected()
        assert case.evaluate(cosine=False).languages != case.expected()


class TestMistakes:
    def check(self, case, message, **changes):
        with pytest.raises(PolyglanceError) as error:
            case.evaluate(**changes)
        assert message in str(error.value)
        assert "\n" not in str(error.value)

    def test_wrong_counts(self, case):
        np.save(case.image_file, case.images[:3])
        self.check(case, "expected 4 rows, one for each of the images or clips of")
        np.save(case.image_file, case.images)
        np.savez(case.text_file, en=case.texts["en"][1:], de=case.texts["de"])
        self.check(case, "texts.npz[en]: expected 4 rows, one for each of the captions in en")

    def test_wrong_width(self, case):
        np.savez(case.text_file, en=case.texts["en"][:, :5], de=case.texts["de"])
        self.check(case, "captions of width 5 cannot be compared with images of width 6")

    def test_not_finite(self, case):
        case.images[2, 1] = np.nan
        np.save(case.image_file, case.images)
        self.check(case, "images.npy: row 2 is not finite")

    @pytest.mark.parametrize(
        "table",
        [
            np.zeros(4),
            np.zeros((4, 2, 3)),
            np.zeros((4, 0)),
            np.array([["a"]] * 4),
            np.ones((4, 6)) > 0,
        ],
    )
    def test_not_a_table_of_numbers(self, case, table):
        np.save(case.image_file, table)
        self.check(case, "expected a table of numbers, found")

    def test_pickled_objects_are_never_opened(self, case, tmp_path):
        class Trap:
            def __reduce__(self):
                return (Path.touch, (tmp_path / "sprung",))

        np.save(case.image_file, np.array([Trap()], dtype=object), allow_pickle=True)
        self.check(case, "pickled objects, which are never opened")
        np.savez(case.folder / "trap.npz", en=np.array([Trap()], dtype=object))
        self.check(case, "trap.npz: not a valid", images=case.folder / "trap.npz")
        assert not (tmp_path / "sprung").exists()

    @pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.safetensors"])
    @pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04", b"\x93NUMPY\x01\x00"])
    def test_damaged_files(self, case, name, content):
        (case.folder / name).write_bytes(content)
        self.check(case, f"{name}: not a valid", images=case.folder / name)

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_mangled_files_raise_nothing_else(self, tmp_path_factory, data):
        folder = tmp_path_factory.mktemp("mangled")
        case = RetrievalCase(folder)
        kind = data.draw(st.sampled_from(["npy", "npz", "safetensors"]))
        path = folder / f"mangled.{kind}"
        if kind == "npy":
            np.save(path, case.images)
        elif kind == "npz":
            np.savez(path, case.images)
        else:
            save_file({"images": case.images}, path)
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        try:
            found = case.evaluate(images=path)
        except PolyglanceError:
            return
        assert set(found.languages) == {"en", "de"}

    def test_missing_or_unsupported_files(self, case):
        self.check(case, "nowhere.npy: cannot be read (No such", images=case.folder / "nowhere.npy")
        self.check(case, "nowhere.npz: cannot be read", texts=case.folder / "nowhere.npz")
        self.check(case, "embeddings must be in a file of .npy", images=case.manifest)
        self.check(case, "nowhere.jsonl: no such manifest", manifest=case.folder / "nowhere.jsonl")
        (case.folder / "empty").mkdir()
        self.check(case, "no file of .npy", texts=case.folder / "empty")

    def test_languages_that_do_not_match(self, case):
        self.check(case, "no captions in cs, only in en, de", languages=["cs"])
        self.check(case, "no captions in fr, only in en, de", human=["fr"])
        self.check(case, "not evaluated", languages=["en"], human=["de"])
        self.check(case, "a language code such as", languages=["no language!"])
        np.savez(case.text_file, en=case.texts["en"])
        self.check(case, "no embeddings in de; to leave it out, name the languages")
        np.savez(case.text_file, **case.texts, cs=case.texts["de"])
        self.check(case, "cs is not a language of")
        np.savez(case.text_file, de=case.texts["de"], ger=case.texts["de"])
        self.check(case, "a second table of captions in de")
        np.savez(case.text_file, **{"!": case.texts["de"]})
        self.check(case, "texts.npz[!]: expected a language code")

    def test_one_npy_for_several_languages(self, case):
        self.check(case, "has the captions of one language", texts=case.image_file)

    def test_several_image_arrays_are_an_error(self, case):
        self.check(case, "expected one array, found 2", images=case.text_file)

    def test_without_safetensors_the_extra_is_named(self, case, monkeypatch):
        monkeypatch.setitem(sys.modules, "safetensors", None)
        with pytest.raises(MissingExtraError, match=r"polyglance\[train\]"):
            case.evaluate(images=case.folder / "images.safetensors")


def test_manifest_may_be_compressed(tmp_path):
    case = RetrievalCase(tmp_path)
    write_manifest(tmp_path / "zipped.jsonl.gz", RECORDS)
    found = case.evaluate(manifest=tmp_path / "zipped.jsonl.gz")
    assert found.split == f"{tmp_path.name}/zipped"
    assert json.dumps(found.mean_recalls)
