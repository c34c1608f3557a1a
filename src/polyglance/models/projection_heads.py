"""The projection heads of a trained MMP: from the features of each encoder to the shared space.

`polyglance.export.split_model` extracts them from a model. Another model that is initialised
with the same encoders uses them to compare a sentence with an image by cosine similarity.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from polyglance.config import as_plain, load
from polyglance.errors import DataError, PolyglanceError
from polyglance.models.mmp import MMP
from polyglance.nn.meta import on_meta_device
from polyglance.nn.packing import Packing
from polyglance.nn.pooling import MeanHead, PoolingHead
from polyglance.utils.bounded import parse_json

_STATE, _CONFIG = "model.safetensors", "config.json"
_MODEL_TYPE = "projection_heads"


@dataclass(frozen=True)
class ProjectionHeadsConfig:
    """The shape of the heads, and the model that they belong to."""

    visual_width: int
    width: int
    pooling_layers: int
    pooling_heads: int
    model: str = ""
    """Fingerprint of the model that they were extracted from; only its vectors are comparable."""
    image_backbone: str = ""
    """Fingerprint of that model's image backbone, as a folder of its own."""

    def check_compatible(
        self, visual_width: int, image_backbone: str, width: int | None = None
    ) -> None:
        """Raise if the heads do not fit an image backbone or a text encoder.

        Args:
            visual_width: the size of the backbone's features.
            image_backbone: the backbone's fingerprint.
            width: the size of the text encoder's vectors; None to skip this check.
        """
        different = bool(self.image_backbone) and self.image_backbone != image_backbone
        if visual_width != self.visual_width or different:
            raise PolyglanceError(
                "these projection heads belong to a different image backbone: configure the one"
                " that 'polyglance weights split' wrote beside them under image_backbone"
            )
        if width is not None and width != self.width:
            raise PolyglanceError(
                "these projection heads belong to a different encoder: name the one that"
                " 'polyglance weights split' wrote beside them"
            )


class ProjectionHeads(nn.Module):
    """The heads of both encoders of an MMP with mean pooling of text."""

    def __init__(self, config: ProjectionHeadsConfig) -> None:
        super().__init__()
        self.config = config
        self.visual_input = nn.Linear(config.visual_width, config.width)
        self.visual_pooling = PoolingHead(
            config.width, layers=config.pooling_layers, heads=config.pooling_heads, dropout=0.0
        )
        self.text_pooling = MeanHead(config.width)

    def encode_images(self, features: Tensor, visuals: Packing) -> Tensor:
        """Return a unit vector per image, ``(images, width)``, from its global and cell features.

        ``features`` are ``(rows, visual_width)``.
        """
        return F.normalize(self.visual_pooling(self.visual_input(features), visuals), dim=1)

    def encode_texts(self, rows: Tensor, sentences: Packing) -> Tensor:
        """Return a unit vector per sentence from the text encoder's output, ``(tokens, width)``."""
        return F.normalize(self.text_pooling(rows, sentences), dim=1)


def extract_projection_heads(
    model: MMP, *, fingerprint: str = "", image_backbone: str = ""
) -> ProjectionHeads | None:
    """Copy the heads of a model, or return None if it has heads of another kind.

    Args:
        model: a trained model.
        fingerprint: of the model, recorded in the heads.
        image_backbone: the fingerprint of its image backbone, likewise.
    """
    config = model.config
    if (
        config.text_pooling != "mean"
        or config.share_pooling
        or config.width != config.encoder.hidden_size
        or config.text_layer not in (None, config.encoder.num_layers)
    ):
        return None
    heads = ProjectionHeads(
        ProjectionHeadsConfig(
            config.visual_width,
            config.width,
            config.pooling_layers,
            config.pooling_heads,
            fingerprint,
            image_backbone,
        )
    )
    names = heads.state_dict().keys()
    heads.load_state_dict({n: value for n, value in model.state_dict().items() if n in names})
    return heads.eval()


def save_projection_heads(heads: ProjectionHeads, folder: Path) -> None:
    """Write the heads as a folder of weights and configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(heads.state_dict(), folder / _STATE)
    config = {"model_type": _MODEL_TYPE, **as_plain(heads.config)}
    (folder / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def load_projection_heads(folder: str | Path) -> ProjectionHeads:
    """Load what `save_projection_heads` wrote, in evaluation mode."""
    path = Path(folder).expanduser()
    try:
        config = parse_json((path / _CONFIG).read_text(encoding="utf-8"))
        if config.pop("model_type", None) != _MODEL_TYPE:
            raise ValueError("it holds other weights")
        with on_meta_device():
            heads = ProjectionHeads(load(ProjectionHeadsConfig, config))
        heads.load_state_dict(load_file(path / _STATE), assign=True)
    except (
        *(OSError, ValueError, TypeError, AttributeError, ZeroDivisionError),
        *(RuntimeError, SafetensorError),
    ) as error:
        raise DataError(
            f"{path} does not hold projection heads ({' '.join(str(error).split())[:200]}):"
            " 'polyglance weights split' writes them"
        ) from error
    except PolyglanceError as error:
        raise DataError(f"{path / _CONFIG}: {error}") from error
    return heads.eval()
