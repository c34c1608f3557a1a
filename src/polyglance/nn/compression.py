"""Quantisation of a trained model, with quantisation-aware training.

Weights of linear layers have 4 bits each and a scale per block, those of convolutions 8 bits
and a scale per channel, and the word embeddings, by far the largest part, become a
`ProductQuantisedEmbedding`. Weights are rounded in every forward pass with straight-through
gradients (Bengio et al. 2013), so that the quantised model can be distilled from the original.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from polyglance.errors import PolyglanceError

BLOCK = 64
"""Weights of a linear layer that share a scale."""
_CODES = 256
"""Entries of a codebook, indexed by one byte."""


def quantise_4bit(weight: Tensor, block: int = BLOCK) -> tuple[Tensor, Tensor]:
    """Quantise a matrix to 4 bits: a weight is ``(code - 8) * scale``.

    The entry of greatest magnitude becomes exactly -8 times the scale, which may be negative,
    so that all sixteen codes are used. Scales are rounded to float16.

    Returns:
        Codes from 0 to 15, ``(rows, columns)``, and scales, ``(rows, columns / block)``.
    """
    rows, columns = weight.shape
    _check_block(columns, block)
    blocks = weight.float().view(rows, -1, block)
    farthest = blocks.gather(2, blocks.abs().argmax(2, keepdim=True))
    scales = (farthest / -8).half().float()
    codes = (blocks / torch.where(scales == 0, 1, scales)).round().clamp(-8, 7) + 8
    return codes.to(torch.uint8).view(rows, columns), scales.squeeze(2)


def pack_4bit(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes, two in a byte, ``(rows, blocks, bytes of a block)``, and scales in float16."""
    codes, scales = quantise_4bit(weight)
    pairs = codes.view(*scales.shape, -1, 2)
    return pairs[..., 0] | pairs[..., 1] << 4, scales.half()


def _check_block(columns: int, block: int) -> None:
    if columns % block:
        raise PolyglanceError(
            f"a row of {columns} weights is not divisible into blocks of {block}:"
            f" choose sizes that are multiples of {block}"
        )


def dequantise_4bit(codes: Tensor, scales: Tensor) -> Tensor:
    """Return the weights of these codes and scales."""
    blocks = codes.view(*scales.shape, -1).float() - 8
    return (blocks * scales.float()[:, :, None]).view(codes.shape)


def quantise_8bit(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise to codes from -127 to 127 and a scale per output channel."""
    scales = weight.float().flatten(1).abs().amax(1) / 127
    shape = (-1,) + (1,) * (weight.dim() - 1)
    codes = (weight.float() / torch.where(scales == 0, 1, scales).view(shape)).round()
    return codes.to(torch.int8), scales


def dequantise_8bit(codes: Tensor, scales: Tensor) -> Tensor:
    """Return the weights of these codes and scales."""
    return codes.float() * scales.view((-1,) + (1,) * (codes.dim() - 1))


class FakeQuantise(nn.Module):
    """A parametrisation: the rounded weight, with the gradient of the unrounded one."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits

    def forward(self, weight: Tensor) -> Tensor:
        """Return the rounded weight."""
        with torch.no_grad():
            rounded = (
                dequantise_4bit(*quantise_4bit(weight))
                if self.bits == 4
                else dequantise_8bit(*quantise_8bit(weight))
            )
        return weight + (rounded.to(weight.dtype) - weight).detach()


class ProductQuantisedEmbedding(nn.Module):
    """Word embeddings in few bytes, in the spirit of SMALR's hybrid embedding.

    All words share small codebooks: a row is split into parts, and one byte per part selects
    the nearest entry of that part's codebook (product quantisation, Jégou et al. 2011), after
    a rotation that balances the variance of the parts (Ge et al. 2013). The most frequent words
    have a second set of codes, which quantises the residual.
    """

    codes: Tensor
    finer_codes: Tensor
    order: Tensor

    def __init__(self, codes: Tensor, finer_codes: Tensor, order: Tensor, width: int) -> None:
        """Build the table with zero codebooks.

        Args:
            codes: ``(words, parts)``, the most frequent words first.
            finer_codes: ``(frequent words, finer parts)``.
            order: each word id's row of ``codes``.
            width: the size of a word's vector.
        """
        super().__init__()
        self.width = width
        self.register_buffer("codes", codes)
        self.register_buffer("finer_codes", finer_codes)
        self.register_buffer("order", order)
        self.codebooks = nn.Parameter(torch.zeros(codes.shape[1], _CODES, width // codes.shape[1]))
        parts = finer_codes.shape[1]
        self.finer_codebooks = nn.Parameter(torch.zeros(parts, _CODES, width // parts))
        self.rotation = nn.Parameter(torch.eye(width))
        self.centre = nn.Parameter(torch.zeros(width))

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors of these word ids, ``(..., width)``."""
        ranks = self.order[ids].long()
        rows = _look_up(self.codebooks, self.codes[ranks])
        frequent = ranks < len(self.finer_codes)
        finer = self.finer_codes[torch.where(frequent, ranks, 0)]
        rows = rows + frequent[..., None] * _look_up(self.finer_codebooks, finer)
        return self.centre + rows @ self.rotation

    @classmethod
    @torch.no_grad()
    def from_table(
        cls, table: Tensor, frequency: Tensor, *, parts: int, finer_parts: int, frequent: int
    ) -> ProductQuantisedEmbedding:
        """Quantise an embedding table.

        Args:
            table: ``(words, width)``.
            frequency: ``(words,)``, to sort words by.
            parts: codes per word.
            finer_parts: additional codes of frequent words.
            frequent: how many words have these.
        """
        width = table.shape[1]
        _check_parts(width, parts, finer_parts, frequent)
        by_frequency = torch.argsort(frequency, descending=True, stable=True)
        order = torch.empty_like(by_frequency)
        order[by_frequency] = torch.arange(len(by_frequency), device=by_frequency.device)
        centre = table.mean(0)
        rotation = _balanced_rotation(table - centre, parts)
        rows = (table[by_frequency] - centre) @ rotation.T
        codes, codebooks = _quantise(rows, parts)
        residual = rows - _look_up(codebooks, codes)
        finer_codes, finer_codebooks = _quantise(residual[:frequent], finer_parts)
        shared = cls(codes, finer_codes, order.int(), width).to(table.device)
        shared.codebooks.copy_(codebooks)
        shared.finer_codebooks.copy_(finer_codebooks)
        shared.rotation.copy_(rotation)
        shared.centre.copy_(centre)
        return shared


def _check_parts(width: int, parts: int, finer_parts: int, frequent: int) -> None:
    for name, value in (("parts", parts), ("finer_parts", finer_parts)):
        if value < 1 or width % value:
            raise PolyglanceError(
                f"vectors of size {width} are not divisible into {value} parts: change {name}"
            )
    if frequent < 1:
        raise PolyglanceError(f"frequent is {frequent}, too few words: set frequent to 1 or more")


def _look_up(codebooks: Tensor, codes: Tensor) -> Tensor:
    parts = torch.arange(len(codebooks), device=codes.device)
    return codebooks[parts, codes.long()].flatten(-2)


def _balanced_rotation(rows: Tensor, parts: int) -> Tensor:
    """Return principal axes, assigned to parts so that their products of variances are similar."""
    variances, axes = torch.linalg.eigh(rows.T @ rows / len(rows))
    size = rows.shape[1] // parts
    # Relative to the smallest variance every logarithm is positive: each axis adds to its part.
    smallest = max(float(variances[0]), 1e-9 * float(variances[-1]), 1e-30)
    axes_of: list[list[int]] = [[] for _ in range(parts)]
    log_variance = [0.0] * parts
    for axis in reversed(range(len(variances))):
        part = min(
            (p for p in range(parts) if len(axes_of[p]) < size), key=log_variance.__getitem__
        )
        axes_of[part].append(axis)
        log_variance[part] += math.log(max(float(variances[axis]) / smallest, 1.0))
    order = torch.tensor([axis for part in axes_of for axis in part], device=axes.device)
    rotation: Tensor = axes.T[order].contiguous()
    return rotation


def _quantise(rows: Tensor, parts: int, rounds: int = 20) -> tuple[Tensor, Tensor]:
    """Return codes and codebooks of each part, by k-means initialised with evenly spaced rows."""
    codes, codebooks = [], []
    for part in rows.chunk(parts, dim=1):
        first = torch.linspace(0, len(part) - 1, _CODES, device=part.device).long()
        centres = part[first].clone()
        before: Tensor | None = None
        for _ in range(rounds):
            nearest = _nearest(part, centres)
            if before is not None and torch.equal(nearest, before):
                break  # the same rows have the same means: no further round changes anything
            before = nearest
            sums = torch.zeros_like(centres).index_add_(0, nearest, part)
            counts = torch.bincount(nearest, minlength=_CODES)[:, None]
            centres = torch.where(counts > 0, sums / counts.clamp(min=1), centres)
        codes.append(_nearest(part, centres).to(torch.uint8))
        codebooks.append(centres)
    return torch.stack(codes, 1), torch.stack(codebooks)


def _nearest(rows: Tensor, centres: Tensor) -> Tensor:
    half = centres.pow(2).sum(1) / 2
    blocks = torch.split(rows, 65_536)
    return torch.cat([(block @ centres.T - half).argmax(1) for block in blocks])


def check_compressible(
    model: nn.Module, *, parts: int, finer_parts: int, frequent: int
) -> nn.Embedding:
    """Raise before training if `compress` would fail after it; return the word embeddings."""
    encoder = model.encoder
    assert isinstance(encoder, nn.Module)
    words = encoder.words
    assert isinstance(words, nn.Embedding)
    _check_parts(words.embedding_dim, parts, finer_parts, frequent)
    for _, module, bits in _quantised_modules(model):
        if bits == 4:
            assert isinstance(module, nn.Linear)
            _check_block(module.in_features, BLOCK)
    return words


def compress(
    model: nn.Module, frequency: Tensor, *, parts: int, finer_parts: int, frequent: int
) -> None:
    """Quantise an MMP model and its image backbone in place; biases, norms, positions stay.

    Args:
        model: the model to quantise.
        frequency: of each word, ``(words,)``.
        parts: codes per word.
        finer_parts: additional codes of frequent words.
        frequent: how many words have these.
    """
    words = check_compressible(model, parts=parts, finer_parts=finer_parts, frequent=frequent)
    encoder = model.encoder
    assert isinstance(encoder, nn.Module)
    encoder.words = ProductQuantisedEmbedding.from_table(
        words.weight.detach(), frequency, parts=parts, finer_parts=finer_parts, frequent=frequent
    )
    for _, module, bits in _quantised_modules(model):
        parametrize.register_parametrization(module, "weight", FakeQuantise(bits), unsafe=True)


def _quantised_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module, int]]:
    """Yield the name and module of each quantised weight, and its bits."""
    for name, module in model.named_modules():
        if name.endswith("classifier"):  # of the image backbone: not used by MMP
            continue
        weight = getattr(module, "weight", None)
        if isinstance(module, nn.Linear):
            yield name, module, 4
        elif isinstance(weight, Tensor) and weight.dim() == 4:
            yield name, module, 8


@torch.no_grad()
def compact_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a compressed model as they are stored.

    Quantised weights are stored as ``NAME.weight.codes`` and ``NAME.weight.scales``; two 4-bit
    codes share a byte, the first in its low half, as ONNX Runtime's ``MatMulNBits`` expects:
    ``(rows, blocks, bytes of a block)``.
    """
    quantised = {name: (module, bits) for name, module, bits in _quantised_modules(model)}
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if ".classifier." in name or ".parametrizations." in name:
            continue
        of_words = name.startswith("encoder.words.") and tensor.is_floating_point()
        half = of_words and not name.endswith("centre")
        state[name] = tensor.half() if half else tensor
    for name, (module, bits) in quantised.items():
        weight = module.weight
        assert isinstance(weight, Tensor)
        if bits == 4:
            codes, scales = pack_4bit(weight)
            state[f"{name}.weight.codes"], state[f"{name}.weight.scales"] = codes, scales
        else:
            codes, scales = quantise_8bit(weight)
            state[f"{name}.weight.codes"] = codes
            state[f"{name}.weight.scales"] = scales
    return {name: tensor.contiguous().cpu() for name, tensor in state.items()}


@torch.no_grad()
def load_compact(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Load a compact state into an uncompressed model, dequantised, so that it can be trained.

    Word embeddings come back in the order of word ids.
    """
    load_weights(
        model, {"encoder.words.weight": _dequantise_words(state), **dequantise_layers(state)}
    )


@torch.no_grad()
def load_quantised_layers(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Load a compact state into a model that stays quantised, so that it is trained as it is used.

    Layers are rounded in every forward pass, as after `compress`. The table of word embeddings
    keeps its codes and takes no part in training.
    """
    encoder = model.encoder
    assert isinstance(encoder, nn.Module)
    encoder.words = nn.Identity()
    load_weights(model, dequantise_layers(state))
    encoder.words = _word_table(state).requires_grad_(False)
    for _, module, bits in _quantised_modules(model):
        parametrize.register_parametrization(module, "weight", FakeQuantise(bits), unsafe=True)


def dequantise_layers(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return all weights but those of words."""
    weights = {}
    for name, tensor in state.items():
        if name.endswith(".weight.codes"):
            stem = name.removesuffix(".codes")
            scales = state[f"{stem}.scales"]
            weights[stem] = (
                dequantise_4bit(_unpack(tensor), scales)
                if tensor.dtype == torch.uint8
                else dequantise_8bit(tensor, scales)
            )
        elif not name.startswith("encoder.words.") and not name.endswith(".weight.scales"):
            weights[name] = tensor
    return weights


def load_weights(model: nn.Module, weights: dict[str, Tensor], *, complete: bool = True) -> None:
    """Load dequantised weights; an error says that they belong to another model.

    Args:
        model: Not quantised.
        weights: By name.
        complete: Whether none may be missing but a classifier's.
    """
    own = model.state_dict()
    wrong = [n for n, value in weights.items() if n not in own or own[n].shape != value.shape]
    named = (*model.named_parameters(), *model.named_buffers())  # tied ones once
    if complete:
        wrong += [n for n, _ in named if n not in weights and ".classifier." not in n]
    if wrong:
        raise PolyglanceError(f"the weights belong to another model: {wrong[0]} does not fit")
    model.load_state_dict(weights, strict=False)


def _word_table(state: dict[str, Tensor]) -> ProductQuantisedEmbedding:
    """Return the quantised table of word embeddings, by word ids."""
    words = {
        name.removeprefix("encoder.words."): tensor
        for name, tensor in state.items()
        if name.startswith("encoder.words.")
    }
    try:
        table = ProductQuantisedEmbedding(
            words["codes"], words["finer_codes"], words["order"], len(words["centre"])
        )
    except KeyError as error:
        raise PolyglanceError(
            f"encoder.words.{error.args[0]} is missing: the weights are not of a compressed model"
        ) from error
    table.load_state_dict(words)
    return table


def _dequantise_words(state: dict[str, Tensor]) -> Tensor:
    """Return the vectors of all words in the order of their ids."""
    table = _word_table(state)
    with torch.no_grad():  # in parts, whose temporary tensors fit into the cache
        return torch.cat([table(ids) for ids in torch.split(torch.arange(len(table.order)), 4096)])


def _unpack(packed: Tensor) -> Tensor:
    codes = torch.stack([packed & 15, packed >> 4], dim=-1)
    return codes.view(len(packed), -1)
