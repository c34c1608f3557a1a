"""A model on disk: a folder with ``model.json``, which describes the other files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from polyglance.config import load, validate_fields
from polyglance.errors import DataError, PolyglanceError, error_reason
from polyglance.utils.bounded import parse_json
from polyglance.vision.pictures import Resize

DEFAULT_MODEL = "polyglance-small"
"""The model that comes with Polyglance."""

DESCRIPTION_FILE = "model.json"
TEXT, PICTURE, VOCABULARY = FILES = ("text.onnx", "picture.onnx", "vocabulary.xz")
CONSISTENCY = "consistency.npz"
"""Trained cross-lingual consistency, of some models: see `polyglance.encoders.consistency`."""
CALIBRATION = "calibration.npz"
"""Probabilities of a match, of some models: see `polyglance.encoders.calibration`."""
READER, READER_CONFIG = "reader.onnx", "reader.json"
"""A cross-encoder on this model's words and cells, of some models: see
`polyglance.encoders.reader_files`."""
FEATURES = "features.onnx"
"""In place of ``picture.onnx`` where a model takes features of an external network."""
FORMAT = 4
"""Version of the folder's format that is written; older ones are read.

3 added models of features. 4 names the graphs' inputs as transformers does: ``input_ids``,
``attention_mask`` and normalised ``pixel_values``, before ``places``, ``lengths`` and ``pixels``.
"""
STANDARD_NAMES = 4
"""The first format with those names."""

TextUnits = Literal["sub-words", "words", "tokenizer"]
"""The tokens of texts: XLM-R's sub-words, the words of each language, or the sub-words of
another tokenizer, whose ``tokenizer.json`` is stored."""

_SHIPPED = Path(__file__).parent
_KEYS = {"max_length": "longest"}
"""Keys of ``model.json`` that differ from the field's name."""
REINSTALL_HINT = "install Polyglance again, or export the model again"
"""The fix for a folder that was changed or damaged."""


@dataclass(frozen=True)
class ImagePreprocessing:
    """How a picture becomes the input of the image network."""

    size: int
    mean: tuple[float, float, float]
    """Of red, green and blue, in 0 to 255."""
    std: tuple[float, float, float]
    resize: Resize = "squash"

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "size")


@dataclass(frozen=True)
class FeatureInput:
    """Features that a model takes in place of pictures: one vector a second, or a region."""

    width: int
    """Dimension of a vector; of several networks, all together."""
    max_tokens: int
    """Vectors beyond this number are dropped."""
    prepend_global: bool = False
    """Whether the vector of the whole picture or clip precedes the others."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "width", "max_tokens")


@dataclass(frozen=True)
class ModelDescription:
    """The contents of ``model.json``."""

    name: str
    version: str
    width: int
    """Dimension of the vectors."""
    max_length: int
    """Maximum number of tokens of a text, special tokens included; longer texts are truncated."""
    pictures: ImagePreprocessing | None
    """None for a model of features."""
    architecture: dict[str, Any]
    """The config of the model's class, to build it in torch."""
    files: dict[str, dict[str, Any]]
    """Size in bytes and SHA-256 of each file."""
    languages: tuple[str, ...] = ()
    """The training languages; a model of words knows no others."""
    figures: dict[str, Any] = field(default_factory=dict)
    """Evaluation results."""
    text: TextUnits = "sub-words"
    """The kind of vocabulary in ``vocabulary.xz``."""
    features: FeatureInput | None = None
    """None for a model of pictures."""
    same_vectors_as: str | None = None
    """Fingerprint of an earlier folder of this model with the same vectors, whose libraries
    stay valid; None for a model without one."""
    same_pictures_as: tuple[str, ...] = ()
    """Fingerprints of models with the same vectors of pictures and others of texts, from which
    this one was fine-tuned: their libraries are searched with it as they are."""
    format: int = FORMAT

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "width")
        validate_fields(self, lambda value: value >= 3, "3 or more", "max_length")
        if (self.pictures is None) == (self.features is None):
            raise PolyglanceError("a model takes either pictures or features")

    @property
    def picture_models(self) -> frozenset[str]:
        """Fingerprints of the models that are known to have this one's vectors of pictures."""
        return frozenset((self.fingerprint, *self.same_pictures_as))

    @property
    def fingerprint(self) -> str:
        """A hash of everything that determines the vectors; files count by their checksums."""
        if self.same_vectors_as is not None:
            return self.same_vectors_as
        plain = self._plain()
        relevant = {name: plain[name] for name in ("width", "longest", "pictures", "text", "files")}
        # These leave the vectors as they are.
        others = (CONSISTENCY, CALIBRATION, READER, READER_CONFIG)
        relevant["files"] = {n: file for n, file in plain["files"].items() if n not in others}
        if self.features is not None:
            relevant["features"] = plain["features"]
        return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        """Return the text of ``model.json``."""
        return json.dumps(self._plain(), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> ModelDescription:
        """Build a description from the parsed ``model.json``."""
        names = {key: name for name, key in _KEYS.items()}
        return load(cls, {names.get(key, key): value for key, value in plain.items()})

    def _plain(self) -> dict[str, Any]:
        plain = {_KEYS.get(name, name): value for name, value in asdict(self).items()}
        for name in ("features", "same_vectors_as", "same_pictures_as"):  # unknown to older code
            if not plain[name]:
                del plain[name]
        return plain


@dataclass(frozen=True)
class ModelFolder:
    """A model's folder and its description."""

    path: Path
    description: ModelDescription

    @classmethod
    def open(cls, name_or_folder: str | Path | None = None) -> ModelFolder:
        """Open a model by its name or folder; None for the one that comes with Polyglance."""
        path = find_model(name_or_folder)
        return cls(path, _read_description(path / DESCRIPTION_FILE))

    def read_file(self, name: str) -> bytes:
        """Return the content of one of the model's files, after verifying its checksum."""
        path = self.path / name
        try:
            content = path.read_bytes()
        except OSError as error:
            raise DataError(
                f"{path} cannot be read ({error_reason(error)}): {REINSTALL_HINT}"
            ) from error
        if checksum(content) != self.description.files.get(name):
            raise DataError(f"{path} is damaged, its checksum is wrong: {REINSTALL_HINT}")
        return content


def _read_description(source: Path) -> ModelDescription:
    try:
        plain = parse_json(source.read_bytes())
        if plain["format"] <= FORMAT:
            return ModelDescription.from_json(plain)
    except OSError as error:
        raise DataError(
            f"{source} cannot be read ({error_reason(error)}): {REINSTALL_HINT}"
        ) from error
    except (ValueError, KeyError, TypeError, PolyglanceError) as error:
        raise DataError(
            f"{source} does not describe a model ({error_reason(error)}): {REINSTALL_HINT}"
        ) from error
    raise DataError(
        f"{source.parent} was made by a newer Polyglance: pip install --upgrade polyglance"
    )


def checksum(content: bytes) -> dict[str, Any]:
    """Return the size and SHA-256 of a file's content, as ``model.json`` records them."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def shipped_models() -> list[str]:
    """Return the names of the models that come with Polyglance."""
    return sorted(path.parent.name for path in _SHIPPED.glob(f"*/{DESCRIPTION_FILE}"))


def is_model(name_or_folder: str | Path) -> bool:
    """Return whether this is a folder of Polyglance's format, or the name of a shipped model."""
    folder = Path(name_or_folder)
    if (folder / DESCRIPTION_FILE).is_file():
        return True
    return not folder.exists() and str(name_or_folder) in shipped_models()


def find_model(name_or_folder: str | Path | None = None) -> Path:
    """Return the folder of a model; None for the one that comes with Polyglance."""
    name_or_folder = DEFAULT_MODEL if name_or_folder is None else name_or_folder
    folder = Path(name_or_folder).expanduser()
    if isinstance(name_or_folder, str) and name_or_folder in shipped_models():
        return _SHIPPED / name_or_folder
    if folder.is_dir():
        return folder
    names = ", ".join(shipped_models()) or "none in this checkout"
    raise PolyglanceError(
        f"there is no model {str(name_or_folder)!r}: give the folder of one, made by"
        " `polyglance export`, transformers, open_clip or sentence-transformers,"
        f" or the name of one that comes with Polyglance ({names})"
    )
