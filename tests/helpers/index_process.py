"""A process that indexes a folder with a `ColourEncoder`, at the test's pace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_SCRIPT = """
import sys
from helpers.colour_encoder import ColourEncoder
from polyglance.search.library import Library

class PacedEncoder(ColourEncoder):
    def encode_pictures(self, pictures):
        if sys.argv[3] == "paced":
            print("batch", flush=True)
            sys.stdin.readline()
        return super().encode_pictures(pictures)

encoder = PacedEncoder()
Library(sys.argv[1], model=encoder).add(sys.argv[2])
print(encoder.num_encoded, flush=True)
"""


class IndexProcess:
    """Runs ``Library(library).add(folder)``; if ``paced``, each batch waits for `allow_batches`.

    A batch is stored before the next one is encoded. So after ``allow_batches(n)`` all but the
    last of the ``n`` batches are stored, and the process cannot get further.
    """

    def __init__(self, library: str | Path, folder: Path, *, paced: bool = False) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, str(library), str(folder), "paced" if paced else ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            text=True,
        )

    def wait_for_batch(self) -> None:
        """Wait until the process asks for a batch: all earlier ones are stored."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "batch\n"

    def allow_batches(self, count: int) -> None:
        """Let the next ``count`` batches be encoded, each as soon as it is asked for."""
        assert self._process.stdin is not None
        for _ in range(count):
            self.wait_for_batch()
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        self._process.kill()
        self._process.communicate()

    def finish(self) -> int:
        """Let it run to its end; return how many pictures it encoded."""
        output, _ = self._process.communicate()
        assert self._process.returncode == 0
        return int(output.split()[-1])
