"""Write a bill of materials of an installed environment: CycloneDX 1.6, JSON.

    python -m tools.sbom --extra dev --out sbom.cdx.json        # or: make sbom

Lists Polyglance, all packages that it and the extras require as they are installed, the models
that come with it, and the weights that it knows how to fetch: each with its version, licence,
hashes and what it depends on. The same environment gives the same file to the byte, but for the
time of the commit.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from polyglance.encoders.model_folder import ModelFolder, shipped_models
from polyglance.weights.registry import ENTRIES, Entry
from tools.requirements import ROOT

NAME = "polyglance"
LOCK = ROOT / "constraints-hashed.txt"
EXCLUDES = ROOT / "tools" / "excludes.txt"
EXCLUDED = frozenset(
    re.findall(r"^[a-z][a-z0-9-]*$", EXCLUDES.read_text(encoding="utf-8"), re.MULTILINE)
)
"""Packages that others require and the environment of `make test` does without."""
OVERRIDES = ROOT / "tools" / "overrides.txt"
NOT_HERE = frozenset(
    canonicalize_name(requirement.name)
    for requirement in map(
        Requirement,
        re.findall(r"^[a-z].*$", OVERRIDES.read_text(encoding="utf-8"), re.MULTILINE),
    )
    if requirement.marker is not None and not requirement.marker.evaluate()
)
"""Packages that others require and that have no wheel for this processor."""
Component = dict[str, Any]


def main() -> None:
    """Write the bill."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extra", action="append", default=[], help="repeatable")
    parser.add_argument("--out", type=Path, default=ROOT / "sbom.cdx.json")
    options = parser.parse_args()
    bill = bill_of_materials(options.extra)
    options.out.write_text(json.dumps(bill, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {options.out}: {len(bill['components'])} components")


def bill_of_materials(extras: list[str]) -> dict[str, Any]:
    """Return the bill of Polyglance with some of its extras."""
    edges = closure(NAME, extras)
    hashes = locked_hashes(LOCK.read_text(encoding="utf-8"))
    own = package_component(distribution(NAME), {}) | {"type": "application"}
    packages = [
        package_component(distribution(name), hashes) for name in sorted(edges) if name != NAME
    ]
    models = [*map(model_component, shipped_models()), *map(weights_component, ENTRIES.values())]
    content = {
        "components": [*packages, *models],
        "dependencies": [
            {"ref": reference(name), "dependsOn": sorted(map(reference, needed))}
            for name, needed in sorted(edges.items())
        ],
    }
    identity = json.dumps([own, content], sort_keys=True, ensure_ascii=False)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, identity)}",
        "version": 1,
        "metadata": {
            "timestamp": commit_time(),
            "component": own,
            "tools": {"components": [{"type": "application", "name": "tools.sbom"}]},
        },
        **content,
    }


def closure(name: str, extras: list[str]) -> dict[str, set[str]]:
    """Return the packages that are installed for one, each with those that it requires.

    Packages that an environment marker leaves out are not installed and are left out.
    """
    edges: dict[str, set[str]] = {}
    waiting = [(name, frozenset(extras))]
    done: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        package, wanted = waiting.pop()
        if (package, wanted) in done:
            continue
        done.add((package, wanted))
        found = edges.setdefault(package, set())
        for needed, its_extras in _needed(package, wanted):
            if needed != package:  # an extra may name others of its own package
                found.add(needed)
            waiting.append((needed, its_extras))
    return edges


@cache
def distribution(name: str) -> Distribution:
    """Return an installed package; searching for it takes milliseconds each time."""
    return metadata.distribution(name)


@cache
def _requirements(name: str) -> list[Requirement]:
    return [Requirement(line) for line in distribution(name).requires or ()]


def _needed(package: str, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for requirement in _requirements(package):
        marker = requirement.marker
        if marker is not None and not any(
            marker.evaluate({"extra": extra}) for extra in extras | {""}
        ):
            continue
        try:
            distribution(requirement.name)
        except PackageNotFoundError:
            if canonicalize_name(requirement.name) in EXCLUDED | NOT_HERE:
                continue
            raise SystemExit(
                f"{requirement.name} is not installed: run `make test` first"
            ) from None
        yield canonicalize_name(requirement.name), frozenset(requirement.extras)


def package_component(package: Distribution, hashes: Mapping[str, list[str]]) -> Component:
    """Return the component of an installed package."""
    name = canonicalize_name(package.name)
    component: Component = {
        "type": "library",
        "bom-ref": reference(name),
        "name": package.name,
        "version": package.version,
        "purl": f"pkg:pypi/{name}@{package.version.replace('+', '%2B')}",
        "licenses": licences(package),
    }
    if summary := package.metadata.get("Summary"):
        component["description"] = summary
    if known := hashes.get(name):
        # One hash a file and platform: which one was installed, pip has compared.
        component["properties"] = [{"name": "polyglance:sha256", "value": " ".join(known)}]
    return component


def licences(package: Distribution) -> list[dict[str, Any]]:
    """Return the licence as SPDX expression, else as the package names it."""
    fields = package.metadata
    if expression := fields.get("License-Expression"):
        return [{"expression": expression}]
    classified = [
        line.rpartition(" :: ")[2]
        for line in fields.get_all("Classifier") or ()
        if line.startswith("License ::") and not line.endswith(":: OSI Approved")
    ]
    written = (fields.get("License") or "").strip().split("\n")[0][:100]
    names = classified or ([written] if written else ["not stated"])
    return [{"license": {"name": name}} for name in names]


def model_component(name: str) -> Component:
    """Return the component of a model that comes with Polyglance."""
    description = ModelFolder.open(name).description
    files = [
        {
            "type": "file",
            "name": file,
            "hashes": [{"alg": "SHA-256", "content": entry["sha256"]}],
        }
        for file, entry in sorted(description.files.items())
    ]
    return {
        "type": "machine-learning-model",
        "bom-ref": f"model:{name}",
        "name": name,
        "components": files,
    }


def weights_component(entry: Entry) -> Component:
    """Return the component of weights that are fetched by name; nothing requires them."""
    return {
        "type": "machine-learning-model",
        "bom-ref": f"weights:{entry.name}",
        "name": entry.name,
        "version": entry.version,
        "description": f"{entry.description}, in {entry.file} of {entry.package}",
        "scope": "optional",
        "hashes": [{"alg": "SHA-256", "content": entry.sha256}],
        "licenses": [{"license": {"name": entry.licence}}],
        "purl": f"pkg:{entry.registry}/{entry.package.replace('@', '%40')}@{entry.version}",
    }


def locked_hashes(lock: str) -> dict[str, list[str]]:
    """Return the hashes of constraints-hashed.txt by package."""
    found: dict[str, list[str]] = {}
    for entry in re.split(r"\n(?=[A-Za-z0-9])", lock):
        if match := re.match(r"([A-Za-z0-9._-]+)==", entry):
            hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)
            found[canonicalize_name(match[1])] = hashes
    return found


def reference(name: str) -> str:
    """Return the name by which dependencies refer to a package."""
    return f"pkg:{name}"


def commit_time() -> str:
    """Return when the commit was made, or now outside of a checkout."""
    done = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    seconds = done.stdout.strip()
    moment = datetime.fromtimestamp(int(seconds), UTC) if seconds else datetime.now(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    main()
