"""Translate the captions of a manifest: UC2's augmentation (Zhou et al. 2021, section 3.1).

    translators = [open_translator("apertium", "en", "es")]
    report = translate_manifest("train.jsonl", "train-many.jsonl.gz", translators)

Human captions are kept, and none are added beside them: a record that has captions in a
language gets no machine translations in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from polyglance.data.machine_captions import (
    MachineCaptions,
    read_human_captions,
    read_translators,
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

_RecordWithMachine: TypeAlias = tuple[Record, MachineCaptions]
"""A record, and which of its captions are machine translations."""

_EXAMPLES = 5
_EMPTY = EmptyCheck().name


@dataclass
class LanguageReport:
    """The result of translating into one language."""

    translator: str
    fingerprint: str
    existing: int = 0
    """Records that had captions in the language."""
    texts: int = 0
    """Distinct captions to translate."""
    cached: int = 0
    """Of these, how many were in the cache."""
    translated: int = 0
    passed: int = 0
    """Distinct translations that passed all checks."""
    captions: int = 0
    """Captions written; several pictures may share a text."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Number of translations dropped, by the first check that they failed."""
    examples: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """A few dropped (text, translation) pairs of each check."""
    failed: dict[str, str] = field(default_factory=dict)
    """Texts that could not be translated, with the reason."""


@dataclass
class TranslationReport:
    """The result of translating a manifest."""

    manifest: str
    out: str
    source: str
    records: int
    languages: dict[str, LanguageReport]

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return asdict(self)


def translate_manifest(
    manifest: str | Path,
    out: str | Path,
    translators: Sequence[CacheableTranslator],
    *,
    cache: TranslationCache | None = None,
    checks: Sequence[Check] | None = None,
    batch_size: int | None = None,
    problems: Problems | None = None,
    quiet: bool = True,
) -> TranslationReport:
    """Translate the captions in the translators' source language; write the new manifest.

    Translations are cached after every batch, so an interrupted run resumes where it stopped.
    Captions without a letter are not translated. A file beside the manifest marks the machine
    translations (`polyglance.data.machine_captions`). If there is nothing to translate, that is
    an error and nothing is written.

    Args:
        manifest: The manifest to translate.
        out: The manifest to write.
        translators: One per target language, all with the same source language.
        cache: Earlier translations, by default the user's cache.
        checks: Applied in order, each to what the earlier ones passed; by default
            `standard_checks`.
        batch_size: Texts per batch, by default the translator's own.
        problems: Collects malformed lines; without it the first one is an error.
        quiet: Show no progress bar.
    """
    source = _common_source(translators)
    checks = standard_checks() if checks is None else checks
    problems = Problems(strict=True) if problems is None else problems
    records = list(read_with_machine_captions(manifest, problems))
    _check_captions(manifest, records, source, problems)
    report = TranslationReport(str(manifest), str(out), source, len(records), {})
    opened = TranslationCache.open() if cache is None else cache
    try:
        for translator in translators:
            language_report = LanguageReport(translator.name, translator.fingerprint)
            report.languages[translator.target] = language_report
            texts = list(
                dict.fromkeys(
                    _texts_to_translate(records, source, translator.target, language_report)
                )
            )
            with_letters = [text for text in texts if has_letters(text)]
            result = translate_all(
                translator, with_letters, opened, batch_size=batch_size, quiet=quiet
            )
            language_report.texts, language_report.cached, language_report.failed = (
                len(texts),
                result.num_cached,
                result.failed,
            )
            language_report.translated = len(result.texts) - result.num_cached
            pairs = [(text, result.texts[text]) for text in with_letters if text in result.texts]
            passed, failed = filter_pairs(pairs, checks, source, translator.target)
            if empty := [(text, "") for text in texts if not has_letters(text)]:
                failed[_EMPTY] = [*empty, *failed.get(_EMPTY, ())]
            language_report.dropped = {name: len(bad) for name, bad in failed.items()}
            language_report.examples = {
                name: bad[:_EXAMPLES] for name, bad in failed.items() if bad
            }
            translations = dict(passed)
            language_report.passed = len(translations)
            records = [
                _add_translations(pair, translations, source, translator.target, language_report)
                for pair in records
            ]
    finally:
        if cache is None:
            opened.close()
    old, new = Path(manifest).resolve().parent, Path(out).resolve().parent
    records = [(rebase_paths(record, old, new), machine) for record, machine in records]
    names = read_translators(manifest) | {
        code: f"{one.translator} {one.fingerprint[:16]}"
        for code, one in report.languages.items()
        if one.captions
    }
    write_machine_captions(out, records, names)
    write_manifest(out, (record for record, _ in records))
    return report


def languages_to_translate(manifest: str | Path, languages: Sequence[str]) -> list[str]:
    """Return the languages in which some record lacks captions, which need a translator."""
    records = [record for record, _ in read_with_machine_captions(manifest, Problems())]
    return [
        language
        for language in languages
        if not records or not all(record.captions.get(language) for record in records)
    ]


@dataclass
class NoTranslator:
    """A placeholder for a language in which every record already has captions."""

    source: str
    target: str
    name: str = "nobody"
    fingerprint: str = "nobody"
    batch_size: int = 1

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Raise an error: this placeholder cannot translate."""
        raise PolyglanceError(
            f"no translator into {self.target} was opened, but {len(texts)} texts need one"
        )


def standard_checks(
    *,
    min_length_ratio: float = 0.4,
    max_length_ratio: float = 2.5,
    max_repeats: int = 2,
    margin: float = 3.0,
    max_copied: float = 0.6,
    examples: Sequence[str | Path] = (),
) -> list[Check]:
    """Return the checks that need no model.

    Args:
        min_length_ratio: Minimum length of a translation relative to its text.
        max_length_ratio: Maximum length of a translation relative to its text.
        max_repeats: Maximum number of consecutive repetitions.
        margin: How much more likely another language must be to drop a translation.
        max_copied: Maximum fraction of words copied from the text.
        examples: Manifests whose human captions the language detector learns from.
    """
    texts = texts_by_language(record for path in examples for record in read_human_captions(path))
    return [
        EmptyCheck(),
        CopyCheck(max_copied),
        LengthCheck(min_length_ratio, max_length_ratio),
        RepetitionCheck(max_repeats),
        LanguageCheck(texts, margin),
    ]


def embedding_check(encoder: Encoder, *, min_similarity: float = 0.7) -> Check:
    """Return a check that drops translations below a cosine similarity to their text."""

    def similarities(
        texts: list[str], source: str, translations: list[str], target: str
    ) -> Sequence[float]:
        text_vectors = encoder.encode_texts(texts, language=source)
        translation_vectors = encoder.encode_texts(translations, language=target)
        cosines: list[float] = (text_vectors * translation_vectors).sum(1).tolist()
        return cosines

    return EmbeddingCheck(similarities, min_similarity)


def round_trip_check(
    back_translators: Sequence[CacheableTranslator],
    *,
    min_chrf: float = 0.4,
    cache: TranslationCache,
    quiet: bool = True,
) -> Check:
    """Return a check that drops translations whose back-translation differs from the text.

    Args:
        back_translators: Translators from the target languages into the source language.
        min_chrf: Minimum chrF between text and back-translation.
        cache: Earlier translations.
        quiet: Show no progress bar.
    """
    by_language = {translator.source: translator for translator in back_translators}

    def translate_back(texts: list[str], source: str, target: str) -> list[str | None]:
        result = translate_all(by_language[source], texts, cache, quiet=quiet)
        return [result.texts.get(text) for text in texts]

    return RoundTripCheck(translate_back, min_chrf)


def _common_source(translators: Sequence[CacheableTranslator]) -> str:
    sources = {translator.source for translator in translators}
    targets = [translator.target for translator in translators]
    if len(sources) != 1:
        raise PolyglanceError("give one or more translators, all from the same language")
    if repeated := sorted({target for target in targets if targets.count(target) > 1}):
        raise PolyglanceError(f"several translators into {repeated[0]}: give one")
    return sources.pop()


def _check_captions(
    manifest: str | Path, records: Sequence[_RecordWithMachine], source: str, problems: Problems
) -> None:
    """Raise an error for a manifest without captions in the source language."""
    if not records:
        reason = "the file is empty"
        if problems.items:
            lines = "its only line is" if len(problems) == 1 else f"all {len(problems):,} lines are"
            reason = f"{lines} malformed ({problems.items[0]})"
        raise DataError(
            f"{manifest} has no record to translate, {reason}: write a manifest with"
            " 'polyglance data import'"
        )
    if not any(record.captions.get(source) for record, _ in records):
        known = sorted({code for record, _ in records for code in record.captions})
        others = f"only in {', '.join(known)}: name one with --from" if known else "nor any other"
        raise PolyglanceError(
            f"{manifest} has no caption in {get_language(source).english_name} ({source}), {others}"
        )


def _texts_to_translate(
    records: Sequence[_RecordWithMachine], source: str, target: str, report: LanguageReport
) -> Iterator[str]:
    for record, _ in records:
        if record.captions.get(target):
            report.existing += 1
        else:
            yield from record.captions.get(source, ())


def _add_translations(
    pair: _RecordWithMachine,
    translations: dict[str, str],
    source: str,
    target: str,
    report: LanguageReport,
) -> _RecordWithMachine:
    record, machine = pair
    if record.captions.get(target):
        return pair
    texts = record.captions.get(source, ())
    indices = tuple(i for i, text in enumerate(texts) if text in translations)
    if not indices:
        return pair
    report.captions += len(indices)
    captions = {**record.captions, target: tuple(translations[texts[i]] for i in indices)}
    return replace(record, captions=captions), {**machine, target: indices}
