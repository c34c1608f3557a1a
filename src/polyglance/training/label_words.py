"""What labels of regions are called, in sub-words of a model's vocabulary, language by language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.errors import PolyglanceError
from polyglance.nn.packing import Packing

Indices = NDArray[np.int64]


class EncodesNames(Protocol):
    """What is needed of a tokenizer here."""

    def encode_batch(self, texts: Sequence[str], *, specials: bool) -> Sequence[Sequence[int]]:
        """The ids of each text, without the signs that begin and end it."""
        ...


class LabelWords:
    """The sub-words of every label's name in every language."""

    def __init__(self, names: Mapping[str, Sequence[str]], tokenizer: EncodesNames) -> None:
        """``names`` has one for each label, in the same order in all languages."""
        self.languages = tuple(names)
        self.labels = len(names[self.languages[0]])
        spoken = [tokenizer.encode_batch(names[one], specials=False) for one in self.languages]
        for language, words in zip(self.languages, spoken, strict=True):
            if len(words) != self.labels:
                raise PolyglanceError(
                    f"there are {len(words)} names of labels in {language}, and"
                    f" {self.labels} in {self.languages[0]}: give one for each label"
                )
            if empty := [n for n, word in enumerate(words) if not len(word)]:
                raise PolyglanceError(
                    f"label {empty[0]} has no name in {language} that the vocabulary can spell"
                )
        flat = [word for words in spoken for word in words]
        self._size = np.array([len(word) for word in flat], np.int64)
        self._start = np.cumsum(self._size) - self._size
        self._words = np.array([number for word in flat for number in word], np.int64)

    def draw(self, language: Indices, label: Indices, generator: np.random.Generator) -> Indices:
        """One sub-word at random of each label's name, in the language of that number."""
        name = language * self.labels + label
        words: Indices = self._words[self._start[name] + generator.integers(self._size[name])]
        return words

    def numbers(self, languages: Sequence[str]) -> Indices:
        """How languages are counted here."""
        missing = sorted(set(languages) - set(self.languages))
        if missing:
            raise PolyglanceError(f"labels have no names in {', '.join(missing)}")
        return np.array([self.languages.index(one) for one in languages], np.int64)

    def vectors(self, table: Tensor, language: str) -> Tensor:
        """Labels as the mean of their sub-words' vectors in a table of words, ``(labels, width)``.

        No gradient reaches the table.
        """
        first = int(self.numbers([language])[0]) * self.labels
        sizes = self._size[first : first + self.labels]
        start = int(self._start[first])
        words = torch.from_numpy(self._words[start : start + int(sizes.sum())]).to(table.device)
        return Packing.of(sizes, table.device).mean(table.detach()[words])
