"""Spelling of queries: word lists of many languages, language guessing, correction of typos."""

from polyglance.text.spelling.guess import guess_language
from polyglance.text.spelling.known_words import KnownWords
from polyglance.text.spelling.speller import Correction, Speller, shipped_speller
from polyglance.text.spelling.word_lists import WordLists, shipped_word_lists, write_word_lists

__all__ = [
    "Correction",
    "KnownWords",
    "Speller",
    "WordLists",
    "guess_language",
    "shipped_speller",
    "shipped_word_lists",
    "write_word_lists",
]
