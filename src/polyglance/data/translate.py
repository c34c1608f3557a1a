"""A manifest in one language becomes one in many: UC2's augmentation (Zhou et al. 2021, 3.1).

    translators = [open_translator("apertium", "en", "es")]
    report = translate_manifest("train.jsonl", "train-many.jsonl.gz", translators)

What people wrote stays as it is and is never added to: a record that has captions
in a language needs none from a machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from polyglance.data.machine_captions import (
    MachineCaptions,
    read_human_captions,
    read_with_machine_captions,
    write_machine_captions,
)
from polyglance.encoders.protocol import Encoder
from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.languages import get_language
from polyglance.records import Record, rebase_paths, write_manifest
from polyglance.text.lexicon import texts_by_language
from polyglance.text.translation import TranslationCache, translate_all
from polyglance.text.translation.checks import (
    Check,
    CopyCheck,
    EmbeddingCheck,
    EmptyCheck,
    LanguageCheck,
    LengthCheck,
    RepetitionCheck,
    RoundTripCheck,
    filter_pairs,
    has_letters,
)
from polyglance.text.translation.translators import CacheableTranslator

Marked: TypeAlias = tuple[Record, MachineCaptions]
"""A record, and what of it a machine made."""

_EXAMPLES = 5
_EMPTY = EmptyCheck().name


@dataclass
class LanguageReport:
    """What became of one language."""

    translator: str
    fingerprint: str
    existing: int = 0
    """Records that had captions in it."""
    texts: int = 0
    """Different captions to translate."""
    cached: int = 0
    """Of them, those translated before."""
    translated: int = 0
    passed: int = 0
    """Different translations that passed all checks."""
    captions: int = 0
    """Captions written; the same text may stand under several pictures."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Texts and translations by the check that they failed first."""
    examples: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """A few of them with their texts."""
    failed: dict[str, str] = field(default_factory=dict)
    """Texts that could not be translated, and why."""


@dataclass
class TranslationReport:
    """What became of a manifest."""

    manifest: str
    out: str
    source: str
    records: int
    languages: dict[str, LanguageReport]

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON takes it."""
        return asdict(self)


def translate_manifest(
    manifest: str | Path,
    out: str | Path,
    translators: Sequence[CacheableTranslator],
    *,
    cache: TranslationCache | None = None,
    checks: Sequence[Check] | None = None,
    batch: int | None = None,
    problems: Problems | None = None,
    quiet: bool = True,
) -> TranslationReport:
    """Write a manifest with the captions that translators make of those in their source language.

    Each translation goes into the cache when its batch is done, so that a killed run
    goes on where it was. Checks, `standard_checks` unless given, see what earlier ones
    left. Captions without a letter are not translated. Beside the manifest lies
    what of it is by machine (`polyglance.data.machine_captions`). Where there is nothing to
    translate from, that is an error and nothing is written.
    """
    source = _common_source(translators)
    checks = standard_checks() if checks is None else checks
    problems = Problems(strict=True) if problems is None else problems
    records = list(read_with_machine_captions(manifest, problems))
    _must_have_captions(manifest, records, source, problems)
    report = TranslationReport(str(manifest), str(out), source, len(records), {})
    opened = TranslationCache.open() if cache is None else cache
    try:
        for translator in translators:
            about = LanguageReport(translator.name, translator.fingerprint)
            report.languages[translator.target] = about
            texts = list(dict.fromkeys(_to_translate(records, source, translator.target, about)))
            said = [text for text in texts if has_letters(text)]
            done = translate_all(translator, said, opened, batch_size=batch, quiet=quiet)
            about.texts, about.cached, about.failed = len(texts), done.num_cached, done.failed
            about.translated = len(done.texts) - done.num_cached
            pairs = [(text, done.texts[text]) for text in said if text in done.texts]
            passed, failed = filter_pairs(pairs, checks, source, translator.target)
            if empty := [(text, "") for text in texts if not has_letters(text)]:
                failed[_EMPTY] = [*empty, *failed.get(_EMPTY, ())]
            about.dropped = {name: len(bad) for name, bad in failed.items()}
            about.examples = {name: bad[:_EXAMPLES] for name, bad in failed.items() if bad}
            good = dict(passed)
            about.passed = len(good)
            records = [
                _with_translations(one, good, source, translator.target, about) for one in records
            ]
    finally:
        if cache is None:
            opened.close()
    here, there = Path(manifest).resolve().parent, Path(out).resolve().parent
    records = [(rebase_paths(record, here, there), machine) for record, machine in records]
    write_machine_captions(out, records)
    write_manifest(out, (record for record, _ in records))
    return report


def languages_to_translate(manifest: str | Path, languages: Sequence[str]) -> list[str]:
    """Those in which not every record has captions, so that a translator is needed."""
    records = [record for record, _ in read_with_machine_captions(manifest, Problems())]
    return [
        language
        for language in languages
        if not records or not all(record.captions.get(language) for record in records)
    ]


@dataclass
class NoTranslator:
    """Stands where no translator is needed: every record has captions in the language."""

    source: str
    target: str
    name: str = "nobody"
    fingerprint: str = "nobody"
    batch: int = 1

    def translate(self, texts: Sequence[str]) -> list[str]:
        """See `CacheableTranslator`."""
        raise PolyglanceError(f"there is no translator into {self.target} for {len(texts)} texts")


def standard_checks(
    *,
    shortest: float = 0.4,
    longest: float = 2.5,
    repeats: int = 2,
    margin: float = 3.0,
    copied: float = 0.6,
    examples: Sequence[str | Path] = (),
) -> list[Check]:
    """What needs no model; ``examples`` are manifests of captions in the languages at hand."""
    texts = texts_by_language(record for path in examples for record in read_human_captions(path))
    return [
        EmptyCheck(),
        CopyCheck(copied),
        LengthCheck(shortest, longest),
        RepetitionCheck(repeats),
        LanguageCheck(texts, margin),
    ]


def embedding_check(encoder: Encoder, *, least: float = 0.7) -> Check:
    """Drops translations whose vector has less than this cosine to that of their text."""

    def likeness(
        texts: list[str], source: str, translations: list[str], target: str
    ) -> Sequence[float]:
        here = encoder.encode_texts(texts, language=source)
        there = encoder.encode_texts(translations, language=target)
        cosines: list[float] = (here * there).sum(1).tolist()
        return cosines

    return EmbeddingCheck(likeness, least)


def round_trip_check(
    ways_back: Sequence[CacheableTranslator],
    *,
    least: float = 0.4,
    cache: TranslationCache,
    quiet: bool = True,
) -> Check:
    """Drops translations that one of these, into the captions' language, brings back too
    different from their text."""
    ways = {translator.source: translator for translator in ways_back}

    def back(texts: list[str], source: str, target: str) -> list[str | None]:
        done = translate_all(ways[source], texts, cache, quiet=quiet)
        return [done.texts.get(text) for text in texts]

    return RoundTripCheck(back, least)


def _common_source(translators: Sequence[CacheableTranslator]) -> str:
    sources = {translator.source for translator in translators}
    targets = [translator.target for translator in translators]
    if len(sources) != 1:
        raise PolyglanceError("give translators, all from one language")
    if twice := sorted({target for target in targets if targets.count(target) > 1}):
        raise PolyglanceError(f"captions would be in {twice[0]} twice: give one translator to it")
    return sources.pop()


def _must_have_captions(
    manifest: str | Path, records: Sequence[Marked], source: str, problems: Problems
) -> None:
    """Refuse a manifest that no translator can do anything with."""
    if not records:
        why = "it is empty"
        if problems.items:
            lines = "its only line is" if len(problems) == 1 else f"all {len(problems):,} lines are"
            why = f"{lines} malformed ({problems.items[0]})"
        raise DataError(
            f"{manifest} holds no record to translate, {why}: 'polyglance data import' makes a"
            " manifest"
        )
    if not any(record.captions.get(source) for record, _ in records):
        known = sorted({code for record, _ in records for code in record.captions})
        there = f"only in {', '.join(known)}: name one as --from" if known else "nor any other"
        raise PolyglanceError(
            f"{manifest} has no caption in {get_language(source).english_name} ({source}), {there}"
        )


def _to_translate(
    records: Sequence[Marked], source: str, target: str, about: LanguageReport
) -> Iterator[str]:
    for record, _ in records:
        if record.captions.get(target):
            about.existing += 1
        else:
            yield from record.captions.get(source, ())


def _with_translations(
    one: Marked, good: dict[str, str], source: str, target: str, about: LanguageReport
) -> Marked:
    record, machine = one
    if record.captions.get(target):
        return one
    texts = record.captions.get(source, ())
    places = tuple(place for place, text in enumerate(texts) if text in good)
    if not places:
        return one
    about.captions += len(places)
    captions = {**record.captions, target: tuple(good[texts[place]] for place in places)}
    return replace(record, captions=captions), {**machine, target: places}
