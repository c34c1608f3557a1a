"""Figures of a target beside the published ones, verdicts, and the files that hold them."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from polyglance.config import as_plain, load
from polyglance.evaluation.retrieval import ranks_from_scores, summarise
from polyglance.recipes.retrieval_report import retrieval_report
from polyglance.recipes.run_folder import write_report
from polyglance.reproduce.queries import query_scores
from polyglance.reproduce.results import Measured, value_at
from polyglance.reproduce.runs import Job, Report
from polyglance.reproduce.target import Target
from polyglance.reproduce.toy import check_learning
from polyglance.reproduce.write import as_csv, as_json, as_markdown, as_svg, write_files

TARGET = load(
    Target,
    {
        "name": "p/table1", "title": "A table", "source": "A paper", "protocol": "test",
        "columns": [
            {"name": "en", "report": "{protocol}.en.mR"},
            {"name": "de", "report": "{protocol}.de.mR"},
            {"name": "both", "mean_of": ["en", "de"]},
        ],
        "rows": [
            {"name": "others'", "published": [50.0, None, None]},
            {"name": "plain", "run": "plain", "published": [60.0, 50.0, 55.0]},
            {"name": "ours", "runs": {"en": "ours", "de": "ours de"},
             "published": [70.0, 62.0, 66.0]},
        ],
        "claims": [{"text": "Ours helps", "better": "ours", "worse": "plain"}],
        "learning": {"row": "ours"},
    },
)  # fmt: skip


def measured(values: dict[str, list[tuple[float, float]]]) -> Measured:
    """The figures (en, de) of each seed of a run."""
    reports: dict[Job, Report] = {
        (run, seed): {"test": {"en": {"mR": en}, "de": {"mR": de}}}
        for run, seeds in values.items()
        for seed, (en, de) in enumerate(seeds)
    }
    return Measured(TARGET, reports, {})


@pytest.fixture
def found() -> Measured:
    return measured(
        {
            "plain": [(40.0, 30.0), (41.0, 31.0), (42.0, 32.0)],
            "ours": [(45.0, 0.0), (46.2, 0.0), (46.8, 0.0)],
            "ours de": [(0.0, 36.0), (0.0, 36.9), (0.0, 38.1)],
        }
    )


def test_cells_come_from_the_runs_of_their_columns(found: Measured) -> None:
    assert found.cell("ours", "de") == {0: 36.0, 1: 36.9, 2: 38.1}
    assert found.cell("ours", "both")[0] == (45.0 + 36.0) / 2
    assert found.cell("others'", "en") == {}


def test_claims_without_ranks_are_compared_over_seeds(found: Measured) -> None:
    comparison = found.compare(TARGET.claims[0])
    assert comparison is not None
    assert comparison.over == "seeds"
    assert comparison.mean == pytest.approx(np.mean([5.5, 5.55, 5.45]))
    assert comparison.verdict == "yes"
    assert found.published_gain(TARGET.claims[0]) == 11.0
    assert measured({"plain": [(1.0, 1.0)]}).compare(TARGET.claims[0]) is None


def test_files_have_measured_and_published_figures(found: Measured, tmp_path: Path) -> None:
    details = {"date": "2031-05-06", "commit": "abc1234", "hardware": "an abacus", "seeds": [0, 1]}
    files = write_files(found, tmp_path / "p", details)
    assert [path.name for path in files] == ["table.json", "table.csv", "table.md", "plot.svg"]
    content = json.loads(files[0].read_text(encoding="utf-8"))
    ours = content["rows"][2]
    assert ours["measured"]["en"]["values"] == {"0": 45.0, "1": 46.2, "2": 46.8}
    assert ours["published"] == {"en": 70.0, "de": 62.0, "both": 66.0}
    assert content["claims"][0]["verdict"] == "yes"
    lines = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert len(lines) == 9
    (cell,) = (line for line in lines if (line["row"], line["column"]) == ("plain", "de"))
    assert (cell["published"], cell["mean"], cell["std"]) == ("50.0", "31.0000", "1.0000")
    text = as_markdown(found, details)
    assert "| plain | 41.0 ± 1.0 (60.0) | 31.0 ± 1.0 (50.0) | 36.0 ± 1.0 (55.0) |" in text
    assert "| others' | – (50.0) | – | – |" in text
    assert "- Ours helps (the paper: +11.0): yes (+5.5 [" in text
    assert "2031-05-06 at abc1234 on an abacus" in text
    svg = as_svg(found)
    assert svg is not None
    root = ElementTree.fromstring(svg)
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"ours", "ours, published", "others', published"} <= set(words)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 6 + 7 + 5


def test_a_plot_of_lines_has_a_line_for_each_section_of_rows() -> None:
    rows = [
        {"name": f"{name} {x}", "section": name, "run": f"{name} {x}", "x": x}
        for name in ("ours", "theirs")
        for x in (5, 20)
    ]
    plain = {"title": "Growth", "protocol": "test", "plot": "lines", "rows": rows}
    columns = [as_plain(column) for column in TARGET.columns]
    target = load(Target, plain | {"columns": columns, "plot_columns": ["both"]})
    figures = measured(
        {str(row["name"]): [(40.0, 20.0 + number)] for number, row in enumerate(rows)}
    )
    root = ElementTree.fromstring(str(as_svg(replace(figures, target=target))))
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"ours 30.5", "theirs 31.5"} <= set(words)  # the mean of both columns, at the last x
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == 2
    every = replace(figures, target=replace(target, plot_columns=()))
    assert str(as_svg(every)).count("<polyline") == 6


def test_verdicts_are_corrected_for_the_number_of_claims() -> None:
    found = measured(
        {
            "plain": [(40.0, 30.0), (41.0, 31.0), (42.0, 32.0)],
            "ours": [(42.0, 0.0), (46.0, 0.0), (48.5, 0.0)],
            "ours de": [(0.0, 36.0), (0.0, 36.5), (0.0, 38.0)],
        }
    )
    many = replace(found, target=replace(TARGET, claims=TARGET.claims * 9))
    claims = as_json(many, {})["claims"]
    (alone,) = as_json(found, {})["claims"]
    assert [claim["p"] for claim in claims] == [alone["p"]] * 9
    assert claims[0]["corrected_p"] == pytest.approx(9 * alone["p"])
    assert (alone["verdict"], claims[0]["verdict"]) == ("yes", "not decided")
    text = as_markdown(many, {})
    assert text.count("- Ours helps (the paper: +11.0): not decided (+5.2 [") == 9
    assert "corrected for these 9 comparisons by Holm's method" in text
    assert "Holm" not in as_markdown(found, {})


def test_learning_is_judged_against_chance(found: Measured) -> None:
    learned = check_learning(found, test_images=40)
    assert learned is not None
    assert learned.chance == pytest.approx(100 * 16 / 3 / 40)
    assert learned.measured == pytest.approx((46.0 + 37.0) / 2)
    assert learned.reached
    chance = measured({"ours": [(14.0, 0.0)], "ours de": [(0.0, 13.0)]})
    assert not check_learning(chance, test_images=40).reached  # type: ignore[union-attr]
    assert not check_learning(measured({}), test_images=40).reached  # type: ignore[union-attr]


def write_run(folder: Path, sharpness: float, seed: int) -> Report:
    """Write the report and ranks of an evaluation whose scores are noisy."""
    generator = np.random.default_rng(seed)
    image_ids = np.repeat(np.arange(60), 3)
    right = image_ids[None, :] == np.arange(60)[:, None]
    results = {}
    for number, code in enumerate(("en", "de")):
        noise = np.random.default_rng([7, number]).standard_normal(right.shape)
        scores = sharpness * right + noise + 0.3 * generator.standard_normal(right.shape)
        results[code] = summarise(ranks_from_scores(scores, image_ids))
    report = {"test": retrieval_report(results)}
    write_report(report, folder)
    return report


def test_claims_are_compared_over_seeds_and_queries(tmp_path: Path) -> None:
    reports, folders = {}, {}
    for run, sharpness in (("plain", 1.5), ("ours", 2.0), ("ours de", 2.0)):
        for seed in range(3):
            folder = tmp_path / run / str(seed)
            reports[run, seed], folders[run, seed] = write_run(folder, sharpness, seed), folder
            shares = query_scores(folder, "test.de.mR")
            assert shares is not None
            mean_recall = reports[run, seed]["test"]["de"]["mR"]
            assert shares.mean() == pytest.approx(mean_recall)
    found = Measured(TARGET, reports, folders)
    comparison = found.compare(TARGET.claims[0])
    assert comparison is not None
    assert (comparison.over, comparison.seeds) == ("seeds and queries", 3)
    assert comparison.queries == 60
    gains = [found.cell("ours", "both")[s] - found.cell("plain", "both")[s] for s in range(3)]
    assert comparison.mean == pytest.approx(np.mean(gains))
    assert comparison.verdict == "yes"
    folder = tmp_path / "plain" / "0"
    recall = reports["plain", 0]["test"]["en"]
    for direction in ("text_to_image", "image_to_text"):
        shares = query_scores(folder, f"test.en.{direction}.R@5")
        assert shares is not None
        assert shares.mean() == pytest.approx(recall[direction]["R@5"])
    assert query_scores(folder, "test.fr.mR") is None
    assert query_scores(folder, "test.en.accuracy") is None
    assert query_scores(tmp_path, "test.en.mR") is None


def test_a_figure_may_stand_in_place_of_its_metrics() -> None:
    report = {"consistency": {"clc-a": {"en": 41.5}}, "test": {"en": {"mR": 3, "name": "x"}}}
    assert value_at(report, "consistency.clc-a.en.mR") == 41.5
    assert value_at(report, "test.en.mR") == 3.0
    assert value_at(report, "test.en.name") is None
    assert value_at(report, "test.de.mR") is None
    assert value_at(report, "consistency.clc-a.en.R@1") is None
