from __future__ import annotations

from pathlib import Path

import numpy as np

from helpers.dictd import write_dictd
from polyglance.recipes.dictionaries import learned_dictionaries, make_dictionaries
from polyglance.records import Record, write_manifest
from polyglance.text.dictionaries import Dictionary, open_dictionary

TRANSLATIONS = [
    ("the dog runs", "der Hund rennt"),
    ("the cat runs", "die Katze rennt"),
    ("a dog sleeps", "ein Hund schläft"),
    ("a cat sleeps", "eine Katze schläft"),
]
PARALLEL = [Record(captions={"en": (here,), "de": (there,)}) for here, there in TRANSLATIONS * 5]


def made(folder: Path, source: str, target: str) -> Dictionary:
    return open_dictionary(folder / f"{source}-{target}.tsv", source=source)


def test_dictionaries_from_translations_are_extended_by_freedict(tmp_path: Path) -> None:
    article = "{}\n\n1. {}\n"
    words = [("dog", "Köter"), ("ball", "Ball"), ("quark", "Quark")]
    write_dictd(
        tmp_path,
        [(word, article.format(word, other)) for word, other in words],
        name="freedict-eng-deu",
    )
    described = [Record(captions={"en": ("a dog and a ball",), "de": ("Köter und Ball",)})]
    pattern = str(tmp_path / "made" / "{source}-{target}.tsv")
    make_dictionaries(described, PARALLEL, ["en", "de"], pattern, freedict=tmp_path)
    there, back = made(tmp_path / "made", "en", "de"), made(tmp_path / "made", "de", "en")
    assert there.translations("dog") == ("hund", "Köter")  # what is learned comes first
    assert there.translations("ball") == ("Ball",)
    assert "quark" not in there  # which no caption has
    assert back.translations("Katze") == ("cat",)
    assert back.translations("Köter") == ("dog",)
    assert len(list((tmp_path / "made").iterdir())) == 2

    (tmp_path / "made" / "en-de.tsv").write_text("dog\tmine\n")
    make_dictionaries(described, PARALLEL, ["en", "de"], pattern, freedict=tmp_path)
    assert made(tmp_path / "made", "en", "de").translations("dog") == ("mine",)  # left alone


def test_dictionaries_from_captions_of_the_same_images(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    described = []
    for _ in range(150):
        things = generator.choice(12, 5, replace=False)
        said = [generator.choice(things, 4, replace=False) for _ in range(4)]
        english, other = ([" ".join(f"{c}w{i}" for i in one) for one in said] for c in "ec")
        described.append(Record(captions={"en": tuple(english[:2]), "cs": tuple(other[2:])}))
    pattern = str(tmp_path / "{source}-{target}.tsv")
    make_dictionaries(described, PARALLEL, ["cs"], pattern, freedict=tmp_path / "nowhere")
    there, back = made(tmp_path, "en", "cs"), made(tmp_path, "cs", "en")
    assert np.mean([there.translations(f"ew{i}")[0] == f"cw{i}" for i in range(12)]) > 0.9
    assert np.mean([back.translations(f"cw{i}")[0] == f"ew{i}" for i in range(12)]) > 0.9


def test_learned_dictionaries_are_cached_and_need_no_freedict(
    tmp_path: Path,
) -> None:
    captions, parallel = tmp_path / "captions.jsonl", tmp_path / "parallel.jsonl"
    write_manifest(captions, [Record(image="a.jpg", captions={"en": ("a dog",)})])
    write_manifest(parallel, PARALLEL)

    def learn() -> Path:
        pattern = learned_dictionaries(
            captions, parallel, ["de"], cache_dir=tmp_path / "cache", freedict=tmp_path / "none"
        )
        return Path(pattern.format(source="en", target="de"))

    path = learn()
    assert open_dictionary(path, source="en").translations("dog") == ("hund",)
    written = path.stat().st_mtime_ns
    assert learn() == path
    assert path.stat().st_mtime_ns == written


def test_no_texts_give_an_empty_dictionary(tmp_path: Path) -> None:
    silent = [Record(captions={"en": ("a dog",), "fr": ("!",)})]
    make_dictionaries(silent, [], ["fr"], str(tmp_path / "{source}-{target}.tsv"), freedict=None)
    assert (tmp_path / "en-fr.tsv").read_text() == ""
