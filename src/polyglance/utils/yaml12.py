"""Read and write YAML 1.2 through PyYAML, which implements 1.1.

``1e-4`` is a number, ``no`` and ``on`` are text (such as the code of Norwegian), ``010`` is
ten, and 1:30 or 2024-01-01 stay text. Output means the same to readers of YAML 1.1.
"""

from __future__ import annotations

import re
from copy import deepcopy
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from polyglance.errors import PolyglanceError

if TYPE_CHECKING:
    import yaml

FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"

_SCALARS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": FLOAT + r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
}
_KEPT = 50_000
"""Characters up to which a parsed text is kept."""
_ODD_LINE_BREAKS = re.compile("[\x85\u2028\u2029]")
_MAX_DEPTH = 1000
"""Levels of nesting that libyaml is given: it crashes with tens of thousands."""


def parse(text: str, source: str) -> Any:
    """Parse a text into dicts, lists and scalars; ``source`` names it in errors."""
    import yaml

    try:
        return deepcopy(_parse(text)) if len(text) <= _KEPT else _parse.__wrapped__(text)
    except yaml.MarkedYAMLError as error:
        # To libyaml, a text ends on the line after its last one.
        last = len(text.splitlines()) - 1
        line = f":{min(error.problem_mark.line, last) + 1}" if error.problem_mark else ""
        raise PolyglanceError(f"{source}{line}: not valid YAML ({error.problem})") from error
    except (yaml.YAMLError, ValueError, RecursionError, LookupError, AttributeError) as error:
        # PyYAML raises the last three on explicit tags such as !!float "".
        raise PolyglanceError(f"{source}: not valid YAML") from error


@lru_cache(maxsize=64)
def _parse(text: str) -> Any:
    """Keep what was parsed: a plan opens the same recipe for every run."""
    import yaml

    return yaml.load(text, Loader=_loader(fast=_depth_limit(text) <= _MAX_DEPTH))


def _depth_limit(text: str) -> int:
    """Return a number of levels that a text's nesting cannot exceed.

    A level of a block is a column further right, one in brackets takes a bracket.
    """
    return max(map(len, text.splitlines()), default=0) + text.count("[") + text.count("{")


def write(value: Any) -> str:
    """Return dicts, lists and scalars as YAML, in their order."""
    import yaml

    return yaml.dump(value, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=100)


def _add_scalar_rules(cls: Any) -> None:
    for name, pattern in _SCALARS.items():
        cls.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(f"^(?:{pattern})$"), None)


@cache
def _loader(*, fast: bool) -> type[yaml.SafeLoader]:
    """Build a safe loader with the scalars of YAML 1.2 that refuses duplicate keys.

    The fast one is of libyaml, ten times as fast, where PyYAML was built with it.
    """
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if fast else yaml.SafeLoader

    class Loader(base):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            mapping: dict[Any, Any] = super().construct_mapping(node, deep)
            if len(mapping) < len(node.value):
                raise yaml.MarkedYAMLError(None, None, "a key is given twice", node.start_mark)
            return mapping

        def construct_int(self, node: yaml.ScalarNode) -> int:
            digits: str = self.construct_scalar(node).replace("_", "")
            return int(digits, 0 if digits[:2] in ("0o", "0x") else 10)

    _add_scalar_rules(Loader)
    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_int)
    return Loader


@cache
def _dumper() -> type[yaml.SafeDumper]:
    """Build a safe dumper that quotes text which YAML 1.1 or 1.2 would read as another type."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

        def represent_short_list(self, data: list[Any]) -> yaml.SequenceNode:
            one_line = not any(isinstance(inner, list | dict) for inner in data)
            return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=one_line)

        def represent_text(self, data: str) -> yaml.ScalarNode:
            # PyYAML drops these line breaks unless the text is in double quotes.
            style = '"' if _ODD_LINE_BREAKS.search(data) else None
            return self.represent_scalar("tag:yaml.org,2002:str", data, style)

    _add_scalar_rules(Dumper)
    Dumper.add_representer(list, Dumper.represent_short_list)
    Dumper.add_representer(str, Dumper.represent_text)
    return Dumper
