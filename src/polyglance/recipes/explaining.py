"""A trained UC2, M3P or question-answering model, opened to see where its words look."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.errors import PolyglanceError
from polyglance.languages import is_spaceless, normalise_language
from polyglance.models.answering import Answering
from polyglance.models.m3p import M3P
from polyglance.models.uc2 import UC2
from polyglance.models.word_looks import STEPS, answered_from, attended, told_from
from polyglance.nn.joint import Text
from polyglance.nn.packing import Packing
from polyglance.progress import progress
from polyglance.recipes.pairs.folder import (
    TELLING,
    NoPairModel,
    open_pair_model,
    refuse_unused,
)
from polyglance.recipes.pairs.model_folder import kind_of
from polyglance.recipes.pairs.region_splits import Eyes, look_at
from polyglance.recipes.questions.folder import Answerer
from polyglance.recipes.questions.object_words import with_objects
from polyglance.text import Encoding, Tokenizer
from polyglance.vision.torch_backbone import TorchBackbone

if TYPE_CHECKING:
    from PIL.Image import Image

Way = Literal["relevance", "attention"]
_SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
"""As the names of their letters begin."""
_TRAIN = (
    "train one by 'polyglance train uc2-flickr8k --data DATA --out RUN' and give --model RUN"
    " --features DATA/flickr8k/features"
)
"""It is trained on stored features, and only their store says how pictures are seen."""


@dataclass(frozen=True, eq=False)
class Looks:
    """The words of a sentence and where each looks."""

    language: str | None
    words: Sequence[str]
    cells: NDArray[np.float32]
    """(words, down, across): what each cell of the picture is to each word; 0 where it is nothing,
    or speaks against the word."""
    by: Way = "relevance"
    """How it was found, which may be another way than was asked for."""
    cut_after: str | None = None
    """The last word that the model reads, of a sentence that is too long for it."""
    untold: bool = False
    """Whether the model has embeddings of languages and was told of none: of one that it has none
    of, or of a sentence whose language is not known."""


class Explainer:
    """A model that reads sentences beside pictures, and is watched."""

    def __init__(
        self,
        model: UC2 | M3P | Answering,
        tokenizer: Tokenizer,
        eyes: TorchBackbone,
        settings: Eyes,
        *,
        longest: int = 60,
        tells_words: bool = True,
        answerer: Answerer | None = None,
    ) -> None:
        """``tells_words`` says whether the model was trained to tell words that are hidden.

        ``answerer`` is what answers by a model that answers questions.
        """
        self.model, self.tokenizer, self.eyes = model.eval(), tokenizer, eyes
        self.settings, self.longest, self.tells_words = settings, longest, tells_words
        self.answerer = answerer
        self.teller = None if answerer is None else answerer.teller
        self.model.requires_grad_(False)

    @classmethod
    def open(
        cls,
        folder: str | Path | None,
        *,
        backbone: str | None = None,
        features: str | Path | None = None,
        device: str = "cpu",
    ) -> Explainer:
        """Open a run, a stage of one, or a model that answers questions.

        ``features`` and ``backbone`` are those of `open_pair_model`, and not for a model with
        eyes of its own.
        """
        if folder is None:
            raise PolyglanceError(f"no model to look into comes along: {_TRAIN}")
        try:
            pair = open_pair_model(
                folder, stages=TELLING, backbone=backbone, features=features, device=device
            )
        except NoPairModel as error:
            path = Path(folder).expanduser()
            if "vqa" not in (kind_of(path), kind_of(path / "model")):
                raise PolyglanceError(
                    f"{path} holds no model to look into, neither UC2 or M3P nor one that answers"
                    f" questions: {_TRAIN}, or by 'polyglance train vqa-en-vi --data DATA --out"
                    " RUN' and give --model RUN"
                ) from error
            refuse_unused(path, features=features, backbone=backbone)
            found = Answerer.open(folder, device=device)
            told = found.description
            return cls(
                found.model,
                found.tokenizer,
                found.eyes,
                told.eyes,
                longest=told.longest_text,
                answerer=found,
            )
        return cls(
            pair.model,
            pair.tokenizer,
            pair.eyes,
            pair.told.eyes,
            longest=pair.told.longest_text,
            tells_words=pair.told.tells_words,
        )

    def explain(
        self,
        picture: str | Path | Image,
        sentence: str,
        *,
        language: str | None = None,
        by: Way = "relevance",
        layers: Sequence[int] = (),
        first: int | None = None,
        steps: int = STEPS,
        quiet: bool = True,
    ) -> Looks:
        """Where each word of a sentence looks; ``layers``, from 1, are those of attention.

        By relevance each word takes its time, in proportion to the ``steps``: only the ``first``
        so many look, if that is given, and a bar shows how many have, unless ``quiet``.
        A language that M3P has no embedding of is read without (`Looks.untold`).
        A model that answers questions was not trained to tell hidden words: by relevance
        its answer looks, and by attention the words of the question do. Of any other model that
        was not, the words look by attention, whatever was asked for (`Looks.by`).
        """
        model = self.model
        reader = model.reader if isinstance(model, Answering) else model
        most = reader.config.encoder.layers
        if any(not 1 <= layer <= most for layer in layers):
            raise PolyglanceError(f"the model has layers from 1 to {most}")
        encoding = self.tokenizer.analyse(sentence, max_length=self.longest)
        spoken = _code(language) if language else None
        spaces = not (spoken and is_spaceless(spoken))
        words = cut_at_words(sentence, encoding, spaces=spaces)
        if not words:
            raise PolyglanceError(f"there is no word in {sentence!r} to look from")
        cut_after = last_read(sentence, self.tokenizer, self.longest, spaces=spaces)
        words = words[:first]
        if self.answerer is not None and by == "relevance":
            found = self._answered(self.answerer, picture, sentence, language, steps, quiet)
            return replace(found, cut_after=cut_after)
        if not self.tells_words:
            by = "attention"
        if self.teller is not None:
            # What is told stands behind the sentence, whose words keep their places.
            told_too = with_objects(sentence, self.teller.tell([picture])[0])
            encoding = self.tokenizer.analyse(told_too, max_length=self.longest)
        device = self.eyes.device
        told = None
        if isinstance(reader, M3P) and spoken in reader.config.languages:
            told = torch.from_numpy(reader.config.language_numbers([spoken])).to(device)
        untold = isinstance(reader, M3P) and told is None
        text = Text(torch.tensor(encoding.ids), Packing.of([len(encoding.ids)]), told).to(device)
        table = look_at([picture], self.eyes, self.settings)
        regions, _ = table.take(np.array([0]))
        names, places = [name for name, _ in words], [places for _, places in words]
        if by == "attention":
            looks = attended(reader, text, regions, places, layers)
        else:
            mask = self.tokenizer.mask_id
            if mask is None:
                raise PolyglanceError("the tokenizer has no mask: look by attention instead")
            each = []
            with progress(_doing(spoken), len(places), quiet=quiet) as advance:
                for own in places:
                    each.append(told_from(reader, text, regions, [own], mask, steps))
                    advance(1)
            looks = torch.cat(each)
        return Looks(language, names, _shown(_laid_out(looks)), by, cut_after, untold)

    def _answered(
        self,
        answerer: Answerer,
        picture: str | Path | Image,
        question: str,
        language: str | None,
        steps: int,
        quiet: bool,
    ) -> Looks:
        """Where the first answer of `Answerer.ask` looks, over all the looks that it takes."""
        text, seen = answerer.read(question, picture), answerer.looks(picture)
        (best,) = answerer.answers(text, seen, language or answerer.language_of(question), k=1)
        number = answerer.classes.names.index((best.language, best.text))
        credit = []
        with progress(_doing(best.language), len(seen), quiet=quiet) as advance:
            for view, regions in enumerate(seen):
                found = answered_from(answerer.model, text, regions, number, steps)
                cells = _laid_out(found[None])
                # Of several looks every second one is mirrored.
                credit.append(cells.flip(2) if view % 2 else cells)
                advance(1)
        # The logit is the mean over all looks, and so is what regions do for it.
        return Looks(language, [f"→ {best.text}"], _shown(torch.stack(credit).mean(0)))


def _doing(language: str | None) -> str:
    """What a bar says."""
    return f"Looking ({language})" if language else "Looking"


def _laid_out(looks: Tensor) -> Tensor:
    """(words, regions) as (words, down, across), without the whole picture that comes first."""
    side = round((looks.shape[1] - 1) ** 0.5)
    return looks[:, 1:].reshape(-1, side, side)


def _shown(cells: Tensor) -> NDArray[np.float32]:
    """Without what speaks against a word."""
    return cells.clamp(min=0).float().cpu().numpy()


def last_read(
    sentence: str, tokenizer: Tokenizer, longest: int, *, spaces: bool = True
) -> str | None:
    """The last word that is read of a sentence of more than so many sub-words; None of others."""
    encoding = tokenizer.analyse(sentence, max_length=longest)
    if len(tokenizer.encode(sentence)) <= len(encoding.ids):
        return None
    words = cut_at_words(sentence, encoding, spaces=spaces)
    return words[-1][0] if words else ""


def cut_at_words(
    sentence: str, encoding: Encoding, *, spaces: bool = True
) -> list[tuple[str, list[int]]]:
    """Words and the places of their sub-words; without ``spaces`` every sub-word is one.

    So is every one of letters that are written without spaces, whatever the language.
    """
    found: list[tuple[int, int, list[int]]] = []
    for place, (start, end) in enumerate(encoding.spans or ()):
        piece = sentence[start:end]
        if not any(map(str.isalnum, piece)):
            continue
        start += len(piece) - len(piece.lstrip())
        if found:
            begin, last, places = found[-1]
            between, around = sentence[last:start], sentence[last - 1] + sentence[start]
            joined = spaces and not any(map(str.isspace, between)) and not _spaceless(around)
            # A space before a word may be a sub-word of its own, which lies on its first letter.
            if joined or start < last:
                found[-1] = (begin, max(last, end), [*places, place])
                continue
        found.append((start, end, [place]))
    return [(sentence[start:end].strip(), places) for start, end, places in found]


def _code(language: str) -> str:
    """The language as models name it, however it is written."""
    try:
        return normalise_language(language)
    except ValueError as error:
        raise PolyglanceError(f"the language of a sentence is {error}") from error


def _spaceless(letters: str) -> bool:
    """Whether one of these letters is of a script without spaces between words."""
    return any(unicodedata.name(letter, "").startswith(_SCRIPTS) for letter in letters)
