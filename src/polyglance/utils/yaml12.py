"""YAML by the rules of its version 1.2, read and written through PyYAML, which knows 1.1.

``1e-4`` is a number, ``no`` and ``on`` are text (Norwegian, for one), ``010`` is
ten, and 1:30 or 2024-01-01 stay as written. What is written here, readers of 1.1
understand the same way.
"""

from __future__ import annotations

import re
from functools import cache
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
_ODD_LINE_BREAKS = re.compile("[\x85\u2028\u2029]")


def parse(text: str, source: str) -> Any:
    """The dicts, lists and scalars that a text holds; ``source`` names it in errors."""
    import yaml

    try:
        return yaml.load(text, Loader=_loader())
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise PolyglanceError(f"{source}{line}: not valid YAML ({error.problem})") from error
    except (yaml.YAMLError, ValueError, RecursionError, LookupError, AttributeError) as error:
        # The last three are PyYAML's own on explicit tags such as !!float "".
        raise PolyglanceError(f"{source}: not valid YAML") from error


def write(value: Any) -> str:
    """The text that holds these dicts, lists and scalars, in their order."""
    import yaml

    return yaml.dump(value, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=100)


def _teach(cls: Any) -> None:
    for name, pattern in _SCALARS.items():
        cls.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(f"^(?:{pattern})$"), None)


@cache
def _loader() -> type[yaml.SafeLoader]:
    """A safe loader that knows the scalars of YAML 1.2 only and refuses a key given twice."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            found = super().construct_mapping(node, deep)
            if len(found) < len(node.value):
                raise yaml.MarkedYAMLError(None, None, "a key is given twice", node.start_mark)
            return found

        def construct_int(self, node: yaml.ScalarNode) -> int:
            digits = self.construct_scalar(node).replace("_", "")
            return int(digits, 0 if digits[:2] in ("0o", "0x") else 10)

    _teach(Loader)
    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_int)
    return Loader


@cache
def _dumper() -> type[yaml.SafeDumper]:
    """A safe dumper that quotes text which either version would read as something else."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

        def represent_short_list(self, data: list[Any]) -> yaml.SequenceNode:
            one_line = not any(isinstance(inner, list | dict) for inner in data)
            return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=one_line)

        def represent_text(self, data: str) -> yaml.ScalarNode:
            # Left to itself PyYAML loses these line breaks; between double quotes it escapes them.
            style = '"' if _ODD_LINE_BREAKS.search(data) else None
            return self.represent_scalar("tag:yaml.org,2002:str", data, style)

    _teach(Dumper)
    Dumper.add_representer(list, Dumper.represent_short_list)
    Dumper.add_representer(str, Dumper.represent_text)
    return Dumper
