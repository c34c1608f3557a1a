"""How far the vectors of compressed models differ between processors."""

from __future__ import annotations

ROUNDING = 5e-3
"""ONNX Runtime multiplies 4-bit weights by activations in float32 on x86, and rounds activations to
8 bits on ARM, where two texts' cosine moves by less than 0.001."""
