"""Without a package, its integration says which extra brings it; the others are not imported."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from polyglance.errors import MissingExtraError

PACKAGES = {
    "sentence_transformers": ("sentence_transformers", "sentence-transformers"),
    "mteb": ("mteb", "mteb"),
    "clip_benchmark": ("clip_benchmark", "clip-benchmark"),
    "langchain": ("langchain_core.embeddings", "langchain"),
    "chroma": ("chromadb.api.types", "chroma"),
    "lancedb": ("lancedb.embeddings", "lancedb"),
}


@pytest.mark.parametrize("module", PACKAGES)
def test_a_missing_package_is_named_by_its_extra(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, extra = PACKAGES[module]
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, package.partition(".")[0], None)
    monkeypatch.delitem(sys.modules, f"polyglance.integrations.{module}", raising=False)
    with pytest.raises(MissingExtraError, match=rf"pip install 'polyglance\[{extra}\]'"):
        importlib.import_module(f"polyglance.integrations.{module}")


def test_the_package_imports_none() -> None:
    code = "import sys, polyglance.integrations; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    roots = {name.partition(".")[0] for name in done.stdout.split()}
    packages = {package.partition(".")[0] for package, _ in PACKAGES.values()}
    assert not roots & (packages | {"torch", "datasets"})
