"""Environments whose attacks together are all that there are, and what a manifest tells of an attack."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.kube.objects import Object
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import load
from tenancy.verify.attacks import Attack, Scene, all_attacks
from tests.claims import by_claim

ROOT = Path(__file__).parents[1]
WORLDS = ("local", "bank", "every-kind", "dra", "unmanaged", "older")
"""The bank with Cilium, `local`, `local` with one setting changed, and the small one where GPUs are claimed."""


@cache
def world_of(name: str) -> tuple[Environment, tuple[Tenant, ...]]:
    if name == "dra":
        with TemporaryDirectory() as folder:
            loaded = load(by_claim(Path(folder) / "small").path)
        return loaded.environment, tuple(loaded.tenants)
    loaded = load(ROOT / "stacks" / (name if name in {"local", "bank"} else "local"))
    environment = loaded.environment
    queues = environment.queues
    changes = {
        "every-kind": {"queues": queues.model_copy(update={"kinds": tuple(FRAMEWORKS)})},
        "older": {"cluster": environment.cluster.model_copy(update={"kubernetes": "1.33"})},
        "unmanaged": {"platform": environment.platform.model_copy(update={"unmanaged_namespaces": ("legacy",)})},
    }
    return environment.model_copy(update=changes.get(name, {})), tuple(loaded.tenants)


@cache
def creations(name: str) -> tuple[Attack, ...]:
    """The attacks of an environment that make an object, on rules, RBAC and quota."""
    scene = Scene(*world_of(name), ["nvidia"], ["plain"])
    return tuple(attack for attack in all_attacks(scene) if not attack.skipped and attack.request.method == "POST")


def manifest(path: str, body: Any) -> Object:
    """The object of a request, as a file holds it."""
    space = path.split("/namespaces/")[1].split("/")[0] if "/namespaces/" in path else None
    return {**body, "metadata": {"name": "x", **body["metadata"], **({"namespace": space} if space else {})}}
