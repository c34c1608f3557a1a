"""What a reader gives a picture or a caption beside any other, taken off its scores of pairs.

    python -m benchmarks.experiments.reader_candidates --data DATA --candidates 50 --device cuda
        --scores SCORES
    python -m benchmarks.experiments.reader_priors --data DATA --scores SCORES

A reader's score has a part that the query has nothing to do with: some pictures, and more so some
captions, score high beside everything. This part, a candidate's mean score on the short lists that
it is on but does not belong to, is predicted from the dual encoder's vector by ridge regression,
learned on DATA/flickr8k/val.jsonl. The penalty and the share that is taken off are chosen there,
too, by learning on each half of the pictures and re-ranking the other. Then
DATA/flickr8k/test.jsonl is re-ranked. Takes ten minutes on two cores. Writes
results/reader_priors.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import polyglance
from benchmarks.results_io import RESULTS, write_results
from polyglance.encoders.model_folder import ModelFolder
from polyglance.encoders.protocol import Encoder
from polyglance.encoders.reader_files import read_reader_config
from polyglance.errors import DataError
from polyglance.evaluation.pair_scores import Candidates
from polyglance.evaluation.retrieval import Ranks, ranks_from_shortlists, summarise
from polyglance.evaluation.statistics import Comparison, compare_queries, image_scores
from polyglance.records import read_manifest

Array = NDArray[np.float64]
PENALTIES = (0.01, 0.03, 0.1, 0.3)
SHARES = (0.0, 0.5, 0.75, 1.0)
"""Of the predicted part, that is taken off."""
_BATCH = 128
_NOBODY = -1
"""The number of a candidate that is left out of a list."""


@dataclass(frozen=True, eq=False)
class Language:
    """Short lists of one language, and the vectors of what is on them."""

    candidates: Candidates
    image_ids: NDArray[np.int64]
    pictures: Array
    captions: Array

    def split_scores(self) -> tuple[Array, Array]:
        """Return the reader's scores on the lists of captions, and on those of pictures."""
        size = self.candidates.texts.size
        scores = self.candidates.scores
        return (
            scores[:size].reshape(self.candidates.texts.shape),
            scores[size:].reshape(self.candidates.images.shape),
        )

    def take_off(self, of_captions: Array, of_pictures: Array) -> Language:
        """Return the same with candidates' own parts taken off the reader's scores."""
        texts, images = self.split_scores()
        scores = [
            (texts - of_captions[self.candidates.texts]).ravel(),
            (images - of_pictures[self.candidates.images]).ravel(),
        ]
        return replace(self, candidates=replace(self.candidates, scores=np.concatenate(scores)))

    def means(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Return mean scores of captions and of pictures, each with the number of their lists.

        Of lists that they belong to, what they score says that they match.
        """
        texts, images = self.candidates.texts, self.candidates.images
        of_texts, of_images = self.split_scores()
        owners = np.append(self.image_ids, _NOBODY)[texts]
        others = owners != np.arange(len(texts))[:, None]
        more_others = images != self.image_ids[:, None]
        return (
            _mean_by(texts, of_texts, others, len(self.captions)),
            _mean_by(images, of_images, more_others, len(self.pictures)),
        )

    def ranks(self, dual_weight: float | None) -> Ranks:
        """Return the ranks re-ranked, or by the cosine alone."""
        lists = self.candidates
        ranked = lists.by_dual() if dual_weight is None else lists.reranked(dual_weight)
        return ranks_from_shortlists(*ranked, self.image_ids)

    def recalls(self, dual_weight: float | None) -> dict[str, float]:
        """Return mR and the mean recall of each direction."""
        result = summarise(self.ranks(dual_weight))
        directions = {
            "image_to_text": result.image_to_text, "text_to_image": result.text_to_image
        }  # fmt: skip
        means = {name: float(np.mean([*one.recalls.values()])) for name, one in directions.items()}
        return {"mR": float(result.mean_recall), **means}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--scores", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    folder, encoder = ModelFolder.open(), polyglance.load()
    weight = read_reader_config(folder).dual_weight
    validation, test = (
        [*read_languages(options.data / f"flickr8k/{name}.jsonl", options.scores, encoder)]
        for name in ("val", "test")
    )
    penalty, share, tried = choose(validation, weight)
    captions, pictures = learn(validation, penalty)
    corrected = [correct(one, captions, pictures, share) for one in test]
    found = {
        "cosines": average(test, None),
        "as_shipped": average(test, weight),
        "predicted": average(corrected, weight),
    }
    figures = {
        "model": folder.description.fingerprint, "dual_weight": weight,
        "penalty": penalty, "share": share, "half_of_validation": tried, "test": found,
        "predicted_above_shipped": compare(corrected, test, weight)._asdict(),
    }  # fmt: skip
    print(figures)
    write_results("reader_priors", figures, options.out)


def read_languages(manifest: Path, scores: Path, encoder: Encoder) -> Iterator[Language]:
    """Yield what `reader_candidates` kept of a split, with vectors, by language."""
    records = [*read_manifest(manifest)]
    pictures = _encode(
        encoder.encode_pictures, [str(manifest.parent / str(one.image)) for one in records]
    )
    with np.load(scores / f"{manifest.stem}.npz") as kept:
        for language in kept["languages"]:
            texts = [
                (number, text)
                for number, record in enumerate(records)
                for text in record.captions.get(str(language), ())
            ]
            candidates = Candidates(
                kept[f"{language}.texts"].astype(np.int64),
                kept[f"{language}.images"].astype(np.int64),
                kept[f"{language}.scores"].astype(np.float64),
                kept[f"{language}.dual"].astype(np.float64),
            )
            if len(texts) != len(candidates.images) or len(records) != len(candidates.texts):
                raise DataError(f"{scores} has no lists of all of {manifest}: make them again")
            ids = np.array([number for number, _ in texts])
            captions = _encode(encoder.encode_texts, [text for _, text in texts])
            yield Language(candidates, ids, pictures, captions)


def choose(languages: Sequence[Language], weight: float) -> tuple[float, float, dict[str, float]]:
    """Choose penalty and share: learned on the lists of half of the pictures, on the others."""
    tried = {}
    count = len(languages[0].pictures)
    halves = np.array_split(np.random.default_rng(0).permutation(count), 2)
    parts = [[_only(one, np.sort(half)) for one in languages] for half in halves]
    for penalty in PENALTIES:
        learned = [learn(part, penalty) for part in parts]
        for share in SHARES:
            scores = [
                average([correct(one, *learned[1 - number], share) for one in part], weight)["mR"]
                for number, part in enumerate(parts)
            ]
            tried[penalty, share] = float(np.mean(scores))
    penalty, share = max(tried, key=tried.__getitem__)
    return penalty, share, {f"penalty {p:g}, share {s:g}": mR for (p, s), mR in tried.items()}


def compare(better: Sequence[Language], worse: Sequence[Language], weight: float) -> Comparison:
    """Compare mR by pictures, whose figures are means over languages."""

    def scores(languages: Sequence[Language]) -> Array:
        by_language = []
        for one in languages:
            ranks = one.ranks(weight)
            by_language.append(
                image_scores(
                    ranks.image_to_text, ranks.text_to_image, one.image_ids, ranks.num_images
                )
            )
        means: Array = np.stack(by_language).mean(0, keepdims=True)
        return means

    return compare_queries(scores(better), scores(worse))


def learn(languages: Sequence[Language], penalty: float) -> tuple[Array, Array]:
    """Return the weights that predict mean scores of captions, and of pictures."""
    means = [one.means() for one in languages]
    return (
        _ridge([one.captions for one in languages], [text for text, _ in means], penalty),
        _ridge([one.pictures for one in languages], [image for _, image in means], penalty),
    )


def correct(language: Language, captions: Array, pictures: Array, share: float) -> Language:
    """Take a share of the predicted part off."""
    return language.take_off(
        share * _predict(language.captions, captions), share * _predict(language.pictures, pictures)
    )


def average(languages: Sequence[Language], weight: float | None) -> dict[str, float]:
    """Return the mean over languages."""
    found = [one.recalls(weight) for one in languages]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def _only(language: Language, pictures: NDArray[np.int64]) -> Language:
    """Return the lists of some pictures and their captions, without other candidates."""
    captions = np.flatnonzero(np.isin(language.image_ids, pictures))
    texts, images = language.candidates.texts, language.candidates.images
    dual = np.split(language.candidates.dual, [texts.size])
    scores = language.split_scores()
    kept_texts = _renumber(len(language.captions), captions)[texts[pictures]]
    kept_images = _renumber(len(language.pictures), pictures)[images[captions]]
    joined = Candidates(
        kept_texts,
        kept_images,
        np.concatenate([scores[0][pictures].ravel(), scores[1][captions].ravel()]),
        np.concatenate(
            [
                dual[0].reshape(texts.shape)[pictures].ravel(),
                dual[1].reshape(images.shape)[captions].ravel(),
            ]
        ),
    )
    ids = _renumber(len(language.pictures), pictures)[language.image_ids[captions]]
    return Language(joined, ids, language.pictures[pictures], language.captions[captions])


def _renumber(count: int, kept: NDArray[np.int64]) -> NDArray[np.int64]:
    numbers = np.full(count, _NOBODY)
    numbers[kept] = np.arange(len(kept))
    return numbers


def _mean_by(
    numbers: NDArray[np.int64], scores: Array, counted: NDArray[np.bool_], count: int
) -> tuple[Array, Array]:
    """Return each candidate's mean over the places that count, and how many there are."""
    kept = counted & (numbers != _NOBODY)
    lists = np.bincount(numbers[kept], minlength=count).astype(np.float64)
    return np.bincount(numbers[kept], scores[kept], count) / np.maximum(lists, 1), lists


def _ridge(vectors: Sequence[Array], means: Sequence[tuple[Array, Array]], penalty: float) -> Array:
    features = np.concatenate([_with_one(one) for one in vectors])
    values = np.concatenate([value for value, _ in means])
    weights = np.concatenate([weight for _, weight in means])
    gram = (features * weights[:, None]).T @ features
    width = len(gram) - 1
    gram[np.arange(width), np.arange(width)] += penalty * weights.sum() / width
    return np.linalg.solve(gram, (features * weights[:, None]).T @ values)


def _predict(vectors: Array, weights: Array) -> Array:
    predicted: Array = _with_one(vectors) @ weights
    return predicted


def _with_one(vectors: Array) -> Array:
    return np.concatenate([vectors, np.ones((len(vectors), 1))], 1)


def _encode(encode: Any, items: Sequence[str]) -> Array:
    order = sorted(range(len(items)), key=lambda number: len(items[number]))
    parts = [
        encode([items[number] for number in order[start : start + _BATCH]])
        for start in range(0, len(items), _BATCH)
    ]
    vectors = np.empty((len(items), parts[0].shape[1]))
    vectors[order] = np.concatenate(parts)
    return vectors


if __name__ == "__main__":
    main()
