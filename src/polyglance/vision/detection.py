"""Objects in pictures, found by a detector: of what kind, where, and how sure.

detector = open_detector("ssdlite-mobilenet-v2")
for found in detector.find(pixels):      # (n, size, size, RGB)
    print([detector.names[kind] for kind in found.kinds], found.boxes)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from polyglance import weights
from polyglance.errors import DataError, PolyglanceError
from polyglance.vision.devices import check_device
from polyglance.vision.labels import object_names
from polyglance.vision.ssdlite import Network
from polyglance.vision.torch_backbone import read_weights

Floats = NDArray[np.float32]

_OVERLAP = 0.5
"""Of two boxes of the same kind that share more than this, the surer one stays."""
_AT_ONCE = 64
"""Pictures that a network looks at at a time."""


@dataclass(frozen=True, eq=False)
class Objects:
    """What was found in one picture, surest first."""

    kinds: NDArray[np.int64]
    """Numbers of names that the detector knows."""
    scores: Floats
    """How sure it is of each, from 0 to 1."""
    boxes: Floats
    """Left, top, right and bottom in shares of the picture."""

    def __len__(self) -> int:
        return len(self.kinds)


class Detector:
    """A network that finds objects of the kinds that it knows."""

    def __init__(
        self, folder: str, *, device: str = "cpu", least: float = 0.15, most: int = 100
    ) -> None:
        """By name or folder; of each picture the ``most`` objects it is at ``least`` so sure of."""
        check_device(device)
        path = weights.folder(folder)
        config, state = read_weights(path)
        try:
            self.network = Network(state).eval().requires_grad_(False).to(device)
            self.size = int(config["image_size"])
            names = object_names(config["labels"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DataError(f"{path} holds no detector ({error})") from error
        self.name, self.names, self.least, self.most = folder, names, least, most
        self._named = np.array([name is not None for name in names])
        self.device = torch.device(device)

    @torch.inference_mode()
    def find(self, pictures: NDArray[np.uint8]) -> list[Objects]:
        """The objects in each of (n, size, size, RGB) pictures."""
        found: list[Objects] = []
        for start in range(0, len(pictures), _AT_ONCE):
            block = pictures[start : start + _AT_ONCE]
            pixels = torch.from_numpy(np.require(block, requirements=["C", "W"]))
            shares = pixels.to(self.device, torch.float32) * (2 / 255) - 1
            boxes, sure = self.network(shares.permute(0, 3, 1, 2))
            seen = zip(boxes.cpu().numpy(), sure.cpu().numpy(), strict=True)
            found += [self._surest(*picture) for picture in seen]
        return found

    def _surest(self, boxes: Floats, sure: Floats) -> Objects:
        """Each object once, where the network saw it in many boxes."""
        places, kinds = np.nonzero((sure >= self.least) & self._named)
        scores = sure[places, kinds]
        order = np.argsort(-scores, kind="stable")
        kept = order[_apart(boxes[places[order]], kinds[order], self.most)]
        return Objects(kinds[kept].astype(np.int64), scores[kept], boxes[places[kept]])


def open_detector(
    name: str = "ssdlite-mobilenet-v2", *, least: float = 0.15, device: str = "cpu"
) -> Detector:
    """Load a detector by name, or from a folder of such weights."""
    if name in weights.ENTRIES and name not in KNOWN:
        raise PolyglanceError(f"{name} finds no objects: there is {', '.join(KNOWN)}")
    return Detector(name, device=device, least=least)


KNOWN = ("ssdlite-mobilenet-v2",)
"""Names of known detectors."""


def _apart(boxes: Floats, kinds: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The first of boxes, best first, that overlap with none of their kind kept before them."""
    # Moved by its kind, a box meets none of another.
    moved = boxes + 2 * kinds[:, None]
    left, top, right, bottom = moved.T
    areas = (right - left) * (bottom - top)
    kept: list[np.int64] = []
    rest = np.arange(len(boxes))
    while len(rest) and len(kept) < most:
        best, rest = rest[0], rest[1:]
        kept.append(best)
        across = np.minimum(right[rest], right[best]) - np.maximum(left[rest], left[best])
        down = np.minimum(bottom[rest], bottom[best]) - np.maximum(top[rest], top[best])
        shared = np.maximum(across, 0) * np.maximum(down, 0)
        rest = rest[shared <= _OVERLAP * (areas[rest] + areas[best] - shared)]
    return np.array(kept, np.int64)
