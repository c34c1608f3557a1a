"""Write a toy dataset to disk, laid out like a published dataset.

train.jsonl val.jsonl test.jsonl     manifests of pictures
hard.jsonl                           the hard evaluation set, in groups
images/                              the pictures
clips/train.jsonl ... clips/*.mp4    the same for clips
dictionaries/en-de.txt ...           a word and a translation per line, in MUSE's format
parallel/en-de.txt ...               training captions, "source ||| target", tokenised
parallel/en-de.pharaoh ...           their word alignments
labels.tsv                           the names of all region labels, one column per language
regions/*.npz                        what a detector finds in the pictures, as UC2 publishes it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, permutations, product
from pathlib import Path

from PIL import Image

from polyglance.data.toy.dataset import ToyDataset
from polyglance.data.toy.dictionaries import dictionary
from polyglance.data.toy.grammar import align_captions, format_pharaoh
from polyglance.data.toy.grammars import GRAMMARS
from polyglance.data.toy.items import Clip, Item, Picture
from polyglance.data.toy.regions import write_regions
from polyglance.data.toy.semantics import COLOURS, SHAPES, Thing
from polyglance.data.toy.splits import SPLITS
from polyglance.data.toy.video import clip_suffix, write_clip
from polyglance.errors import PolyglanceError
from polyglance.records import Record, atomic_write, write_manifest


def write_dataset(
    folder: str | Path,
    pictures: int = 500,
    clips: int = 50,
    seed: int = 0,
    *,
    size: int = 64,
    hard_groups: int = 10,
    dataset: ToyDataset | None = None,
) -> dict[str, int]:
    """Write a toy dataset; return the number of records in each manifest.

    A tenth of the pictures and of the clips is for validation, another tenth for test.

    Args:
        folder: Where to write.
        pictures: Number of pictures in all splits together.
        clips: Number of clips in all splits together.
        seed: Seed of the default dataset.
        size: Side of pictures and clips in pixels.
        hard_groups: Number of groups in the hard evaluation set.
        dataset: The dataset to write, by default ``ToyDataset(seed)``.
    """
    folder = Path(folder)
    if pictures < 0 or clips < 0 or hard_groups < 0:
        raise PolyglanceError("numbers of pictures, clips and groups must be 0 or more")
    dataset = ToyDataset(seed) if dataset is None else dataset
    counts: dict[str, int] = {}
    try:
        for name in ("images", "clips"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        training_items: list[Item] = []
        for split, count in zip(SPLITS, _split_sizes(pictures), strict=True):
            items = list(dataset.pictures(count, split))
            training_items += items if split == "train" else []
            counts[f"{split}.jsonl"] = write_manifest(
                folder / f"{split}.jsonl", _save_pictures(folder, items, size)
            )
            write_regions(folder / "regions", items)
        hard = (picture for group in dataset.hard_set(hard_groups) for picture in group)
        counts["hard.jsonl"] = write_manifest(
            folder / "hard.jsonl", _save_pictures(folder, hard, size)
        )
        for split, count in zip(SPLITS, _split_sizes(clips), strict=True):
            films = list(dataset.clips(count, split))
            training_items += films if split == "train" else []
            counts[f"clips/{split}.jsonl"] = write_manifest(
                folder / "clips" / f"{split}.jsonl", _save_clips(folder / "clips", films, size)
            )
        _write_translations(folder, dataset.languages, training_items)
    except OSError as error:
        raise PolyglanceError(f"{folder}: cannot be written ({error.strerror or error})") from error
    return counts


def write_dictionary(path: str | Path, source: str, target: str) -> None:
    """Write a dictionary in MUSE's text format: ``word translation``, one pair per line."""
    with atomic_write(path) as out:
        for word, translations in dictionary(source, target).items():
            out.writelines(f"{word} {translation}\n" for translation in translations)


def label_names(language: str) -> list[str]:
    """Return the name of every colour with every shape, in the same order in every language."""
    grammar = GRAMMARS[language]
    return [
        grammar.join(grammar.label(Thing(shape, colour)))
        for colour, shape in product(COLOURS, SHAPES)
    ]


def _split_sizes(count: int) -> tuple[int, int, int]:
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


def _write_translations(folder: Path, languages: tuple[str, ...], items: list[Item]) -> None:
    for source, target in permutations(languages, 2):
        write_dictionary(folder / "dictionaries" / f"{source}-{target}.txt", source, target)
    captions = [item.translations for item in items]
    for source, target in combinations(languages, 2):
        name = folder / "parallel" / f"{source}-{target}"
        pairs = [(translations[source], translations[target]) for translations in captions]
        with atomic_write(name.with_suffix(".txt")) as out:
            out.writelines(f"{' '.join(a.words)} ||| {' '.join(b.words)}\n" for a, b in pairs)
        with atomic_write(name.with_suffix(".pharaoh")) as out:
            out.writelines(f"{format_pharaoh(align_captions(a, b))}\n" for a, b in pairs)
    with atomic_write(folder / "labels.tsv") as out:
        out.write("\t".join(languages) + "\n")
        for names in zip(*(label_names(language) for language in languages), strict=True):
            out.write("\t".join(names) + "\n")
