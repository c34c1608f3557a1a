"""How far the vectors of compressed models may differ from torch's, or another machine's."""

from __future__ import annotations

import platform

ON_ARM = platform.machine() in ("aarch64", "arm64")
"""There ONNX Runtime rounds what 4-bit weights are multiplied by to 8 bits, whatever accuracy a
graph asks for, and image networks compute in float16."""
ROUNDING = 5e-3 if ON_ARM else 1e-3
