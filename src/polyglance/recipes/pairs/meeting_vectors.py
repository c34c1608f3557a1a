"""Vectors of pictures by where two towers meet (`polyglance.models.meeting`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.models.meeting import Meeting
from polyglance.recipes.pairs.region_splits import Eyes, look_again
from polyglance.training.region_table import RegionTable
from polyglance.vision.torch_backbone import TorchBackbone

if TYPE_CHECKING:
    from PIL.Image import Image

_AT_ONCE = 256
"""Pictures of which vectors are made at a time."""


@torch.no_grad()
def picture_vectors(meeting: Meeting, regions: RegionTable, *, view: int = 0) -> Tensor:
    """A unit vector for each picture, as it is seen in one view."""
    found = []
    for start in range(0, len(regions), _AT_ONCE):
        items = np.arange(start, min(start + _AT_ONCE, len(regions)))
        seen, _ = regions.take(items, view=view)
        found.append(meeting.pictures(seen.features, seen.packing))
    return torch.cat(found)


def closer_vectors(
    meeting: Meeting, pictures: Sequence[str | Path | Image], eyes: TorchBackbone, settings: Eyes
) -> NDArray[np.float32]:
    """What a picture's vectors have in common over all looks: of each size, plain and mirrored.

    Eyes give every cell of their map here, whatever grid the reader is given.
    """
    found = []
    for start in range(0, len(pictures), _AT_ONCE):
        some, views = pictures[start : start + _AT_ONCE], []
        for size in (settings.size, *settings.looks):
            alone = replace(settings, size=size, looks=(), grid=None)
            table = look_again(some, eyes, alone, both=True)
            views += [picture_vectors(meeting, table, view=view) for view in range(table.views)]
        common = torch.nn.functional.normalize(torch.stack(views).mean(0), dim=1)
        found.append(common.float().cpu().numpy())
    return np.concatenate(found)
