"""The words of a sentence and the sub-words that each consists of."""

from __future__ import annotations

import unicodedata

from polyglance.text.tokenizer import Encoding, Tokenizer

_SPACELESS_SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
"""How the Unicode names of their letters begin."""


def last_word_read(
    sentence: str, tokenizer: Tokenizer, max_tokens: int, *, spaces: bool = True
) -> str | None:
    """Return the last word that is read of a sentence longer than ``max_tokens``.

    Args:
        sentence: the sentence.
        tokenizer: of the model.
        max_tokens: sub-words that the model reads.
        spaces: as for `split_words`.

    Returns:
        The word, or None for a sentence that is read whole.
    """
    encoding = tokenizer.encode_with_spans(sentence, max_length=max_tokens)
    if len(tokenizer.encode(sentence)) <= len(encoding.ids):
        return None
    words = split_words(sentence, encoding, spaces=spaces)
    return words[-1][0] if words else ""


def split_words(
    sentence: str, encoding: Encoding, *, spaces: bool = True
) -> list[tuple[str, list[int]]]:
    """Return the words and the positions of their sub-words.

    Args:
        sentence: the sentence.
        encoding: its sub-words, with their spans in the sentence.
        spaces: whether spaces separate words; without, every sub-word is a word. Letters of
            scripts without spaces are treated so whatever the language.

    Returns:
        One entry per word; punctuation is left out.
    """
    words: list[tuple[int, int, list[int]]] = []
    for position, (start, end) in enumerate(encoding.spans or ()):
        piece = sentence[start:end]
        if not any(map(str.isalnum, piece)):
            continue
        start += len(piece) - len(piece.lstrip())
        if words:
            begin, last, positions = words[-1]
            between, around = sentence[last:start], sentence[last - 1] + sentence[start]
            same_word = spaces and not any(map(str.isspace, between)) and not _spaceless(around)
            # A space before a word may be a sub-word of its own that overlaps the first letter.
            if same_word or start < last:
                words[-1] = (begin, max(last, end), [*positions, position])
                continue
        words.append((start, end, [position]))
    return [(sentence[start:end].strip(), positions) for start, end, positions in words]


def _spaceless(letters: str) -> bool:
    """Return whether a letter belongs to a script without spaces between words."""
    return any(unicodedata.name(letter, "").startswith(_SPACELESS_SCRIPTS) for letter in letters)
