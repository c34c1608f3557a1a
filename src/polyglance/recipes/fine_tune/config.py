"""Settings of fine-tuning."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from polyglance.config import validate_fields
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMPObjective
from polyglance.training.loop import LoopConfig


@dataclass(frozen=True)
class FineTuneRecipe:
    """Fine-tune an exported model of pictures; some hundred captioned pictures suffice."""

    model: str | None = None
    """Folder of the model, as ``polyglance export`` writes it; None for the default model."""
    captions: str = "captions.jsonl"
    """Pictures and their captions, inside the data folder: a manifest, the ``metadata.jsonl`` of an
    imagefolder, or a folder with a text file beside each picture. Where there is no
    ``captions.jsonl``, the data folder itself is taken as one of these."""
    held_out: float = 0.2
    """Share of the pictures that is not trained on; ``held-out.jsonl`` in the run lists them."""
    extra_train: tuple[str, ...] = ()
    """Further pictures and captions in the data folder, of any layout that ``captions`` may
    have. A picture that several name has the captions of all; one that is named twice, also by
    naming a manifest twice, is drawn twice as often."""
    validation: str | None = None
    """Pictures and captions in the data folder that choose the checkpoint, in all languages that
    they have, each time with the weights interpolated as they are written; None keeps the last.
    ``loop.validate_every`` says how often."""
    languages: tuple[str, ...] | None = None
    """Languages to train on; None for all."""
    language_weights: dict[str, float] = field(default_factory=dict)
    """How often captions in a language are drawn where those in others are drawn once, such as
    ``{fa: 3}``."""
    name: str = "fine-tuned"
    """Name of the model that is written."""
    batch: int = 32
    captions_per_image: int = 1
    """Captions of a picture in a step; 2 takes two languages where a picture has them."""
    max_text_tokens: int = 40
    keep_pictures: bool = False
    """Leave vectors of pictures exactly as they are, so that libraries of the model stay valid:
    texts alone are trained. Pictures, neither cropped nor mirrored, are encoded once, which makes
    steps many times faster."""
    frozen_text_layers: int = 0
    """Lower layers of the text encoder that stay exactly as they are, with all below them. The
    model's reader stays valid if these are all that it takes, and pictures are kept."""
    decode_workers: int | None = None
    """Processes that decode pictures where there are 10,000 or more; 0 for threads, None for one a
    core."""
    min_crop_area: float = 0.7
    mirror: bool = True
    """Whether pictures are mirrored at random: false where left and right matter."""
    backbone_lr_multiplier: float = 0.0
    """Learning-rate multiplier of the image network; 0 leaves it as it is, which is faster."""
    interpolation: float = 0.7
    """How far the weights go from the given model to the fine-tuned one, from 0 to 1. Less keeps
    more of what the model knew, such as languages without captions here (Wortsman et al. 2022)."""
    objective: MMPObjective = field(
        default_factory=lambda: MMPObjective(negatives="symmetric", temperature=0.05, intra=False)
    )
    loop: LoopConfig = field(default_factory=LoopConfig)

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 2, "2 or more", "batch")
        validate_fields(self, lambda value: value >= 1, "1 or more", "captions_per_image")
        validate_fields(self, lambda value: value >= 3, "3 or more", "max_text_tokens")
        validate_fields(
            self, lambda value: 0 < value < 1, "a share above 0 and below 1", "held_out"
        )
        validate_fields(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", "interpolation")
        validate_fields(
            self, lambda value: 0 < value <= 1, "a share above 0, up to 1", "min_crop_area"
        )
        counts = ("backbone_lr_multiplier", "frozen_text_layers", "decode_workers")
        validate_fields(self, lambda value: value >= 0, "0 or more", *counts)
        validate_fields(
            self,
            lambda weights: all(0 < weight < math.inf for weight in weights.values()),
            "finite numbers above 0; leave a language out with languages",
            "language_weights",
        )
        if self.keep_pictures and self.backbone_lr_multiplier > 0:
            raise PolyglanceError(
                "keep_pictures leaves the image network as it is: set backbone_lr_multiplier to 0"
            )
        changed = (self.min_crop_area, self.mirror) != (type(self).min_crop_area, type(self).mirror)
        if self.keep_pictures and changed:
            raise PolyglanceError(
                "keep_pictures encodes pictures whole, once: leave out min_crop_area and mirror"
            )
        if self.keep_pictures and (self.objective.intra or self.objective.cross):
            raise PolyglanceError(
                "keep_pictures trains on vectors of pictures alone, and equations 3 to 6 take more:"
                " set objective.intra and objective.cross to false"
            )
