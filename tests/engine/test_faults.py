"""The API server fails, or the engine dies, at any step: the next run goes on from there, and no access binding comes
before isolation.

`EVERY_FAULT=1` asks at every write with every fault, which takes half an hour.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from doors import key, open_doors, planned
from engine_project import NEW_TENANT, CommandResult, Project
from fault_proxy import Fault, Proxy, Trap, in_front

from tenancy.cluster.api import path_of
from tenancy.lab.api import ApiError, LabApi
from tenancy.planning.kubernetes.samples import sample
from tenancy.spec.loader import load
from tests.waiting import PATIENCE, until

pytestmark = [pytest.mark.chapters, pytest.mark.usefixtures("every_step")]

UP = ("pulumi", "up", "--yes", "--skip-preview", "--non-interactive", "--stack", "local")
DESTROY = ("pulumi", "destroy", "--yes", "--skip-preview", "--non-interactive", "--stack", "local")
OF_TENANT = NEW_TENANT + "  - {{group: {name}-leads, role: owner}}\n"
EVERY_FAULT = bool(os.environ.get("EVERY_FAULT"))
GUARDS = {"validatingadmissionpolicies", "validatingadmissionpolicybindings"}
ONCE = [fault for fault in Fault if fault is not Fault.EXPIRED]
OBJECTS = 15
"""Lower bound of the writes for a new tenant."""

PLATFORM = [
    Trap(Fault.BUSY, resource="clusterroles"),
    Trap(Fault.UNANSWERED, at=2, resource="validatingadmissionpolicies"),
    Trap(Fault.ERROR, resource="validatingadmissionpolicybindings"),
    # The first: by the time that one failed, the engine may have made all others.
    Trap(Fault.UNDELIVERED, resource="validatingadmissionpolicybindings"),
    Trap(Fault.CONFLICT, resource="tenancy-readiness"),
    Trap(Fault.UNANSWERED, resource="configmaps"),
]
REMOVAL = [
    Trap(Fault.ERROR, at=1),
    Trap(Fault.UNANSWERED, resource="rolebindings"),
    Trap(Fault.BUSY, at=2, resource="rolebindings"),
    Trap(Fault.UNDELIVERED, resource="namespaces"),
    Trap(Fault.UNANSWERED, resource="namespaces"),
    Trap(Fault.ERROR, resource="validatingadmissionpolicybindings"),
    Trap(Fault.KILLED, at=3, resource="validatingadmissionpolicies"),
]


@pytest.fixture(scope="module")
def proxy(project: Project) -> Iterator[Proxy]:
    """In front of an empty cluster, for an environment with no tenant yet."""
    for path in (project.environment / "tenants").iterdir():
        path.unlink()
    project.edit(
        "environment.yaml", "    gpu-sharing: {time-slicing: 4}\n    tenants: [research]", "    tiers: [research]"
    )
    project.edit("environment.yaml", "{gpu: l4, gpu-sharing: time-slicing}", "{gpu: l4}")
    assert project.pulumi("stack", "init", "local").code == 0
    with in_front(project.lab) as running_proxy:
        yield running_proxy


def hit(project: Project, proxy: Proxy, trap: Trap, command: tuple[str, ...]) -> CommandResult:
    """A run that goes into the trap."""
    with proxy.armed(trap):
        process = project.start(*command)
        trap.kill = lambda: os.kill(process.pid, signal.SIGKILL)
        out, err = process.communicate(timeout=PATIENCE)
    result = CommandResult(process.returncode, out, err)
    assert trap.sprung, f"no request went into {trap}: {result.text}"
    assert "Traceback" not in result.text
    return result


@pytest.mark.exhaustive(
    reason="every fault at every step of a platform; `make test` kills the engine at a tenant's namespace"
)
def test_a_platform_that_fails_at_step_after_step_is_finished_by_the_next_run(project: Project, proxy: Proxy) -> None:
    for trap in PLATFORM:
        result = hit(project, proxy, trap, UP)
        assert result.code != 0, f"{trap.sprung} was told to fail: {result.text}"
        assert project.keys_in_state() <= set(project.objects()), "the state holds nothing that is not there"
    project.up()
    plan = planned(project)
    assert set(project.objects()) == {key(item) for item in plan.objects()} == project.keys_in_state()


def points() -> list[Any]:
    """Which write of a new tenant's, and how: its namespace first, then its isolation resources, then its bindings."""
    if EVERY_FAULT:
        return [pytest.param("", at, fault) for at, fault in itertools.product(range(1, OBJECTS + 1), ONCE)]
    steps_by_resource = {
        "namespaces": "1 killed, 1 lost",
        "resourcequotas": "1 500, 1 lost",
        "limitranges": "1 cut",
        "networkpolicies": "1 409, 2 killed, 3 lost",
        "rolebindings": "1 429, 1 cut, 2 lost, 2 killed",
    }
    always = ("namespaces", "1 killed")
    return [
        pytest.param(
            resource,
            int(at),
            Fault(how),
            marks=()
            if (resource, step) == always
            else pytest.mark.exhaustive(
                reason="every other step and fault; `make test` kills the engine at a tenant's namespace"
            ),
        )
        for resource, all_of_it in steps_by_resource.items()
        for step in all_of_it.split(", ")
        for at, how in [step.split()]
    ]


@pytest.mark.parametrize(("resource", "at", "fault"), points())
def test_a_tenant_that_fails_at_a_step_is_finished_by_the_next_run(
    project: Project, proxy: Proxy, resource: str, at: int, fault: Fault
) -> None:
    before, since = project.versions(), project.audit_size()
    name = f"{resource[:3] or 'any'}{at}-{fault}"
    project.write(f"tenants/{name}.yaml", OF_TENANT.format(name=name))
    trap = Trap(fault, at, resource)
    result = hit(project, proxy, trap, UP)
    assert result.code != 0 or fault in {Fault.BUSY, Fault.UNDELIVERED, Fault.UNANSWERED}, (
        "what can be asked again may be asked again"
    )
    # Of a dead engine only `tenancy up` settles what is pending; of a lost answer either takes over what stands.
    if fault is Fault.KILLED or (fault is Fault.UNANSWERED and at == 1):
        project.up()
    else:
        again = project.run(*UP)
        assert again.code == 0, again.text
    plan, after = planned(project), project.versions()
    assert open_doors(project, plan, since, set(before)) == []
    assert set(after) == {key(item) for item in plan.objects()} == project.keys_in_state()
    assert {key: after[key] for key in before} == before, "no other tenant's objects changed"


@pytest.mark.exhaustive(
    reason="a quota below its use in the real engine; tests/cluster/test_adoption.py takes over below use"
)
def test_a_quota_below_what_is_used_ends_nothing_and_admits_nothing_more(project: Project, proxy: Proxy) -> None:
    del proxy
    project.write("tenants/full.yaml", OF_TENANT.format(name="full"))
    project.up()
    loaded = load(project.environment)
    tenant = next(tenant for tenant in loaded.tenants if tenant.tenant == "full")
    pod = sample("pod", loaded.environment, tenant, tenant.namespaces[0], {})
    path, quota = path_of(pod).rpartition("/")[0], "/api/v1/namespaces/full--main/resourcequotas/tenant"

    def ask(api: LabApi, number: int) -> None:
        api.request("POST", path, {**pod, "metadata": {**pod["metadata"], "name": f"pod-{number}"}}, "application/json")

    with project.api() as api:
        until(lambda: project.exists("/api/v1/namespaces/full--main/serviceaccounts/default"), "it takes pods")
        for number in range(3):
            ask(api, number)
        before = {item["metadata"]["uid"] for item in api.get(path)["items"]}
        project.write(
            "tenants/full.yaml", OF_TENANT.format(name="full") + "namespaces: [{name: main, quota: {pods: 2}}]\n"
        )
        project.up()
        until(lambda: api.get(quota)["status"]["hard"]["pods"] == "2", "the controllers know the new quota")
        assert api.get(quota)["status"]["used"]["pods"] == "3"
        assert {item["metadata"]["uid"] for item in api.get(path)["items"]} == before
        with pytest.raises(ApiError, match="exceeded quota: tenant, requested: pods=1, used: pods=3, limited: pods=2"):
            ask(api, 3)
        for number in range(3):
            api.request("DELETE", f"{path}/pod-{number}?gracePeriodSeconds=0")


@pytest.mark.exhaustive(reason="the sum of the faults above; each ends with a run that has nothing left to do")
def test_after_all_this_there_is_nothing_left_to_do(project: Project, proxy: Proxy) -> None:
    del proxy
    result = project.pulumi("preview", "--stack", "local", "--expect-no-changes", "--refresh")
    assert result.code == 0, result.text


@pytest.mark.exhaustive(
    reason="every fault of a removal; tests/engine/test_offboarding.py goes on after one that was held"
)
def test_a_removal_that_fails_at_step_after_step_is_finished_by_the_next_and_opens_nothing(
    project: Project, proxy: Proxy
) -> None:
    plan, since, present = planned(project), project.audit_size(), set(project.objects())
    unprotection = project.pulumi("state", "unprotect", "--all", "--yes", "--stack", "local")
    assert unprotection.code == 0, unprotection.text
    sprung = []
    for trap in REMOVAL:
        # A run that is hit ends what it has begun beside: there may be none of that kind left.
        if sum(kind == trap.resource for kind, _, _ in project.keys_in_state()) < trap.at and trap.resource:
            continue
        hit(project, proxy, trap, DESTROY)
        sprung.append(trap)
        keys_in_state = project.keys_in_state()
        stands = {
            key
            for key in project.objects()
            if key[0] == "rolebindings" or ("namespaces", "", key[1]) not in keys_in_state
        }
        assert stands <= keys_in_state, "no binding is forgotten, and nothing that does not go with its namespace"
    assert len(sprung) >= len(REMOVAL) - 2, sprung
    result = project.tenancy("down", "local", "--yes")
    assert result.code == 0, result.text
    assert open_doors(project, plan, since, present) == []
    assert project.objects() == {}
    assert project.keys_in_state() == set()
