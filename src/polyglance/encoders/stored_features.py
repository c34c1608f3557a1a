"""Encode pictures and clips by features that an external network has extracted.

    encoder = with_features(polyglance.load("models/mmp-msrvtt"), ["msrvtt/r2plus1d", "msrvtt/s3d"])
    encoder.encode_texts(["a dog"]) @ encoder.encode_pictures(["clips/video0.mp4"]).T

The files themselves are not opened: their features are found by path, file name or id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from polyglance.encoders.inputs import as_list
from polyglance.encoders.protocol import Encoder, FeatureEncoder, Picture, Vectors
from polyglance.errors import PolyglanceError, printable
from polyglance.records import Record
from polyglance.vision.feature_sources import FeatureSource, open_features


class StoredFeatureEncoder:
    """An `Encoder` of texts, and of files whose features are stored."""

    def __init__(self, encoder: Encoder, source: FeatureSource) -> None:
        """Take a model of features and the features; both must have one width."""
        if not isinstance(encoder, FeatureEncoder) or encoder.feature_input is None:
            raise PolyglanceError(f"{encoder.name} takes pictures and no features: leave those out")
        if source.width != encoder.feature_input.width:
            raise PolyglanceError(
                f"{encoder.name} takes features of width {encoder.feature_input.width}, and these"
                f" have {source.width}: give the stores of all networks that it was trained on, in"
                " the same order"
            )
        self._texts, self._features, self._source = encoder, encoder, source

    @property
    def name(self) -> str:
        """The model's name."""
        return self._texts.name

    @property
    def width(self) -> int:
        """Dimension of the vectors."""
        return self._texts.width

    @property
    def fingerprint(self) -> str:
        """The model's fingerprint; features of the same networks give the same vectors."""
        return self._texts.fingerprint

    def encode_texts(self, texts: Sequence[str], *, language: str | None = None) -> Vectors:
        """See `Encoder.encode_texts`."""
        return self._texts.encode_texts(texts, language=language)

    def encode_pictures(self, pictures: Sequence[Picture]) -> Vectors:
        """Encode pictures and clips, given as files, by their stored features."""
        files = as_list(pictures)
        for picture in files:
            if not isinstance(picture, str | Path):
                raise PolyglanceError(
                    f"{self.name} takes features and no pixels: give files whose features are"
                    " stored"
                )
        return self.encode_files([str(picture) for picture in files])

    def has_features(self, path: str) -> bool:
        """Return whether features of a file are stored."""
        return self._find(path) is not None

    def encode_files(self, paths: Sequence[str]) -> Vectors:
        """Return unit vectors of files, (files, width), by their stored features."""
        names = [self._find(path) for path in paths]
        return self._encode(names, paths)

    def encode_records(self, records: Sequence[Record]) -> Vectors:
        """Return unit vectors of a manifest's records, (records, width)."""
        names = [self._source.find(record) for record in records]
        return self._encode(names, [record.key for record in records])

    def _encode(self, names: Sequence[str | None], keys: Sequence[str]) -> Vectors:
        for name, key in zip(names, keys, strict=True):
            if name is None:
                raise PolyglanceError(
                    f"no features of {printable(key)} are stored: import them, or leave it out"
                )
        return self._features.encode_features([self._source.rows(name) for name in names if name])

    def _find(self, path: str) -> str | None:
        """Return the name of a file's features, stored under any end of its path."""
        for end in _path_ends(path):
            name = self._source.find(Record(video=end))
            if name is not None:
                return name
        return None


def with_features(encoder: Encoder, paths: Sequence[str | Path]) -> StoredFeatureEncoder:
    """Return an encoder of files by their stored features.

    Args:
        encoder: A model of features, as `polyglance export` makes it.
        paths: Feature stores; vectors of several are concatenated in this order.
    """
    taken = encoder.feature_input if isinstance(encoder, FeatureEncoder) else None
    source = open_features(
        [Path(path) for path in paths],
        prepend_global=taken is not None and taken.prepend_global,
    )
    return StoredFeatureEncoder(encoder, source)


def _path_ends(path: str) -> Iterator[str]:
    """Yield a path and its ends: ``a/b/c.mp4``, ``b/c.mp4``, ``c.mp4``."""
    parts = PurePosixPath(path.replace("\\", "/")).parts
    for start in range(len(parts)):
        yield PurePosixPath(*parts[start:]).as_posix()
