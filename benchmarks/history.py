"""Keep the history of speed benchmarks, one line a benchmark, commit and machine.

The file is results/history.jsonl.

`benchmarks.results_io.write_results` appends to it. Where a benchmark times other code in the same
run, turn by turn, a line also has the ratio to that reference: machines differ from day to day,
and both sides of a ratio were measured on the same one.

    python -m benchmarks.history        # add lines for all versions of results in git
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
HISTORY = Path(__file__).parent / "results" / "history.jsonl"
REGRESSION = 0.05
"""A benchmark that is slower than before by more than this share has regressed."""
_ABOUT = ("date", "commit", "hardware", "python", "torch")
"""Keys of results that are no figures."""

Line = dict[str, Any]


@dataclass(frozen=True)
class Headline:
    """The figure that a benchmark is judged by."""

    figure: str
    """Its path in the results, ``{}`` standing for the variant."""
    ours: str = ""
    """Our variant; all others at the same place are references."""
    lower_is_better: bool = False

    @property
    def path(self) -> str:
        """The path of our figure."""
        return self.figure.format(self.ours)


HEADLINES: dict[str, Headline | None] = {
    "uc2_step": Headline("pairs_per_second/{}/mixture", "packed"),
    "m3p_step": Headline("pairs_per_second/{}", "packed"),
    "mmp_step": Headline("pairs_per_second/{}/fine-tuning", "packed"),
    "all_pairs": Headline("pairs_per_second/{}", "packed"),
    "packed_encoder": Headline("pairs_per_second/{}", "packed, compiled"),
    "uc2_sweep": Headline("pairs_per_second/{}/batch/1024", "packed"),
    "streaming_corpus": None,
    "streaming_corpus_resident": None,
    "distributed_agreement": None,
    "vtlm_memory": None,
    "kept_memory": Headline("medians/{}/seconds", "kept", lower_is_better=True),
    "latency": Headline("text_query_ms/{}/median", "onnx", lower_is_better=True),
    "device_speed": Headline("device_figures/pictures_per_second"),
    "extraction": Headline("ms_per_image/{}", "torch, channels last", lower_is_better=True),
    "bulk_encoding": Headline("index/pictures_per_second"),
    "library_speed": Headline("large_library/graph_ms/median", lower_is_better=True),
    "browsing": Headline("first_ms/items", lower_is_better=True),
    "reader_speed": Headline("rerank/seconds", lower_is_better=True),
    "signals": Headline("median_ms/{}", "signals", lower_is_better=True),
    "page_scroll": Headline("first_picture_ms/median", lower_is_better=True),
    "serve_load": Headline("by_request/search/p50_ms", lower_is_better=True),
    "photo_speed": Headline("photos_per_second/{}/median", "jpeg"),
    "decoding_limits": Headline("as_given/cpu/{}_ms", "processes", lower_is_better=True),
    "index_kill": Headline("uninterrupted_s", lower_is_better=True),
    "index_kill_postgres": Headline("uninterrupted_s", lower_is_better=True),
}
"""The benchmarks of ``benchmarks/speed`` by the names of their results."""


def history_line(name: str, results: Mapping[str, Any]) -> Line:
    """Return the line of a benchmark's results: where it was measured, figures and ratios."""
    figures = dict(_flatten({k: v for k, v in results.items() if k not in _ABOUT}))
    about = {key: results.get(key, "unknown") for key in ("date", "commit", "hardware")}
    return {"benchmark": name, **about, "figures": figures, "ratios": ratios(name, figures)}


def ratios(name: str, figures: Mapping[str, float]) -> dict[str, float]:
    """Return how many times faster ours was than each reference of the same run."""
    headline = HEADLINES.get(name)
    if headline is None or not headline.ours or headline.path not in figures:
        return {}
    before, after = headline.figure.split("{}")
    found = {}
    for path, value in figures.items():
        variant = path[len(before) : len(path) - len(after)]
        matches = path.startswith(before) and path.endswith(after) and "/" not in variant
        if matches and variant != headline.ours and value > 0:
            ours = figures[headline.path]
            ratio = value / ours if headline.lower_is_better else ours / value
            found[f"{headline.ours} / {variant}"] = round(ratio, 4)
    return found


def read_history(path: Path = HISTORY) -> list[Line]:
    """Read all lines, oldest first; none if there is no file."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def add_lines(lines: Iterable[Line], path: Path = HISTORY) -> None:
    """Add lines; one of the same benchmark, commit and machine replaces the earlier one."""
    known = {_key(line): line for line in read_history(path)}
    known.update((_key(line), line) for line in lines)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in known.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def add_current(folder: Path = HISTORY.parent) -> None:
    """Add the results that lie in a folder, such as those copied from another machine."""
    found = [name for name in HEADLINES if (folder / f"{name}.json").is_file()]
    contents = {name: (folder / f"{name}.json").read_text(encoding="utf-8") for name in found}
    add_lines(
        (history_line(name, json.loads(text)) for name, text in contents.items()),
        folder / HISTORY.name,
    )


def change(line: Line, earlier: Line) -> tuple[float, dict[str, float]] | None:
    """Return by which share a benchmark became faster, absolutely and by each ratio.

    None for one without a headline figure in both lines.
    """
    headline = HEADLINES.get(line["benchmark"])
    if headline is None or not all(headline.path in one["figures"] for one in (line, earlier)):
        return None
    now, before = (one["figures"][headline.path] for one in (line, earlier))
    absolute = before / now - 1 if headline.lower_is_better else now / before - 1
    shared = line["ratios"].keys() & earlier["ratios"].keys()
    return absolute, {
        name: line["ratios"][name] / earlier["ratios"][name] - 1 for name in sorted(shared)
    }


def versions_in_git(name: str) -> Iterator[Line]:
    """Yield the lines of all versions of a benchmark's results, oldest first."""
    path = f"benchmarks/results/{name}.json"
    # Renames are not followed: git takes similar results of other benchmarks for their origin.
    for commit in reversed(_git("log", "--format=%H", "--diff-filter=d", "--", path).split()):
        yield history_line(name, json.loads(_git("show", f"{commit}:{path}")))


def main() -> None:
    for name in HEADLINES:
        add_lines(versions_in_git(name))
    add_current()
    print(f"wrote {HISTORY}: {len(read_history())} lines")


def _flatten(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield all numbers with their paths; lists are left out."""
    for key, value in figures.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{key}", value


def _key(line: Line) -> tuple[str, str, str]:
    return line["benchmark"], line["commit"], line["hardware"]


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
