"""Small models that read words beside pictures, as exported folders, with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from polyglance.models.answering import Answering
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.pretrained import load_encoder
from polyglance.recipes.pairs.folder import Description
from polyglance.recipes.pairs.model_folder import write_model
from polyglance.recipes.pairs.region_splits import Eyes
from polyglance.recipes.questions.folder import Description as AnsweringDescription
from polyglance.text import open_tokenizer
from small_models import WIDTH
from toy_corpus import make_encoder
from toy_questions import save_eyes

SIZE = 64
ANSWERS = {"en": ("red", "blue", "two"), "de": ("rot", "blau", "zwei")}


def make_parts(folder: Path, texts: Sequence[str]) -> Path:
    """An ``encoder`` whose tokenizer knows these texts, and ``eyes``."""
    torch.manual_seed(0)
    make_encoder(folder / "encoder", list(texts), layers=2)
    save_eyes(folder / "eyes", SIZE)
    return folder


def tiny_uc2(parts: Path) -> UC2:
    """Untrained, and lively enough for every part to count."""
    torch.manual_seed(0)
    encoder = load_encoder(parts / "encoder", dropout=0.0)
    return _lively(UC2(UC2Config(encoder.config, WIDTH), encoder))


def tiny_m3p(parts: Path, languages: tuple[str, ...] = ("en", "de")) -> M3P:
    """The same of M3P."""
    torch.manual_seed(0)
    encoder = load_encoder(parts / "encoder", dropout=0.0)
    config = M3PConfig(encoder.config, languages, visual_width=WIDTH, labels=7)
    return _lively(M3P(config, encoder))


def save_reader(
    folder: Path, parts: Path, model: UC2 | M3P, *, trust: float = 0.0, half: bool = False
) -> Path:
    """As ``polyglance export`` writes it."""
    eyes = Eyes(str(parts / "eyes"), size=SIZE)
    told = Description(model=model.config, eyes=eyes, longest_text=30, trust=trust)
    write_model(folder, model, open_tokenizer(parts / "encoder"), told, half=half)
    return folder


def save_answerer(folder: Path, parts: Path) -> Path:
    """One that answers questions in English and German."""
    model = Answering(tiny_uc2(parts), sum(map(len, ANSWERS.values())))
    told = AnsweringDescription(
        model=model.reader.config,
        answers=ANSWERS,
        loss="binary",
        eyes=Eyes(str(parts / "eyes"), size=SIZE),
        longest_text=30,
    )
    write_model(folder, _lively(model), open_tokenizer(parts / "encoder"), told)
    return folder


def _lively(model: Any) -> Any:
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()
