"""Encoding by workers of Ray."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polyglance.demo.photographs import FOLDER
from polyglance.errors import PolyglanceError
from polyglance.search.bulk import ray_cluster
from polyglance.search.bulk.encoding import encode
from polyglance.search.library import Library

Contents = Callable[[Library], dict[str, tuple[object, ...]]]


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_without_ray_fails_at_once(tmp_path: Path, photos: Path, scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(PolyglanceError, match=f"no Ray answers at {scheme}127.0.0.1:{port}"):
        encode(photos, out=tmp_path / "shards", ray=f"{scheme}127.0.0.1:{port}")
    assert not (tmp_path / "shards").exists()


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Start Ray with two cores on this machine, as `encode` does; yield its address."""
    secrets = ("RAY_AUTH_TOKEN", "RAY_AUTH_MODE", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER")
    with pytest.MonkeyPatch.context() as environment:
        for name in secrets:
            environment.delenv(name, raising=False)
        with ray_cluster.cluster(None, 2, 1) as size:
            import ray

            assert size == 2
            address = ray.get_runtime_context().gcs_address
            assert address.startswith("127.0.0.1:")  # it listens on loopback only
            assert os.environ["RAY_AUTH_MODE"] == "token"
            assert len(os.environ["RAY_AUTH_TOKEN"]) == 64
            yield address
        assert not ray.is_initialized()
        assert not any(name in os.environ for name in secrets)  # restored


def test_workers_of_ray_make_the_same_vectors_as_indexing(
    tmp_path: Path, photos: Path, cluster: str, contents: Contents
) -> None:
    for path in sorted(FOLDER.glob("*.webp"))[:4]:
        with Image.open(path) as opened:
            opened.reduce(2).convert("RGB").save(photos / f"{path.stem}.jpg")
    (photos / "torn.jpg").write_bytes(b"no picture")
    out = tmp_path / "shards"
    report = encode(photos, out=out, shard_size=3, workers=1)
    assert (report.files, report.bad, report.shards) == (4, 1, 2)
    assert "torn.jpg: is not a picture of a known kind" in report.messages[0]
    with Library(tmp_path / "imported.polyglance") as imported:
        assert imported.import_shards(out).added == 4
        with Library(tmp_path / "indexed.polyglance") as indexed:
            indexed.add(photos)
            one, other = contents(imported), contents(indexed)
    assert list(one) == list(other)
    for path, (item, vector, *rest) in one.items():
        assert [item, *rest] == [other[path][0], *other[path][2:]]
        assert isinstance(vector, bytes)
        expected = np.frombuffer(other[path][1], np.float32)  # type: ignore[call-overload]
        # Batches of other sizes differ in the last bit.
        np.testing.assert_allclose(np.frombuffer(vector, np.float32), expected, atol=1e-3)
