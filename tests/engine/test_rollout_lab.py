"""A new version in waves, with a real engine and API server: a red gate stops it, and the next run goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from engine_project import Done, Project
from fleet_project import assert_as_rendered, make_fleet

pytestmark = pytest.mark.exhaustive

TENANTS = ("credit", "fraud", "risk")
WAVES = "rollout: {canary: [fraud], wave-size: 1, pause: 0}\n"
LEAK: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "leak"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}],
}
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


@pytest.fixture(scope="module")
def fleet(project: Project) -> Project:
    make_fleet(project, TENANTS, WAVES)
    project.up()
    return project


def new_version(project: Project, number: int) -> None:
    pack = project.folder / "policy" / "PulumiPolicy.yaml"
    pack.write_text(pack.read_text("utf-8") + f"# version {number}\n", "utf-8")


def standing(project: Project) -> dict[str, int]:
    """Tenants with the present version, by wave."""
    done = project.tenancy("rollout", "status", "local", "--format", "json")
    assert done.code == 0, done.text
    return {wave["wave"]: len(wave["done"]) for wave in json.loads(done.out)["waves"]}


def up(project: Project) -> Done:
    return project.tenancy("up", "local")


def test_a_red_gate_stops_it_after_the_canary_and_the_next_run_goes_on(fleet: Project) -> None:
    assert standing(fleet) == {"canary": 1, "wave 1": 1, "wave 2": 1}
    new_version(fleet, 1)
    with fleet.api("admin") as api:
        api.request("POST", BINDINGS, LEAK, "application/json")
    stopped = up(fleet)
    assert stopped.code == 1
    assert "the rollout of local stopped before wave 1\n  `tenancy verify` found a gap" in stopped.err
    assert standing(fleet) == {"canary": 1, "wave 1": 0, "wave 2": 0}

    again = up(fleet)
    assert again.code == 1, "the gate is asked again"
    assert standing(fleet) == {"canary": 1, "wave 1": 0, "wave 2": 0}

    with fleet.api("admin") as api:
        api.request("DELETE", f"{BINDINGS}/leak")
    done = up(fleet)
    assert done.code == 0, done.text
    assert standing(fleet) == {"canary": 1, "wave 1": 1, "wave 2": 1}
    assert_as_rendered(fleet)


def test_guards_that_are_newer_than_tenants_isolate_them_and_older_ones_refuse_a_newer_tenant(fleet: Project) -> None:
    source = next(
        path
        for path in (fleet.folder / "tenancy").rglob("*.py")
        if any(line.startswith("VERSION = ") and line[10:].strip().isdigit() for line in path.read_text().splitlines())
    )
    text = source.read_text()
    line = next(line for line in text.splitlines() if line.startswith("VERSION = "))
    source.write_text(text.replace(line, f"VERSION = {int(line[10:]) + 1}"))
    alone = fleet.tenancy("up", "local", "--stack", "local--credit")
    assert alone.code == 1
    assert "guards of version" in alone.err, alone.text

    first = fleet.tenancy("up", "local", "--stack", "local")
    assert first.code == 0, first.text
    assert standing(fleet) == {"canary": 0, "wave 1": 0, "wave 2": 0}
    gate = fleet.tenancy("verify", "local", "--brief")
    assert gate.code == 0, gate.text
    done = up(fleet)
    assert done.code == 0, done.text
    assert standing(fleet) == {"canary": 1, "wave 1": 1, "wave 2": 1}
