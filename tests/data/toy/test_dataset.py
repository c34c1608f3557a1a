"""The dataset as a whole: the same seed gives the same items, in any order of access."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from itertools import islice

import pytest

from polyglance.data.toy import LANGUAGES, Fact, ToyDataset
from polyglance.data.toy.semantics import CONVERSE
from polyglance.errors import PolyglanceError

DIGEST = """
import hashlib, json, sys
from polyglance.data.toy import ToyDataset
dataset = ToyDataset(seed=7, max_distractors=1)
digest = hashlib.sha256()
for item in [*dataset.pictures(8), *dataset.hard_set(1)[0]]:
    digest.update(item.pixels().tobytes() + json.dumps(item.record().to_json()).encode())
for clip in dataset.clips(3):
    digest.update(clip.frames(frames=4).tobytes() + json.dumps(clip.record().to_json()).encode())
print(digest.hexdigest())
for name in ("torch", "av", "transformers"):
    assert name not in sys.modules, name
"""


def digest(dataset: ToyDataset, split: str = "train") -> str:
    result = hashlib.sha256()
    for picture in dataset.pictures(10, split):
        result.update(picture.pixels().tobytes())
        result.update(json.dumps(picture.record().to_json()).encode())
    return result.hexdigest()


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    assert digest(ToyDataset(seed=1)) == digest(ToyDataset(seed=1))
    assert digest(ToyDataset(seed=1)) != digest(ToyDataset(seed=2))
    assert digest(ToyDataset(seed=1)) != digest(ToyDataset(seed=1), "val")


def test_the_same_bytes_in_another_process_without_torch_or_pyav() -> None:
    found = [
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1] != ""


def test_a_picture_does_not_depend_on_earlier_ones() -> None:
    dataset = ToyDataset(seed=1)
    (later,) = dataset.pictures(1, start=7)
    eighth = next(islice(dataset.pictures(100), 7, None))
    assert later == eighth
    assert later.captions == eighth.captions
    assert later.questions == eighth.questions


def test_captions_do_not_depend_on_the_other_languages() -> None:
    alone, among = (
        next(ToyDataset(seed=1, languages=ls).pictures(1)) for ls in (["cs"], LANGUAGES)
    )
    assert list(alone.captions) == ["cs"]
    assert alone.captions["cs"] == among.captions["cs"]


def test_captions_vary_in_wording_direction_and_detail() -> None:
    captions = [
        caption
        for picture in ToyDataset(seed=1, captions_per_language=3).pictures(300)
        for caption in picture.captions["en"][1:]
    ]
    wordings = Counter(caption.wording for caption in captions)
    assert min(wordings.values()) > 80
    assert len(wordings) == 5
    facts = [c.meaning for c in captions if isinstance(c.meaning, Fact)]
    relations = Counter(fact.relation for fact in facts)
    for relation in ("left_of", "above", "in_front_of"):
        share = relations[relation] / (relations[relation] + relations[CONVERSE[relation]])
        assert 0.4 < share < 0.6
    without_colour = sum(None in (f.figure.colour, f.ground.colour) for f in facts) / len(facts)
    sized = sum(f.figure.size is not None for f in facts) / len(facts)
    assert 0.2 < without_colour < 0.4
    assert 0.25 < sized < 0.42


def test_first_captions_are_translations_that_name_both_colours() -> None:
    for picture in ToyDataset(seed=1).pictures(50):
        meanings = {caption.meaning for caption in picture.translations.values()}
        assert len(meanings) == 1
        (meaning,) = meanings
        assert isinstance(meaning, Fact)
        assert None not in (meaning.figure.colour, meaning.ground.colour)


def test_records_match_the_pictures() -> None:
    dataset = ToyDataset(seed=1, captions_per_language=3)
    for record, picture in zip(dataset.records(5, "val"), dataset.pictures(5, "val"), strict=True):
        assert record == picture.record()
        assert record.split == "val"
        assert record.id == picture.key
        assert list(record.captions) == list(LANGUAGES)
        assert all(len(texts) == 3 for texts in record.captions.values())
        assert len(record.regions) == 2


def test_regions_are_named_in_every_language() -> None:
    dataset = ToyDataset(
        seed=1, colours=["red", "green", "blue"], shapes=["star", "heart", "circle"]
    )
    names = {language: set[str | None]() for language in LANGUAGES}
    for picture in dataset.pictures(80):
        for language in LANGUAGES:
            names[language] |= {region.label for region in picture.regions(language)}
    assert all(len(known) == 9 for known in names.values())
    assert names["en"] >= {"red star", "green heart", "blue circle"}
    assert names["de"] >= {"roter Stern", "grünes Herz", "blauer Kreis"}
    assert names["fr"] >= {"étoile rouge", "cœur vert", "cercle bleu"}
    assert names["cs"] >= {"červená hvězda", "zelené srdce", "modrý kruh"}
    assert names["ru"] >= {"красная звезда", "зелёное сердце", "синий круг"}
    assert names["ar"] >= {"نجمة حمراء", "قلب أخضر", "دائرة زرقاء"}
    assert names["zh"] >= {"红色星星", "绿色爱心", "蓝色圆形"}
    assert names["ja"] >= {"赤い星", "緑のハート", "青い円"}


def test_a_dataset_can_have_large_things_only() -> None:
    pictures = list(ToyDataset(seed=1, sizes=["large"], relations=["left_of"]).pictures(20))
    assert {p.thing.size for picture in pictures for p in picture.scene.things} == {"large"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seed": -1}, "give a whole number of 0 or more"),
        ({"captions_per_language": 0}, "give at least one"),
        ({"languages": ["en", "xx"]}, "no language 'xx': give some of en, de"),
        ({"languages": []}, "at least 1 different language"),
        ({"colours": ["red", "blue"]}, "at least 3 different colour"),
        ({"colours": ["red", "blue", "red", "green"]}, "give each once"),
        ({"shapes": ["circle", "cube", "star"]}, "no shape 'cube'"),
        ({"relations": ["right_of"]}, "no relation 'right_of'"),
        ({"sizes": []}, "at least 1 different size"),
        ({"max_distractors": 7}, "from 0 to 6"),
        ({"held_out": "everything"}, "held_out is 'everything': give one of"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(PolyglanceError, match=message):
        ToyDataset(**settings)  # type: ignore[arg-type]


def test_unknown_splits_are_refused() -> None:
    with pytest.raises(PolyglanceError, match="one of train, val, test"):
        next(ToyDataset().pictures(1, "dev"))  # type: ignore[arg-type]
