"""Settings: frozen dataclasses that round-trip to YAML.

    @dataclass(frozen=True)
    class Training:
        steps: int = 1000
        rate: float = 1e-4
        languages: tuple[str, ...] = ("en",)

    training = load(Training, "recipe.yaml", overrides=["steps=10"])
    text = dump(training)

A field may be a bool, int, float, str or Path, a Literal, a tuple, a dict, another
such dataclass, None, Any, or a union of these. A key that a file omits keeps its default,
also inside a nested dataclass. An unknown key or a value of the wrong type is a
`PolyglanceError` that names the file and the key.

Files are YAML 1.2 (`polyglance.utils.yaml12`): ``1e-4`` is a number and ``no`` is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from polyglance.errors import PolyglanceError
from polyglance.utils import yaml12

T = TypeVar("T")


def load(
    cls: type[T], source: str | Path | Mapping[str, object], overrides: Iterable[str] = ()
) -> T:
    """Load settings from a YAML or JSON file or a mapping.

    Args:
        cls: The frozen dataclass to build.
        source: A file, or a mapping as YAML would give it.
        overrides: Texts ``key.key=value`` that replace single values; an entry of a list is
            named by its number, ``corpora.0.batch=64``.
    """
    location = _Location() if isinstance(source, Mapping) else _Location(str(source))
    plain = dict(source) if isinstance(source, Mapping) else _read(Path(source))
    if not isinstance(plain, dict):
        raise _mismatch(plain, cls, location)
    for text in overrides:
        _override(cls, plain, text)
    settings: T = _convert(plain, cls, location)
    return settings


def dump(config: object) -> str:
    """Return settings as YAML with every field, in the order of the dataclass."""
    return yaml12.write(as_plain(config))


def as_plain(value: Any) -> Any:
    """Return settings as dicts, lists and scalars, for YAML and JSON."""
    if is_dataclass(value):
        return {f.name: as_plain(getattr(value, f.name)) for f in fields(value) if f.init}
    if isinstance(value, Mapping):
        return {as_plain(key): as_plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [as_plain(inner) for inner in value]
    return str(value) if isinstance(value, Path) else value


def validate_fields(
    settings: object, is_valid: Callable[[Any], bool], requirement: str, *names: str
) -> None:
    """Validate fields in ``__post_init__``; None always passes.

    Args:
        settings: The dataclass instance.
        is_valid: Whether a value is allowed.
        requirement: The end of the error: "batch is 0: give 1 or more".
        names: The fields to validate.
    """
    for name in names:
        value = getattr(settings, name)
        if value is not None and not is_valid(value):
            raise PolyglanceError(f"{name} is {value}: give {requirement}")


@dataclass(frozen=True, slots=True)
class _Location:
    """Where a value is: its file or override, and the dotted path inside."""

    source: str = ""
    path: tuple[str, ...] = ()

    def child(self, key: object) -> _Location:
        return _Location(self.source, (*self.path, str(key)))

    def error(self, what: str) -> PolyglanceError:
        return PolyglanceError(": ".join(part for part in (self.source, str(self), what) if part))

    def __str__(self) -> str:
        return ".".join(self.path)


def _convert(
    value: Any, kind: Any, location: _Location, default: Any = None, exact: bool = False
) -> Any:
    """Convert a plain value to type ``kind``; with ``exact`` no other scalar type is accepted."""
    origin = get_origin(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):
        return _convert_union(value, kind, location, default)
    if origin is Literal:
        for option in get_args(kind):
            if type(option) is type(value) and option == value:
                return value
    elif _is_section(kind):
        if isinstance(value, kind):
            return value
        if isinstance(value, Mapping):
            return _convert_dataclass(value, kind, location, default, exact)
    elif origin is tuple:
        if isinstance(value, list | tuple):
            return _convert_tuple(value, kind, location, exact)
    elif origin is not None and issubclass(origin, Mapping):
        if isinstance(value, Mapping):
            of_key, of_value = get_args(kind)
            keys = [_convert_key(key, of_key, location) for key in value]
            inner = [
                _convert(value[key], of_value, location.child(key), None, exact) for key in value
            ]
            return dict(zip(keys, inner, strict=True))
    elif kind in _SCALARS:
        if type(value) is kind or (kind is Path and isinstance(value, Path)):
            return value
        if not exact or kind is Path:
            coerced = _coerce(value, kind)
            if coerced is not None:
                return coerced
    else:
        raise TypeError(f"{location}: settings cannot be of type {kind}")
    raise _mismatch(value, kind, location)


def _coerce(value: Any, kind: Any) -> Any:
    """Convert a scalar of another type where the meaning is clear, else return None."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e5 steps
    if kind is float and number and abs(value) < 2**1023:
        return float(value)
    if kind is float and isinstance(value, str) and re.fullmatch(yaml12.FLOAT, value):
        return float(value)  # 1e-4, which a YAML 1.1 reader leaves as text
    return None


def _convert_key(key: Any, kind: Any, location: _Location) -> Any:
    if kind is int and isinstance(key, str) and re.fullmatch(r"-?[0-9]{1,18}", key):
        return int(key)  # JSON keys are always text
    return _convert(key, kind, location.child(key))


def _convert_tuple(value: Sequence[Any], kind: Any, location: _Location, exact: bool) -> Any:
    kinds = get_args(kind)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise location.error(f"expected {_name(kind)}, found {len(value)} values")
    return tuple(
        _convert(inner, inner_kind, location.child(number), exact=exact)
        for number, (inner, inner_kind) in enumerate(zip(value, kinds, strict=True))
    )


def _convert_dataclass(
    value: Mapping[Any, Any], kind: Any, location: _Location, default: Any, exact: bool
) -> Any:
    settings = {name: _fallback(kind, name, default) for name in _fields(kind)}
    for key, inner in value.items():
        if key not in settings:
            raise _unknown(key, settings, location)
        settings[key] = _convert(
            inner, _hints(kind)[key], location.child(key), settings[key], exact
        )
    for name, setting in settings.items():
        if setting is MISSING:
            raise location.child(name).error(f"is missing; it must be {_name(_hints(kind)[name])}")
    try:
        return kind(**settings)
    except (ValueError, PolyglanceError) as error:  # raised by its __post_init__
        raise location.error(str(error)) from error


def _convert_union(value: Any, kind: Any, location: _Location, default: Any) -> Any:
    """Convert to the first member that fits exactly, else to the first that fits at all."""
    members = get_args(kind)
    for exact in (True, False):
        for member in members:
            with suppress(PolyglanceError):
                return _convert(value, member, location, default, exact)
    sections = [member for member in members if _is_section(member)]
    if isinstance(value, Mapping) and sections:
        closest = max(sections, key=lambda section: _count_matches(value, section))
        return _convert(value, closest, location, default)  # raises a specific error
    raise _mismatch(value, kind, location)


def _count_matches(value: Mapping[Any, Any], section: Any) -> int:
    """Count the settings of a mapping that fit a dataclass."""
    matches = 0
    for key in value.keys() & _fields(section).keys():
        with suppress(PolyglanceError):
            _convert(value[key], _hints(section)[key], _Location())
            matches += 1
    return matches


def _override(cls: Any, plain: dict[str, Any], text: str) -> None:
    """Set one value inside ``plain``, converted to the type of its field."""
    name, equals, raw = text.partition("=")
    location = _Location(f"override {text!r}")
    keys = name.strip().split(".")
    if not equals or not all(keys):
        raise location.error("expected key=value, such as training.steps=10")
    kind, default = cls, None
    level: dict[str, Any] | list[Any] = plain
    for depth, key in enumerate(keys):
        kind, default = _resolve_key(kind, default, key, location)
        location = location.child(key)
        place: Any = _index(level, key, location) if isinstance(level, list) else key
        if depth == len(keys) - 1:
            level[place] = _convert_text(raw.strip(), kind, location, default)
        else:
            inner = as_plain(level[place] if isinstance(level, list) else level.get(key, default))
            empty: Any = [] if _entry_kinds(kind) else {}
            inside = inner if isinstance(inner, type(empty)) else empty
            level[place] = inside
            level = inside


def _index(entries: Sequence[Any], key: str, location: _Location) -> int:
    """Return the number of a list's entry that an override names, counted from 0."""
    number = int(key) if key.isascii() and key.isdigit() else -1
    if not 0 <= number < len(entries):
        known = f"0 to {len(entries) - 1}" if entries else "none, it is empty"
        raise location.error(f"is not a number of an entry; the list has {known}")
    return number


def _entry_kinds(kind: Any) -> list[Any]:
    """Return the types of a list's entries, for each list among the members of a type."""
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return [get_args(member)[0] for member in members if get_origin(member) is tuple]


def _resolve_key(kind: Any, default: Any, key: str, location: _Location) -> tuple[Any, Any]:
    """Return the type and, if any, the default of the field ``key`` inside ``kind``."""
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    sections = [member for member in members if _is_section(member)]
    for section in sections:
        if key in _fields(section):
            return _hints(section)[key], _fallback(section, key, default)
    if sections:
        raise _unknown(key, _fields(sections[0]), location)
    for member in members:
        origin = get_origin(member)
        if origin is not None and issubclass(origin, Mapping):
            return get_args(member)[1], default.get(key) if isinstance(default, Mapping) else None
    for entry in _entry_kinds(kind):
        return entry, None
    raise location.child(key).error(f"{location} is {_name(kind)}, with no settings inside")


def _convert_text(raw: str, kind: Any, location: _Location, default: Any) -> Any:
    """Parse an override as YAML if that fits its field, else take it as text."""
    try:
        return _convert(yaml12.parse(raw, location.source), kind, location, default)
    except PolyglanceError as error:
        try:
            return _convert(raw, kind, location, default)
        except PolyglanceError:
            raise error from None


def _unknown(key: object, known: Iterable[str], location: _Location) -> PolyglanceError:
    near = [f"did you mean {location.child(name)}?" for name in get_close_matches(str(key), known)]
    hint = near[0] if near else f"known here: {', '.join(known)}"
    return location.child(key).error(f"is not a known setting; {hint}")


def _mismatch(value: Any, kind: Any, location: _Location) -> PolyglanceError:
    hint = ""
    if isinstance(value, bool | int | float) and "text" in _name(kind):
        hint = "; for text, add quotes"
    return location.error(f"expected {_name(kind)}, found {_describe(value)}{hint}")


_SCALARS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    NoneType: "null",
}


def _name(kind: Any) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if kind in _SCALARS:
        return _SCALARS[kind]
    if origin in (Union, UnionType):
        return " or ".join(_name(member) for member in args)
    if origin is Literal:
        return "the text " * isinstance(args[0], str) + " or ".join(repr(option) for option in args)
    if origin is tuple and args[1:] == (Ellipsis,):
        return f"a list (each {_name(args[0])})"
    if origin is tuple:
        return f"a list of {len(args)} ({', '.join(map(_name, args))})"
    if _is_section(kind):
        return f"a mapping with some of {', '.join(_fields(kind))}"
    return "a mapping"


def _describe(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= 60 else f"the text {value[:60]!r}..."
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else f"a {type(value).__name__}"


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind)


def _fallback(section: Any, name: str, default: Any) -> Any:
    """Return a field's value in the default of its section, else the field's own default."""
    if isinstance(default, section):
        return getattr(default, name)
    field = _fields(section)[name]
    return field.default if field.default_factory is MISSING else field.default_factory()


@cache
def _fields(kind: Any) -> dict[str, Field[Any]]:
    return {field.name: field for field in fields(kind) if field.init}


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise PolyglanceError(f"{path}: cannot be read ({reason})") from error
    if path.suffix != ".json":
        content = yaml12.parse(text, str(path))
        return {} if content is None else content
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PolyglanceError(f"{path}: not valid JSON ({error})") from error
