"""What the tests of the attacks share: a deployed environment, and waiting for the API server to notice."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tenancy.live.api import Api
from tenancy.live.attacks import Attack, Scene
from tenancy.live.verify import run
from tenancy.plan import Plan

ROOT = Path(__file__).parents[2]
PATIENCE = 20.0
"""Seconds within which the API server must have noticed a change; it looks at its policies once a second."""


def until(obstacles: Callable[[], object], what: str) -> None:
    """Wait until nothing stands in the way; what still does at the end is in the message."""
    deadline = time.monotonic() + PATIENCE
    while found := obstacles():
        if time.monotonic() > deadline:
            pytest.fail(f"after {PATIENCE:.0f} s still not: {what}; in the way: {found}")
        time.sleep(0.02)


@dataclass(frozen=True)
class Cluster:
    """A deployed environment and what is asked of it."""

    api: Api
    plan: Plan
    scene: Scene
    attacks: tuple[Attack, ...]
    audit_log: Path
    authority: Path
    """Certificate that the API server's is signed by."""


def wait_until_settled(api: Api, plan: Plan, attacks: tuple[Attack, ...]) -> None:
    """Guards in force, and in every namespace what the controllers put there."""
    probes = list({attack.expected_denier: attack for attack in attacks if not attack.skipped}.values())
    until(lambda: [r.as_dict() for r in run(api, probes, twins=False) if not r.refused], "every guard refuses")
    names = [namespace.name for tenant in plan.tenants for namespace in tenant.namespaces]
    paths = [
        f"/api/v1/namespaces/{name}/{what}"
        for name in names
        for what in ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
    ]
    until(lambda: [path for path in paths if not api.request("GET", path).ok], "controllers have been everywhere")
