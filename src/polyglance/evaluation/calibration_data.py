"""Pictures, captions and labels for `polyglance calibrate`, and the calibration of a model."""

from __future__ import annotations

import lzma
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders import Encoder
from polyglance.encoders.calibration import Background, Calibration
from polyglance.encoders.protocol import Vectors
from polyglance.errors import DataError, PolyglanceError, error_reason
from polyglance.evaluation.calibration import PERSON, fit_calibration, summarise
from polyglance.evaluation.calibration_trials import (
    CalibrationData,
    CalibrationQuery,
    Trial,
    make_trials,
)
from polyglance.evaluation.nonsense import nonsense_queries, random_words
from polyglance.languages import is_spaceless, normalise_language
from polyglance.utils.bounded import parse_json

BACKGROUND_RANK = 32
"""Principal directions of the backgrounds of pictures and captions that come with a model."""
_MIN_PICTURES = 256
_WORD, _ENDING = re.compile(r"[a-z]{3,}"), re.compile(r"(?<=...)(?:ing|s)$")
_LABEL_WORDS = {
    PERSON: r"m[ae]n|wom[ae]n|boys?|girls?|people|persons?|kids?|child(ren)?|guys?|lad(y|ies)"
    r"|players?|bab(y|ies)|toddlers?|someone|crowd|climbers?|bikers?|surfers?|skaters?|cyclists?"
    r"|riders?|skiers?|snowboarders?|skateboarders?|runners?|couple|team|friends?|family|adults?"
    r"|teenagers?|group|cowboy|swimmers?|dancers?|he|she|they|his|her|their",
    "dog": r"dogs?|pupp(y|ies)", "cat": r"cats?|kittens?", "horse": r"horses?|pony",
    "bicycle": r"bikes?|bik(ing|er)|bicycles?|cycl\w+", "motorcycle": r"motor\w+|dirt ?bikes?",
    "skateboard": r"skat\w+", "surfboard": r"surf\w*|waves?", "snowboard": r"snow\w*|ski\w*",
    "boat": r"boats?|kayak\w*|canoe\w*|raft\w*", "train": r"trains?", "bus": r"bus(es)?",
    "airplane": r"\w*planes?|jets?", "elephant": r"elephants?", "sheep": r"sheep|lambs?",
    "cow": r"cows?|cattle|bulls?", "bear": r"bears?", "cake": r"cakes?", "clock": r"clocks?",
    "umbrella": r"umbrellas?", "kite": r"kites?", "frisbee": r"frisbees?",
    "tennis racket": r"tennis", "baseball bat": r"baseball",
    "sports ball": r"soccer|football|balls?|basketball", "bird": r"birds?|ducks?|gulls?",
    "car": r"cars?|street|road", "bench": r"bench(es)?", "swimming pool": r"pools?|swim\w*",
    "water": r"water|ocean|sea|lake|river|beach", "rock": r"rocks?|cliffs?|mountains?",
    "grass": r"grass\w*|fields?|park|yard",
}  # fmt: skip
"""English words that say what a picture without labels shows."""


@dataclass(frozen=True, slots=True)
class LabelledPicture:
    """A picture with captions by language and labels."""

    path: Path
    captions: Mapping[str, tuple[str, ...]]
    labels: frozenset[str] = frozenset()


def read_labelled_pictures(
    manifests: Sequence[Path], labels: Sequence[Path] = ()
) -> list[LabelledPicture]:
    """Read pictures with captions and labels.

    Args:
        manifests: Records with ``image`` and ``captions``, one a line (``.xz`` packed); a picture
            of several has the captions of all.
        labels: Records with ``image`` and ``labels``; pictures are found by their file name.

    Returns:
        The pictures. One without labels gets those that its English captions name.
    """
    found: dict[str, LabelledPicture] = {}
    for manifest in manifests:
        for record in _read_lines(manifest):
            path, own = manifest.parent / record["image"], record.get("captions", {})
            captions = {normalise_language(code): tuple(texts) for code, texts in own.items()}
            before = found.get(path.stem)
            if before is not None:
                captions = dict(before.captions) | {
                    code: (*before.captions.get(code, ()), *texts)
                    for code, texts in captions.items()
                }
            found[path.stem] = LabelledPicture(before.path if before else path, captions)
    for manifest in labels:
        own_labels = _read_labels(manifest)
        for stem in found.keys() & own_labels.keys():
            found[stem] = replace(found[stem], labels=own_labels[stem])
    patterns = {
        name: re.compile(rf"\b({words})\b", re.IGNORECASE) for name, words in _LABEL_WORDS.items()
    }
    return [
        picture
        if picture.labels
        else replace(picture, labels=_labels_from_words(picture.captions.get("en", ()), patterns))
        for picture in found.values()
    ]


def encode_calibration_data(
    encoder: Encoder,
    pictures: Sequence[LabelledPicture],
    vectors: Vectors,
    *,
    names: Mapping[str, Mapping[str, str]] | None = None,
    captions_per_picture: int = 1,
    num_nonsense: int = 1000,
    others: Sequence[CalibrationQuery] = (),
    seed: int = 0,
) -> CalibrationData:
    """Choose queries and encode them.

    Args:
        encoder: The model.
        pictures: Pictures that it was not trained on.
        vectors: Of the pictures, ``[n, width]``.
        names: Classes in some languages, by label; default: the labels themselves, as English.
        captions_per_picture: How many captions of each are queries, in different languages.
        num_nonsense: Queries without meaning; a fifth as many are random words.
        others: More queries that no picture matches.
        seed: Chooses captions and makes nonsense.

    Returns:
        The data of `make_trials`.
    """
    generator = np.random.default_rng(seed)
    classes = tuple(sorted({label for picture in pictures for label in picture.labels}))
    if names is None:
        names = {label: {"en": label} for label in classes}
    queries = list[CalibrationQuery]()
    for number, picture in enumerate(pictures):
        codes = sorted(picture.captions)
        for code in generator.permutation(codes)[:captions_per_picture].tolist():
            texts = picture.captions[code]
            text = texts[generator.integers(len(texts))]
            queries.append(CalibrationQuery(text, code, "caption", picture=number))
    for label, by_language in names.items():
        if label in classes:
            queries += [
                CalibrationQuery(text, code, "label", label=classes.index(label))
                for code, text in by_language.items()
            ]
    spaced = [query.text for query in queries if not is_spaceless(query.language or "")]
    queries += [
        CalibrationQuery(text, None, "nonsense", source="letters")
        for text, _ in nonsense_queries(num_nonsense, spaced, generator)
    ]
    queries += [
        CalibrationQuery(text, code, "nonsense", source="words")
        for text, code in random_words(num_nonsense // 5, generator)
    ]
    queries += others
    surprisal: Callable[[str], float | None] = getattr(encoder, "surprisal", lambda _: None)
    return CalibrationData(
        vectors,
        np.array([[name in picture.labels for name in classes] for picture in pictures]),
        classes,
        queries,
        encoder.encode_texts([query.text for query in queries]),
        [surprisal(query.text) for query in queries],
        caption_words(pictures),
    )


def caption_words(pictures: Sequence[LabelledPicture]) -> NDArray[np.float32]:
    """Return unit vectors of the words of English captions, weighted by their rarity (tf-idf).

    Returns:
        ``[len(pictures), words]``; a picture without English captions has zeros.
    """
    found = [
        {
            _ENDING.sub("", word)
            for text in picture.captions.get("en", ())
            for word in _WORD.findall(text.lower())
        }
        for picture in pictures
    ]
    counts = Counter(word for words in found for word in words)
    shared = sorted(word for word, count in counts.items() if count > 1)
    column = {word: at for at, word in enumerate(shared)}
    table = np.zeros((len(pictures), len(column)), np.float32)
    for row, words in enumerate(found):
        for word in words & column.keys():
            table[row, column[word]] = np.log(len(pictures) / counts[word])
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    unit: NDArray[np.float32] = table / np.maximum(lengths, 1e-6)
    return unit


def calibrate(data: CalibrationData, *, seed: int = 0) -> tuple[Calibration, dict[str, Any]]:
    """Fit a calibration, and measure by cross-validation how well such a one does.

    Args:
        data: Pictures and queries.
        seed: Splits them, and draws libraries.

    Returns:
        The calibration of all pictures and queries. And its folds, with what `summarise` says of
        two others, each fitted on one half and measured on the other.
    """
    generator = np.random.default_rng(seed)
    count = len(data.pictures)
    if count < _MIN_PICTURES:
        raise PolyglanceError(
            f"calibration needs at least {_MIN_PICTURES} pictures with captions and"
            f" labels, not {count}"
        )
    first = generator.random(count) < 0.5
    free = generator.random(len(data.queries)) < 0.5  # queries that belong to no picture
    halves: dict[bool, list[int]] = {True: [], False: []}
    for number, query in enumerate(data.queries):
        own = query.picture >= 0
        halves[bool(first[query.picture] if own else free[number])].append(number)
    pictures = {half: first == half for half in halves}
    trials = {
        half: make_trials(data, pictures[half], own, generator) for half, own in halves.items()
    }
    fitted = {half: _fit(data, pictures[half], halves[half], trials[half]) for half in halves}
    measured = [(fitted[half], trials[not half]) for half in halves]
    every, numbers = np.ones(count, bool), list(range(len(data.queries)))
    calibration = _fit(data, every, numbers, make_trials(data, every, numbers, generator))
    return calibration, {"folds": dict(calibration.folds), **summarise(data, measured)}


def _fit(
    data: CalibrationData,
    pictures: NDArray[np.bool_],
    queries: Sequence[int],
    trials: Sequence[Trial],
) -> Calibration:
    """Return the calibration of trials, with backgrounds of their pictures and captions."""
    described = [n for n in queries if data.queries[n].kind == "caption"]
    calibration = fit_calibration(
        data,
        trials,
        Background.of(data.pictures[pictures], BACKGROUND_RANK),
        Background.of(data.texts[described], BACKGROUND_RANK),
        people=pictures if PERSON in data.names else None,
    )
    return Calibration.from_bytes(calibration.to_bytes())  # measured as it is stored


@lru_cache(maxsize=2)  # several manifests share their labels
def _read_labels(manifest: Path) -> dict[str, frozenset[str]]:
    return {
        Path(record["image"]).stem: frozenset(record["labels"]) for record in _read_lines(manifest)
    }


def _labels_from_words(
    captions: Sequence[str], patterns: Mapping[str, re.Pattern[str]]
) -> frozenset[str]:
    text = "\n".join(captions)
    return frozenset(name for name, pattern in patterns.items() if pattern.search(text))


def _read_lines(path: Path) -> list[dict[str, Any]]:
    try:
        with lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb") as file:
            return [parse_json(line) for line in file if line.strip()]
    except (OSError, ValueError, lzma.LZMAError, EOFError) as error:
        raise DataError(f"{path} cannot be read ({error_reason(error)}): check the path") from error
