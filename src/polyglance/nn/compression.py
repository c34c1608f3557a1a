"""A trained model in few bits, still trainable.

Weights of linear layers keep 4 bits each with a scale for every block, those of
convolutions 8 bits with a scale for every channel, and the table of words, by far
the largest part, becomes a `SharedTable`. Rounding happens in every forward
pass and lets gradients through as if it were not there (Bengio et al. 2013), so
that a rounded model can be taught to act like the one it was made from.
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
"""Entries of a codebook: one byte chooses."""


def quantise_4bit(weight: Tensor, block: int = BLOCK) -> tuple[Tensor, Tensor]:
    """Codes from 0 to 15 and the scale of each block of a row: ``(code - 8) * scale``.

    The entry farthest from zero becomes exactly -8 times the scale, which may
    be negative: all sixteen codes are of use. Scales are what float16 can hold.
    """
    rows, columns = weight.shape
    _check_block(columns, block)
    blocks = weight.float().view(rows, -1, block)
    farthest = blocks.gather(2, blocks.abs().argmax(2, keepdim=True))
    scales = (farthest / -8).half().float()
    codes = (blocks / torch.where(scales == 0, 1, scales)).round().clamp(-8, 7) + 8
    return codes.to(torch.uint8).view(rows, columns), scales.squeeze(2)


def _check_block(columns: int, block: int) -> None:
    if columns % block:
        raise PolyglanceError(
            f"a row of {columns} weights does not divide into blocks of {block}:"
            f" choose widths that are multiples of {block}"
        )


def dequantise_4bit(codes: Tensor, scales: Tensor) -> Tensor:
    """The weights that these codes and scales mean."""
    blocks = codes.view(*scales.shape, -1).float() - 8
    return (blocks * scales.float()[:, :, None]).view(codes.shape)


def quantise_8bit(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Codes from -127 to 127 and a scale for each output channel."""
    scales = weight.float().flatten(1).abs().amax(1) / 127
    shape = (-1,) + (1,) * (weight.dim() - 1)
    codes = (weight.float() / torch.where(scales == 0, 1, scales).view(shape)).round()
    return codes.to(torch.int8), scales


def dequantise_8bit(codes: Tensor, scales: Tensor) -> Tensor:
    """The weights that these codes and scales mean."""
    return codes.float() * scales.view((-1,) + (1,) * (codes.dim() - 1))


class _Rounded(nn.Module):
    """A parametrisation: the weight as rounding leaves it, with the gradient of the whole one."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits

    def forward(self, weight: Tensor) -> Tensor:
        with torch.no_grad():
            rounded = (
                dequantise_4bit(*quantise_4bit(weight))
                if self.bits == 4
                else dequantise_8bit(*quantise_8bit(weight))
            )
        return weight + (rounded - weight).detach()


class ProductQuantisedEmbedding(nn.Module):
    """A table of words in few bytes, in the spirit of SMALR's hybrid embedding.

    All words share small codebooks: a row is cut into parts, and for each part one
    byte names the nearest entry of that part's codebook (product quantisation,
    Jégou et al. 2011), after a rotation that spreads the variance evenly over
    the parts (Ge et al. 2013). The most frequent words own a second set of
    codes, which describes what the first left over.
    """

    codes: Tensor
    finer_codes: Tensor
    order: Tensor

    def __init__(self, codes: Tensor, finer_codes: Tensor, order: Tensor, width: int) -> None:
        """``order`` is the place of each word; the first of these places have finer codes."""
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
        """The rows of these words."""
        places = self.order[ids].long()
        rows = _look_up(self.codebooks, self.codes[places])
        frequent = places < len(self.finer_codes)
        finer = self.finer_codes[torch.where(frequent, places, 0)]
        rows = rows + frequent[..., None] * _look_up(self.finer_codebooks, finer)
        return self.centre + rows @ self.rotation

    @classmethod
    @torch.no_grad()
    def from_table(
        cls, table: Tensor, frequency: Tensor, *, parts: int, finer_parts: int, frequent: int
    ) -> ProductQuantisedEmbedding:
        """The nearest shared table, with finer codes for the ``frequent`` most frequent words."""
        width = table.shape[1]
        _check_parts(width, parts, finer_parts, frequent)
        places = torch.argsort(frequency, descending=True, stable=True)
        order = torch.empty_like(places)
        order[places] = torch.arange(len(places), device=places.device)
        centre = table.mean(0)
        rotation = _even_rotation(table - centre, parts)
        rows = (table[places] - centre) @ rotation.T
        codes, codebooks = _quantise(rows, parts)
        left = rows - _look_up(codebooks, codes)
        finer_codes, finer_codebooks = _quantise(left[:frequent], finer_parts)
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
                f"words of {width} numbers do not divide into {value} parts: change {name}"
            )
    if frequent < 1:
        raise PolyglanceError(
            f"finer codes for {frequent} words are none: set frequent to 1 or more"
        )


def _look_up(codebooks: Tensor, codes: Tensor) -> Tensor:
    parts = torch.arange(len(codebooks), device=codes.device)
    return codebooks[parts, codes.long()].flatten(-2)


def _even_rotation(rows: Tensor, parts: int) -> Tensor:
    """Principal axes, dealt to parts so that all have about the same product of variances."""
    variances, axes = torch.linalg.eigh(rows.T @ rows / len(rows))
    size = rows.shape[1] // parts
    # Measured by the least of them every logarithm is positive: an axis more is more variance.
    least = max(float(variances[0]), 1e-9 * float(variances[-1]), 1e-30)
    hands: list[list[int]] = [[] for _ in range(parts)]
    held = [0.0] * parts
    for axis in reversed(range(len(variances))):
        part = min((p for p in range(parts) if len(hands[p]) < size), key=held.__getitem__)
        hands[part].append(axis)
        held[part] += math.log(max(float(variances[axis]) / least, 1.0))
    dealt = torch.tensor([axis for hand in hands for axis in hand], device=axes.device)
    rotation: Tensor = axes.T[dealt].contiguous()
    return rotation


def _quantise(rows: Tensor, parts: int, rounds: int = 20) -> tuple[Tensor, Tensor]:
    """Codes and codebooks of each part, by k-means from evenly spread rows."""
    codes, codebooks = [], []
    for part in rows.chunk(parts, dim=1):
        first = torch.linspace(0, len(part) - 1, _CODES, device=part.device).long()
        centres = part[first].clone()
        for _ in range(rounds):
            nearest = _nearest(part, centres)
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
    """Refuse what `compress` could not do, before anybody trains for it; returns the words."""
    encoder = model.encoder
    assert isinstance(encoder, nn.Module)
    words = encoder.words
    assert isinstance(words, nn.Embedding)
    _check_parts(words.embedding_dim, parts, finer_parts, frequent)
    for _, module, bits in _rounded_modules(model):
        if bits == 4:
            assert isinstance(module, nn.Linear)
            _check_block(module.in_features, BLOCK)
    return words


def compress(
    model: nn.Module, frequency: Tensor, *, parts: int, finer_parts: int, frequent: int
) -> None:
    """Round an MMP model with eyes in place: 4-bit linear layers, 8-bit convolutions, shared table.

    Biases, norms and positions stay as they are.
    """
    words = check_compressible(model, parts=parts, finer_parts=finer_parts, frequent=frequent)
    encoder = model.encoder
    assert isinstance(encoder, nn.Module)
    encoder.words = ProductQuantisedEmbedding.from_table(
        words.weight.detach(), frequency, parts=parts, finer_parts=finer_parts, frequent=frequent
    )
    for _, module, bits in _rounded_modules(model):
        parametrize.register_parametrization(module, "weight", _Rounded(bits), unsafe=True)


def _rounded_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module, int]]:
    """What is rounded, and to how many bits."""
    for name, module in model.named_modules():
        if name.endswith("classifier"):  # of the picture network: not used by MMP
            continue
        weight = getattr(module, "weight", None)
        if isinstance(module, nn.Linear):
            yield name, module, 4
        elif isinstance(weight, Tensor) and weight.dim() == 4:
            yield name, module, 8


@torch.no_grad()
def compact_state(model: nn.Module) -> dict[str, Tensor]:
    """The weights of a compressed model as they are stored.

    ``NAME.weight.codes`` and ``NAME.weight.scales`` stand for rounded weights; two
    4-bit codes share a byte, the earlier in its low half, as ONNX Runtime's
    ``MatMulNBits`` reads them: (rows, blocks, bytes of a block).
    """
    rounded = {name: (module, bits) for name, module, bits in _rounded_modules(model)}
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if ".classifier." in name or ".parametrizations." in name:
            continue
        is_wide = name.startswith("encoder.words.") and tensor.is_floating_point()
        halved = is_wide and not name.endswith("centre")
        state[name] = tensor.half() if halved else tensor
    for name, (module, bits) in rounded.items():
        weight = module.weight
        assert isinstance(weight, Tensor)
        if bits == 4:
            codes, scales = quantise_4bit(weight)
            pairs = codes.view(*scales.shape, -1, 2)
            state[f"{name}.weight.codes"] = pairs[..., 0] | pairs[..., 1] << 4
            state[f"{name}.weight.scales"] = scales.half()
        else:
            codes, scales = quantise_8bit(weight)
            state[f"{name}.weight.codes"] = codes
            state[f"{name}.weight.scales"] = scales
    return {name: tensor.contiguous().cpu() for name, tensor in state.items()}


@torch.no_grad()
def load_compact(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Fill an uncompressed model with the weights that a compact state means.

    The table of words is put in its original order and whole, so that the
    model can be trained on from.
    """
    whole = {"encoder.words.weight": _whole_table(state)}
    for name, tensor in state.items():
        if name.endswith(".weight.codes"):
            stem = name.removesuffix(".codes")
            scales = state[f"{stem}.scales"]
            whole[stem] = (
                dequantise_4bit(_unpack(tensor), scales)
                if tensor.dtype == torch.uint8
                else dequantise_8bit(tensor, scales)
            )
        elif not name.startswith("encoder.words.") and not name.endswith(".weight.scales"):
            whole[name] = tensor
    own = model.state_dict()
    wrong = [n for n, value in whole.items() if n not in own or own[n].shape != value.shape]
    named = (*model.named_parameters(), *model.named_buffers())  # tied ones once
    wrong += [n for n, _ in named if n not in whole and ".classifier." not in n]
    if wrong:
        raise PolyglanceError(f"the weights are of another model: {wrong[0]}")
    model.load_state_dict(whole, strict=False)


def _whole_table(state: dict[str, Tensor]) -> Tensor:
    """The rows of all words in their original order."""
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
            f"encoder.words.{error.args[0]} is missing: the weights are of no compressed model"
        ) from error
    table.load_state_dict(words)
    rows: Tensor = table(torch.arange(len(words["order"])))
    return rows


def _unpack(packed: Tensor) -> Tensor:
    codes = torch.stack([packed & 15, packed >> 4], dim=-1)
    return codes.view(len(packed), -1)
