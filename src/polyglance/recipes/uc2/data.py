"""The data of a UC2 run, read and aligned before training starts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from polyglance.batches.regions import RegionTable
from polyglance.batches.streamed_regions import StreamedRegions
from polyglance.data.captions import CaptionTable
from polyglance.data.readers import read_all_records
from polyglance.errors import PolyglanceError
from polyglance.recipes.cross_encoder.captions import LanguageBalancedSampler
from polyglance.recipes.cross_encoder.config import CaptionedImages, CaptionFile
from polyglance.recipes.cross_encoder.data import (
    ENGLISH,
    Split,
    SplitReader,
    store_keys,
)
from polyglance.recipes.uc2.aligned_captions import (
    AlignedCaptions,
    AlignedPair,
    Translated,
    align_captions,
    read_aligned,
    read_translated,
    write_aligned,
)
from polyglance.recipes.uc2.alignment_files import Align, open_alignments, write_alignments
from polyglance.recipes.uc2.config import Translations, UC2Recipe
from polyglance.recipes.uc2.early_adaptation import SoftLabels, StreamedSoftLabels
from polyglance.recipes.uc2.labels import LabelNames, LabelTokens, load_label_names
from polyglance.recipes.uc2.tasks import ImageTextCorpus
from polyglance.records import Record
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.text.dictionaries import open_dictionary
from polyglance.text.translation.batches import translate_all
from polyglance.text.translation.cache import TranslationCache
from polyglance.text.translation.registry import open_translator
from polyglance.text.translation.translators import CacheableTranslator, WordByWord
from polyglance.training.distributed import barrier, rank
from polyglance.utils.fingerprint import file_stats, fingerprint
from polyglance.utils.progress import progress
from polyglance.vision.store import FeatureStore


@dataclass(frozen=True, eq=False)
class UC2Data:
    """Everything that UC2 is trained and evaluated on."""

    reader: SplitReader
    tokenizer: Tokenizer
    train: Split
    validation: Split | None
    test: Split | None
    label_names: LabelNames | None
    """Names of region labels, if a stage uses them (early adaptation, MRTM)."""
    label_tokens: LabelTokens | None
    """Their sub-words."""
    soft_labels: SoftLabels | StreamedSoftLabels | None
    """The detector's distributions, for early adaptation."""
    aligned_captions: AlignedCaptions | None
    """Translations with aligned words, for VTLM."""
    translated_test: tuple[Split, ...]
    """The test sets with captions translated into English, for translate-test."""
    more_validation: tuple[Split, ...] = ()
    """Further validation sets and folds."""
    more_test: tuple[Split, ...] = ()
    """Further test sets and folds."""

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of training captions, English first."""
        return english_first(self.train.captions)

    def corpus(
        self,
        languages: Sequence[str] | None = None,
        *,
        batch: int,
        language_alpha: float = 0.0,
    ) -> ImageTextCorpus:
        """Return training images with captions in these languages.

        Args:
            languages: None for all.
            batch: captions that a step takes, if the corpus is read from disk.
            language_alpha: a language's probability is proportional to the number of its
                captions to this power.
        """
        sampler = LanguageBalancedSampler(
            self.train.captions,
            languages=languages,
            language_alpha=language_alpha,
            streaming=self.train.streaming(batch, seed=self.reader.seed),
        )
        return ImageTextCorpus(self.train.regions, sampler)


def load_data(recipe: UC2Recipe, data: Path, device: str) -> UC2Data:
    """Read everything that the recipe's stages need.

    Args:
        recipe: names splits, labels and translations.
        data: the data folder.
        device: where regions shall lie.

    Returns:
        The data; what is missing or cannot be aligned is an error before training.
    """
    tokenizer = open_tokenizer(recipe.encoder)
    reader = SplitReader.from_recipe(recipe, data, tokenizer, device)
    train = reader.read_train(recipe.train, *recipe.extra_train)
    validation = reader.read_validation(recipe)
    test = reader.read_test(recipe)
    translated_test: tuple[Split, ...] = ()
    if recipe.translate_test is not None:
        translated_test = tuple(translate_split(s, recipe.translate_test, reader) for s in test)
    label_names = label_tokens = None
    if recipe.uses_label_names:
        label_names = _load_label_names(recipe, train, data)
        label_tokens = LabelTokens(label_names.names, tokenizer)
    stage = recipe.pretraining
    uses_vtlm = stage is not None and stage.mixture.vtlm > 0
    return UC2Data(
        reader,
        tokenizer,
        train,
        next(iter(validation), None),
        next(iter(test), None),
        label_names,
        label_tokens,
        soft_labels=_read_soft_labels(recipe, train, reader) if recipe.early_adaptation else None,
        aligned_captions=_align(recipe, train, tokenizer, data) if uses_vtlm else None,
        translated_test=translated_test,
        more_validation=validation[1:],
        more_test=test[1:],
    )


def english_first(captions: CaptionTable) -> tuple[str, ...]:
    """Return the languages of captions, English first, the others in order."""
    return (ENGLISH, *sorted(captions.present_languages - {ENGLISH}))


def _load_label_names(recipe: UC2Recipe, train: Split, data: Path) -> LabelNames:
    names = load_label_names(recipe.labels, train.captions.language_codes, data)
    if train.regions.max_label() >= len(names.names[ENGLISH]):
        raise PolyglanceError(
            f"the feature store has more labels than the {len(names.names[ENGLISH])} with names:"
            " give a table of its own in labels.names"
        )
    return names


def _read_soft_labels(
    recipe: UC2Recipe, train: Split, reader: SplitReader
) -> SoftLabels | StreamedSoftLabels:
    if isinstance(train.regions, StreamedRegions):
        return StreamedSoftLabels()
    assert isinstance(train.regions, RegionTable)
    stores = []
    for corpus in (recipe.train, *recipe.extra_train):
        store = FeatureStore(reader.data / corpus.features)
        stores.append((store, store_keys(store, reader.read_records(corpus))))
    return SoftLabels.from_stores(stores, train.regions)


def _align(recipe: UC2Recipe, train: Split, tokenizer: Tokenizer, data: Path) -> AlignedCaptions:
    """Pair training captions with English ones and align their words."""
    assert recipe.pretraining is not None
    settings, allowed = recipe.translations, recipe.pretraining.languages
    candidates = settings.languages or english_first(train.captions)[1:]
    languages = [code for code in candidates if allowed is None or code in allowed]
    if not languages:
        absent = sorted(set(allowed or ()) - train.captions.present_languages)
        reason = f" (there are no captions in {', '.join(absent)})" if absent else ""
        raise PolyglanceError(
            f"VTLM needs captions in another language than English{reason}: name one in"
            " pretraining.languages, or set pretraining.mixture.vtlm to 0"
        )
    texts = [
        record
        for text in settings.texts
        for record in read_all_records(text.format, data / text.manifest)
    ]
    translated: Translated = {}
    if settings.pairing == "marked":
        corpora = (recipe.train, *recipe.extra_train)
        files: list[CaptionedImages | CaptionFile] = [*corpora]
        files += [file for corpus in corpora for file in corpus.merge]
        manifests = [data / file.manifest for file in files if file.format == "jsonl"]
        translated = read_translated(manifests, ENGLISH)
        marked = set().union(*translated.values())
        languages = [code for code in languages if code in marked or settings.languages]
    align = partial(_align_part, settings, texts, translated)
    if train.captions_key is not None:
        return _mapped_alignments(recipe, train, tokenizer, data, languages, align)
    aligned = {}
    with progress("Aligning words", len(languages), quiet=rank() > 0) as advance:
        for language in languages:
            key = _cache_key(settings, language, [*train.records, *texts])
            path = settings.cache_dir and data / settings.cache_dir / f"{ENGLISH}-{language}.tsv"
            pairs = _aligned_pairs(path or None, key, partial(align, train.records, language))
            aligned[ENGLISH, language] = pairs
            advance(1)
    streaming = train.streaming(recipe.pretraining.batch, seed=recipe.loop.seed)
    return AlignedCaptions.from_links(
        train.records, train.captions, tokenizer, aligned, streaming=streaming
    )


def _aligned_pairs(
    path: Path | None, key: str, align: Callable[[], list[AlignedPair]]
) -> list[AlignedPair]:
    """Align English with another language, or read the result from a file of this key."""
    if path is None:
        return align()
    if rank() == 0 and read_aligned(path, key) is None:
        write_aligned(path, align(), key)
    barrier()
    cached = read_aligned(path, key)
    assert cached is not None
    return cached


def _align_part(
    settings: Translations,
    texts: Sequence[Record],
    translated: Translated,
    records: Sequence[Record],
    language: str,
) -> list[AlignedPair]:
    return align_captions(
        records,
        ENGLISH,
        language,
        pairing=settings.pairing,
        texts=texts,
        settings=settings.aligner_settings,
        min_lift=settings.min_lift,
        translated=translated,
    )


def _mapped_alignments(
    recipe: UC2Recipe,
    train: Split,
    tokenizer: Tokenizer,
    data: Path,
    languages: Sequence[str],
    align: Align,
) -> AlignedCaptions:
    """Align a corpus on disk into memory-mapped files, once, and open them on all processes."""
    assert recipe.pretraining is not None
    settings = recipe.translations
    files = [file_stats(data / text.manifest) for text in settings.texts]
    key = fingerprint(train.captions_key, replace(settings, cache_dir=None), languages, files)
    folder = data / (settings.cache_dir or recipe.streaming.cache_dir) / f"links-{key}"
    if rank() == 0 and open_alignments(folder, key, train.captions) is None:
        codes = [(ENGLISH, language) for language in languages]
        write_alignments(
            folder,
            key,
            train.records,
            train.captions,
            tokenizer,
            codes,
            align,
            part_images=settings.part_images,
        )
    barrier()
    streaming = train.streaming(recipe.pretraining.batch, seed=recipe.loop.seed)
    opened = open_alignments(folder, key, train.captions, streaming=streaming)
    assert opened is not None
    return opened


def _cache_key(settings: Translations, language: str, records: Sequence[Record]) -> str:
    """Return a digest of everything that word alignments depend on."""
    chosen = (settings.pairing, settings.aligner, settings.min_lift, language)
    digest = hashlib.sha256(f"{' '.join(map(str, chosen))}\n".encode())
    for record in records:
        for code in (ENGLISH, language):
            digest.update("\t".join(record.captions.get(code, ())).encode(errors="replace"))
            digest.update(b"\n")
    return digest.hexdigest()


def translate_split(split: Split, translator: str, reader: SplitReader) -> Split:
    """Return a split with every caption translated into English.

    Args:
        split: the split.
        translator: what `UC2Recipe.translate_test` takes.
        reader: for the data folder, the tokenizer and the device.

    Returns:
        The split; captions without a translation stay as they are.
    """
    records = list(split.records)
    for language in sorted(split.captions.present_languages - {ENGLISH}):
        texts = [text for record in records for text in record.captions.get(language, ())]
        to_english = open_test_translator(translator, language, reader)
        with TranslationCache.open() as cache:
            translations = translate_all(to_english, texts, cache, quiet=rank() > 0).texts
        for number, record in enumerate(records):
            if originals := record.captions.get(language):
                english = tuple(translations.get(text) or text for text in originals)
                records[number] = replace(record, captions={**record.captions, language: english})
    captions = CaptionTable.build(records, reader.tokenizer, max_tokens=reader.max_text_tokens)
    return replace(split, records=records, captions=captions)


def open_test_translator(name: str, language: str, reader: SplitReader) -> CacheableTranslator:
    """Open a translator by name or folder, or word-by-word translation with a dictionary."""
    if name == "apertium":
        return open_translator(name, language, ENGLISH)
    path = reader.data / name.replace("{source}", language).replace("{target}", ENGLISH)
    if path.is_dir() or path.suffix == ".argosmodel":
        return open_translator(str(path), language, ENGLISH, device=reader.device)
    dictionary = open_dictionary(path, source=language)
    return WordByWord(dictionary, language, ENGLISH, keep_unknown=True)
