"""The first run of an environment in one stack, whose state is written once: an engine that is killed loses nothing."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from doors import open_doors, planned
from engine_project import Project, children
from fault_proxy import Fault, Trap, in_front

from tenancy.catalog import vocabulary
from tests.conftest import every
from tests.waiting import PATIENCE

pytestmark = [
    pytest.mark.exhaustive(
        reason="kills a first run that writes its state once; `make test` kills one in tests/engine/test_faults.py"
    ),
    pytest.mark.usefixtures("every_step"),
]
EGRESS = "egress:\n  - {cidr: 198.51.100.0/24, port: 8443}\n"
"""As in the file of tenant fraud."""


@pytest.fixture
def killed(project: Project) -> Project:
    """The engine was killed when it had made some access bindings: of more than one tenant, and not all."""
    project.fresh()
    for tenant in ("performance", "research"):
        project.edit(f"tenants/{tenant}.yaml", "department:", f"{EGRESS}department:")
    with in_front(project.lab) as proxy, proxy.armed(Trap(Fault.KILLED, at=8, resource="rolebindings")) as trap:
        process = project.start(sys.executable, "-m", "tenancy", "up", "local")
        trap.kill = lambda: [os.kill(engine, signal.SIGKILL) for engine in children(process.pid)] and None
        _, err = process.communicate(timeout=PATIENCE)
    assert trap.sprung
    assert process.returncode == 1
    assert "the engine ended without output; run the command again" in err
    assert project.keys_in_state() == set(), "there is no state of what was made"
    assert len(spaces(project)) > 1
    return project


def spaces(project: Project) -> dict[str, str]:
    return {
        name: item["metadata"]["uid"] for (kind, _, name), item in project.objects().items() if kind == "namespaces"
    }


def test_the_next_run_takes_over_what_is_planned_and_removes_the_rest(killed: Project) -> None:
    uids_before, since, present = spaces(killed), killed.audit_size(), set(killed.objects())
    opened = {space for kind, space, name in present if kind == "networkpolicies" and name == "egress"}
    killed.remove("tenants/performance.yaml")
    for tenant in ("fraud", "research"):
        killed.edit(f"tenants/{tenant}.yaml", EGRESS, "")
    refused = killed.tenancy("up", "local")
    assert refused.code == 1
    assert "tenant performance, which has no file; rule ns-07" in refused.err
    assert set(killed.objects()) == present, "nothing was changed"
    result = killed.tenancy("up", "local", "--remove", "performance")
    assert result.code == 0, result.text
    assert every(
        f"local: removed NetworkPolicy {space}/egress, which a run that was ended had made" in result.out
        for space in opened
        if not space.startswith("performance")
    )
    assert killed.keys_in_state() == set(killed.objects())
    after = spaces(killed)
    assert set(after) == {vocabulary.PLATFORM_NAMESPACE, "fraud--serve", "fraud--train", "research--main"}
    assert every(uids_before.get(name, uid) == uid for name, uid in after.items()), "no namespace was made anew"
    assert open_doors(killed, planned(killed), since, present) == []
    assert "0 of 1 stacks to run" in killed.tenancy("up", "local").out


def test_a_removal_finds_what_no_state_has(killed: Project) -> None:
    result = killed.tenancy("down", "local", "--yes")
    assert result.code == 0, result.text
    assert killed.objects() == {}
    assert "there is nothing to remove" in killed.tenancy("down", "local", "--yes").out
