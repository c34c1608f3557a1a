"""Results files and the tables made of them."""

from __future__ import annotations

import dataclasses
import io
import json

import pytest
from rich.console import Console

import polyglance
from polyglance.errors import DataError, PolyglanceError
from polyglance.evaluation.report import (
    comparison_table,
    markdown_table,
    terminal_table,
    update_tables,
)
from polyglance.evaluation.results import Evaluation, provenance, read_results, write_results
from polyglance.evaluation.retrieval import TIE_RULE, DirectionResult, RetrievalResult


def result(recall: float, pictures: int = 1000, texts: int = 5000) -> RetrievalResult:
    """Both ways with recalls of ``recall``, and 10 and 20 points more."""
    recalls = {1: recall, 5: recall + 10, 10: recall + 20}
    return RetrievalResult(
        DirectionResult(pictures, texts, recalls, 3.0),
        DirectionResult(texts, pictures, recalls, 2.5),
    )


@pytest.fixture
def evaluation() -> Evaluation:
    languages = {"en": result(50), "de": result(40), "ar": result(30, texts=3000)}
    return Evaluation(
        "toy", "world/test", languages, ("en", "de"), date="2030-02-01T10:00:00", version="9.9"
    )


class TestResultsFile:
    def test_round_trip(self, tmp_path, evaluation):
        write_results(tmp_path / "deep" / "toy.json", evaluation)
        assert read_results(tmp_path / "deep" / "toy.json") == evaluation

    def test_results_file_is_self_contained(self, tmp_path, evaluation):
        write_results(tmp_path / "toy.json", evaluation)
        found = json.loads((tmp_path / "toy.json").read_text())
        assert found["split"] == "world/test"
        assert found["tie_rule"] == TIE_RULE
        assert (found["date"], found["version"]) == ("2030-02-01T10:00:00", "9.9")
        assert found["summary"]["average"] == pytest.approx(50)
        assert found["summary"]["human_average"] == pytest.approx(55)
        assert found["summary"]["mean_recall"] == pytest.approx({"en": 60, "de": 50, "ar": 40})

    def test_averages_are_recomputed(self, tmp_path, evaluation):
        write_results(tmp_path / "toy.json", evaluation)
        found = json.loads((tmp_path / "toy.json").read_text())
        found["summary"]["average"] = 99.9
        (tmp_path / "toy.json").write_text(json.dumps(found))
        assert read_results(tmp_path / "toy.json").average == pytest.approx(50)

    def test_provenance(self):
        assert provenance()["version"] == polyglance.__version__
        assert provenance()["date"].endswith("+00:00")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"langauges": {}}, "did you mean languages?"),
            ({"languages": {}}, "the same recalls"),
            ({"human": ["cs"]}, "languages that the file does not have"),
            ({"model": 3}, "model: expected text"),
        ],
    )
    def test_inconsistent_file_is_rejected(self, tmp_path, evaluation, change, message):
        path = tmp_path / "toy.json"
        write_results(path, evaluation)
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(DataError) as error:
            read_results(path)
        assert message in str(error.value)
        assert str(error.value).startswith(str(path))

    @pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"{}", b"[" * 100_000])
    def test_other_files_are_rejected(self, tmp_path, content):
        (tmp_path / "x.json").write_bytes(content)
        with pytest.raises(DataError, match=r"x\.json"):
            read_results(tmp_path / "x.json")
        with pytest.raises(DataError, match="No such file"):
            read_results(tmp_path / "nowhere.json")


class TestTables:
    def test_markdown(self, evaluation):
        assert markdown_table(evaluation).splitlines() == [
            "| language | i→t R@1 | i→t R@5 | i→t R@10 | t→i R@1 | t→i R@5 | t→i R@10 | mR "
            "| images | captions |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
            "| en | 50.0 | 60.0 | 70.0 | 50.0 | 60.0 | 70.0 | 60.0 | 1,000 | 5,000 |",
            "| de | 40.0 | 50.0 | 60.0 | 40.0 | 50.0 | 60.0 | 50.0 | 1,000 | 5,000 |",
            "| ar | 30.0 | 40.0 | 50.0 | 30.0 | 40.0 | 50.0 | 40.0 | 1,000 | 3,000 |",
            "| mean |  |  |  |  |  |  | 50.0 |  |  |",
            "| HA |  |  |  |  |  |  | 55.0 |  |  |",
            "",
            "world/test. toy, cosine, evaluated 2030-02-01 by polyglance 9.9. HA: en, de. "
            f"Rank: {TIE_RULE}.",
        ]

    def test_the_terminal_shows_every_figure_in_80_columns(self, evaluation):
        perfect = {"cs": result(100, pictures=31_783, texts=158_915)}
        evaluation = dataclasses.replace(evaluation, languages={**evaluation.languages, **perfect})
        out = io.StringIO()
        Console(file=out, width=80).print(terminal_table(evaluation))
        lines = [line.split() for line in out.getvalue().splitlines()]
        assert ["en", *["50.0", "60.0", "70.0"] * 2, "60.0", "1,000", "5,000"] in lines
        assert ["cs", *["100.0", "110.0", "120.0"] * 2, "110.0", "31,783", "158,915"] in lines
        assert ["mean", "65.0"] in lines
        assert ["HA", "55.0"] in lines
        assert ["language", *["R@1", "R@5", "R@10"] * 2, "mR", "images", "captions"] in lines
        assert "…" not in out.getvalue()

    def test_without_human_languages_there_is_no_human_average(self, evaluation):
        assert "HA" not in markdown_table(dataclasses.replace(evaluation, human=()))


class TestComparison:
    def test_comparison_has_a_row_per_model_and_meta_average(self, evaluation):
        other = Evaluation("toy", "coco/test", {"ja": result(70)})
        rival = dataclasses.replace(evaluation, model="a|b")
        assert comparison_table([evaluation, other, rival]).splitlines() == [
            "| model | world/test en | world/test de | world/test ar | coco/test ja | Meta-Ave |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
            "| toy | 60.0 | 50.0 | 40.0 | 80.0 | 57.5 |",
            "| a/b | 60.0 | 50.0 | 40.0 | – | – |",
        ]

    def test_comparison_on_one_split_ends_with_the_mean(self, evaluation):
        rival = dataclasses.replace(evaluation, model="rival")
        assert comparison_table([evaluation, rival]).splitlines()[0].endswith("| mean |")

    def test_different_candidates_are_not_compared(self, evaluation):
        rival = dataclasses.replace(
            evaluation, model="rival", languages={"en": result(50, pictures=929)}
        )
        with pytest.raises(PolyglanceError, match="toy and rival cannot share a column"):
            comparison_table([evaluation, rival])
        with pytest.raises(PolyglanceError, match="two results of toy on world/test"):
            comparison_table([evaluation, evaluation])


class TestFill:
    def test_tables_are_written_after_their_comments(self, tmp_path, evaluation):
        write_results(tmp_path / "a.json", evaluation)
        write_results(tmp_path / "b.json", dataclasses.replace(evaluation, model="b"))
        document = tmp_path / "page.md"
        document.write_text(
            "# Page\n\n<!-- results: a.json -->\nold figures\n<!-- end of results -->\n\n"
            "Between.\n\n<!-- results: a.json b.json -->\n<!-- end of results -->\nAfter.\n"
        )
        assert update_tables(document)
        text = document.read_text()
        assert "old figures" not in text
        assert text.startswith("# Page\n\n<!-- results: a.json -->\n\n| language |")
        assert "\n\nBetween.\n\n<!-- results: a.json b.json -->\n\n| model |" in text
        assert text.endswith("\n\n<!-- end of results -->\nAfter.\n")
        assert not update_tables(document)
        assert document.read_text() == text

    def test_document_without_results_is_unchanged(self, tmp_path):
        (tmp_path / "page.md").write_text("Nothing here.\n")
        assert not update_tables(tmp_path / "page.md")

    def test_missing_files_are_named(self, tmp_path):
        document = tmp_path / "page.md"
        document.write_text("<!-- results: gone.json -->\n<!-- end of results -->\n")
        with pytest.raises(DataError, match=r"gone\.json"):
            update_tables(document)
        with pytest.raises(DataError, match=r"nowhere\.md"):
            update_tables(tmp_path / "nowhere.md")
