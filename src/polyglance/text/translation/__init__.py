"""Whole corpora translated: models of others, what they said before, and which of it to keep.

translator = open_translator("models/opus-mt-{source}-{target}", "en", "de")
with TranslationCache.open() as cache:
    done = translate_all(translator, texts, cache)
"""

from polyglance.text.translation.batches import TranslationResult, translate_all
from polyglance.text.translation.cache import TranslationCache
from polyglance.text.translation.registry import open_translator

__all__ = ["TranslationResult", "TranslationCache", "open_translator", "translate_all"]
