"""Tenants' stacks that run side by side, and whose run is ended at any moment: the next run goes on from there.

`KILLS=40` asks at more moments.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import signal
import sys
from pathlib import Path

import pytest
from doors import open_doors, planned
from engine_project import NEW_TENANT, CommandResult, Project, children
from fault_proxy import Fault, Trap, in_front
from fleet_project import assert_as_rendered, make_fleet

from tests.waiting import PATIENCE, until

TENANTS = ("credit", "fraud", "risk", "markets", "pricing", "voice")
PLUGIN = "pulumi-resource-kubernetes"
UP = (sys.executable, "-m", "tenancy", "up", "local", "--parallel", "3")
PEOPLE = "  - {{group: {name}-leads, role: owner}}\n"
EGRESS = "egress:\n  - {{cidr: 198.51.100.{octet}/32, port: 8443}}\n"
EGRESS_POLICY = "egress"
pytestmark = pytest.mark.exhaustive(
    reason=(
        "kills runs of several stacks; `make test` kills the engine of one "
        "in tests/engine/test_faults.py and runs several side by side in "
        "tests/engine/test_fleet.py"
    )
)

KILLS = int(os.environ.get("KILLS", "12"))
VICTIMS = ("driver", "engine", "provider", "server")
LAST_REQUEST = 150
"""Max requests after which a run is hit: a run of all tenants sends more."""


def requests_since(project: Project, since: int) -> int:
    with (project.lab.folder / "audit.log").open("rb") as file:
        file.seek(since)
        return file.read().count(b"\n")


def hit(project: Project, victim: str, after: int) -> CommandResult:
    """A run that loses one of its processes after so many requests."""
    since = project.audit_size()
    process = project.start(*UP)
    until(lambda: requests_since(project, since) > after or process.poll() is not None, "the run has begun")
    if victim == "driver":
        os.kill(process.pid, signal.SIGKILL)
    elif victim == "server":
        project.kill_server()
        project.mend_server()
    else:
        plugins = [pid for pid, command in project.engines().items() if PLUGIN in command]
        for pid in sorted(plugins if victim == "provider" else children(process.pid))[-1:]:
            os.kill(pid, signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err, err
    # What a dead driver left at work ends by itself.
    until(lambda: not any("up" in command.split() for command in project.engines().values()), "no engine runs")
    return CommandResult(process.returncode, out, err)


def kill_before_its_state(project: Project, stack: str) -> None:
    """A first run whose engine is killed at its first access binding: what comes before is on the cluster."""
    with in_front(project.lab) as proxy, proxy.armed(Trap(Fault.KILLED, resource="rolebindings")) as trap:
        process = project.start(*UP, "--stack", stack)
        trap.kill = lambda: [os.kill(engine, signal.SIGKILL) for engine in children(process.pid)] and None
        _, err = process.communicate(timeout=PATIENCE)
    assert trap.sprung
    assert process.returncode == 1
    assert f"{stack}: failed" in err
    assert "the engine ended without output" in err


def converges(project: Project) -> None:
    result = project.run(*UP)
    assert result.code == 0, result.text
    assert_as_rendered(project)


def edit_all(project: Project, number: int) -> None:
    for name in TENANTS:
        text = NEW_TENANT.format(name=name) + PEOPLE.format(name=name) + EGRESS.format(octet=number)
        project.write(f"tenants/{name}.yaml", text)


def spaces(project: Project) -> dict[str, str]:
    """Namespaces with their UIDs: one that was made anew has another."""
    return {
        name: item["metadata"]["uid"] for (kind, _, name), item in project.objects().items() if kind == "namespaces"
    }


@pytest.fixture(scope="module")
def fleet(project: Project, every_step: None) -> Project:
    del every_step
    make_fleet(project, TENANTS)
    edit_all(project, 0)  # with every object that a later edit changes
    return project


def test_a_driver_killed_while_tenants_are_made_side_by_side_is_finished_by_the_next_run(fleet: Project) -> None:
    since = fleet.audit_size()
    process = fleet.start(*UP)
    fleet.until_made("/api/v1/namespaces/credit--main", process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    until(lambda: not any("up" in command.split() for command in fleet.engines().values()), "no engine runs")
    uids_before = spaces(fleet)
    converges(fleet)
    after = spaces(fleet)
    assert {name: after[name] for name in uids_before} == uids_before, "no namespace was made anew"
    assert open_doors(fleet, planned(fleet), since, set()) == []


def test_what_an_engine_made_that_was_killed_before_its_first_state_is_taken_over_or_removed(fleet: Project) -> None:
    """One tenant's file loses a line before the next run, the other tenant loses its file."""
    for name in ("late", "left"):
        fleet.write(f"tenants/{name}.yaml", NEW_TENANT.format(name=name) + EGRESS.format(octet=1))
        kill_before_its_state(fleet, f"local--{name}")
    assert fleet.keys_in_state("local--late", "local--left") == set(), "there is no state of what was made"
    uids_before, since, present = spaces(fleet), fleet.audit_size(), set(fleet.objects())

    fleet.write("tenants/late.yaml", NEW_TENANT.format(name="late"))
    fleet.remove("tenants/left.yaml")
    refused = fleet.run(*UP)
    assert refused.code == 1
    assert "local--left, whose tenant has no file" in refused.err
    result = fleet.run(*UP, "--remove", "left")
    assert result.code == 0, result.text
    assert f"removed NetworkPolicy late--main/{EGRESS_POLICY}, which a run that was ended" in result.out
    assert_as_rendered(fleet)
    assert spaces(fleet)["late--main"] == uids_before["late--main"], "no namespace was made anew"
    assert "left--main" not in spaces(fleet)
    assert open_doors(fleet, planned(fleet), since, present) == []


@pytest.mark.parametrize("number", range(KILLS))
def test_a_run_of_all_tenants_killed_at_a_random_moment_is_finished_by_the_next_one(
    fleet: Project, number: int
) -> None:
    generator = random.Random(number)
    victim = VICTIMS[number % len(VICTIMS)]
    edit_all(fleet, number + 1)
    fleet.write(f"tenants/extra{number}.yaml", NEW_TENANT.format(name=f"extra{number}"))
    uids_before, since, present = spaces(fleet), fleet.audit_size(), set(fleet.objects())
    hit(fleet, victim, generator.randrange(LAST_REQUEST))
    converges(fleet)
    after = spaces(fleet)
    assert {name: after[name] for name in uids_before} == uids_before, "no namespace was made anew"
    if victim != "server":  # its audit log has a gap
        assert open_doors(fleet, planned(fleet), since, present) == []


def test_a_tenant_that_cannot_be_made_and_a_lock_of_another_machine_stop_no_other_tenant(fleet: Project) -> None:
    foreign = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "foreign--main"}}
    with fleet.api("admin") as api:
        api.request("POST", "/api/v1/namespaces", foreign, "application/json")
    edit_all(fleet, 201)
    fleet.write("tenants/foreign.yaml", NEW_TENANT.format(name="foreign"))
    lock = write_lock(fleet, "local--credit")
    result = fleet.run(*UP, "--format", "json")
    results = {entry["stack"]: entry for entry in json.loads(result.out)}
    assert result.code == 1
    assert {name for name, entry in results.items() if entry["result"] == "failed"} == {
        "local--foreign",
        "local--credit",
    }
    assert "elsewhere.example" in results["local--credit"]["error"]
    assert results["local--risk"]["result"] == "updated"
    assert "2 of" in result.err
    again = fleet.run(*UP, "--format", "json")
    ran = {entry["stack"] for entry in json.loads(again.out) if entry["result"] != "unchanged"}
    assert ran == {"local--foreign", "local--credit"}, "the others are done"
    lock.unlink()
    with fleet.api("admin") as api:
        api.request("DELETE", "/api/v1/namespaces/foreign--main")
    until(lambda: not fleet.exists("/api/v1/namespaces/foreign--main"), "the foreign namespace is gone")
    converges(fleet)


@pytest.mark.parametrize("at", [1, 20, 40])
def test_credentials_that_expire_in_the_middle_fail_the_stacks_at_work_and_the_next_run_goes_on(
    fleet: Project, at: int
) -> None:
    edit_all(fleet, 100 + at)
    fleet.write(f"tenants/expired{at}.yaml", NEW_TENANT.format(name=f"expired{at}"))
    uids_before, since, present = spaces(fleet), fleet.audit_size(), set(fleet.objects())
    with in_front(fleet.lab) as proxy, proxy.armed(Trap(Fault.EXPIRED, at)) as trap:
        result = fleet.run(*UP)
    assert trap.sprung
    assert result.code == 1
    assert "Traceback" not in result.text
    converges(fleet)
    assert {name: spaces(fleet)[name] for name in uids_before} == uids_before, "no namespace was made anew"
    assert open_doors(fleet, planned(fleet), since, present) == []


def test_a_state_that_a_full_disk_emptied_is_named_and_without_it_its_objects_are_taken_over(fleet: Project) -> None:
    state = fleet.lab.state / ".pulumi" / "stacks" / "gpu-tenancy" / "local--credit.json"
    uids_before = spaces(fleet)
    state.write_text("")
    fleet.write("tenants/credit.yaml", NEW_TENANT.format(name="credit"))  # without its egress
    refused = fleet.run(*UP)
    assert refused.code == 1
    assert "local--credit.json is empty or cut off" in refused.err
    state.unlink()
    result = fleet.run(*UP)
    assert result.code == 0, result.text
    assert f"removed NetworkPolicy credit--main/{EGRESS_POLICY}, which a run that was ended" in result.out
    assert_as_rendered(fleet)
    assert {name: spaces(fleet)[name] for name in uids_before} == uids_before, "no namespace was made anew"


def write_lock(project: Project, stack: str) -> Path:
    folder = project.lab.state / ".pulumi" / "locks" / "organization" / "gpu-tenancy" / stack
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / "11111111-2222-3333-4444-555555555555.json"
    timestamp = dt.datetime.now(dt.UTC).isoformat()
    lock.write_text(
        json.dumps({"pid": 999_999_999, "username": "jane", "hostname": "elsewhere.example", "timestamp": timestamp})
    )
    return lock
