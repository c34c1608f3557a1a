from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from polyglance import weights
from polyglance.errors import MissingExtraError, PolyglanceError
from polyglance.weights import cache_folder
from polyglance.weights.registry import ENTRIES, Entry

CONTENT = b"numbers of a toy model"


def toy_convert(source: Path, folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "toy"}', encoding="utf-8")
    (folder / "model.safetensors").write_bytes(source.read_bytes()[::-1])


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Entry:
    """Weights called ``toy``, known to the registry but not here yet."""
    entry = Entry(
        name="toy",
        description="a toy",
        package="polyglance-toy-weights",
        version="1.2",
        file="polyglance_toy_weights/toy.bin",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size=len(CONTENT),
        licence="MIT",
        convert=toy_convert,
        required_modules=(),
    )
    monkeypatch.setitem(ENTRIES, "toy", entry)
    return entry


def install(site: Path, content: bytes = CONTENT, version: str = "1.2") -> None:
    """Put the toy's package into a folder of installed packages."""
    (site / "polyglance_toy_weights").mkdir(parents=True)
    (site / "polyglance_toy_weights" / "toy.bin").write_bytes(content)
    info = site / f"polyglance_toy_weights-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: polyglance-toy-weights\nVersion: {version}\n"
    )


@pytest.fixture
def no_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine whose pip finds nothing."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))


class TestFolder:
    def test_a_local_folder_is_returned_as_it_is(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text("{}")
        assert weights.folder(str(tmp_path)) == tmp_path
        assert weights.folder(tmp_path) == tmp_path

    def test_a_local_folder_without_config_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(PolyglanceError, match=r"no config\.json"):
            weights.folder(tmp_path)

    def test_a_misspelt_name_suggests_the_right_one(self) -> None:
        with pytest.raises(PolyglanceError, match="did you mean 'efficientnet-lite2'"):
            weights.folder("eficientnet-lite2")

    def test_unknown_name_lists_the_known_ones(self) -> None:
        with pytest.raises(PolyglanceError, match="known names are e5-small, efficientnet-lite0"):
            weights.folder("zzz")

    def test_a_known_name_is_not_shadowed_by_a_folder(
        self, toy: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install(tmp_path / "site")
        monkeypatch.syspath_prepend(tmp_path / "site")
        (tmp_path / "toy").mkdir()
        (tmp_path / "toy" / "config.json").write_text("{}")
        monkeypatch.chdir(tmp_path)
        assert weights.folder("toy", cache=tmp_path / "cache").parent.name == "weights"
        assert weights.folder("./toy") == Path("toy")


class TestPackage:
    @pytest.fixture
    def installed(self, toy: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
        install(tmp_path / "site")
        monkeypatch.syspath_prepend(tmp_path / "site")
        return toy

    def test_an_installed_package_is_converted_once(
        self, installed: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        conversions = []

        def counting(source: Path, folder: Path) -> None:
            conversions.append(source)
            toy_convert(source, folder)

        monkeypatch.setitem(ENTRIES, "toy", replace(installed, convert=counting))
        first = weights.folder("toy", cache=tmp_path / "cache")
        again = weights.folder("toy", cache=tmp_path / "cache")
        assert first == again == tmp_path / "cache" / "weights" / "toy"
        assert (first / "model.safetensors").read_bytes() == CONTENT[::-1]
        assert len(conversions) == 1
        note = json.loads((first / "source.json").read_text())
        assert note["package"] == "polyglance-toy-weights"
        assert note["sha256"] == installed.sha256
        assert note["licence"] == "MIT"

    def test_a_changed_file_is_refused_and_leaves_nothing(
        self, toy: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install(tmp_path / "site", content=b"something else")
        monkeypatch.syspath_prepend(tmp_path / "site")
        with pytest.raises(PolyglanceError, match="SHA-256"):
            weights.folder("toy", cache=tmp_path / "cache")
        left = list((tmp_path / "cache" / "weights").iterdir())
        assert [path.name for path in left] == [".toy.lock"]

    @pytest.mark.usefixtures("no_index")
    def test_another_version_does_not_count_as_installed(
        self, toy: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install(tmp_path / "site", version="1.3")
        monkeypatch.syspath_prepend(tmp_path / "site")
        with pytest.raises(PolyglanceError, match=r"polyglance-toy-weights 1\.2, which could not"):
            weights.folder("toy", cache=tmp_path / "cache")

    @pytest.mark.parametrize(
        "damage",
        [
            lambda folder: (folder / "model.safetensors").write_bytes(b"half"),
            lambda folder: (folder / "model.safetensors").write_bytes(CONTENT),
            lambda folder: (folder / "config.json").write_text('{"model_type": "tox"}'),
            lambda folder: (folder / "model.safetensors").unlink(),
            lambda folder: (folder / "source.json").unlink(),
            lambda folder: (folder / "source.json").write_text("[]"),
            lambda folder: (folder / "source.json").write_text('{"name": "to'),
        ],
        ids=[
            "truncated",
            "changed",
            "changed config",
            "missing",
            "no note",
            "wrong note",
            "half a note",
        ],
    )
    def test_a_damaged_cache_is_made_anew(
        self, installed: Entry, tmp_path: Path, damage: object
    ) -> None:
        folder = weights.folder("toy", cache=tmp_path / "cache")
        damage(folder)  # type: ignore[operator]
        assert weights.folder("toy", cache=tmp_path / "cache") == folder
        assert (folder / "model.safetensors").read_bytes() == CONTENT[::-1]
        assert (folder / "config.json").read_text() == '{"model_type": "toy"}'
        assert sorted(path.name for path in folder.parent.iterdir()) == [".toy.lock", "toy"]

    def test_another_version_of_the_entry_replaces_the_folder(
        self, installed: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = weights.folder("toy", cache=tmp_path / "cache")
        monkeypatch.setitem(ENTRIES, "toy", replace(installed, licence="Apache-2.0"))
        weights.folder("toy", cache=tmp_path / "cache")
        assert json.loads((folder / "source.json").read_text())["licence"] == "Apache-2.0"

    def test_missing_modules_are_reported_before_download(
        self, toy: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(ENTRIES, "toy", replace(toy, required_modules=("no_such_module",)))
        with pytest.raises(MissingExtraError, match=r"polyglance\[train\]"):
            weights.folder("toy", cache=tmp_path / "cache")

    def test_a_cache_that_cannot_be_written_is_named(
        self, installed: Entry, tmp_path: Path
    ) -> None:
        (tmp_path / "cache").write_text("a file where a folder should be")
        with pytest.raises(PolyglanceError, match="POLYGLANCE_CACHE"):
            weights.folder("toy", cache=tmp_path / "cache")

    def test_available_reports_the_state_of_weights(
        self, toy: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def state() -> str:
            rows = {row.entry.name: row for row in weights.available(tmp_path / "cache")}
            assert {"e5-small", "efficientnet-lite0", "toy"} <= set(rows)
            return rows["toy"].state

        assert state() == "to fetch"
        install(tmp_path / "site")
        monkeypatch.syspath_prepend(tmp_path / "site")
        assert state() == "installed"
        weights.folder("toy", cache=tmp_path / "cache")
        assert state() == "ready"


class TestHub:
    def test_a_file_that_is_not_what_its_name_says_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hub = pytest.importorskip("huggingface_hub")
        blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
        blobs.mkdir()
        snapshot.mkdir(parents=True)
        blob = blobs / hashlib.sha256(CONTENT).hexdigest()
        blob.write_bytes(CONTENT)
        (snapshot / "model.safetensors").symlink_to(blob)
        (snapshot / "config.json").write_text("{}")
        monkeypatch.setattr(hub, "snapshot_download", lambda *_, **__: str(snapshot))
        assert weights.folder("owner/toy") == snapshot
        blob.write_bytes(CONTENT[::-1])
        os.utime(blob, ns=(1, 1))  # whatever the clock's precision
        with pytest.raises(PolyglanceError, match=r"model\.safetensors is damaged.*remove .*blobs"):
            weights.folder("owner/toy")

    def test_offline_hub_is_reported_with_a_hint(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        with pytest.raises(PolyglanceError, match="give a local folder") as caught:
            weights.folder("some-org/some-model")
        assert "\n" not in str(caught.value)

    def test_hub_snapshot_is_returned(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        call: dict[str, object] = {}

        def download(name: str, allow_patterns: list[str]) -> str:
            call.update(name=name, patterns=allow_patterns)
            return str(tmp_path)

        monkeypatch.setattr("huggingface_hub.snapshot_download", download)
        with pytest.raises(PolyglanceError, match="safetensors"):
            weights.folder("some-org/some-model")
        (tmp_path / "config.json").write_text("{}")
        (tmp_path / "model.safetensors").write_bytes(b"")
        assert weights.folder("some-org/some-model") == tmp_path
        assert call["name"] == "some-org/some-model"
        assert not any(str(pattern).endswith((".bin", "*")) for pattern in call["patterns"])  # type: ignore[attr-defined]

    def test_without_the_hub_library_the_extra_is_named(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        monkeypatch.setattr("polyglance.weights.find.find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match=r"polyglance\[train\]"):
            weights.folder("some-org/some-model")


class TestCacheFolder:
    def test_cache_folder_precedence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("POLYGLANCE_CACHE", str(tmp_path / "own"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "system"))
        assert cache_folder() == tmp_path / "own"
        monkeypatch.delenv("POLYGLANCE_CACHE")
        assert cache_folder() == tmp_path / "system" / "polyglance"
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        assert cache_folder() == tmp_path / "home" / ".cache" / "polyglance"


def test_the_registry_is_complete() -> None:
    assert set(ENTRIES) >= {"e5-small", *(f"efficientnet-lite{i}" for i in range(3))}
    for name, entry in ENTRIES.items():
        assert entry.name == name
        assert len(entry.sha256) == 64
        assert entry.size > 10_000_000
        assert entry.licence in ("MIT", "Apache-2.0")
