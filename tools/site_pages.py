"""Pages of the site that are generated: the Python API, the HTTP API, formats, history, notebooks.

Each is Markdown, made anew whenever the site is built, from the code and from results.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.public_modules import RULE, public_modules

INHERITING = ("polyglance.search.library", "polyglance.search.results")
"""Modules whose classes are shown with what they inherit."""


def generated_pages(root: Path) -> dict[str, str]:
    """Return the generated pages by their path in the site.

    Args:
        root: The repository.
    """
    return {
        **dict(api_pages(root)),
        "http-api.md": http_api_page(openapi_document()),
        "history.md": history_page(root),
        **{
            f"notebooks/{path.stem}.md": notebook_page(path)
            for path in sorted((root / "docs" / "notebooks").glob("*.ipynb"))
        },
    }


def api_pages(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the overview and a page for each public module."""
    lines = ["# Python API", "", RULE]
    for heading, modules in public_modules(root).items():
        lines += ["", f"## {heading}", "", "| module | what it is for |", "|---|---|"]
        for name, what in modules.items():
            lines.append(f"| [`{name}`]({name}.md) | {what} |")
            options = "    options: {inherited_members: true}\n" if name in INHERITING else ""
            yield f"api/{name}.md", f"# {name}\n\n::: {name}\n{options}"
    yield "api/index.md", "\n".join(lines) + "\n"


def openapi_document() -> dict[str, Any]:
    """Return the description of the HTTP API, as ``polyglance serve`` sends it."""
    from polyglance.search.library import Library
    from polyglance.search.sqlite_store import SqliteStore
    from polyglance.search.store import ModelInfo
    from polyglance.serve.app import create_app

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "my.polyglance"
        SqliteStore(path, ModelInfo("none", "none", "none", 1, "none")).close()
        with Library(path) as library:
            document: dict[str, Any] = create_app(library).openapi()
    return document


def http_api_page(document: dict[str, Any]) -> str:
    """Return the page of the HTTP API.

    Args:
        document: OpenAPI's description of it.
    """
    lines = [
        "# HTTP API",
        "",
        "The endpoints of [`polyglance serve`](serve.md), from its own description:"
        " `/openapi.json` on the server, from which clients can be generated; `/docs` there tries"
        " them out, without the internet. Responses are JSON unless noted.",
        "",
        document["info"].get("description", ""),
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines += ["", f"## `{method.upper()} {path}`", ""]
            lines += _paragraphs(operation)
            if parameters := operation.get("parameters"):
                lines += ["", "| parameter | in | type | |", "|---|---|---|---|"]
                lines += [_parameter_row(parameter) for parameter in parameters]
            body = operation.get("requestBody", {}).get("content", {})
            for kind, content in body.items():
                lines += ["", f"Body: `{kind}`, {_type(content.get('schema', {}))}"]
            lines += ["", "| status | answer | |", "|---|---|---|"]
            for status, response in operation["responses"].items():
                content = response.get("content", {})
                types = [
                    _type(c.get("schema", {})) if kind == "application/json" else f"`{kind}`"
                    for kind, c in content.items()
                ]
                lines.append(
                    f"| {status} | {', '.join(types)} | {_cell(response['description'])} |"
                )
    lines += ["", "## Objects"]
    for name, schema in sorted(document["components"]["schemas"].items()):
        if not (fields := schema.get("properties")):
            continue
        lines += ["", f"### {name}", "", *_paragraphs(schema)]
        lines += ["", "| field | type | |", "|---|---|---|"]
        required = schema.get("required", ())
        for field, value in fields.items():
            note = "" if field in required else "optional. "
            text = note + _cell(value.get("description", ""))
            lines.append(f"| `{field}` | {_type(value)} | {text} |")
    return "\n".join(lines) + "\n"


def _paragraphs(schema: dict[str, Any]) -> list[str]:
    text = schema.get("description") or schema.get("summary") or ""
    return [re.sub(r"``([^`]*)``", r"`\1`", text)]


def _parameter_row(parameter: dict[str, Any]) -> str:
    schema = parameter.get("schema", {})
    required = "**required** " if parameter.get("required") else ""
    text = parameter.get("description") or schema.get("description") or ""
    return (
        f"| `{parameter['name']}` | {parameter['in']} | {_type(schema)} | {required}{_cell(text)} |"
    )


def _type(schema: dict[str, Any]) -> str:
    """Return a schema in few words; objects link to their fields."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(option) for option in schema[key]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    limits = [
        f"{word} {schema[key]}"
        for key, word in (
            ("minimum", "from"),
            ("maximum", "to"),
            ("maxLength", "at most"),
        )
        if key in schema
    ]
    return f"{kind} {' '.join(limits)}".strip()


def _cell(text: str) -> str:
    return " ".join(re.sub(r"``([^`]*)``", r"`\1`", text).split()).replace("|", "\\|")


def formats_table() -> str:
    """Return the table of the formats of datasets."""
    from polyglance.data.readers import FORMATS

    rows = [f"| `{f.name}` | {_cell(f.help)} | {_cell(f.source)} |" for f in FORMATS.values()]
    return "\n".join(["| format | what it is | SOURCE |", "|---|---|---|", *rows])


def history_page(root: Path) -> str:
    """Return the page of all speed benchmarks, each with its history."""
    from benchmarks import history

    lines = history.read_history(root / "benchmarks" / "results" / "history.jsonl")
    text = [
        "# History of the benchmarks",
        "",
        "The figure that each [speed benchmark](benchmarks-how.md) is judged by, at each commit"
        " where it was measured. Machines differ from day to day; where a benchmark times other"
        " code in the same run, the ratio to it says more than the figure: above 1, ours is faster."
        " All figures are in [history.jsonl](../benchmarks/results/history.jsonl).",
    ]
    for name, headline in history.HEADLINES.items():
        measured = [line for line in lines if line["benchmark"] == name]
        if headline is None or not measured:
            continue
        unit = "lower is better" if headline.lower_is_better else "higher is better"
        text += ["", f"## {name}", "", f"`{headline.path}`, {unit}.", ""]
        text += ["| date | commit | figure | ratios | machine |", "|---|---|---:|---|---|"]
        for line in sorted(measured, key=lambda line: str(line["date"])):
            figure = line["figures"].get(headline.path)
            ratios = ", ".join(f"{what}: {ratio:.2f}" for what, ratio in line["ratios"].items())
            shown = "" if figure is None else f"{figure:,.6g}"
            text.append(
                f"| {line['date']} | `{str(line['commit'])[:7]}` | {shown} | {ratios} |"
                f" {_cell(str(line['hardware']))} |"
            )
    return "\n".join(text) + "\n"


def notebook_page(path: Path) -> str:
    """Return a notebook as a page, with the outputs that are stored in it."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    parts = []
    for number, cell in enumerate(notebook["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```")
            parts += [_output(output) for output in cell["outputs"]]
        if number == 0:
            parts.append(
                f"*This page is a notebook: [download it]({path.name}) and run it in Jupyter"
                " (`pip install notebook`, in the environment of Polyglance). The tests run it,"
                " too.*"
            )
    return "\n\n".join(part for part in parts if part) + "\n"


def _output(output: dict[str, Any]) -> str:
    """Return an output of a cell: a picture or HTML where there is one, else text."""
    data = output.get("data", {})
    if "text/html" in data:
        inner = "".join(data["text/html"]).replace("\n", " ")
        return f'<div class="notebook-output">{inner}</div>'
    for kind in ("image/png", "image/jpeg", "image/webp"):
        if kind in data:
            return f'<img alt="output" src="data:{kind};base64,{"".join(data[kind]).strip()}">'
    text = "".join(output.get("text", data.get("text/plain", ())))
    return f"``` {{ .text .notebook-text }}\n{text.rstrip()}\n```" if text.strip() else ""
