"""Translate many texts in batches of similar length, caching each batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from polyglance.errors import PolyglanceError
from polyglance.languages import get_language
from polyglance.text.translation.cache import TranslationCache
from polyglance.text.translation.translators import CacheableTranslator
from polyglance.utils.progress import progress


@dataclass
class TranslationResult:
    """Translations of some texts."""

    texts: dict[str, str]
    """Texts and their translations."""
    num_cached: int
    """How many of them came from the cache."""
    failed: dict[str, str] = field(default_factory=dict)
    """Texts that could not be translated, and why; they are tried again next time."""


def translate_all(
    translator: CacheableTranslator,
    texts: Sequence[str],
    cache: TranslationCache,
    *,
    batch_size: int | None = None,
    quiet: bool = True,
) -> TranslationResult:
    """Translate texts that are not in the cache; an interrupted run resumes.

    A batch that fails is retried text by text. If every text of it fails, the
    translator's error is raised.

    Args:
        translator: The translator.
        texts: Texts; duplicates and blank ones are skipped.
        cache: Where finished batches are stored.
        batch_size: Texts per call; None for the translator's own.
        quiet: Show no progress.

    Returns:
        The translations, and the texts that failed.
    """
    wanted = [text for text in dict.fromkeys(texts) if text.strip()]
    result = TranslationResult(cache.lookup(translator, wanted), 0)
    result.num_cached = len(result.texts)
    missing = sorted((text for text in wanted if text not in result.texts), key=len)
    size = translator.batch_size if batch_size is None else batch_size
    label = f"translating into {get_language(translator.target).english_name}"
    with progress(label, len(wanted), completed=result.num_cached, quiet=quiet) as advance:
        for start in range(0, len(missing), size):
            block = missing[start : start + size]
            new, failed = _translate(translator, block)
            cache.add(translator, new)
            result.texts |= new
            result.failed |= failed
            advance(len(block))
    return result


def _translate(
    translator: CacheableTranslator, block: list[str]
) -> tuple[dict[str, str], dict[str, str]]:
    try:
        return dict(zip(block, translator.translate(block), strict=True)), {}
    except PolyglanceError as error:
        if len(block) == 1:
            return {}, {block[0]: str(error)}
        batch_error = error
    new: dict[str, str] = {}
    failed: dict[str, str] = {}
    for text in block:
        translated, errors = _translate(translator, [text])
        new |= translated
        failed |= errors
    if not new:
        raise batch_error
    return new, failed
