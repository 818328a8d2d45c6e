"""The bill of materials of the image, from ci/Containerfile and the lock file: no container engine is needed.

It lists what the file adds and pins. What is inside the base images is not in the file; the document says so, and a
scanner of the built image lists it (`trivy image --format cyclonedx`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from judged.dependencies import versions
from judged.homes import ROOT
from tenancy.lab import recipes

OUT = ROOT / "build" / "sbom-image.json"
FILE = ROOT / "ci" / "Containerfile"
INCOMPLETE = "packages inside the base images, and the versions of Debian's packages, are not listed"

_BASE = re.compile(r"^ARG \w+=(?P<name>[^\s:@]+)(?::(?P<tag>[^\s@]+))?@sha256:(?P<digest>[0-9a-f]{64})$", re.M)
_APT = re.compile(r"apt-get install (?P<words>[^\\\n&]+)")
_COPY = re.compile(r"^COPY --from=(?P<stage>\w+) (?P<path>\S+)", re.M)


def write() -> int:
    """Write build/sbom-image.json; the number of components."""
    bill_of_materials = document(FILE.read_text("utf-8"), (ROOT / "requirements" / "lock.txt").read_text("utf-8"))
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(bill_of_materials, indent=1, sort_keys=True) + "\n", "utf-8")
    return len(bill_of_materials["components"])


def document(containerfile: str, lock: str) -> dict[str, Any]:
    """CycloneDX of an image that is built from these two texts. ValueError if it names no base image by digest."""
    components = [*_bases(containerfile), *_debian(containerfile), *_copied(containerfile), *_python(lock), _engine()]
    if components[0]["type"] != "container":
        raise ValueError(
            "given a Containerfile without a base image by digest; change: name it as ARG NAME=IMAGE@sha256:…"
        )
    subject = {"type": "container", "name": "tenancy-ci", "bom-ref": "tenancy-ci"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": subject, "properties": [{"name": "gpu-tenancy:incomplete", "value": INCOMPLETE}]},
        "components": components,
        "compositions": [{"aggregate": "incomplete", "assemblies": ["tenancy-ci"]}],
    }


def _component(kind: str, name: str, version: str, purl: str, **more: Any) -> dict[str, Any]:
    component = {"type": kind, "name": name, "bom-ref": purl, "purl": purl, **more}
    return {**component, "version": version} if version else component


def _bases(text: str) -> Iterator[dict[str, Any]]:
    for match in _BASE.finditer(text):
        name, tag, digest = match["name"], match["tag"] or "", match["digest"]
        host, _, path = name.partition("/")
        purl = f"pkg:oci/{name.rpartition('/')[2]}@sha256%3A{digest}?repository_url={host}/{path}"
        yield _component("container", name, tag, purl, hashes=[{"alg": "SHA-256", "content": digest}])


def _debian(text: str) -> Iterator[dict[str, Any]]:
    for match in _APT.finditer(text):
        for name in (word for word in match["words"].split() if not word.startswith("-")):
            yield _component("library", name, "", f"pkg:deb/debian/{name}")


def _copied(text: str) -> Iterator[dict[str, Any]]:
    """Programs that are copied out of another image: of the version that the image's digest has."""
    for match in _COPY.finditer(text):
        name = match["path"].rpartition("/")[2]
        yield _component(
            "application", name, "", f"pkg:generic/{name}", description=f"copied from stage {match['stage']}"
        )


def _python(lock: str) -> Iterator[dict[str, Any]]:
    pins: Mapping[str, str] = versions(lock)
    for name, version in sorted(pins.items()):
        yield _component("library", name, version, f"pkg:pypi/{name}@{version}")


def _engine() -> dict[str, Any]:
    version = recipes.load()["pulumi"].version
    return _component("application", "pulumi", version, f"pkg:github/pulumi/pulumi@v{version}")
