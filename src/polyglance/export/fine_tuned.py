"""Load an exported model for fine-tuning, quantised as it is, and write it with new weights.

Training runs on machines without the package onnx: a run keeps the new weights in ``RUN/compact``
(`save_fine_tuned`), and `export_fine_tuned` writes the model from them, there or elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polyglance.config import as_plain, load
from polyglance.encoders.model_folder import (
    PICTURE,
    READER,
    READER_CONFIG,
    TEXT,
    VOCABULARY,
    ModelDescription,
    ModelFolder,
    checksum,
)
from polyglance.encoders.model_writer import write_folder
from polyglance.encoders.reader_files import has_reader, read_reader_config
from polyglance.errors import DataError, PolyglanceError, error_reason
from polyglance.export.meta_model import build_meta_model
from polyglance.export.to_torch import OLD_PREFIX, read_compact_state
from polyglance.models.mmp import MMP, MMPConfig
from polyglance.nn.compression import compact_state, load_quantised_layers
from polyglance.records import atomic_write
from polyglance.utils.bounded import parse_json
from polyglance.utils.folder_format import check_format

GRAPHS = (TEXT, PICTURE)
COMPACT = "compact"
"""Folder of a run with the fine-tuned weights."""
SYSTEM = "fine_tune"
FORMAT = 1
"""Version of ``compact/config.json``."""
_WORDS = "encoder.words."
"""Prefix of the word table, which is not trained."""
_LAYER = re.compile(r"encoder\.layers\.(\d+)\.")
_PARAMETRISED = ".parametrizations.weight.original"


@dataclass(frozen=True)
class FineTuned:
    """What ``RUN/compact/config.json`` holds beside its format and system."""

    model: str
    """The model that was fine-tuned, by name or folder."""
    fingerprint: str
    """Its fingerprint."""
    name: str
    languages: tuple[str, ...] = ()
    figures: dict[str, Any] = field(default_factory=dict)
    system: str = SYSTEM
    format: int = FORMAT


def load_quantised(source: ModelFolder) -> MMP:
    """Return an exported model in torch with its quantisation, to be trained with it.

    Weights are rounded in every forward pass, with straight-through gradients; those of the word
    table are fixed. Its image network is the module ``image_backbone``.
    """
    state = {name: torch.tensor(value) for name, value in read_compact_state(source).items()}
    config = MMPConfig.from_json(source.description.architecture)
    model = build_meta_model(config, {name: tuple(value.shape) for name, value in state.items()})
    model.encoder.words = nn.Identity()  # hundreds of megabytes
    model.to_empty(device="cpu")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".classifier." in name:  # which MMP does not use
                parameter.zero_()
    load_quantised_layers(model, state)
    return model


def fine_tuned_state(
    model: MMP, source: ModelFolder, trained: Collection[str]
) -> dict[str, Tensor]:
    """Return the compact state of a fine-tuned model; what was not trained is that of before.

    To quantise a weight again may change its scale in the last digit.

    Args:
        model: The model after training.
        source: The model before.
        trained: Names of the parameters that were trained.
    """
    changed = {name.replace(_PARAMETRISED, ".weight") for name in trained}
    state = compact_state(model)
    for name, value in read_compact_state(source).items():
        if name.removesuffix(".codes").removesuffix(".scales") not in changed:
            state[name] = torch.tensor(value)
    return state


def save_fine_tuned(state: Mapping[str, Tensor], settings: FineTuned, run: Path) -> None:
    """Write ``RUN/compact``, from which `export_fine_tuned` makes a model.

    Args:
        state: What `fine_tuned_state` returns.
        settings: The model's name, and the model that it was.
        run: The run folder.
    """
    from safetensors.torch import save_file

    folder = run / COMPACT
    folder.mkdir(parents=True, exist_ok=True)
    own = {name: value for name, value in state.items() if not name.startswith(_WORDS)}
    save_file(own, folder / "compact.safetensors")
    with atomic_write(folder / "config.json") as file:
        file.write(json.dumps(as_plain(settings), indent=1, ensure_ascii=False) + "\n")


def export_fine_tuned(
    run: Path, folder: Path, name: str | None = None, source: ModelFolder | None = None
) -> ModelDescription:
    """Write the model of a run of fine-tuning; this takes the package onnx.

    Args:
        run: The run.
        folder: Where to write; a model that is there is replaced.
        name: The model's name; None for that of the recipe.
        source: The model that was fine-tuned; None opens it as the run names it.

    Returns:
        The description of the model.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        plain = parse_json((run / COMPACT / "config.json").read_bytes())
        check_format(plain, FORMAT, run)
        settings = load(FineTuned, plain)
        state = load_file(run / COMPACT / "compact.safetensors")
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DataError(
            f"{run} holds no fine-tuned model that can be exported ({error_reason(error)}): run the"
            " recipe again"
        ) from error
    source = source or ModelFolder.open(settings.model)
    if source.description.fingerprint != settings.fingerprint:
        raise PolyglanceError(
            f"{source.path} is not the model that {run} fine-tuned, but perhaps a later edition:"
            " export with the version of Polyglance that fine-tuned it, or fine-tune again"
        )
    return write_fine_tuned(
        source,
        state,
        folder,
        name=name or settings.name,
        languages=settings.languages,
        figures=settings.figures,
    )


def write_fine_tuned(
    source: ModelFolder,
    state: Mapping[str, Tensor],
    folder: Path,
    *,
    name: str,
    languages: Sequence[str],
    figures: Mapping[str, Any],
) -> ModelDescription:
    """Write a model's folder with other weights in the same graphs.

    A calibration is left out, since it belongs to the vectors of before. Where pictures keep their
    vectors, libraries of the source stay valid, and a reader is taken along if the layers of the
    text encoder that it takes are as they were.

    Args:
        source: The model that was fine-tuned.
        state: Its weights now, from `fine_tuned_state` or `compact_state`.
        folder: Where to write.
        name: The model's name.
        languages: Its training languages.
        figures: Evaluation results to record.
    """
    contents = {VOCABULARY: source.read_file(VOCABULARY)}
    changed = dict[str, set[str]]()
    for graph in GRAPHS:
        contents[graph], changed[graph] = replace_weights(source.read_file(graph), state)
    before = source.description
    same_pictures = (*before.same_pictures_as, before.fingerprint)
    description = replace(
        before,
        name=name,
        version="1",
        files={file: checksum(content) for file, content in contents.items()},
        languages=tuple(languages),
        figures=dict(figures),
        same_vectors_as=None,
        same_pictures_as=() if changed[PICTURE] else same_pictures,
    )
    if has_reader(source) and not changed[PICTURE]:
        reader = read_reader_config(source)
        if not _reaches(changed[TEXT], reader.text_layers):
            own = replace(reader, model=description.fingerprint).to_bytes()
            extra = {READER: source.read_file(READER), READER_CONFIG: own}
            contents |= extra
            files = {file: checksum(content) for file, content in extra.items()}
            description = replace(description, files={**description.files, **files})
    write_folder(folder, contents, description)
    return description


def _reaches(changed: Collection[str], text_layers: int) -> bool:
    """Return whether changed weights change the states after so many layers of the text encoder."""
    for name in changed:
        layer = _LAYER.match(name)
        if name.startswith("encoder.") and (layer is None or int(layer[1]) < text_layers):
            return True
    return False


def replace_weights(graph: bytes, state: Mapping[str, Tensor]) -> tuple[bytes, set[str]]:
    """Put the weights of a state into an ONNX graph; the word table stays.

    Returns:
        The graph, the very bytes that were given if all weights are the same, and the names of
        those that are not.
    """
    import onnx
    from onnx import numpy_helper

    model = onnx.ModelProto.FromString(graph)
    changed = set[str]()
    for tensor in model.graph.initializer:
        if tensor.name.startswith(("/", _WORDS)):
            continue
        old = numpy_helper.to_array(tensor)
        weight = state.get(OLD_PREFIX.sub("image_backbone.", tensor.name))
        new = None if weight is None else weight.numpy()
        if new is None or new.shape != old.shape:
            raise PolyglanceError(f"the weights of {tensor.name} do not fit: fine-tune again")
        new = np.ascontiguousarray(new, old.dtype)
        if new.tobytes() != old.tobytes():
            changed.add(tensor.name)
            tensor.CopyFrom(numpy_helper.from_array(new, tensor.name))
    content: bytes = model.SerializeToString() if changed else graph
    return content, changed
