"""A model on disk: a folder with ``model.json``, which tells what else is in it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from polyglance.config import check, load
from polyglance.errors import DataError, PolyglanceError, reason
from polyglance.vision.pictures import Resize

DEFAULT = "polyglance-small"
"""The model that comes with Polyglance."""

DESCRIPTION = "model.json"
TEXT, PICTURE, VOCABULARY = FILES = ("text.onnx", "picture.onnx", "vocabulary.xz")
FORMAT = 2
"""Of the folder; raised when older code could not read a newer one."""

TextSide = Literal["sub-words", "words"]
"""What texts are cut into: pieces that all languages share, or the words of each language."""

_SHIPPED = Path(__file__).parent
WAY_OUT = "install Polyglance again, or export the model again"
"""Of a folder that is not as it was written."""


@dataclass(frozen=True)
class PictureSettings:
    """How a picture becomes what the picture network sees."""

    size: int
    mean: tuple[float, float, float]
    """Of red, green and blue, as of 0 to 255."""
    std: tuple[float, float, float]
    resize: Resize = "squash"

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "size")


@dataclass(frozen=True)
class Description:
    """What ``model.json`` holds."""

    name: str
    version: str
    width: int
    """Numbers in a vector."""
    longest: int
    """Sub-words of a text, specials included, or words; longer texts are cut."""
    pictures: PictureSettings
    architecture: dict[str, Any]
    """The settings of the model's class, to build it in torch."""
    files: dict[str, dict[str, Any]]
    """Bytes and SHA-256 of each file."""
    languages: tuple[str, ...] = ()
    """Those that it was trained in; a model of words knows no others."""
    figures: dict[str, Any] = field(default_factory=dict)
    """What was measured on it."""
    text: TextSide = "sub-words"
    """Which kind of vocabulary ``vocabulary.xz`` holds."""
    format: int = FORMAT

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "width")
        check(self, lambda value: value >= 3, "3 or more", "longest")

    @property
    def fingerprint(self) -> str:
        """A hash of all that decides on the vectors; of files, by the checksums they must have."""
        plain = asdict(self)
        decisive = {name: plain[name] for name in ("width", "longest", "pictures", "text", "files")}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        """The text of ``model.json``."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class ModelFolder:
    """A folder and its description."""

    path: Path
    description: Description

    @classmethod
    def open(cls, name_or_folder: str | Path | None = None) -> ModelFolder:
        """Find a model by its name or folder; without one, that which comes with Polyglance."""
        path = find(name_or_folder)
        return cls(path, _described(path / DESCRIPTION))

    def read(self, name: str) -> bytes:
        """The bytes of one of the model's files, as they were when it was exported."""
        path = self.path / name
        try:
            content = path.read_bytes()
        except OSError as error:
            raise DataError(f"{path} cannot be read ({reason(error)}): {WAY_OUT}") from error
        if fingerprint(content) != self.description.files.get(name):
            raise DataError(f"{path} is damaged, its checksum is wrong: {WAY_OUT}")
        return content


def _described(source: Path) -> Description:
    try:
        plain = json.loads(source.read_bytes())
        if plain["format"] <= FORMAT:
            return load(Description, plain)
    except OSError as error:
        raise DataError(f"{source} cannot be read ({reason(error)}): {WAY_OUT}") from error
    except (ValueError, KeyError, TypeError, PolyglanceError) as error:
        raise DataError(
            f"{source} does not describe a model ({reason(error)}): {WAY_OUT}"
        ) from error
    raise DataError(
        f"{source.parent} was made by a newer Polyglance: pip install --upgrade polyglance"
    )


def fingerprint(content: bytes) -> dict[str, Any]:
    """How a file is known again."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def shipped() -> list[str]:
    """The names of the models that come with Polyglance."""
    return sorted(path.parent.name for path in _SHIPPED.glob(f"*/{DESCRIPTION}"))


def find(name_or_folder: str | Path | None = None) -> Path:
    """The folder of a model; without a name, of that which comes with Polyglance."""
    name_or_folder = DEFAULT if name_or_folder is None else name_or_folder
    own = Path(name_or_folder).expanduser()
    if isinstance(name_or_folder, str) and name_or_folder in shipped():
        return _SHIPPED / name_or_folder
    if own.is_dir():
        return own
    names = ", ".join(shipped()) or "none in this checkout"
    raise PolyglanceError(
        f"there is no model {str(name_or_folder)!r}: give the folder of one, made by"
        " `polyglance export`, transformers, open_clip or sentence-transformers,"
        f" or the name of one that comes with Polyglance ({names})"
    )
