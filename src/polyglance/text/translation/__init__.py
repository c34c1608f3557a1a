"""Machine translation of whole corpora: translators, a cache of their output, quality checks.

translator = open_translator("models/opus-mt-{source}-{target}", "en", "de")
with TranslationCache.open() as cache:
    result = translate_all(translator, texts, cache)
"""

from polyglance.text.translation.batches import TranslationResult, translate_all
from polyglance.text.translation.cache import TranslationCache
from polyglance.text.translation.registry import open_translator

__all__ = ["TranslationCache", "TranslationResult", "open_translator", "translate_all"]
