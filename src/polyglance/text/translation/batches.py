"""Many texts through a translator: in batches of like length, each kept when it is done."""

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
    """What became of some texts."""

    texts: dict[str, str]
    """Texts and their translations."""
    num_cached: int
    """How many of them were translated before."""
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
    """Translate texts that are not in the cache; killed, it goes on with what is missing.

    A batch that fails is tried text by text, and what fails then is named. Where
    nothing of a batch succeeds, the translator is at fault, and its error stands.
    """
    wanted = [text for text in dict.fromkeys(texts) if text.strip()]
    done = TranslationResult(cache.lookup(translator, wanted), 0)
    done.num_cached = len(done.texts)
    missing = sorted((text for text in wanted if text not in done.texts), key=len)
    size = translator.batch_size if batch_size is None else batch_size
    what = f"translating into {get_language(translator.target).english_name}"
    with progress(what, len(wanted), completed=done.num_cached, quiet=quiet) as advance:
        for start in range(0, len(missing), size):
            block = missing[start : start + size]
            new, failed = _translate(translator, block)
            cache.add(translator, new)
            done.texts |= new
            done.failed |= failed
            advance(len(block))
    return done


def _translate(
    translator: CacheableTranslator, block: list[str]
) -> tuple[dict[str, str], dict[str, str]]:
    try:
        return dict(zip(block, translator.translate(block), strict=True)), {}
    except PolyglanceError as error:
        if len(block) == 1:
            return {}, {block[0]: str(error)}
        first = error
    new: dict[str, str] = {}
    failed: dict[str, str] = {}
    for text in block:
        one, why = _translate(translator, [text])
        new |= one
        failed |= why
    if not new:
        raise first
    return new, failed
