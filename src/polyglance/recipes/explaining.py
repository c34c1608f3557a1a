"""A trained UC2, M3P or question-answering model, opened to see where its words look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from polyglance import weights
from polyglance.config import load
from polyglance.errors import DataError, PolyglanceError
from polyglance.evaluation.answer_classes import AnswerClasses
from polyglance.languages import is_spaceless
from polyglance.models.answering import Answering
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.models.word_looks import answered_from, attended, told_from
from polyglance.nn.joint import Text
from polyglance.nn.packing import Packing
from polyglance.nn.pretrained import load_encoder
from polyglance.recipes.m3p import M3PRecipe
from polyglance.recipes.region_splits import Eyes, look_at, open_eyes
from polyglance.recipes.stages import begin_from
from polyglance.recipes.uc2 import UC2Recipe
from polyglance.recipes.vqa_folder import Answerer
from polyglance.text import Encoding, Tokenizer, open_tokenizer
from polyglance.vision.torch_backbone import TorchBackbone
from polyglance.yaml12 import parse

Way = Literal["relevance", "attention"]
_STAGES = ("pretraining", "fine_tuning", "adaptation")
"""Where words are told best comes first."""


@dataclass(frozen=True, eq=False)
class Looks:
    """The words of a sentence and where each looks."""

    language: str | None
    words: Sequence[str]
    cells: NDArray[np.float32]
    """(words, down, across): what each cell of the picture is to each word; 0 where it is nothing,
    or speaks against the word."""


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
        answers: AnswerClasses | None = None,
    ) -> None:
        """``answers`` are the classes of a model that answers questions."""
        self.model, self.tokenizer, self.eyes = model.eval(), tokenizer, eyes
        self.settings, self.longest, self.answers = settings, longest, answers
        self.model.requires_grad_(False)

    @classmethod
    def open(
        cls, folder: str | Path | None, *, backbone: str | None = None, device: str = "cpu"
    ) -> Explainer:
        """Open a run, a stage of one, or a model that answers questions.

        ``backbone`` looks at pictures for a run that was trained on stored features.
        """
        if folder is None:
            raise PolyglanceError(
                "no model to look into comes along: train one by 'polyglance train uc2-flickr8k"
                " --data DATA --out RUN' and give --model RUN"
            )
        path = Path(folder).expanduser()
        stage = (path.parent / "recipe.yaml").is_file() and not (path / "recipe.yaml").is_file()
        file = (path.parent if stage else path) / "recipe.yaml"
        plain = parse(file.read_text(encoding="utf-8"), str(file)) if file.is_file() else {}
        kind = plain.pop("kind", None)
        if kind not in ("uc2", "m3p"):
            found = Answerer.open(path, device=device)
            return cls(
                found.model,
                found.tokenizer,
                found.eyes,
                found.description.eyes,
                longest=found.description.longest_text,
                answers=found.classes,
            )
        recipe: UC2Recipe | M3PRecipe
        recipe = load(UC2Recipe, plain) if kind == "uc2" else load(M3PRecipe, plain)
        settings = recipe.eyes or (Eyes(backbone) if backbone else None)
        if settings is None:
            raise PolyglanceError(
                f"{path} was trained on stored features: give --backbone, the one that they were"
                " extracted with"
            )
        if backbone:
            settings = replace(settings, backbone=backbone)
        eyes = open_eyes(settings, device)
        encoder = load_encoder(weights.folder(recipe.encoder), dropout=0.0)
        model: UC2 | M3P
        if isinstance(recipe, UC2Recipe):
            model = UC2(UC2Config(encoder.config, eyes.width, form=recipe.form), encoder)
        else:
            config = M3PConfig(
                encoder=encoder.config,
                languages=_languages(path.parent if stage else path),
                visual_width=eyes.width,
                labels=recipe.labels,
                layout=recipe.layout,
            )
            model = M3P(config, encoder)
        begin_from(model, path if stage else _last_stage(path))
        tokenizer = open_tokenizer(recipe.encoder)
        return cls(model.to(device), tokenizer, eyes, settings, longest=recipe.longest_text)

    def explain(
        self,
        picture: str | Path,
        sentence: str,
        *,
        language: str | None = None,
        by: Way = "relevance",
        layers: Sequence[int] = (),
    ) -> Looks:
        """Where each word of a sentence looks; ``layers``, from 1, are those of attention.

        A model that answers questions was not trained to tell hidden words: by relevance
        its answer looks, and by attention the words of the question do.
        """
        model = self.model
        reader = model.reader if isinstance(model, Answering) else model
        most = reader.config.encoder.layers
        if any(not 1 <= layer <= most for layer in layers):
            raise PolyglanceError(f"the model has layers from 1 to {most}")
        encoding = self.tokenizer.analyse(sentence, max_length=self.longest)
        words = cut_at_words(sentence, encoding, spaces=not (language and is_spaceless(language)))
        if not words:
            raise PolyglanceError(f"there is no word in {sentence!r} to look from")
        device = self.eyes.device
        told = None
        if isinstance(reader, M3P) and language is not None:
            told = torch.from_numpy(reader.config.language_numbers([language])).to(device)
        text = Text(torch.tensor(encoding.ids), Packing.of([len(encoding.ids)]), told).to(device)
        table = look_at([Path(picture)], self.eyes, self.settings)
        regions, _ = table.take(np.array([0]))
        names, places = [name for name, _ in words], [places for _, places in words]
        if by == "attention":
            looks = attended(reader, text, regions, places, layers)
        elif isinstance(model, Answering):
            answer = int(model(text, regions)[0].argmax())
            looks = answered_from(model, text, regions, answer)[None]
            names = [f"→ {self.answers.names[answer][1] if self.answers else answer}"]
        else:
            mask = self.tokenizer.mask_id
            if mask is None:
                raise PolyglanceError("the tokenizer has no mask: look by attention instead")
            looks = told_from(model, text, regions, places, mask)
        side = round((looks.shape[1] - 1) ** 0.5)  # the whole picture comes first
        cells = looks[:, 1:].clamp(min=0).reshape(-1, side, side).float().cpu().numpy()
        return Looks(language, names, cells)


def cut_at_words(
    sentence: str, encoding: Encoding, *, spaces: bool = True
) -> list[tuple[str, list[int]]]:
    """Words and the places of their sub-words; without ``spaces`` every sub-word is one."""
    found: list[tuple[str, list[int]]] = []
    last = 0
    spans = encoding.spans or [(0, 0)] * len(encoding.ids)
    for place, (start, end) in enumerate(spans):
        piece = sentence[start:end]
        if not any(letter.isalnum() for letter in piece):
            continue
        between = sentence[last : start + len(piece) - len(piece.lstrip())]
        if found and spaces and not any(letter.isspace() for letter in between):
            word, places = found[-1]
            found[-1] = (word + between + piece, [*places, place])
        else:
            found.append((piece.strip(), [place]))
        last = end
    return found


def _last_stage(run: Path) -> Path:
    for name in _STAGES:
        if (run / name).is_dir():
            return run / name
    raise DataError(f"{run}: there is no stage of training to open, such as {_STAGES[0]}")


def _languages(run: Path) -> tuple[str, ...]:
    """The languages of an M3P run, in the order of its embeddings, as its report says."""
    import json

    try:
        return tuple(json.loads((run / "report.json").read_bytes())["languages"])
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{run / 'report.json'}: the run has not ended ({error})") from error
