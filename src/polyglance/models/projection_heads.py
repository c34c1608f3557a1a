"""Where the two towers of a trained MMP meet: what makes one vector of all that each has read.

Taken out of a model (`polyglance.export.split_model`), it tells another model that begins with
the same towers how near a sentence is to a picture.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from polyglance.config import as_plain, load
from polyglance.errors import DataError, PolyglanceError
from polyglance.models.mmp import MMP
from polyglance.nn.packing import Packing
from polyglance.nn.pooling import MeanHead, PoolingHead

_STATE, _CONFIG = "model.safetensors", "config.json"


@dataclass(frozen=True)
class ProjectionHeadsConfig:
    """Its shape."""

    visual_width: int
    width: int
    pooling_layers: int
    pooling_heads: int
    model: str = ""
    """The fingerprint of the model that it was taken from: vectors of no other fit."""
    image_backbone: str = ""
    """The fingerprint of that model's picture network, as a folder of its own."""

    def check_compatible(self, visual_width: int, eyes: str, width: int | None = None) -> None:
        """Refuse eyes, by the width of what they see and their fingerprint, or an encoder."""
        other = bool(self.image_backbone) and self.image_backbone != eyes
        if visual_width != self.visual_width or other:
            raise PolyglanceError(
                "the meeting is of other eyes: name those that 'polyglance weights unpack' wrote"
                " beside it as eyes.backbone"
            )
        if width is not None and width != self.width:
            raise PolyglanceError(
                "the meeting is of another encoder: name the one that 'polyglance weights unpack'"
                " wrote beside it"
            )


class ProjectionHeads(nn.Module):
    """The heads of MMP's towers, of a model whose sentences are the mean of their words."""

    def __init__(self, config: ProjectionHeadsConfig) -> None:
        super().__init__()
        self.config = config
        self.visual_input = nn.Linear(config.visual_width, config.width)
        self.visual_pooling = PoolingHead(
            config.width, layers=config.pooling_layers, heads=config.pooling_heads, dropout=0.0
        )
        self.text_pooling = MeanHead(config.width)

    def encode_images(self, features: Tensor, visuals: Packing) -> Tensor:
        """A unit vector for each picture, of its whole and its cells."""
        return F.normalize(self.visual_pooling(self.visual_input(features), visuals), dim=1)

    def encode_texts(self, rows: Tensor, sentences: Packing) -> Tensor:
        """A unit vector for each sentence, of what the encoder makes of its sub-words."""
        return F.normalize(self.text_pooling(rows, sentences), dim=1)


def extract_projection_heads(
    model: MMP, *, fingerprint: str = "", eyes: str = ""
) -> ProjectionHeads | None:
    """The meeting of a model's towers, with what tells both again; None if of another kind."""
    config = model.config
    if (
        config.text_pooling != "mean"
        or config.share_pooling
        or config.width != config.encoder.hidden_size
        or config.text_layer not in (None, config.encoder.num_layers)
    ):
        return None
    meeting = ProjectionHeads(
        ProjectionHeadsConfig(
            config.visual_width,
            config.width,
            config.pooling_layers,
            config.pooling_heads,
            fingerprint,
            eyes,
        )
    )
    names = meeting.state_dict().keys()
    meeting.load_state_dict({n: value for n, value in model.state_dict().items() if n in names})
    return meeting.eval()


def save_projection_heads(meeting: ProjectionHeads, folder: Path) -> None:
    """Write it as a folder of weights."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(meeting.state_dict(), folder / _STATE)
    config = {"model_type": "meeting", **as_plain(meeting.config)}
    (folder / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def load_projection_heads(folder: str | Path) -> ProjectionHeads:
    """Read what `write_meeting` wrote."""
    path = Path(folder).expanduser()
    try:
        config = json.loads((path / _CONFIG).read_text(encoding="utf-8"))
        if config.pop("model_type", None) != "meeting":
            raise ValueError("other weights lie there")
        with torch.device("meta"):
            meeting = ProjectionHeads(load(ProjectionHeadsConfig, config))
        meeting.load_state_dict(load_file(path / _STATE), assign=True)
    except (
        *(OSError, ValueError, TypeError, AttributeError, ZeroDivisionError),
        *(RuntimeError, SafetensorError),
    ) as error:
        raise DataError(
            f"{path} does not hold where two towers meet ({' '.join(str(error).split())[:200]}):"
            " 'polyglance weights unpack' writes it"
        ) from error
    except PolyglanceError as error:
        raise DataError(f"{path / _CONFIG}: {error}") from error
    return meeting.eval()
