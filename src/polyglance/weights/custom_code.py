"""Refuse model folders that bring code of their own, before any package opens them.

transformers and sentence-transformers can run Python files beside the weights, or classes that
a JSON file names. Polyglance never asks them to; this check does not rely on them to refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyglance.errors import DataError, PolyglanceError, error_reason, printable
from polyglance.utils.bounded import parse_json

_CODE = (".py", ".pyc", ".pyd", ".so", ".dll", ".dylib")
_KEYS = ("auto_map", "custom_pipelines")
"""Keys by which a configuration names classes in files beside it."""
_VOCABULARIES = ("tokenizer.json", "vocab.json", "added_tokens.json")
"""Large files in which any word may be a key."""
_MAX_CONFIG = 16 << 20
_WAY_OUT = "which Polyglance does not run: get a version of the model that needs none"


def refuse_custom_code(*folders: Path) -> None:
    """Raise an error if a model folder holds program files, or a JSON file that names code.

    Only files directly inside are looked at: name each folder that a package will open.
    """
    for folder in folders:
        try:
            paths = sorted(folder.iterdir())
        except OSError as error:
            raise DataError(f"{folder} cannot be read ({error_reason(error)})") from error
        for path in paths:
            if path.suffix.lower() in _CODE:
                raise PolyglanceError(
                    f"{folder} holds code of its own ({printable(path.name)}), {_WAY_OUT}, or"
                    " move the file away if nothing does"
                )
            if path.suffix == ".json" and _is_config(path.name) and (key := _code_key(path)):
                raise PolyglanceError(f"{path} asks for code of its own ({key}), {_WAY_OUT}")


def _is_config(name: str) -> bool:
    return name not in _VOCABULARIES and not name.endswith(".index.json")


def _code_key(path: Path) -> str | None:
    """Return the first key that asks for code, at any depth."""
    try:
        if path.stat().st_size > _MAX_CONFIG:
            raise DataError(f"{path} has more than {_MAX_CONFIG:,} bytes, too many for a setting")
        content = parse_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error_reason(error)})") from error
    except ValueError as error:
        # What is no JSON names no code: whoever needs the file reports what is wrong with it.
        if "nested" in str(error):
            raise DataError(f"{path} cannot be read ({error})") from error
        return None
    for key, value in _items(content):
        if key in _KEYS and value:
            return key
        if key == "trust_remote_code" and value:
            return f"{key}: {value}"
    return None


def _items(content: Any) -> Iterator[tuple[str, Any]]:
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value.items()
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
