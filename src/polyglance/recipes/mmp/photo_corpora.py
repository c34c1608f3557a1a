"""What a photo recipe reads: pictures on the device, captions in sub-words, texts beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from polyglance.data.captions import CaptionTable
from polyglance.data.readers import read_all
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMP
from polyglance.recipes.common import Measured, corpus_name, spoken, with_mask
from polyglance.recipes.mmp.enriching import MIXED
from polyglance.recipes.mmp.photo_recipe import ClassNaming, PhotoRecipe, PictureCorpus
from polyglance.records import Record, read_manifest
from polyglance.text import open_tokenizer
from polyglance.training.class_names import NamedClasses, taught
from polyglance.training.mixture import Task
from polyglance.training.pairing import CaptionedVisuals, ParallelSentences
from polyglance.training.visuals import PixelTable, read_pixels
from polyglance.vision.efficientnet import EfficientNetLite
from polyglance.vision.labels import LABEL_LANGUAGES, label_names


class Corpora:
    """What a recipe reads: pictures on the device, captions in sub-words."""

    def __init__(
        self, recipe: PhotoRecipe, data: Path, eyes: EfficientNetLite, device: str
    ) -> None:
        self.recipe, self.data, self.eyes, self.device = recipe, data, eyes, device
        self.tokenizer = open_tokenizer(recipe.encoder)
        self.held: dict[str, Measured] = {}
        self.pictures: list[PixelTable] = []
        self.sentences: list[CaptionTable] = []

    def tasks(self, model: MMP) -> list[tuple[str, Task, float]]:
        """What is learned, with names and weights; notes what is held out, too."""
        objective = with_mask(self.recipe.objective, self.tokenizer, self.recipe.encoder)
        tasks: list[tuple[str, Task, float]] = []
        for corpus in self.recipe.pictures:
            pictures, captions = self._training_part(corpus)
            task = CaptionedVisuals(
                model,
                pictures,
                captions,
                objective,
                batch=corpus.batch,
                captions_each=corpus.captions_each,
            )
            tasks.append((corpus_name(corpus.manifest), task, corpus.weight))
            self.pictures.append(pictures)
            self.sentences.append(captions)
        for text in self.recipe.texts:
            records = read_all(text.format, self.data / text.manifest)
            sentences = self._captions(records, text.languages)
            parallel = ParallelSentences(
                model, sentences, batch=text.batch, temperature=text.temperature
            )
            tasks.append((corpus_name(text.manifest), parallel, text.weight))
            self.sentences.append(sentences)
        if (naming := self.recipe.class_names) is not None:
            tasks.append(("classes", self._named(model, naming), naming.weight))
        return tasks

    def _named(self, model: MMP, naming: ClassNaming) -> NamedClasses:
        classifier = self.eyes.network.classifier
        if classifier.out_features != len(label_names()):
            raise PolyglanceError(
                f"there are names for {len(label_names())} classes and the backbone tells"
                f" {classifier.out_features} apart: set class_names to null"
            )
        words = [] if naming.words is None else read_all("jsonl", self.data / naming.words)
        names = self._captions(class_records(words), None)
        return NamedClasses(
            model,
            self.pictures,
            names,
            taught(self.pictures, classifier),
            weights={name: naming.english if name == "en" else 1.0 for name in names.names},
            batch=naming.batch,
        )

    @property
    def languages(self) -> list[str]:
        """Those in which pictures were described."""
        tables = self.sentences[: len(self.recipe.pictures)]
        return sorted(set().union(*(spoken(table) for table in tables)) - {MIXED})

    def measured(self, manifest: str) -> Measured:
        """All pictures and captions of a manifest."""
        records = _with_pictures(self.data / manifest)
        return Measured(self._pixels(records, manifest), self._captions(records, None))

    def _training_part(self, corpus: PictureCorpus) -> tuple[PixelTable, CaptionTable]:
        records = _with_pictures(self.data / corpus.manifest)
        if not 0 <= corpus.hold_out < len(records):
            raise PolyglanceError(
                f"{corpus.manifest} has {len(records)} pictures with captions, too few to train"
                f" on when {corpus.hold_out} are held out: lower hold_out or add pictures"
            )
        kept = records[: len(records) - corpus.hold_out]
        if held := records[len(kept) :]:
            self.held[corpus_name(corpus.manifest)] = Measured(
                self._pixels(held, corpus.manifest), self._captions(held, None)
            )
        if corpus.more_captions is not None:
            more = self.data / corpus.more_captions
            if not more.is_file():
                raise PolyglanceError(
                    f"{more}: no such manifest; 'polyglance data enrich' makes it from"
                    f" {corpus.manifest}, or set its more_captions to null"
                )
            kept = with_more_captions(kept, read_manifest(more))
        captions = self._captions(kept, corpus.languages)
        if silent := set(corpus.languages or ()) - spoken(captions):
            raise PolyglanceError(
                f"{corpus.manifest} has no captions in {', '.join(sorted(silent))}:"
                " choose languages that it has"
            )
        return self._pixels(kept, corpus.manifest), captions

    def _captions(
        self, records: Sequence[Record], languages: tuple[str, ...] | None
    ) -> CaptionTable:
        return CaptionTable.build(
            records, self.tokenizer, languages=languages, longest=self.recipe.longest
        )

    def _pixels(self, records: Sequence[Record], manifest: str) -> PixelTable:
        folder = (self.data / manifest).parent
        files = [folder / str(record.image) for record in records]
        return PixelTable(
            read_pixels(files, self.recipe.size),
            self.eyes.network,
            self.eyes.mean,
            self.eyes.std,
            smallest_crop=self.recipe.smallest_crop,
            device=self.device,
        )


def _with_pictures(manifest: Path) -> list[Record]:
    found = [record for record in read_manifest(manifest) if record.image and record.captions]
    if not found:
        raise PolyglanceError(f"{manifest} has no pictures with captions")
    return found


def with_more_captions(records: Sequence[Record], more: Iterable[Record]) -> list[Record]:
    """The records, each with the captions that ``more`` has for its picture as well."""
    found = {record.image: record.captions for record in more}
    return [
        replace(record, captions={**record.captions, **found[record.image]})
        if record.image in found
        else record
        for record in records
    ]


def class_records(words: Iterable[Record]) -> list[Record]:
    """ImageNet's classes with their names by language, more of them where ``words`` know them."""
    known: dict[str, dict[str, tuple[str, ...]]] = {}
    for record in words:
        for word in record.captions.get("en", ()):
            known.setdefault(word.lower(), {}).update(record.captions)
    records = []
    for number in range(len(label_names())):
        names = {code: label_names(code)[number][:2] for code in LABEL_LANGUAGES}
        for name in reversed(names["en"]):  # the commonest has the last word
            found = known.get(name.lower(), {})
            names = {**{code: texts[:1] for code, texts in found.items()}, **names}
        records.append(Record(captions=names))
    return records
