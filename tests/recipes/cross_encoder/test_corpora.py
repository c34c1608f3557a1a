"""Captioned images from several files, and evaluation in folds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from polyglance.data.lazy_records import LazyRecords
from polyglance.errors import DataError, PolyglanceError
from polyglance.evaluation.retrieval import (
    DirectionResult,
    RetrievalResult,
    ranks_from_scores,
    summarise,
)
from polyglance.recipes.cross_encoder import data as data_module
from polyglance.recipes.cross_encoder.config import (
    CaptionedImages,
    CaptionFile,
    RerankingConfig,
)
from polyglance.recipes.cross_encoder.corpora import read_corpus
from polyglance.recipes.cross_encoder.data import SplitReader, split_into_folds
from polyglance.recipes.cross_encoder.evaluation import mean_by_language
from polyglance.recipes.cross_encoder.merged_manifest import (
    corpus_bytes,
    merged_path,
    write_merged,
)
from polyglance.recipes.uc2.config import UC2Recipe
from polyglance.records import Record, read_manifest, write_manifest


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_manifest(
        tmp_path / "english.jsonl",
        [
            Record(image="train/1.jpg", captions={"en": ("one",)}, split="train"),
            Record(image="val/2.jpg", captions={"en": ("two",), "it": ("due",)}, split="restval"),
            Record(image="val/3.jpg", captions={"en": ("three",)}, split="test"),
        ],
    )
    write_manifest(
        tmp_path / "german.jsonl",
        [
            Record(image="elsewhere/2.jpg", captions={"de": ("zwei",), "en": ("a pair",)}),
            Record(image="2.jpg", captions={"de": ("ein Paar",)}),
            Record(image="9.jpg", captions={"de": ("neun",)}),
        ],
    )
    return tmp_path


def test_captions_are_merged_by_file_name_within_the_splits(data: Path) -> None:
    corpus = CaptionedImages(
        "english.jsonl",
        splits=("train", "restval"),
        languages=("en",),
        merge=(CaptionFile("german.jsonl"),),
    )
    assert [(record.image, record.captions) for record in read_corpus(corpus, data)] == [
        ("train/1.jpg", {"en": ("one",)}),
        ("val/2.jpg", {"en": ("two", "a pair"), "de": ("zwei", "ein Paar")}),
    ]
    assert [record.image for record in read_corpus(corpus, data, limit=1)] == ["train/1.jpg"]


def test_files_merged_on_disk_equal_those_merged_in_memory(data: Path, tmp_path: Path) -> None:
    for name, text in (("x.tsv", "a dog"), ("y.tsv", "un chien")):
        lines = [f"{text} {n}\thttp://x.org/{n}.jpg" for n in range(4)]
        (data / name).write_text("\n".join([*lines[::-1], "no address"]) + "\n")
    german = CaptionFile("german.jsonl")
    french = CaptionFile("y.tsv", format="conceptual-captions", language="fr")
    corpora = [
        CaptionedImages("english.jsonl", splits=("train", "restval"), merge=(german,)),
        CaptionedImages("english.jsonl", languages=("en",), merge=(german, german)),
        CaptionedImages("x.tsv", format="conceptual-captions", merge=(french,)),
    ]
    paths = set()
    for corpus in corpora:
        path = merged_path(corpus, data, "cache")
        paths.add(path)
        write_merged(corpus, data, path)
        assert list(read_manifest(path)) == read_corpus(corpus, data)
        assert len(list(path.parent.iterdir())) == len(paths)  # scratch files are deleted
    with pytest.raises(PolyglanceError, match=r"german\.jsonl captions none of the 1 images"):
        write_merged(replace(corpora[0], splits=("train",)), data, tmp_path / "none.jsonl")
    with pytest.raises(DataError, match="there is no image in split dev: name other splits"):
        write_merged(replace(corpora[0], splits=("dev",)), data, tmp_path / "none.jsonl")
    assert not (tmp_path / "none.jsonl").exists()
    assert corpus_bytes(corpora[0], data) == sum(
        (data / name).stat().st_size for name in ("english.jsonl", "german.jsonl")
    )


def test_large_corpora_of_several_files_stay_on_disk(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    german = CaptionFile("german.jsonl")
    corpus = CaptionedImages("english.jsonl", languages=("en",), merge=(german,))
    reader = SplitReader(
        data,
        None,
        max_text_tokens=9,
        max_regions=9,
        prepend_global=True,  # type: ignore[arg-type]
    )
    in_memory = reader.read_records(corpus)
    monkeypatch.setattr(data_module, "LARGE_MANIFEST", 0)
    records = reader.read_records(corpus)
    assert isinstance(records, LazyRecords)
    assert list(records) == in_memory
    assert records[1] == in_memory[1]


def test_a_file_about_other_images_is_refused(data: Path) -> None:
    corpus = CaptionedImages(
        "english.jsonl", splits=("train",), merge=(CaptionFile("german.jsonl"),)
    )
    with pytest.raises(PolyglanceError, match=r"german\.jsonl captions none of the 1 images"):
        read_corpus(corpus, data)
    with pytest.raises(DataError, match="there is no image in split dev: name other splits"):
        read_corpus(CaptionedImages("english.jsonl", splits=("dev",)), data)


def test_malformed_entries_of_a_published_file_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.tsv").write_text("a dog\thttp://x.org/1.jpg\nno address\n")
    corpus = CaptionedImages("x.tsv", format="conceptual-captions")
    assert len(read_corpus(corpus, tmp_path)) == 1
    assert "1 malformed entries left out, the first" in capsys.readouterr().err


def test_folds_have_all_images_once() -> None:
    records = [Record(image=f"{number}.jpg") for number in range(11)]
    assert [len(fold) for fold in split_into_folds(records, None)] == [11]
    # A fold of one image would always be right: it joins the one before.
    assert [len(fold) for fold in split_into_folds(records, 5)] == [5, 6]
    folds = split_into_folds(records[:10], 4)
    assert [len(fold) for fold in folds] == [4, 4, 2]
    assert [record for fold in folds for record in fold] == records[:10]


def test_a_language_has_the_mean_of_its_test_sets() -> None:
    def result(recall: float) -> RetrievalResult:
        direction = DirectionResult(10, 5, {1: recall, 5: 100.0}, 2.0)
        return RetrievalResult(direction, direction)

    means = mean_by_language(
        [{"en": result(20), "ja": result(10)}, {"en": result(40)}, {"zh": result(7)}]
    )
    assert {code: mean.text_to_image.recalls[1] for code, mean in means.items()} == {
        "en": 30,
        "ja": 10,
        "zh": 7,
    }
    assert means["en"].image_to_text.queries == 20
    assert means["en"].mean_recall == 65


def test_folds_keep_the_rank_of_every_query() -> None:
    scores = np.array([[3.0, 1.0], [2.0, 4.0]])
    fold = summarise(ranks_from_scores(scores, [0, 1]))
    (mean,) = mean_by_language([{"en": fold}, {"en": fold}]).values()
    assert mean.ranks is not None
    assert mean.ranks.text_to_image.tolist() == [1, 1, 1, 1]
    assert mean.ranks.image_ids is not None
    assert mean.ranks.image_ids.tolist() == [0, 1, 2, 3]
    assert mean.ranks.num_images == 4
    single = mean_by_language([{"en": fold}])["en"].ranks
    assert single is not None
    assert single.text_to_image.tolist() == [1, 1]


def test_reranking_takes_one_test_set() -> None:
    with pytest.raises(PolyglanceError, match="leave out extra_test and fold_images"):
        UC2Recipe(
            test=CaptionedImages("x.jsonl", "regions", fold_images=2),
            reranking=RerankingConfig("embeddings"),
        )
