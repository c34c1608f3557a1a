from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from polyglance.errors import PolyglanceError
from polyglance.vision.devices import check_device

PAGE_FAULTS = """
import resource
import torch
from polyglance.vision.devices import keep_freed_memory

def page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(20_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with keep_freed_memory() as kept:
    within = [page_faults() for _ in range(8)][-1]
print(kept, within, page_faults())
"""


def test_available_devices_pass() -> None:
    check_device("cpu")
    check_device("cpu:0")
    if torch.cuda.is_available():
        check_device("cuda")


@pytest.mark.parametrize("name", ["foo", "", "cuda:99", "cuda:x", "meta"])
def test_an_unavailable_device_is_refused(name: str) -> None:
    with pytest.raises(
        PolyglanceError, match=rf"device '{name}' cannot be .*: choose cpu"
    ) as error:
        check_device(name)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_memory_of_freed_tensors_is_used_again() -> None:
    script = [sys.executable, "-c", PAGE_FAULTS]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    kept, within, after = done.stdout.split()
    if kept == "False":
        pytest.skip("another C library than glibc")
    assert int(after) > 10 * int(within)
