"""The toy dataset on disk, in the place of published datasets: made by the package's own commands.

A picture of this dataset is a close-up: one thing, captioned by its name in every language; a clip
is captioned by the names of what moves, where to, and what stays. A tiny model learns that within
seconds; whole scenes and sentences would take an hour. What is made, below a folder:

    CORPUS/train.jsonl ...        pictures with captions in the languages of the corpus
    regions/, store/              what a detector finds (``data toy``), and the feature store of
                                  it (``features regions``)
    dual-val/, dual-test/         embeddings of a dual encoder, for re-ranking
    labels.tsv, dictionaries/     names of the labels, and word translations
    texts.jsonl                   sentences without pictures
    vqa-en/train.jsonl ...        questions about the same pictures
    clips/train.jsonl ...         clips with features.npz, and long subtitled videos with videos.npz
    encoder/                      a tiny text encoder (``weights tiny``)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from polyglance.data.toy import Clip, Picture, ToyDataset, dictionary, label_names
from polyglance.data.toy.grammar import Grammar
from polyglance.data.toy.grammars import GRAMMARS, LANGUAGES
from polyglance.data.toy.regions import LABELS, clip_features, label_id, write_regions
from polyglance.records import Cue, Record, atomic_write, write_manifest
from polyglance.text.dictionaries import Dictionary
from polyglance.vision.region_import import import_regions

CORPORA: dict[str, tuple[str, ...]] = {
    "conceptual-captions": ("en", "de", "fr", "cs", "ja", "zh"),
    "multi30k": ("en", "de", "fr", "cs"),
    "mscoco": ("en", "ja", "zh"),
    "flickr8k": ("en", "de", "fr", "cs", "zh", "ar"),
    "smalr": ("en", "de", "fr", "cs", "zh", "ja", "ar", "ru"),
}
"""Corpora of pictures, with their languages."""
CLIP_LANGUAGES = ("en", "de", "fr", "cs", "zh", "ru")
QUESTION_LANGUAGES = ("en", "ja")
CLIP_SECONDS = 4
CLIPS_PER_VIDEO = 4


@dataclass(frozen=True)
class ToySize:
    """How much of the toy dataset there is."""

    train: int = 400
    validation: int = 40
    test: int = 60
    clips: int = 480

    def splits(self) -> dict[str, int]:
        """Return the number of pictures by split."""
        return {"train": self.train, "val": self.validation, "test": self.test}


SMALLEST = ToySize(train=24, validation=8, test=8, clips=24)
"""Enough for every step of the chain, too little to learn from."""


def make_toy_data(folder: Path, size: ToySize | None = None) -> Path:
    """Make the toy dataset in a folder, once."""
    size = ToySize() if size is None else size
    done = folder / "toy.json"
    settings = {"train": size.train, "test": size.test, "clips": size.clips, "version": 5}
    if done.is_file() and json.loads(done.read_text(encoding="utf-8")) == settings:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    dataset = ToyDataset(seed=0)
    pictures = {split: list(dataset.pictures(n, split)) for split, n in size.splits().items()}  # type: ignore[arg-type]
    for corpus, languages in CORPORA.items():
        for split, some in pictures.items():
            records = [_close_up(picture, languages) for picture in some]
            write_manifest(folder / corpus / f"{split}.jsonl", records)
    everything = [picture for some in pictures.values() for picture in some]
    write_regions(folder / "regions", everything, first_only=True)
    import_regions(folder / "regions", folder / "store", labels=2, dtype="float16", quiet=True)
    _write_features(folder / "features.npz", folder / "regions", everything)
    for split in ("val", "test"):
        _write_dual_embeddings(folder / f"dual-{split}", pictures[split])
    _write_words(folder, pictures["train"])
    for language in QUESTION_LANGUAGES:
        for split, some in pictures.items():
            _write_questions(folder / f"vqa-{language}" / f"{split}.jsonl", some, language)
        _write_answers(folder / f"vqa-{language}" / "answers.json", pictures.values(), language)
    clips = _write_clips(folder / "clips", dataset, size)
    _write_encoder(folder / "encoder", everything, clips)
    with atomic_write(done) as file:
        json.dump(settings, file)
    return folder


def _close_up(picture: Picture, languages: Sequence[str]) -> Record:
    """Return the record of a picture's first thing, captioned by its name."""
    captions = {code: (_name(picture, code),) for code in languages}
    return Record(image=f"{picture.key}.png", captions=captions)


def _name(picture: Picture, language: str) -> str:
    return picture.regions(language)[0].label or ""


def _write_features(path: Path, regions: Path, pictures: Sequence[Picture]) -> None:
    """Write one vector a picture, for models that see no regions."""
    vectors = [np.load(regions / f"{picture.key}.npz")["features"] for picture in pictures]
    names = [f"{picture.key}.png" for picture in pictures]
    np.savez(path, ids=np.array(names), features=np.stack(vectors))


def _write_dual_embeddings(folder: Path, pictures: Sequence[Picture]) -> None:
    """Write embeddings like those of a dual encoder that mixes some things up."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    labels = [label_id(picture.scene.things[0].thing) for picture in pictures]
    meanings = np.eye(LABELS)[labels]
    for name in ("pictures", *CORPORA["flickr8k"]):
        vectors = meanings + 0.3 * generator.standard_normal(meanings.shape)
        np.save(folder / f"{name}.npy", vectors.astype(np.float16))


def _write_words(folder: Path, pictures: Sequence[Picture]) -> None:
    """Write label names, dictionaries and sentences without pictures."""
    names = zip(*(label_names(code) for code in LANGUAGES), strict=True)
    lines = ["\t".join(LANGUAGES), *("\t".join(row) for row in names)]
    (folder / "labels.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "dictionaries").mkdir(parents=True, exist_ok=True)
    for code in LANGUAGES:
        for source, target in (("en", code), (code, "en")) if code != "en" else ():
            pairs = [(w, t) for w, found in dictionary(source, target).items() for t in found]
            Dictionary(pairs).save(folder / "dictionaries" / f"{source}-{target}.tsv")
    texts = (_close_up(picture, LANGUAGES) for picture in pictures)
    write_manifest(folder / "texts.jsonl", (replace(text, image=None) for text in texts))


def _write_questions(path: Path, pictures: Sequence[Picture], language: str) -> None:
    """Ask what shape the thing of a colour has, or what colour that of a shape."""
    grammar = GRAMMARS[language]
    answers = 10 if language == "en" else 1  # as in VQA v2, and in Japanese Visual Genome
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as out:
        for number, picture in enumerate(pictures):
            question, answer = _ask(number, picture, grammar)
            line = {
                "image": f"{picture.key}.png", "question": question,
                "answers": [answer] * answers, "language": language, "answer_type": "other",
                "question_id": number,
            }  # fmt: skip
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


def _ask(number: int, picture: Picture, grammar: Grammar) -> tuple[str, str]:
    thing = picture.scene.things[0].thing.without_size()
    if number % 2:
        asked = grammar.ask_shape(thing.true_colour)
        return grammar.text(asked), grammar.join(grammar.label(thing.without_colour()))
    asked = grammar.ask_colour(thing.without_colour())
    return grammar.text(asked), grammar.colours[thing.true_colour]


def _write_answers(path: Path, splits: Iterable[Sequence[Picture]], language: str) -> None:
    """Number all answers, in all languages in the same order: UC2's lists for translate-test."""
    asked = [one for some in splits for one in enumerate(some)]
    answers = dict.fromkeys(_ask(*one, GRAMMARS[language])[1] for one in asked)
    with atomic_write(path) as out:
        json.dump({answer: number for number, answer in enumerate(answers)}, out)


def _write_clips(folder: Path, dataset: ToyDataset, size: ToySize) -> list[Clip]:
    """Write clips, and long videos of four training clips each with subtitles."""
    counts = {"train": size.clips, "val": size.validation, "test": size.test}
    clips = {split: list(dataset.clips(count, split)) for split, count in counts.items()}  # type: ignore[arg-type]
    everything = [clip for some in clips.values() for clip in some]
    features = {clip.key: clip_features(clip, seconds=CLIP_SECONDS) for clip in everything}
    for split, some in clips.items():
        write_manifest(folder / f"{split}.jsonl", [_clip_record(clip) for clip in some])
    np.savez(folder / "features.npz", ids=np.array(list(features)),
             features=np.stack(list(features.values())).astype(np.float16))  # fmt: skip
    videos = list(_videos(clips["train"]))
    write_manifest(folder / "videos.jsonl", [_video_record(some) for some in videos])
    np.savez(
        folder / "videos.npz",
        ids=np.array([_video_record(some).video for some in videos]),
        features=np.stack([np.concatenate([features[c.key] for c in some]) for some in videos]),
    )
    return everything


def _clip_record(clip: Clip) -> Record:
    captions = {code: (_clip_caption(clip, code),) for code in CLIP_LANGUAGES}
    return Record(video=clip.key, captions=captions)


def _clip_caption(clip: Clip, language: str) -> str:
    """Name what moves, its direction and what stays: the words of a sentence that matter most."""
    grammar, film = GRAMMARS[language], clip.film
    moving, still = (
        grammar.join(grammar.label(placed.thing.without_size()))
        for placed in (film.mover, film.still)
    )
    return f"{moving} {grammar.direction_name(film.event.direction)}, {still}"


def _videos(clips: Sequence[Clip]) -> Iterator[Sequence[Clip]]:
    whole = len(clips) - len(clips) % CLIPS_PER_VIDEO
    return (clips[i : i + CLIPS_PER_VIDEO] for i in range(0, whole, CLIPS_PER_VIDEO))


def _video_record(clips: Sequence[Clip]) -> Record:
    cues = {
        code: tuple(
            Cue(CLIP_SECONDS * n, CLIP_SECONDS * (n + 1), _clip_caption(clip, code))
            for n, clip in enumerate(clips)
        )
        for code in CLIP_LANGUAGES
    }
    return Record(video="+".join(clip.key for clip in clips), subtitles=cues)


def _write_encoder(folder: Path, pictures: Sequence[Picture], clips: Sequence[Clip]) -> None:
    from polyglance.nn.tiny_encoder import make_tiny_encoder

    texts = [_name(picture, code) for picture in pictures for code in LANGUAGES]
    texts += [clip.captions[code][0].text for clip in clips for code in CLIP_LANGUAGES]
    for code in QUESTION_LANGUAGES:
        grammar = GRAMMARS[code]
        things = [picture.scene.things[0].thing.without_size() for picture in pictures]
        texts += [grammar.text(grammar.ask_shape(thing.true_colour)) for thing in things]
        texts += [grammar.text(grammar.ask_colour(thing.without_colour())) for thing in things]
    make_tiny_encoder(folder, texts)
