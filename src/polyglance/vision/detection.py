"""Object detection: classes, scores and boxes.

detector = open_detector("ssdlite-mobilenet-v2")
for detections in detector.detect(pixels):      # (n, size, size, RGB)
    print([detector.class_names[label] for label in detections.class_ids], detections.boxes)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from polyglance import weights
from polyglance.errors import DataError, PolyglanceError
from polyglance.utils.fingerprint import file_sha256
from polyglance.vision.devices import check_device
from polyglance.vision.labels import object_names
from polyglance.vision.ssdlite import Network
from polyglance.vision.torch_backbone import read_weights

Floats = NDArray[np.float32]

_MAX_IOU = 0.5
"""Non-maximum suppression drops boxes of a class that overlap a better one by more."""
_BATCH_SIZE = 64


@dataclass(frozen=True, eq=False)
class Detections:
    """The objects of one picture, in decreasing order of score."""

    class_ids: NDArray[np.int64]
    """(n,): indices into the detector's ``class_names``."""
    scores: Floats
    """(n,): from 0 to 1."""
    boxes: Floats
    """(n, 4): left, top, right and bottom in fractions of the picture."""
    class_scores: Floats | None = None
    """(n, classes): the scores of all classes for each box, from 0 to 1."""

    def __len__(self) -> int:
        return len(self.class_ids)


class Detector:
    """A detector of objects of a fixed set of classes."""

    def __init__(
        self, folder: str, *, device: str = "cpu", min_score: float = 0.15, max_objects: int = 100
    ) -> None:
        """Load a detector.

        Args:
            folder: A name of known weights, or a folder.
            device: Torch's device.
            min_score: Objects below this score are dropped.
            max_objects: Maximum number of objects per picture.
        """
        check_device(device)
        path = weights.folder(folder)
        config, state = read_weights(path)
        try:
            self.network = Network(state).eval().requires_grad_(False).to(device)
            self.size = int(config["image_size"])
            names = object_names(config["labels"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DataError(f"{path} is not a detector ({error})") from error
        self.name, self.class_names = folder, names
        self.fingerprint = file_sha256(path / "model.safetensors")
        self.min_score, self.max_objects = min_score, max_objects
        self._has_name = torch.tensor([name is not None for name in names])
        self.device = torch.device(device)

    @torch.inference_mode()
    def detect(self, pictures: NDArray[np.uint8]) -> list[Detections]:
        """Return the objects of each of (n, side, side, RGB) pictures, resized where need be."""
        detections: list[Detections] = []
        for start in range(0, len(pictures), _BATCH_SIZE):
            block = pictures[start : start + _BATCH_SIZE]
            pixels = torch.from_numpy(np.require(block, requirements=["C", "W"]))
            scaled = pixels.to(self.device, torch.float32).permute(0, 3, 1, 2) * (2 / 255) - 1
            if scaled.shape[-1] != self.size:
                scaled = F.interpolate(
                    scaled, size=(self.size, self.size), mode="bilinear", antialias=True
                )
            detections += self._select(*self.network(scaled))
        return detections

    def _select(self, boxes: Tensor, scores: Tensor) -> list[Detections]:
        """Return the best of (n, anchors, 4) boxes by (n, anchors, classes) scores."""
        found = (scores >= self.min_score) & self._has_name.to(scores.device)
        pictures, anchors, class_ids = found.nonzero(as_tuple=True)
        # Few of the boxes leave the device.
        chosen_boxes, chosen_scores = boxes[pictures, anchors].cpu(), scores[pictures, anchors]
        class_scores, own_classes = chosen_scores.cpu().numpy(), class_ids.cpu().numpy()
        own_scores = class_scores[np.arange(len(own_classes)), own_classes]
        ends = np.cumsum(np.bincount(pictures.cpu().numpy(), minlength=len(boxes)))
        detections = []
        for first, last in zip(np.insert(ends[:-1], 0, 0), ends, strict=True):
            order = first + np.argsort(-own_scores[first:last], kind="stable")
            best = order[
                _non_maximum_suppression(
                    chosen_boxes.numpy()[order], own_classes[order], self.max_objects
                )
            ]
            detections.append(
                Detections(
                    own_classes[best],
                    own_scores[best],
                    chosen_boxes.numpy()[best],
                    class_scores[best],
                )
            )
        return detections


def open_detector(
    name: str = "ssdlite-mobilenet-v2",
    *,
    min_score: float = 0.15,
    max_objects: int = 100,
    device: str = "cpu",
) -> Detector:
    """Load a detector by name, or from a folder of its weights; see `Detector`."""
    if name in weights.ENTRIES and name not in DETECTORS:
        raise PolyglanceError(f"{name} is not a detector: give {' or '.join(DETECTORS)}")
    return Detector(name, device=device, min_score=min_score, max_objects=max_objects)


DETECTORS = ("ssdlite-mobilenet-v2",)
"""Names of known detectors."""


def _non_maximum_suppression(
    boxes: Floats, class_ids: NDArray[np.int64], max_objects: int
) -> NDArray[np.int64]:
    """Return the indices of boxes, given best first, that overlap no better one of their class."""
    left, top, right, bottom = boxes.T
    areas = (right - left) * (bottom - top)
    suppressed = np.zeros(len(boxes), bool)
    of_class: dict[int, NDArray[np.int64]] = {}
    selected: list[int] = []
    for best in range(len(boxes)):
        if len(selected) == max_objects:
            break
        if suppressed[best]:
            continue
        selected.append(best)
        class_id = int(class_ids[best])
        if class_id not in of_class:
            of_class[class_id] = np.flatnonzero(class_ids == class_id)
        rivals = of_class[class_id]
        across = np.minimum(right[rivals], right[best]) - np.maximum(left[rivals], left[best])
        down = np.minimum(bottom[rivals], bottom[best]) - np.maximum(top[rivals], top[best])
        intersection = np.maximum(across, 0) * np.maximum(down, 0)
        union = areas[rivals] + areas[best] - intersection
        suppressed[rivals[intersection > _MAX_IOU * union]] = True
    return np.array(selected, np.int64)
