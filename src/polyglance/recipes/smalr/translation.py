"""Machine translation of captions, for translate-to-English, CLC and missing captions.

SMALR translates by machine (sections 3.4 and 4). Translators are those of ``polyglance data
translate``: Marian, NLLB and others. What was translated once is in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from polyglance.data.captions import CaptionTable
from polyglance.recipes.smalr.lexicon_captions import NeverEmpty
from polyglance.records import Record
from polyglance.text.lexicon import Lexicon
from polyglance.text.translation import TranslationCache, translate_all
from polyglance.text.translation.registry import open_first_translator
from polyglance.text.translation.translators import CacheableTranslator

_WITHOUT_FOLDER = ("apertium", "words")
_CACHE = "translations.sqlite3"


class CaptionTranslator:
    """Translates captions by machine, from and into any of the translators' languages."""

    def __init__(
        self, names: Sequence[str], data: Path, cache_dir: Path, *, device: str = "cpu"
    ) -> None:
        """Set up; nothing is opened before it is needed.

        Args:
            names: As `open_translator` takes them, folders inside the data folder; the first
                that has a pair of languages is used.
            data: The data folder.
            cache_dir: Keeps translations.
            device: Where models run.
        """
        self.names = [name if name in _WITHOUT_FOLDER else str(data / name) for name in names]
        self.cache, self.device = cache_dir / _CACHE, device

    def open(self, source: str, target: str) -> CacheableTranslator:
        """Open the translator of two languages."""
        return _open(tuple(self.names), source, target, self.device)

    def translate(self, texts: Sequence[str], source: str, target: str) -> list[str]:
        """Translate texts; an empty text stands for one that could not be translated."""
        if source == target:
            return list(texts)
        with TranslationCache.open(self.cache) as cache:
            found = translate_all(self.open(source, target), texts, cache).texts
        return [found.get(text, "") for text in texts]

    def translate_records(
        self, records: Sequence[Record], source: str, target: str
    ) -> list[Record]:
        """Return the records with their captions in ``source`` translated, and no others."""
        texts = [text for record in records for text in record.captions.get(source, ())]
        translated = iter(self.translate(texts, source, target))
        return [
            replace(
                record,
                captions={target: tuple(next(translated) for _ in record.captions.get(source, ()))},
            )
            for record in records
        ]

    def queries(
        self, records: Sequence[Record], source: str, target: str, lexicon: Lexicon
    ) -> CaptionTable:
        """Return captions translated into words of a lexicon, in the order of the originals.

        A caption without a known word is one padding word.

        Args:
            records: Images with captions.
            source: Language of the captions.
            target: Language to translate into.
            lexicon: Words of the target language among others.
        """
        tokenizer = NeverEmpty(lexicon.tokenizer(target))
        translated = self.translate_records(records, source, target)
        return CaptionTable.build(translated, {target: tokenizer}, languages=lexicon.languages)


@lru_cache(maxsize=2)  # a model a pair of languages: no more of them in memory
def _open(names: tuple[str, ...], source: str, target: str, device: str) -> CacheableTranslator:
    return open_first_translator(names, source, target, device=device)
