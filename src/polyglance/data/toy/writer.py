"""A toy world on disk, laid out like a real data set.

train.jsonl val.jsonl test.jsonl     manifests of pictures
hard.jsonl                           the hard evaluation set, group by group
images/                              the pictures
clips/train.jsonl ... clips/*.mp4    the same for clips
dictionaries/en-de.txt ...           a word and a translation a line, as MUSE has them
parallel/en-de.txt ...               training captions, "source ||| target", tokenised
parallel/en-de.pharaoh ...           which of their words are aligned
labels.tsv                           the names of all region labels, a column a language
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, permutations, product
from pathlib import Path

from PIL import Image

from polyglance.data.toy.dataset import ToyDataset
from polyglance.data.toy.dictionaries import dictionary
from polyglance.data.toy.grammar import align, pharaoh
from polyglance.data.toy.grammars import GRAMMARS
from polyglance.data.toy.items import Clip, Item, Picture
from polyglance.data.toy.semantics import COLOURS, SHAPES, Thing
from polyglance.data.toy.splits import SPLITS
from polyglance.data.toy.video import clip_suffix, write_clip
from polyglance.errors import PolyglanceError
from polyglance.records import Record, atomic_write, write_manifest


def write(
    folder: str | Path,
    pictures: int = 500,
    clips: int = 50,
    seed: int = 0,
    *,
    size: int = 64,
    hard_groups: int = 10,
    world: ToyDataset | None = None,
) -> dict[str, int]:
    """Write a toy world and return the number of records in each manifest.

    A tenth of the pictures, and of the clips, is for validation and another for
    test. The ``world`` is one of that ``seed`` with default settings unless given.
    """
    folder = Path(folder)
    if pictures < 0 or clips < 0 or hard_groups < 0:
        raise PolyglanceError("numbers of pictures, clips and groups cannot be negative")
    world = ToyDataset(seed) if world is None else world
    written: dict[str, int] = {}
    try:
        for name in ("images", "clips"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        parallel: list[Item] = []
        for split, count in zip(SPLITS, _shares(pictures), strict=True):
            items = list(world.pictures(count, split))
            parallel += items if split == "train" else []
            written[f"{split}.jsonl"] = write_manifest(
                folder / f"{split}.jsonl", _save_pictures(folder, items, size)
            )
        hard = (picture for group in world.hard_set(hard_groups) for picture in group)
        written["hard.jsonl"] = write_manifest(
            folder / "hard.jsonl", _save_pictures(folder, hard, size)
        )
        for split, count in zip(SPLITS, _shares(clips), strict=True):
            films = list(world.clips(count, split))
            parallel += films if split == "train" else []
            written[f"clips/{split}.jsonl"] = write_manifest(
                folder / "clips" / f"{split}.jsonl", _save_clips(folder / "clips", films, size)
            )
        _write_words(folder, world.languages, parallel)
    except OSError as error:
        raise PolyglanceError(f"{folder}: cannot be written ({error.strerror or error})") from error
    return written


def write_dictionary(path: str | Path, source: str, target: str) -> None:
    """Write a dictionary in the text format of MUSE: ``word translation``, one pair a line."""
    with atomic_write(path) as out:
        for word, translations in dictionary(source, target).items():
            out.writelines(f"{word} {translation}\n" for translation in translations)


def label_names(language: str) -> list[str]:
    """Every colour with every shape, in the same order in every language."""
    grammar = GRAMMARS[language]
    return [
        grammar.join(grammar.label(Thing(shape, colour)))
        for colour, shape in product(COLOURS, SHAPES)
    ]


def _shares(count: int) -> tuple[int, int, int]:
    tenth = count // 10
    return count - 2 * tenth, tenth, tenth


def _save_pictures(folder: Path, pictures: Iterable[Picture], size: int) -> Iterator[Record]:
    for picture in pictures:
        path = f"images/{picture.key}.png"
        Image.fromarray(picture.pixels(size)).save(folder / path, compress_level=1)
        yield picture.record(path)


def _save_clips(folder: Path, clips: Iterable[Clip], size: int) -> Iterator[Record]:
    suffix = clip_suffix()
    for clip in clips:
        path = f"{clip.key}{suffix}"
        write_clip(folder / path, clip.frames(size))
        yield clip.record(path)


def _write_words(folder: Path, languages: tuple[str, ...], items: list[Item]) -> None:
    for source, target in permutations(languages, 2):
        write_dictionary(folder / "dictionaries" / f"{source}-{target}.txt", source, target)
    captions = [item.translations for item in items]
    for source, target in combinations(languages, 2):
        name = folder / "parallel" / f"{source}-{target}"
        pairs = [(translations[source], translations[target]) for translations in captions]
        with atomic_write(name.with_suffix(".txt")) as out:
            out.writelines(f"{' '.join(a.words)} ||| {' '.join(b.words)}\n" for a, b in pairs)
        with atomic_write(name.with_suffix(".pharaoh")) as out:
            out.writelines(f"{pharaoh(align(a, b))}\n" for a, b in pairs)
    with atomic_write(folder / "labels.tsv") as out:
        out.write("\t".join(languages) + "\n")
        for names in zip(*(label_names(language) for language in languages), strict=True):
            out.write("\t".join(names) + "\n")
