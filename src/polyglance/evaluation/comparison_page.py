"""A comparison of models as one HTML page: no script, no other file, light and dark."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from polyglance.errors import printable
from polyglance.evaluation.comparison import (
    MEAN,
    DifferentQuery,
    Figure,
    ModelFigures,
    ModelRanks,
)
from polyglance.evaluation.comparison_data import TestSet
from polyglance.evaluation.comparison_style import STYLE
from polyglance.evaluation.statistics import RESAMPLES, Comparison
from polyglance.languages import get_language
from polyglance.records import atomic_write
from polyglance.vision.pictures import PictureError, read_picture

GENERATOR = '<meta name="generator" content="Polyglance">'
"""By which pages are known that may be replaced."""
_THUMBNAIL = 192
"""Longer side in pixels: 96 of a page, on a screen with two pixels for each."""
_FULL = 86.0
"""Where 100 % is, in percent of a chart's width; the rest is room for figures."""
_BAR, _GAP = 18, 5


def comparison_page(
    test_set: TestSet,
    models: Sequence[ModelFigures],
    ranks: Sequence[ModelRanks],
    queries: Sequence[DifferentQuery],
) -> str:
    """Return the page.

    Args:
        test_set: What the models were compared on.
        models: Their figures, the baseline first.
        ranks: Their first hits, in the same order.
        queries: Those to show, with thumbnails.
    """
    title = "Comparison of " + _join([model.name for model in models])
    body = "\n".join(
        (
            f"<h1>{_text(title)}</h1>",
            f"<p class=soft>{_text(describe(test_set))} Baseline: {_text(models[0].name)}.</p>",
            _summary(models),
            _bars(models),
            *(_differences(models[0], model) for model in models[1:]),
            _recalls(models),
            _queries(test_set, models, ranks, queries),
            _footer(test_set, models),
        )
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{GENERATOR}\n<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def write_comparison_page(
    path: Path,
    test_set: TestSet,
    models: Sequence[ModelFigures],
    ranks: Sequence[ModelRanks],
    queries: Sequence[DifferentQuery],
) -> None:
    """Write the page of `comparison_page` to a file."""
    page = comparison_page(test_set, models, ranks, queries)
    with atomic_write(path) as out:
        out.write(page)


def describe(test_set: TestSet) -> str:
    """Return a sentence about the pictures and captions."""
    layout = test_set.layout
    counts = [f"{len(layout.captions[code]):,} in {_name(code)}" for code in test_set.languages]
    return f"{test_set.name}: {len(layout.records):,} pictures with captions, {', '.join(counts)}."


def verdict(baseline: ModelFigures, model: ModelFigures) -> str:
    """Return in a sentence whether a model is better than the baseline, in the mean over all."""
    code = _headline(model)
    difference = model.differences[code]
    says = {
        "yes": f"{model.name} is better than {baseline.name}",
        "no": f"{model.name} is worse than {baseline.name}",
        "not decided": f"{model.name} and {baseline.name} cannot be told apart on these pictures",
    }[difference.verdict]
    own, base = model.mean_recalls[code].value, baseline.mean_recalls[code].value
    return f"{says}: mR {own:.1f} against {base:.1f}, {difference}."


def _headline(model: ModelFigures) -> str:
    return MEAN if MEAN in model.mean_recalls else next(iter(model.mean_recalls))


def _summary(models: Sequence[ModelFigures]) -> str:
    words = {"yes": "better", "no": "worse", "not decided": "open"}
    lines = "\n".join(
        f'<li class="{words[m.differences[_headline(m)].verdict]}">{_text(verdict(models[0], m))}'
        "</li>"
        for m in models[1:]
    )
    return f"<ul class=summary>\n{lines}\n</ul>"


def _bars(models: Sequence[ModelFigures]) -> str:
    legend = "".join(
        f'<span><i class="m{number % 6}"></i>{_text(model.name)}</span>'
        for number, model in enumerate(models)
    )
    groups = "\n".join(
        f"<h3>{_text(_name(code))}</h3>\n"
        f"{_bar_chart(code, [(m.name, m.mean_recalls[code]) for m in models])}"
        for code in models[0].mean_recalls
    )
    return (
        "<section>\n<h2>Mean recall by language</h2>\n"
        "<p class=soft>mR: the mean of recall at 1, 5 and 10, of pictures by caption and captions"
        " by picture, in percent. Lines are 95 % intervals.</p>\n"
        f"<p class=legend>{legend}</p>\n<div class=bars>\n{groups}\n</div>\n</section>"
    ).replace("recall at 1, 5 and 10", f"recall at {_recall_at(models)}")


def _bar_chart(code: str, figures: Sequence[tuple[str, Figure]]) -> str:
    height = len(figures) * (_BAR + _GAP)
    label = "; ".join(f"{name} {figure.value:.1f}" for name, figure in figures)
    grid = "".join(
        f'<line class=grid x1="{at * _FULL / 100}%" x2="{at * _FULL / 100}%" y2="{height}"/>'
        for at in (0, 25, 50, 75, 100)
    )
    bars = []
    for number, (_, figure) in enumerate(figures):
        top, middle = number * (_BAR + _GAP), number * (_BAR + _GAP) + _BAR / 2
        low, high = (min(100.0, max(0.0, x)) * _FULL / 100 for x in (figure.low, figure.high))
        bars.append(
            f'<rect class="m{number % 6}" y="{top}" width="{figure.value * _FULL / 100:.2f}%"'
            f' height="{_BAR}" rx="2"/>'
            f'<line class=whisker x1="{low:.2f}%" x2="{high:.2f}%" y1="{middle}" y2="{middle}"/>'
            f'<text x="{max(high, figure.value * _FULL / 100):.2f}%" dx="7" y="{middle}"'
            f' dy=".35em">{figure.value:.1f}</text>'
        )
    return (
        f'<svg role="img" aria-label="{_text(f"{_name(code)}: {label}")}" height="{height}">'
        f"{grid}{''.join(bars)}</svg>"
    )


def _differences(baseline: ModelFigures, model: ModelFigures) -> str:
    reach = max(
        1.0, *(abs(x) for d in model.differences.values() for x in (d.low or 0.0, d.high or 0.0))
    )
    rows = "\n".join(
        f"<tr{' class=mean' if code == MEAN else ''}><th scope=row>{_text(_name(code))}</th>"
        f"<td class=own>{baseline.mean_recalls[code].value:.1f}</td>"
        f"<td class=own>{model.mean_recalls[code].value:.1f}</td>"
        f'<td class="{_colour(d)}">{_signed(d.mean)}</td><td>{_interval(d)}</td>'
        f"<td>{_p_value(d)}</td><td class=plot>{_interval_plot(d, reach)}</td></tr>"
        for code, d in model.differences.items()
    )
    return (
        f"<section>\n<h2>{_text(model.name)} against {_text(baseline.name)}</h2>\n"
        "<div class=wide><table>\n<thead><tr><th scope=col>language</th>"
        f"<th scope=col class=own>{_text(baseline.name)}</th>"
        f"<th scope=col class=own>{_text(model.name)}</th>"
        "<th scope=col>difference</th><th scope=col>95 % interval</th><th scope=col>p</th>"
        f"<th scope=col class=plot>−{reach:.0f} to +{reach:.0f}</th></tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody>\n</table></div>\n</section>"
    )


def _interval_plot(difference: Comparison, reach: float) -> str:
    def at(value: float) -> str:
        return f"{50 + 48 * value / reach:.2f}%"

    low, high, colour = difference.low or 0.0, difference.high or 0.0, _colour(difference)
    return (
        '<svg aria-hidden="true" height="16"><line class=grid x1="50%" x2="50%" y2="16"/>'
        f'<line class="whisker {colour}" x1="{at(low)}" x2="{at(high)}" y1="8" y2="8"/>'
        f'<circle class="{colour}" cx="{at(difference.mean)}" cy="8" r="4"/></svg>'
    )


def _recalls(models: Sequence[ModelFigures]) -> str:
    parts = []
    for code in models[0].results:
        rows = []
        for model in models:
            result = model.results[code]
            by_name = model.recall_differences.get(code, {})
            cells = [
                (f"{arrow} R@{k}", value)
                for arrow, side in (("i→t", result.image_to_text), ("t→i", result.text_to_image))
                for k, value in side.recalls.items()
            ]
            shown = "".join(
                f"<td>{value:.1f}{_small_interval(by_name.get(name))}</td>" for name, value in cells
            )
            rows.append(f"<tr><th scope=row>{_text(model.name)}</th>{shown}</tr>")
            header = "".join(f"<th scope=col>{name}</th>" for name, _ in cells)
        parts.append(
            f"<details><summary>{_text(_name(code))}</summary>\n<div class=wide><table>\n<thead>"
            f"<tr><th scope=col>model</th>{header}</tr></thead>\n<tbody>\n{chr(10).join(rows)}\n"
            "</tbody>\n</table></div></details>"
        )
    return (
        "<section>\n<h2>All recalls</h2>\n<p class=soft>i→t finds captions by picture, t→i"
        " pictures by caption. In brackets: the 95 % interval of the difference from the"
        f" baseline.</p>\n{chr(10).join(parts)}\n</section>"
    )


def _queries(
    test_set: TestSet,
    models: Sequence[ModelFigures],
    ranks: Sequence[ModelRanks],
    queries: Sequence[DifferentQuery],
) -> str:
    @cache
    def thumbnail(image: int) -> str:
        return _thumbnail(test_set.files[image])

    parts = []
    for number in range(1, len(models)):
        for sign, better, worse in ((1, number, 0), (-1, 0, number)):
            own = [q for q in queries if q.model == number and sign * q.gain > 0]
            if own:
                cards = "\n".join(_card(q, test_set, ranks, thumbnail) for q in own)
                parts.append(
                    f"<section>\n<h2>Captions that {_text(models[better].name)} ranks better than"
                    f" {_text(models[worse].name)}</h2>\n<div class=cards>\n{cards}\n</div>\n"
                    "</section>"
                )
    return "\n".join(parts)


def _card(
    query: DifferentQuery, test_set: TestSet, ranks: Sequence[ModelRanks], thumbnail: object
) -> str:
    assert callable(thumbnail)
    language = get_language(query.language)
    text = test_set.layout.captions[query.language][query.number]
    direction = "rtl" if language.right_to_left else "ltr"

    def picture(image: int) -> str:
        name = _text(printable(test_set.files[image].name))
        right = image == query.image
        return (
            f'<li{" class=right" if right else ""}><img src="{thumbnail(image)}" alt="{name}'
            f'{" (the right picture)" if right else ""}" title="{name}"></li>'
        )

    rows = "\n".join(
        f"<h4>{_text(model.name)} <b>{_ordinal(query.ranks[n])}</b></h4>\n<ol>"
        + "".join(picture(int(i)) for i in model.top_images[query.language][query.number])
        + "</ol>"
        for n, model in enumerate(ranks)
        if n in (0, query.model)
    )
    name = _text(printable(test_set.files[query.image].name))
    return (
        f'<article>\n<h3 lang="{language.code}" dir="{direction}">{_text(text)}</h3>\n'
        f"<p class=soft>{_text(language.english_name)} · {name}</p>\n<div class=hits>\n"
        f"<div><h4>picture</h4><ol>{picture(query.image)}</ol></div>\n<div>{rows}</div>\n"
        "</div>\n</article>"
    )


def _footer(test_set: TestSet, models: Sequence[ModelFigures]) -> str:
    from polyglance.evaluation.results import provenance

    made = provenance()
    count = sum(len(model.differences) for model in models)
    how = [
        f"Every model ranked the same {len(test_set.files):,} pictures and captions; ties count"
        " against it.",
        f"Intervals: {RESAMPLES:,} bootstrap resamples of pictures, each with all its captions;"
        " differences are paired.",
        "p: the share of random swaps of the two models' results, picture by picture, that differ"
        f" as much, corrected by Holm's method for the {count} differences of mR on this page.",
        "Ordinals beside a model's name are the rank of the right picture.",
    ]
    how += [f"{model.name}: {model.source}, {model.similarity}." for model in models]
    if test_set.machine_captions:
        machine = [f"{_name(c)} {n:,}" for c, n in test_set.machine_captions.items()]
        how.append(f"Captions by machine translation: {', '.join(machine)}.")
    if test_set.skipped:
        how.append(f"{len(test_set.skipped):,} pictures could not be read and were left out.")
    lines = "<br>\n".join(_text(line) for line in how)
    return f"<footer>{lines}<br>\nPolyglance {made['version']}, {made['date'][:10]}.</footer>"


@cache
def _name(code: str) -> str:
    return "all languages" if code == MEAN else get_language(code).english_name


def _thumbnail(file: Path) -> str:
    """Return a small version of a picture as an address that contains it; empty if unreadable."""
    try:
        image = read_picture(file, min_side=_THUMBNAIL)
    except PictureError:
        return "data:,"
    image.thumbnail((_THUMBNAIL, _THUMBNAIL))
    stream = io.BytesIO()
    image.save(stream, "WEBP", quality=78)
    return "data:image/webp;base64," + base64.b64encode(stream.getvalue()).decode()


def _colour(difference: Comparison) -> str:
    return {"yes": "better", "no": "worse", "not decided": "open"}[difference.verdict]


def _interval(difference: Comparison) -> str:
    assert difference.low is not None
    assert difference.high is not None
    return f"{_signed(difference.low)} to {_signed(difference.high)}"


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def _small_interval(difference: Comparison | None) -> str:
    return "" if difference is None else f" <small>({_interval(difference)})</small>"


def _p_value(difference: Comparison) -> str:
    assert difference.p is not None
    return "&lt; 0.001" if difference.p < 0.001 else f"{difference.p:.3f}"


def _recall_at(models: Sequence[ModelFigures]) -> str:
    ks = [str(k) for k in next(iter(models[0].results.values())).image_to_text.recalls]
    return _join(ks)


def _join(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _ordinal(rank: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank:,}{'th' if rank % 100 in (11, 12, 13) else ending}"


def _text(text: str) -> str:
    return html.escape(text)
