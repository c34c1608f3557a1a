from __future__ import annotations

import pytest
import torch

from polyglance.errors import PolyglanceError
from polyglance.vision.devices import check_device


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
