"""What is installed is pinned by version and hash, and listed in a bill of materials."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import lock
from tools.requirements import pinned, requirements
from tools.sbom import EXCLUDED, bill_of_materials, closure, locked_hashes
from tools.uv_settings import uv_settings

ROOT = Path(__file__).parent.parent
LOCK = (ROOT / "constraints-hashed.txt").read_text(encoding="utf-8")


def pins(text: str) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE)
    return {canonicalize_name(name): pinned for name, pinned in found}


def test_every_pin_has_hashes_and_the_version_of_the_constraints() -> None:
    constraints = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    locked = pins(LOCK)
    assert len(constraints) > 100
    assert {name: locked.get(name) for name in constraints} == constraints
    hashes = locked_hashes(LOCK)
    assert set(hashes) == set(locked)
    assert [name for name, known in hashes.items() if not known] == []


def test_whatever_the_project_requires_is_pinned() -> None:
    locked = pins(LOCK)
    names = {Requirement(line).name for line in requirements(["dev"])}
    assert {"torch", "numpy", "sentence-transformers", "hatchling", "editables", "ruff"} <= names
    assert {name for name in names if canonicalize_name(name) not in locked} == set()
    for line in requirements(["dev"]):
        requirement = Requirement(line)
        assert locked[canonicalize_name(requirement.name)] in requirement.specifier, line


def test_what_is_installed_is_asked_for_by_version() -> None:
    lines = requirements(["dev"])
    locked = pins(LOCK)
    for line, exact in zip(lines, pinned(lines), strict=True):
        wanted, given = Requirement(line), Requirement(exact)
        assert (given.name, given.extras, given.marker) == (
            wanted.name, wanted.extras, wanted.marker
        )  # fmt: skip
        assert str(given.specifier) == f"=={locked[canonicalize_name(wanted.name)]}"


def test_what_is_left_out_is_required_by_others_and_not_locked() -> None:
    assert not EXCLUDED & pins(LOCK).keys()
    required = {
        canonicalize_name(requirement.name)
        for name in closure("polyglance", ["dev"])
        for requirement in map(Requirement, requires(name) or ())
    }
    assert required >= EXCLUDED >= {"torchvision"}


def test_uv_uses_the_indexes_of_pip() -> None:
    listed = """\
:env:.find-links='/wheels'
global.cert='/etc/certificates.pem'
global.extra-index-url='\\nfile:///one\\nfile:///two'
global.find-links='/others'
global.index-url='https://internal/simple'
global.timeout='60'
install.no-index='true'
"""
    assert uv_settings(listed, {"SSL_CERT_FILE": "/own.pem"}) == {
        "UV_DEFAULT_INDEX": "https://internal/simple",
        "UV_INDEX": "file:///one file:///two",
        "UV_FIND_LINKS": "/wheels",  # pip's variables count more than its files
        "UV_NO_INDEX": "true",
    }
    assert uv_settings("", {}) == {}


def test_the_build_back_end_is_pinned() -> None:
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    locked = pins(LOCK)
    for line in content["build-system"]["requires"]:
        requirement = Requirement(line)
        assert str(requirement.specifier) == f"=={locked[requirement.name]}"


def test_no_package_index_is_named() -> None:
    for name in ("constraints.txt", "constraints-hashed.txt", "Makefile", "pyproject.toml"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "index-url" not in text
        assert "://" not in text


@pytest.mark.parametrize(("target", "steps"), [("demo", 3), (".venv/ready-dev", 4)])
def test_make_installs_by_hash(target: str, steps: int) -> None:
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", target, "PYTHON=true"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    installs = [line for line in done.stdout.splitlines() if " pip install " in line]
    assert len(installs) == steps
    for line in installs:
        # The project itself comes from this folder, without anything that it requires.
        assert "--require-hashes" in line or "--no-deps --no-build-isolation --editable ." in line


def _file(name: str, sha256: str) -> dict[str, Any]:
    return {"url": f"somewhere/{name}", "hashes": {"sha256": sha256 * 64}}


def test_the_lock_has_the_files_of_all_platforms() -> None:
    packages = [
        {"name": "a", "version": "1", "sdist": _file("a-1.tar.gz", "0"), "wheels": [
            _file("a-1-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "1"),
            _file("a-1-cp38-abi3-macosx_11_0_arm64.whl", "2"),
            _file("a-1-cp310-cp310-manylinux_2_17_x86_64.whl", "3"),
            _file("a-1-cp312-cp312-musllinux_1_2_x86_64.whl", "4"),
            _file("a-1-cp314-cp314t-manylinux_2_28_riscv64.whl", "5"),
            _file("a-1-pp310-pypy310_pp73-win_amd64.whl", "8"),
            _file("a-1-pp311-pypy311_pp73-win_amd64.whl", "9"),
            _file("a-1-cp27-cp27mu-win32.whl", "a"),
        ]},
        {"name": "b", "version": "1", "marker": "sys_platform == 'linux'",
         "wheels": [_file("b-1-py2.py3-none-any.whl", "6")]},
        {"name": "c", "version": "2", "sdist": _file("c-2.tar.gz", "7")},
    ]  # fmt: skip
    text = lock.format_lock(packages, {"b": ["f" * 64]})
    assert pins(text) == {"a": "1", "b": "1", "c": "2"}
    assert locked_hashes(text) == {
        "a": [digit * 64 for digit in "12459"],
        "b": ["6" * 64, "f" * 64],
        "c": ["7" * 64],
    }
    assert "b==1 ; sys_platform == 'linux' \\\n    --hash" in text


def test_wheels_of_another_index_are_those_of_the_pinned_version() -> None:
    names = [
        "torch-2.13.0%2Bcpu-cp312-cp312-win_amd64.whl",
        "torch-2.13.0%2Bcpu-cp310-cp310-win_amd64.whl",
        "torch-2.12.0%2Bcpu-cp312-cp312-win_amd64.whl",
        "torch-2.13.0-cp312-cp312-macosx_11_0_arm64.whl",
    ]
    page = "\n".join(
        f'<a href="/whl/cpu/{name}#sha256={str(number) * 64}" data-x="y">{name}</a><br/>'
        for number, name in enumerate(names)
    )
    assert lock.listed_wheels(page, "torch", "2.13.0") == {"0" * 64}


def test_torch_can_be_installed_by_hash_for_all_supported_pythons() -> None:
    hashes = locked_hashes(LOCK)
    # Python 3.11 to 3.14 on Linux (two processors), macOS and Windows, and one for processors.
    assert len(hashes["torch"]) >= 4 * 4 + 1
    assert set(lock.KNOWN_WHEELS.values()) <= set(hashes["torch"])


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    return bill_of_materials(["train", "serve"])


def test_the_bill_lists_what_is_installed(bill: dict[str, Any]) -> None:
    components = {component["name"]: component for component in bill["components"]}
    for name in ("numpy", "torch", "fastapi", "starlette"):
        assert components[name]["version"] == version(name)
        assert components[name]["licenses"]
        assert "not stated" not in str(components[name]["licenses"])
        [hashes] = components[name]["properties"]
        assert re.fullmatch(r"[0-9a-f ]{64,}", hashes["value"])
    assert "faiss-cpu" not in components  # of an extra that was not asked for
    assert components["numpy"]["purl"] == f"pkg:pypi/numpy@{version('numpy')}"
    assert bill["metadata"]["component"]["name"] == "polyglance"


@pytest.mark.parametrize("extras", [["train", "serve"], ["dev"]])
def test_the_bill_has_the_form_that_cyclonedx_publishes(extras: list[str]) -> None:
    content = bill_of_materials(extras)
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(json.dumps(content)) is None
    content["components"][0]["type"] = "package"
    assert validator.validate_str(json.dumps(content)) is not None


def test_the_bill_has_models_and_weights_with_their_hashes(bill: dict[str, Any]) -> None:
    components = {component["name"]: component for component in bill["components"]}
    files = components["polyglance-small"]["components"]
    assert {"text.onnx", "image.onnx"} & {file["name"] for file in files}
    for file in (*files, components["e5-small"]):
        [sha256] = file["hashes"]
        assert re.fullmatch("[0-9a-f]{64}", sha256["content"])


def test_the_bill_is_consistent_and_repeatable(bill: dict[str, Any]) -> None:
    references = [component["bom-ref"] for component in bill["components"]]
    references.append(bill["metadata"]["component"]["bom-ref"])
    assert len(set(references)) == len(references)
    edges = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert set(edges) <= set(references)
    assert {needed for known in edges.values() for needed in known} <= set(references)
    assert "pkg:numpy" in edges["pkg:polyglance"]
    assert "pkg:starlette" in edges["pkg:fastapi"]
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    again = bill_of_materials(["train", "serve"])
    assert json.dumps(again) == json.dumps(bill)
