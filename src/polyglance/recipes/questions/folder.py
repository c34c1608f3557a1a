"""A question-answering model on disk, ``RUN/model``, and at work: what `polyglance ask` opens.

It is a folder as in `polyglance.recipes.pairs.model_folder`, of UC2 and its head of answers, with
the words of questions, by which their language is told, in ``lexicon.json``, and what was
measured in ``README.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError

from polyglance.errors import DataError, PolyglanceError
from polyglance.evaluation.answer_classes import AnswerClasses
from polyglance.languages import normalise_language
from polyglance.models.answering import Answering
from polyglance.models.meeting import MeetingConfig
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.joint import Regions, Text
from polyglance.nn.packing import Packing
from polyglance.objectives.answering import AnswerLoss, answer_probabilities
from polyglance.recipes import lines
from polyglance.recipes.pairs.model_folder import (
    CONFIG,
    SeesPictures,
    copy_weights,
    read_model,
    write_model,
)
from polyglance.recipes.pairs.region_splits import look_again, open_eyes
from polyglance.recipes.questions.object_words import ObjectTeller, ObjectWords, with_objects
from polyglance.records import replacing
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.text.detection import detect_language
from polyglance.text.lexicon import Lexicon
from polyglance.vision.torch_backbone import TorchBackbone

if TYPE_CHECKING:
    from PIL.Image import Image

_CARD, _DETECTOR = "README.md", "detector"
_TRAIN = "polyglance train vqa-en-vi --data DATA --out RUN"


@dataclass(frozen=True, kw_only=True)
class Description(SeesPictures):
    """What ``config.json`` says."""

    kind: str = "vqa"
    model: UC2Config
    answers: dict[str, tuple[str, ...]]
    loss: AnswerLoss
    sight: MeetingConfig | None = None
    """Of a model that looks for answers in pictures."""
    objects: ObjectWords | None = None
    """What is told behind each question."""


@dataclass(frozen=True)
class Answer:
    """What a model answers, and how sure it is."""

    text: str
    language: str
    probability: float


def write_answerer(
    folder: Path,
    model: Answering,
    tokenizer: Tokenizer,
    description: Description,
    questions: Mapping[str, Sequence[str]],
) -> None:
    """Write a model with its eyes, and its detector if it has one.

    ``questions`` it was trained on, by language, tell in which another one is.
    """
    objects = description.objects
    if objects is not None:
        copy_weights(objects.detector, folder / _DETECTOR)
        description = replace(description, objects=replace(objects, detector=_DETECTOR))
    write_model(folder, model, tokenizer, description)
    Lexicon.from_texts(questions).save(folder)


def write_card(folder: Path, description: Description, measured: dict[str, Any]) -> None:
    """Say in ``README.md`` what the model is and how well it answers."""
    known = ", ".join(f"{code} ({len(texts):,})" for code, texts in description.answers.items())
    found = "\n".join(lines(measured))
    with replacing(folder / _CARD) as file:
        file.write(
            "# A model that answers questions about pictures\n\n"
            "UC2 with a head of answers, trained by Polyglance's recipe `vqa`. It gives one of the"
            f" answers it knows: {known}.\n\n"
            f'    polyglance ask PICTURE "question" --model {folder.name}\n\n'
            "Measured on questions about pictures that it was never asked about, in percent, beside"
            f" the best answer for each type of question:\n\n```\n{found}\n```\n"
        )


class Answerer:
    """A trained model that answers questions about pictures."""

    def __init__(
        self,
        model: Answering,
        tokenizer: Tokenizer,
        eyes: TorchBackbone,
        description: Description,
        teller: ObjectTeller | None = None,
        lexicon: Lexicon | None = None,
    ) -> None:
        """``teller`` tells what is in pictures, of a model that was trained so.

        Without a ``lexicon`` it is not told in which language a question is.
        """
        self.model, self.tokenizer, self.eyes = model.eval(), tokenizer, eyes
        self.description, self.teller, self.lexicon = description, teller, lexicon
        self.classes = AnswerClasses(description.answers)

    @classmethod
    def open(cls, folder: str | Path | None, *, device: str = "cpu") -> Answerer:
        """Open ``RUN/model``, or the run itself."""
        if folder is None:
            raise PolyglanceError(
                f"no question-answering model comes along: train one by '{_TRAIN}' and give"
                " --model RUN/model"
            )
        path = Path(folder).expanduser()
        path = path / "model" if (path / "model" / CONFIG).is_file() else path
        try:
            description, state = read_model(path, Description)
            classes = AnswerClasses(description.answers)
            with torch.device("meta"):
                model = Answering(UC2(description.model), len(classes), sight=description.sight)
            model.load_state_dict(state, assign=True)
        except (OSError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
            detail = " ".join(str(error).split())[:200]
            raise DataError(
                f"{path} holds no question-answering model ({detail}): train one by '{_TRAIN}'"
            ) from error
        except PolyglanceError as error:
            raise DataError(f"{path / CONFIG}: {error}") from error
        eyes = open_eyes(description.eyes, device)
        teller = None
        if description.objects is not None:
            own = replace(description.objects, detector=str(path / _DETECTOR))
            teller = ObjectTeller(own, device=device)
        known = Lexicon.open(path) if (path / "lexicon.json").is_file() else None
        return cls(model.to(device), open_tokenizer(path), eyes, description, teller, known)

    @property
    def languages(self) -> tuple[str, ...]:
        """Those it answers in."""
        return tuple(self.classes.by_language)

    def looks(self, picture: str | Path | Image) -> list[Regions]:
        """The regions of a picture, a file or opened, in each look that was measured with."""
        table = look_again([picture], self.eyes, self.description.eyes)
        return [table.take(np.array([0]), view=view)[0] for view in range(table.views)]

    def read(self, question: str, picture: str | Path | Image) -> Text:
        """A question in sub-words, with what is in the picture if that is told."""
        told = "" if self.teller is None else self.teller.tell([picture])[0]
        whole = with_objects(question, told)
        ids = self.tokenizer.encode(whole, max_length=self.description.longest_text)
        return Text(torch.tensor(ids), Packing.of([len(ids)])).to(self.eyes.device)

    def language_of(self, question: str) -> str | None:
        """The language of a question, among those it answers in; None where that is not told."""
        return None if self.lexicon is None else detect_language(question, self.lexicon)

    def ask(
        self, picture: str | Path | Image, question: str, *, language: str | None = None, k: int = 3
    ) -> Sequence[Answer]:
        """The ``k`` likeliest answers, best first, in a language or in that of the question."""
        if not question.strip():
            raise PolyglanceError("there is no question: ask one in " + ", ".join(self.languages))
        language = self.language_of(question) if language is None else language
        return self.answers(self.read(question, picture), self.looks(picture), language, k)

    @torch.no_grad()
    def answers(
        self, text: Text, looks: Sequence[Regions], language: str | None, k: int
    ) -> Sequence[Answer]:
        """The same of what was read and seen; in whichever language without one."""
        logits = torch.stack([self.model(text, seen) for seen in looks]).mean(0)
        probabilities = answer_probabilities(logits, self.description.loss)[0].cpu().numpy()
        allowed = np.arange(len(self.classes))
        if language is not None:
            allowed = self.classes.of_language(_code(language))
        best = allowed[np.argsort(-probabilities[allowed], kind="stable")[:k]]
        return [
            Answer(text, spoken, float(probabilities[number]))
            for number, (spoken, text) in ((n, self.classes.names[n]) for n in best)
        ]


def _code(language: str) -> str:
    try:
        return normalise_language(language)
    except ValueError as error:
        raise PolyglanceError(f"{language!r} is no language: give a code such as en") from error
