"""A small dual encoder with a reader of random weights, in torch and as a folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from helpers.small_mmp import WIDTH, SmallModel, small_model, tokenizer
from polyglance.encoders.model_folder import ModelFolder
from polyglance.encoders.model_writer import write_copy
from polyglance.encoders.reader_files import ReaderConfig
from polyglance.export.reader import CompactReader, reader_contents
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.models.vqa import VQAModel
from polyglance.nn.linear_compression import linear_compact_state, quantise_linears
from polyglance.nn.upper_encoder import UpperEncoder

ANSWERS = {"en": ("yes", "no", *(f"answer {n}" for n in range(70))), "vi": ("có", "không")}
LEXICON = {"en": {"is": 9, "this": 8, "a": 7, "dog": 3}, "vi": {"đây": 9, "là": 8, "chó": 3}}
GRID = 2
"""Cells per side that the small image network makes of 64 pixels."""


@dataclass(frozen=True)
class SmallReader:
    """A reader, quantised, and the dual encoder whose words and cells it takes."""

    dual: SmallModel
    model: VQAModel
    settings: CompactReader

    def export(self, folder: Path, *, exact: bool = True) -> Path:
        """Export the dual encoder with the reader."""
        source = ModelFolder.open(self.dual.export(folder.with_name(f"{folder.name}-dual")))
        config = replace(self.settings.reader, model=source.description.fingerprint)
        settings = replace(self.settings, reader=config)
        contents = reader_contents(compact(self.model), settings, exact=exact)
        write_copy(source, folder, {}, contents)
        return folder


@cache
def small_reader(text_layers: int = 0, image_layers: int = 0) -> SmallReader:
    """Return a reader whose random weights are large enough for every part to matter; shared."""
    dual = small_model()
    torch.manual_seed(1)
    below = dual.model.encoder.eval().requires_grad_(False)
    encoder = UpperEncoder(below, text_layers, num_layers=2, dropout=0.0)
    config = UC2Config(encoder.config, WIDTH, image_layers=image_layers)
    model = VQAModel(UC2(config, encoder), 74)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.2)
        elif name.endswith("bias"):
            nn.init.normal_(parameter, std=0.1)
    nn.init.constant_(model.cross_encoder.feature_norm.weight, 4.0)  # what is seen counts
    model.fold_answer_embeddings()
    quantise_linears(model)
    reader = ReaderConfig(
        "", 20, GRID, ANSWERS, text_layers=text_layers, dual_weight=2.0, lexicon=LEXICON
    )
    settings = CompactReader("small", config, model.head_width, reader)
    return SmallReader(dual, model.eval(), settings)


def compact(model: VQAModel) -> dict[str, Tensor]:
    """Return the state that a run saves: without the words, which are the dual encoder's."""
    shared = ("cross_encoder.encoder.words.", "cross_encoder.word_bias")
    state = linear_compact_state(model)
    return {name: value for name, value in state.items() if not name.startswith(shared)}


__all__ = ["ANSWERS", "GRID", "SmallReader", "compact", "small_reader", "tokenizer"]
