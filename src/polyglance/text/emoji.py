"""The names of emoji in a hundred languages, from Unicode's CLDR.

They are a multilingual vocabulary of things that people photograph, from abacus to
zebra. The files are those of the npm package ``cldr-annotations-full``, such as
``annotations/tr/annotations.json``.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from polyglance.errors import DataError, PolyglanceError, error_reason
from polyglance.languages import is_language_code, normalise_language
from polyglance.utils.bounded import parse_json

_FIRST_PICTOGRAPH = 0x2600
"""Characters before this are punctuation and symbols."""


def emoji_names(folder: str | Path) -> list[dict[str, str]]:
    """Return each emoji's name by language; emoji without an English name are left out.

    ``folder`` is the package, or its folder ``annotations``.
    """
    folder = Path(folder).expanduser()
    files = sorted(folder.glob("*/annotations.json")) or sorted(folder.glob("*/*/annotations.json"))
    if not files:
        raise PolyglanceError(
            f"{folder}: no emoji annotations there; unpack the npm package cldr-annotations-full"
        )
    names: dict[str, dict[str, str]] = defaultdict(dict)
    for path in files:
        locale = path.parent.name
        if "-" in locale or not is_language_code(locale):
            continue  # regional or script variant of a language that has its own file
        try:
            annotations = parse_json(path.read_text(encoding="utf-8"))["annotations"]
            for emoji, entry in annotations.get("annotations", {}).items():
                if entry.get("tts") and ord(emoji[0]) >= _FIRST_PICTOGRAPH:
                    names[emoji][normalise_language(locale)] = entry["tts"][0]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}: not emoji annotations ({error_reason(error)})") from error
    return [by_language for by_language in names.values() if "en" in by_language]
