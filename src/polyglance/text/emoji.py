"""The names of emoji in a hundred languages, as Unicode's CLDR has them.

They name things that people take pictures of, from abacus to zebra, each in every
language. The files are those of the npm package ``cldr-annotations-full``:
``annotations/tr/annotations.json`` and so on.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from polyglance.errors import DataError, PolyglanceError, error_reason
from polyglance.languages import is_language_code, normalise_language

_FIRST_PICTURE = 0x2600
"""Characters before this are punctuation and signs."""


def emoji_names(folder: str | Path) -> list[dict[str, str]]:
    """Of each emoji its name by language; those without an English name are left out.

    ``folder`` is the package's, or its folder ``annotations``.
    """
    folder = Path(folder).expanduser()
    files = sorted(folder.glob("*/annotations.json")) or sorted(folder.glob("*/*/annotations.json"))
    if not files:
        raise PolyglanceError(
            f"{folder}: no annotations of emoji there; unpack the npm package cldr-annotations-full"
        )
    names: dict[str, dict[str, str]] = defaultdict(dict)
    for path in files:
        locale = path.parent.name
        if "-" in locale or not is_language_code(locale):
            continue  # a region's or a script's variant of a language that is there as well
        try:
            found = json.loads(path.read_text(encoding="utf-8"))["annotations"]
            for sign, known in found.get("annotations", {}).items():
                if known.get("tts") and ord(sign[0]) >= _FIRST_PICTURE:
                    names[sign][normalise_language(locale)] = known["tts"][0]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}: not annotations of emoji ({error_reason(error)})") from error
    return [by_language for by_language in names.values() if "en" in by_language]
