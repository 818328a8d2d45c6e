"""The control map as an OSCAL component definition (NIST, OSCAL 1.1.2): one component, one set of controls a framework.

Ids are UUIDs made from names, so that equal maps give equal bytes.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

from tenancy.rules.controls import ControlFramework, FrameworkControl, frameworks

VERSION = "1.1.2"
"""Version of OSCAL that the document follows."""
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:gpu-tenancy:oscal")


def component_definition(version: str, modified: str) -> dict[str, Any]:
    """The document. `version` is the product's, `modified` a time in RFC 3339, such as 2026-11-24T00:00:00+00:00."""
    component = {
        "uuid": _id("component"),
        "type": "software",
        "title": "gpu-tenancy",
        "description": "Shares a GPU cluster on EKS between tenants: files, policy pack, admission guards and attacks.",
        "control-implementations": [_implementation(framework) for framework in frameworks()],
    }
    return {
        "component-definition": {
            "uuid": _id("definition"),
            "metadata": {
                "title": "Controls that gpu-tenancy holds",
                "last-modified": modified,
                "version": version,
                "oscal-version": VERSION,
            },
            "components": [component],
        }
    }


def _implementation(framework: ControlFramework) -> dict[str, Any]:
    return {
        "uuid": _id(framework.id),
        # No profile is published for these frameworks in OSCAL but NIST's own; the source names the list of ids.
        "source": f"urn:gpu-tenancy:framework:{framework.id}",
        "description": f"{framework.title}; ids: {framework.source}; compared on {framework.date}",
        "implemented-requirements": [_requirement(framework, control) for control in framework.controls],
    }


def _requirement(framework: ControlFramework, control: FrameworkControl) -> dict[str, Any]:
    remarks = [f"{control.asks}: {control.status}"]
    remarks += [f"shown by {proof}" for proof in control.proofs]
    remarks += [text for text in (control.hardware, control.missing, control.others) if text]
    properties = [{"name": "status", "value": control.status.replace(" ", "-"), "ns": "urn:gpu-tenancy"}]
    properties += [{"name": "rule", "value": rule, "ns": "urn:gpu-tenancy"} for rule in control.rules]
    return {
        "uuid": _id(f"{framework.id}/{control.id}"),
        "control-id": token(framework, control),
        "description": "; ".join(remarks),
        "props": properties,
    }


def token(framework: ControlFramework, control: FrameworkControl) -> str:
    """A control's id as OSCAL's data type token, which starts with a letter and has no parentheses."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", control.id).strip("-")
    return plain.lower() if plain[0].isalpha() else f"{framework.id}-{plain}".lower()


def _id(name: str) -> str:
    # A version-4 UUID is what OSCAL's schema asks for: the digest's bits under that version's marks.
    return str(uuid.UUID(bytes=uuid.uuid5(_NAMESPACE, name).bytes, version=4))
