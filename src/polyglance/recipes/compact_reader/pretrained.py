"""Continue the training of a reader that a model comes with, from its 4-bit weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polyglance.encoders.graph_reader import read_graph
from polyglance.encoders.model_folder import READER, ModelFolder
from polyglance.encoders.reader_files import ReaderConfig, damaged, read_reader_config
from polyglance.errors import PolyglanceError
from polyglance.models.uc2 import UC2
from polyglance.models.vqa import VQAModel
from polyglance.nn.linear_compression import load_linear_compact_state
from polyglance.nn.packed_pairs import box_location
from polyglance.recipes.compact_reader.config import ReaderRecipe
from polyglance.vision.tokens import grid_boxes

_LOCATIONS = "cross_encoder.location"
_FIT_STEPS = 1000


@dataclass(frozen=True, eq=False)
class PretrainedReader:
    """The contents of ``reader.json`` and ``reader.onnx``."""

    config: ReaderConfig
    weights: dict[str, Tensor]
    """Large layers in 4 bits, as `load_linear_compact_state` takes them."""
    locations: Tensor
    """``(1 + cells, hidden_size)``: what the place of the whole picture, and of each cell of the
    reader's grid, adds to its row; the segment of images is part of it."""

    @classmethod
    def open(cls, name_or_folder: str, recipe: ReaderRecipe) -> PretrainedReader:
        """Read the reader of a model; an error says that its shape is not the recipe's."""
        folder = ModelFolder.open(name_or_folder)
        config = read_reader_config(folder)
        if config.model != ModelFolder.open(recipe.dual_encoder).description.fingerprint:
            raise PolyglanceError(
                f"the reader of {folder.path} takes words and cells of another model than"
                f" {recipe.dual_encoder}: set dual_encoder to the same folder as initialise_from"
            )
        try:
            weights = read_graph(folder.read_file(READER)).weights
            locations = weights[_LOCATIONS]
        except (ValueError, KeyError) as error:
            raise damaged(folder.path / READER, error) from error
        own = {
            name: torch.tensor(np.array(value))
            for name, value in weights.items()
            if not name.startswith("/") and name != _LOCATIONS
        }
        shape = {
            "text_layers": config.text_layers,
            "layers": _num_layers(own, "cross_encoder.encoder.layers."),
            "image_layers": _num_layers(own, "cross_encoder.image_layers.") > 0,
        }
        if any(value != getattr(recipe, name) for name, value in shape.items()):
            needed = ", ".join(f"{name}: {str(value).lower()}" for name, value in shape.items())
            raise PolyglanceError(
                f"the reader of {folder.path} has another shape than the recipe: set {needed}, or"
                " leave initialise_from out"
            )
        return cls(config, own, torch.tensor(np.array(locations), dtype=torch.float32))

    @property
    def boxes(self) -> Tensor:
        """The boxes of `locations`."""
        boxes = np.concatenate([[[0.0, 0.0, 1.0, 1.0]], grid_boxes(self.config.grid)])
        return torch.tensor(boxes, dtype=torch.float32)

    def load_into(self, model: VQAModel) -> None:
        """Copy all weights but those of locations, without rounding; they learn as any others."""
        model.fold_answer_embeddings()
        device = model.cross_encoder.image_segment.device
        weights = {name: value.to(device) for name, value in self.weights.items()}
        load_linear_compact_state(model, weights)

    def fit_locations(self, model: UC2) -> None:
        """Fit the projection of boxes, which no longer exists, to what it computed.

        For the default model's reader the error is 4 % of what distinguishes places from each
        other, and it takes four seconds.
        """
        x = box_location(self.boxes.double())
        rows, width = self.locations.double(), self.locations.shape[1]
        projection = torch.nn.Linear(x.shape[1], width).double()
        norm = torch.nn.LayerNorm(width, model.box_norm.eps).double()
        mean, spread = rows.mean(0), rows.std().expand(width)
        ones = torch.ones(len(x), 1, dtype=x.dtype)
        # Without the norm, it would be a linear regression: a good place to begin.
        begin = torch.linalg.lstsq(
            torch.cat([x, ones], dim=1), (rows - mean) / spread, driver="gelsd"
        ).solution
        fitted = [*projection.parameters(), *norm.parameters()]
        for parameter, value in zip(fitted, (begin[:-1].T, begin[-1], spread, mean), strict=True):
            parameter.data.copy_(value)
        optimiser = torch.optim.LBFGS(
            fitted,
            max_iter=_FIT_STEPS,
            history_size=20,
            line_search_fn="strong_wolfe",
            tolerance_grad=1e-12,
            tolerance_change=1e-15,
        )

        def loss() -> Tensor:
            optimiser.zero_grad()
            error: Tensor = (norm(projection(x)) - rows).square().mean()
            error.backward()  # type: ignore[no-untyped-call]
            return error

        with torch.enable_grad():
            optimiser.step(loss)  # type: ignore[no-untyped-call]
        model.region_box.load_state_dict(projection.state_dict())
        model.box_norm.load_state_dict(norm.state_dict())
        model.image_segment.data.zero_()


def _num_layers(weights: Iterable[str], prefix: str) -> int:
    return len({name[len(prefix) :].split(".")[0] for name in weights if name.startswith(prefix)})
