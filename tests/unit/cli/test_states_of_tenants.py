"""Every command over every state of a tenant: it answers or says what is wrong, and never ends with a traceback."""

from __future__ import annotations

import datetime as dt
import re
import traceback
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tenancy.catalog import vocabulary
from tenancy.cli import main
from tenancy.clock.usage import Usage
from tenancy.kube.objects import Object
from tenancy.planning import make_plan
from tenancy.spec.loader import Loaded, load
from tests.aws_cases import ON_AWS
from tests.cluster_double import cluster_double, kubeconfig
from tests.conftest import ENVIRONMENT

CLOCKED = ENVIRONMENT.replace("buckets:", "queues: {clock: true}\nprices: {a100-40gb: 2.50, l4: 0.80}\nbuckets:")
TENANT = """\
tenant: NAME
team: NAME
owner: {name: NAME-leads, mail: NAME@bank.example}
department: risk
cost-center: CC-1
tier: batch
people:
  - {group: NAME-people, role: developer}
storage:
  - {bucket: datasets, prefix: teams/NAME/, access: read-write}
"""
GPUS = "gpus: {a100: {guaranteed: 1, sharing: lend-and-borrow, lending-limit: 1, borrowing-limit: 2}}\n"
ALWAYS = "starts: '00:00', ends: '23:59'"
STATES: Mapping[str, str] = {
    "plain": GPUS,
    "without-gpus": "",
    "held": GPUS + "stop-policy: hold\n",
    "drained": GPUS + "stop-policy: hold-and-drain\n",
    "leaves": GPUS + "offboarding: hold\n",
    "exported": GPUS + "offboarding: export\n",
    "removed": GPUS + "offboarding: remove\n",
    "adopted": GPUS + "adopt: true\n",
    "removed-adopted": GPUS + "adopt: true\noffboarding: remove\n",
    "spent": GPUS + "budget: {monthly-usd: 1, when-spent: hold}\n",
    "stopped": GPUS + "budget: {monthly-usd: 1, when-spent: stop, monthly-gpu-hours: 1}\n",
    "alerted": GPUS + "budget: {monthly-usd: 1}\n",
    "in-a-window": GPUS + f"gpu-windows: [{{name: w, flavor: a100, gpus: 1, days: mon-sun, {ALWAYS}}}]\n",
    "two-namespaces": GPUS + "namespaces: [one, {name: two, tier: production, gpus: {a100: 1}}]\n",
    "own-nodes": "isolation: dedicated-nodes\n",
}
"""Name of a tenant, and what its file has beside the fields of every tenant."""

NOT_RUN = {
    "lab up": "starts processes; the files are read as by `up`",
    "lab tools": "builds tools, and reads no tenant",
    "lab logs": "reads no tenant",
    "lab status": "reads no tenant",
    "lab down": "reads no tenant, and ends processes",
    "evidence verify": "reads a folder, and no tenant",
    "discover": "reads nodes, and no tenant",
    "schema": "reads no tenant",
    "rules": "reads no tenant",
    "catalog": "reads no tenant",
    "init": "reads no tenant",
}
"""Commands that read no tenant, or start processes that a test without a lab has not."""

RUN: Mapping[str, tuple[str, ...]] = {
    "validate": ("ENV", "ENV --format json"),
    "render": ("ENV --out OUT", "CLOUD --out OUT", "ENV --out OUT --gitops argo --repo https://git.example/x"),
    "check": ("OUT",),
    "diff": ("ENV ENV", "EMPTY ENV", "ENV EMPTY"),
    "new": (
        "another ENV --team t --owner o --mail o@bank.example --department risk --cost-center CC-1 "
        "--tier batch --group g=developer --dry-run",
    ),
    "up": ("ENV", "ENV --preview"),
    "down": ("ENV --yes",),
    "move": ("ENV --preview",),
    "rollout status": ("ENV",),
    "clock run": ("ENV --once",),
    "export": ("TENANT ENV --out OUT/TENANT",),
    "sample": ("job ENV --tenant TENANT", "pod ENV --tenant TENANT --gpu a100=1"),
    "queues": ("ENV", "ENV --wait-history --format json"),
    "why": ("job/train -n TENANT--main",),
    "can": ("TENANT s3:GetObject s3://datasets/x CLOUD",),
    "who-can": ("s3://datasets/x CLOUD",),
    "fits": ("JOB ENV -n TENANT--main",),
    "verify": ("ENV --brief --only ns-",),
    "evidence make": ("ENV --out OUT --key none",),
    "claims": ("ENV",),
    "report access": ("ENV", "CLOUD", "ENV --tenant TENANT", "ENV --live"),
    "report adoption": ("ENV", "ENV --tenant TENANT"),
    "report calendar": ("ENV --out OUT/calendar.html",),
    "report capacity": ("ENV",),
    "report costs": ("ENV", "CLOUD"),
    "report dashboards": ("ENV --out OUT",),
    "report drift": ("ENV",),
    "report failures": ("ENV",),
    "report page": ("ENV --out OUT/pages", "CLOUD --out OUT/pages", "ENV --tenant TENANT --out OUT/page.html"),
    "report pools": ("ENV",),
    "simulate": ("ENV --jobs 30 --notebooks 2 --write-trace OUT/trace.csv",),
    "chargeback": ("ENV --example 1 --from 2026-10-01 --to 2026-10-03",),
}
"""The call of each command; one with TENANT is called for several tenants. CLOUD has the same tenants on AWS."""


def commands(command: click.Command = main, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The words of every command that is no group."""
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        subcommand = command.get_command(context, name)
        assert subcommand is not None
        yield from commands(subcommand, (*path, name))


def test_every_command_is_run_here_or_has_a_reason() -> None:
    assert sorted([*RUN, *NOT_RUN]) == sorted(commands())


def write_spec(folder: Path, states: Mapping[str, str], aws: str = "  cni: vpc-cni\n") -> Path:
    """The folder of an environment, named as the last folder of the path."""
    (folder / "tenants").mkdir(parents=True)
    text = CLOCKED.replace("environment: small", f"environment: {folder.name}").replace("  cni: vpc-cni\n", aws)
    if "own-nodes" in states:
        pools = "  alone: {instance-type: m7i.4xlarge, nodes: 1, tenants: [own-nodes]}\n  notebooks:\n"
        text = text.replace("  notebooks:\n", pools)
    (folder / "environment.yaml").write_text(text)
    for name, more in states.items():
        (folder / "tenants" / f"{name}.yaml").write_text(TENANT.replace("NAME", name) + more)
    return folder


def live(loaded: Loaded) -> Iterator[Object]:
    """The plan's objects, a job in each namespace, and what the clock has recorded: all budgets are spent."""
    plan = make_plan(loaded, loaded.day)
    yield from plan.objects()
    for space in (space.name for tenant in plan.tenants for space in tenant.namespaces):
        metadata = {"name": "train", "namespace": space}
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"suspend": True}, "status": {}}
    now = dt.datetime.now(dt.UTC)
    names = [tenant.tenant for tenant in loaded.tenants]
    usage = Usage(now, {name: {"a100-40gb": 10**10} for name in names}, dict.fromkeys(names, now))
    metadata = {"name": vocabulary.CLOCK, "namespace": vocabulary.PLATFORM_NAMESPACE}
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"usage": usage.text()}}


def ran(line: str) -> None:
    result = CliRunner().invoke(main, line.split())
    if not (result.exception is None or isinstance(result.exception, SystemExit)):
        pytest.fail(f"tenancy {line}\n{''.join(traceback.format_exception(result.exception))}")
    assert result.exit_code in {0, 1, 2}, line
    assert "Usage:" not in result.output, f"{line} is no line that the command takes: {result.output}"


@pytest.fixture
def out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine, no lab, and nothing of this machine's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("GPU_TENANCY_LAB", str(tmp_path / "lab"))
    (tmp_path / "Pulumi.yaml").write_text("name: gpu-tenancy\nruntime: python\n")
    write_spec(tmp_path / "empty", {})
    (tmp_path / "JOB").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: []}\n")


def each_command(tmp: Path, states: Mapping[str, str], names: Collection[str], monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"ENV": write_spec(tmp / "small", states), "EMPTY": tmp / "empty", "JOB": tmp / "JOB"}
    places["CLOUD"] = write_spec(tmp / "cloud", states, re.sub(r"  people:\n(    .*\n)+", "", ON_AWS))
    with cluster_double(live(load(places["ENV"]))) as address:
        (tmp / "kubeconfig").write_text(kubeconfig(address, "small-context"))
        monkeypatch.setenv("KUBECONFIG", str(tmp / "kubeconfig"))
        for command, lines in RUN.items():
            for number, line in enumerate(lines):
                out = tmp / f"{command.replace(' ', '-')}-{number}"
                if command != "render":
                    out.mkdir()
                filled = line
                for word, place in {**places, "OUT": out}.items():
                    filled = filled.replace(word, str(place))
                for name in names if "TENANT" in line else [""]:
                    ran(f"{command} {filled.replace('TENANT', name)}")


@pytest.mark.usefixtures("out_of_reach")
def test_no_command_ends_with_a_traceback_over_tenants_in_every_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each_command(tmp_path, STATES, ("plain", "without-gpus", "removed", "removed-adopted"), monkeypatch)


@pytest.mark.exhaustive(reason="every command over one tenant and over none; `make test` has every state of a tenant")
@pytest.mark.usefixtures("out_of_reach")
@pytest.mark.parametrize("state", [*STATES, ""])
def test_no_command_ends_with_a_traceback_over_one_tenant_alone_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    states = {state: STATES[state]} if state else {}
    each_command(tmp_path, states, list(states), monkeypatch)


@pytest.mark.exhaustive(reason="every command without queues; `make test` has every state of a tenant")
@pytest.mark.usefixtures("out_of_reach")
def test_no_command_ends_with_a_traceback_where_nothing_is_queued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.CLOCKED", CLOCKED.replace("queues: {clock: true}", "queues: {scheduler: none}"))
    firm = "gpus: {a100: {guaranteed: 1}}\n"
    states = {name: more.replace(GPUS, firm) for name, more in STATES.items() if "budget" not in more}
    for name in ("held", "drained", "in-a-window"):
        del states[name]
    each_command(tmp_path, states, ("plain", "without-gpus", "removed", "removed-adopted"), monkeypatch)
