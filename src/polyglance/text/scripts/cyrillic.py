"""Languages that are written in Cyrillic and in Latin letters."""

from __future__ import annotations

import re
import unicodedata

_SERBIAN_LETTERS = """
а a б b в v г g д d ђ đ е e ж ž з z и i ј j к k л l љ lj м m н n њ nj о o п p р r с s т t ћ ć у u
ф f х h ц c ч č џ dž ш š
"""
_UZBEK_LETTERS = """
а a б b в v г g д d е e ё yo ж j з z и i й y к k л l м m н n о o п p р r с s т t у u ф f х x ц s
ч ch ш sh ъ ʼ э e ю yu я ya ў oʻ қ q ғ gʻ ҳ h
"""


def _table(letters: str) -> dict[str, str]:
    parts = letters.split()
    return dict(zip(parts[::2], parts[1::2], strict=True))


_SERBIAN, _UZBEK = _table(_SERBIAN_LETTERS), _table(_UZBEK_LETTERS)
_TABLES = dict.fromkeys(("sr", "bs", "hr", "cnr"), _SERBIAN)
_ONLY_SERBIAN = re.compile("[ђјљњћџ]", re.IGNORECASE)
_CYRILLIC = re.compile(r"[\u0400-\u04ff]")


def to_latin(text: str, language: str | None) -> str:
    """Return Serbian in Latin letters; other texts stay.

    Args:
        text: A text.
        language: Its language; without, letters that only Serbian has say it.

    Returns:
        The text, with its capitals.
    """
    if not _CYRILLIC.search(text):
        return text
    table = _TABLES.get(language or "")
    if language in (None, "ru", "bg", "uk") and _ONLY_SERBIAN.search(text):
        table = _SERBIAN
    if table is None:
        return text
    return "".join(_replace(character, table) for character in unicodedata.normalize("NFC", text))


def cyrillic_letters(text: str, language: str) -> str:
    """Return Serbian or Uzbek, ``sr`` or ``uz``, in lower case and Cyrillic letters."""
    table = _UZBEK if language == "uz" else _SERBIAN
    letters = {latin: cyrillic for cyrillic, latin in reversed(table.items())}
    text = text.replace("'", "ʻ").replace("‘", "ʻ") if language == "uz" else text
    text, at, parts = text.lower(), 0, list[str]()
    while at < len(text):
        pair = text[at : at + 2] in letters
        piece = text[at : at + (2 if pair else 1)]
        parts.append(letters.get(piece, piece))
        at += len(piece)
    return "".join(parts)


def _replace(character: str, table: dict[str, str]) -> str:
    latin = table.get(character.lower())
    if latin is None:
        return character
    return latin.capitalize() if character.isupper() else latin
