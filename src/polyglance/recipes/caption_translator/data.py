"""Parallel text for the caption translator: read, split, tokenised once."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, Problems
from polyglance.languages import normalise_language
from polyglance.recipes.caption_translator.config import CaptionTranslatorRecipe, PairCorpus
from polyglance.recipes.run_folder import require_files
from polyglance.records import parse_json, read_lines
from polyglance.text.translation.subword_vocabulary import (
    SubwordVocabulary,
    clean_text,
    train_vocabulary,
)
from polyglance.training.distributed import on_first_rank

Ids: TypeAlias = NDArray[np.int64]
_MAX_RATIO, _MAX_DIFFERENCE = 3.0, 12
"""Pairs whose lengths in sub-words differ by more than both are not translations."""
_NOT_LANGUAGES = ("image", "video", "id", "split")


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str
    language: str
    corpus: int


HeldOut: TypeAlias = dict[str, dict[str, list[Pair]]]
"""Held-out pairs by the name of their corpus and their language."""


@dataclass(frozen=True, eq=False)
class TokenTable:
    """Tokenised texts, end to end."""

    tokens: NDArray[np.int32]
    starts: Ids
    """``(texts + 1,)``."""

    @classmethod
    def of(cls, texts: Sequence[Sequence[int]]) -> TokenTable:
        """Lay texts end to end."""
        starts = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(text) for text in texts], out=starts[1:])
        flat = (token for text in texts for token in text)
        return cls(np.fromiter(flat, np.int32, int(starts[-1])), starts)

    @property
    def lengths(self) -> Ids:
        """The tokens of each text."""
        return np.diff(self.starts)

    def padded(self, texts: Ids, steps: int, first: Ids) -> Ids:
        """Return ``(texts, steps)``: a first token each, the texts, zeros.

        Args:
            texts: Numbers of texts.
            steps: At least one more than the longest has tokens.
            first: ``(texts,)``, the token before each.
        """
        rows = np.zeros((len(texts), steps), np.int64)
        rows[:, 0] = first
        lengths = self.lengths[texts]
        filled = np.arange(steps - 1) < lengths[:, None]
        places = (self.starts[texts][:, None] + np.arange(steps - 1))[filled]
        rows[:, 1:][filled] = self.tokens[places]
        return rows


@dataclass(frozen=True, eq=False)
class Examples:
    """What is trained on: numbers of texts, and how often each pair is drawn."""

    sources: Ids
    plain_sources: Ids
    """The same sentences in lower case without full stop; equal to ``sources`` in targets."""
    targets: Ids
    tags: Ids
    """The tag of the target's language."""
    probabilities: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.sources)


@dataclass(frozen=True, eq=False)
class TranslationData:
    """Training examples, held-out pairs and the vocabulary."""

    vocabulary: SubwordVocabulary
    table: TokenTable
    train: Examples
    validation: HeldOut
    test: HeldOut
    counts: dict[str, dict[str, int]]
    """Training pairs by corpus and language."""


def load_data(recipe: CaptionTranslatorRecipe, data: Path, run: Path) -> TranslationData:
    """Read all corpora, hold out sentences, learn the vocabulary and tokenise.

    Args:
        recipe: The settings.
        data: Folder of the corpora.
        run: Where a learned vocabulary is written; an interrupted run finds it there.
    """
    require_files(data, *(corpus.path for corpus in recipe.corpora))
    if recipe.vocabulary.file is not None:
        require_files(data, recipe.vocabulary.file)
    train, validation, test = split_pairs(recipe, data)
    if missing := sorted({*recipe.languages} - {pair.language for pair in train}):
        raise DataError(
            f"no corpus has pairs of {recipe.source} and {', '.join(missing)}: add one, or leave"
            " these languages out"
        )
    vocabulary = _vocabulary(recipe, data, run, train)
    table, examples, counts = _examples(recipe, train, vocabulary)
    return TranslationData(vocabulary, table, examples, validation, test, counts)


def split_pairs(recipe: CaptionTranslatorRecipe, data: Path) -> tuple[list[Pair], HeldOut, HeldOut]:
    """Return the pairs for training, validation and test.

    Which sentences are held out is decided by a hash of them, so that it does not change with
    other corpora. No corpus trains on a sentence that another one holds out.
    """
    lines: list[tuple[str, Pair]] = []
    held: dict[str, int] = {}  # 1 for test, 2 for validation
    for number, corpus in enumerate(recipe.corpora):
        own = list(_read(recipe, data / corpus.path, corpus, number))
        lines += own
        keys = sorted(dict.fromkeys(key for key, _ in own), key=_hash)
        held |= dict.fromkeys(keys[: corpus.held_out], 1)
        held |= dict.fromkeys(keys[corpus.held_out : corpus.held_out * 3 // 2], 2)
    names = {corpus.name for corpus in recipe.corpora if corpus.held_out}
    held |= {_key(pair.source): held[key] for key, pair in lines if key in held}
    train = list[Pair]()
    parts: dict[int, dict[str, dict[str, dict[str, Pair]]]] = {
        1: defaultdict(dict),
        2: defaultdict(dict),
    }
    for key, pair in dict.fromkeys(lines):
        part = held.get(key) or held.get(_key(pair.source), 0)
        name = recipe.corpora[pair.corpus].name
        if not part:
            train.append(pair)
        elif name in names:
            parts[part][name].setdefault(pair.language, {})[pair.source] = pair
    validation, test = (
        {
            name: {code: [*by_source.values()] for code, by_source in by_language.items()}
            for name, by_language in part.items()
        }
        for part in (parts[2], parts[1])
    )
    # Files that overlap have the same pairs.
    distinct = {(pair.source, pair.target, pair.language): pair for pair in train}
    return [*distinct.values()], validation, test


def plain(text: str) -> str:
    """Return a sentence in lower case without its full stop, as many captions are written."""
    return text.lower().rstrip(" .。")


def _read(
    recipe: CaptionTranslatorRecipe, path: Path, corpus: PairCorpus, number: int
) -> Iterator[tuple[str, Pair]]:
    """Yield the pairs of a file, each with the key by which it is held out."""
    wanted = {*recipe.languages} & {*(corpus.only or recipe.languages)}
    problems = Problems(strict=True)
    is_table = ".tsv" in path.suffixes
    for line_number, line in read_lines(path, problems):
        try:
            key, texts = _parse_table(line) if is_table else _parse_object(line)
        except (ValueError, TypeError) as error:
            problems.report(path, line_number, f"expected {error}")
            continue
        by_language = {
            language: clean_text(text)
            for code, text in texts.items()
            if code not in corpus.skip and (language := _language(code)) is not None
        }
        source = by_language.get(recipe.source)
        for language in wanted & by_language.keys() if source else ():
            if by_language[language]:
                pair = Pair(str(source), by_language[language], language, number)
                yield key or _key(str(source)), pair


@cache
def _language(code: str) -> str | None:
    """Return a language's code; None for what is none, such as Tatoeba's ``toki_Latn``."""
    try:
        return normalise_language(code)
    except ValueError:
        return None


def _parse_table(line: str) -> tuple[str, dict[str, str]]:
    columns = line.split("\t")
    if len(columns) != 3:
        raise ValueError("'LANGUAGE<TAB>SENTENCE<TAB>ENGLISH SENTENCE'")
    return "", {columns[0]: columns[1], "en": columns[2]}


def _parse_object(line: str) -> tuple[str, dict[str, str]]:
    content = parse_json(line)
    if not isinstance(content, dict):
        raise ValueError("an object with a text by language")
    texts = {str(code): text for code, text in content.items() if code not in _NOT_LANGUAGES}
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("one text for each language")
    image = content.get("image")
    return "" if image is None else f"image {image}", texts


def _key(text: str) -> str:
    return plain(text)


def _hash(key: str) -> tuple[int, str]:
    return zlib.crc32(key.encode()), key


def _vocabulary(
    recipe: CaptionTranslatorRecipe, data: Path, run: Path, train: Sequence[Pair]
) -> SubwordVocabulary:
    """Open the vocabulary, or learn it from pairs drawn evenly from all languages."""
    config = recipe.vocabulary
    if config.file is not None:
        return SubwordVocabulary(data / config.file)
    path = run / "vocabulary.model"
    languages = (recipe.source, *recipe.languages)

    def learn() -> None:
        if path.exists():
            return
        texts: dict[str, dict[str, None]] = {code: {} for code in languages}
        for pair in train:
            texts[recipe.source][pair.source] = None
            texts[pair.language][pair.target] = None
        generator = np.random.default_rng(recipe.loop.seed)
        sentences = list[str]()
        for code, own in texts.items():
            limit = config.max_sentences * (5 if code == recipe.source else 1)
            order = generator.permutation(len(own))[:limit]
            listed = [*own]
            sentences += [listed[i] for i in order]
            if code == recipe.source:
                share = order[: round(len(order) * recipe.plain_share)]
                sentences += [plain(listed[i]) for i in share]
        train_vocabulary(
            sentences,
            path,
            languages=languages,
            size=config.size,
            character_coverage=config.character_coverage,
        )

    on_first_rank(learn)
    return SubwordVocabulary(path)


def _examples(
    recipe: CaptionTranslatorRecipe, pairs: Sequence[Pair], vocabulary: SubwordVocabulary
) -> tuple[TokenTable, Examples, dict[str, dict[str, int]]]:
    """Tokenise distinct texts once, drop pairs that cannot be translations, weigh the others."""
    numbers: dict[str, int] = {}
    for pair in pairs:
        for text in (pair.source, pair.target, plain(pair.source)):
            numbers.setdefault(text, len(numbers))
    table = TokenTable.of(vocabulary.encode(list(numbers)))
    lengths = table.lengths
    sources = np.array([numbers[pair.source] for pair in pairs], np.int64)
    plain_sources = np.array([numbers[plain(pair.source)] for pair in pairs], np.int64)
    targets = np.array([numbers[pair.target] for pair in pairs], np.int64)
    codes = [recipe.source, *recipe.languages]
    languages = np.array([codes.index(pair.language) for pair in pairs], np.int64)
    corpora = np.array([pair.corpus for pair in pairs], np.int64)
    own, other = lengths[sources], lengths[targets]
    longer, shorter = np.maximum(own, other), np.minimum(own, other)
    kept = (shorter > 0) & (longer <= recipe.network.max_tokens - 2)
    kept &= (lengths[plain_sources] > 0) & (lengths[plain_sources] <= recipe.network.max_tokens - 2)
    kept &= (longer <= _MAX_RATIO * shorter) | (longer - shorter <= _MAX_DIFFERENCE)
    if not kept.any():
        raise DataError("no pair of sentences is left to train on: give other corpora")
    sources, plain_sources, targets, languages, corpora = (
        array[kept] for array in (sources, plain_sources, targets, languages, corpora)
    )
    probabilities = _probabilities(recipe, languages, corpora)
    tags = np.array([vocabulary.tag(code) for code in codes])
    forward = (sources, plain_sources, targets, tags[languages], probabilities)
    if recipe.from_targets > 0:
        share = recipe.from_targets
        back = (targets, targets, sources, np.full(len(sources), tags[0]), probabilities * share)
        forward = (*forward[:4], probabilities * (1 - share))
        both = [np.concatenate(arrays) for arrays in zip(forward, back, strict=True)]
        examples = Examples(both[0], both[1], both[2], both[3], both[4])
    else:
        examples = Examples(*forward)
    return table, examples, _counts(recipe, languages, corpora)


def _probabilities(
    recipe: CaptionTranslatorRecipe, languages: Ids, corpora: Ids
) -> NDArray[np.float64]:
    """Return how often each pair is drawn: by its corpus's weight, languages evened out."""
    probabilities = np.zeros(len(languages))
    for number, corpus in enumerate(recipe.corpora):
        inside = corpora == number
        counts = np.bincount(languages[inside], minlength=len(recipe.languages) + 1)
        smoothed = np.where(counts > 0, counts.clip(1).astype(float) ** recipe.language_alpha, 0)
        # As many draws of the corpus as its pairs and weight say, shared by the smoothed counts.
        share = corpus.weight * counts.sum() * smoothed / max(smoothed.sum(), 1e-9)
        probabilities[inside] = (share / counts.clip(1))[languages[inside]]
    probabilities /= probabilities.sum()
    return probabilities


def _counts(
    recipe: CaptionTranslatorRecipe, languages: Ids, corpora: Ids
) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for number, corpus in enumerate(recipe.corpora):
        inside = np.bincount(languages[corpora == number], minlength=len(recipe.languages) + 1)
        own = counts.setdefault(corpus.name, {})
        for code, count in zip(recipe.languages, inside[1:], strict=True):
            if count:
                own[code] = own.get(code, 0) + int(count)
    return counts


def texts_of(pairs: Iterable[Pair]) -> tuple[list[str], list[str]]:
    """Return sources and targets."""
    listed = list(pairs)
    return [pair.source for pair in listed], [pair.target for pair in listed]
