from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tenancy.catalog import boards, nodes
from tenancy.catalog.instances import INSTANCES, Instance
from tenancy.cli.common import BAD_INPUT, example, fail, format_option, print_json, refuses_bad_input
from tenancy.cli.tables import as_json, cores, gib, print_tables
from tenancy.output.tables import Table
from tenancy.rules.catalogue import Violation

if TYPE_CHECKING:
    from tenancy.planning.queueing.pool_yields import PoolYield

SOURCES = (
    "EC2's DescribeInstanceTypes, as moto 5.2.5 keeps it (2026-10-27): processors, memory, GPUs, EFA, NVMe",
    "karpenter-provider-aws v1.14.1 (2026-05-18): pods",
    "awslabs/amazon-eks-ami, Karpenter and the charts of the daemonsets (2026-11-20): resources reserved on a node",
)
"""A summary; `tenancy/catalog/` names the source of each line."""
ASSUMED = "a node with the VPC CNI, without EFA, its local disks as one RAID, or a root volume of 200 GiB"
OLD = "old: EC2 no longer offers it to new customers or in new regions"
_POOL = "pool"
_SOLE_TENANT = "one"


@click.command("catalog", epilog=example("tenancy catalog p4d.24xlarge --mig 1g.5gb=4,3g.20gb=1"))
@click.argument("instance", required=False, metavar="[INSTANCE]")
@click.option(
    "--mig",
    metavar="LAYOUT",
    help="MIG slices per GPU: a count for each profile, such as 1g.5gb=4,3g.20gb=1, or all-balanced. Default: no MIG.",
)
@click.option(
    "--share",
    metavar="MODE=N",
    help="Number of pods that share one GPU or slice, by time-slicing=N or mps=N. Default: no sharing.",
)
@click.option(
    "--provisioner",
    type=click.Choice(["managed", "karpenter"]),
    help="Provisioner of the nodes: EKS managed node groups or Karpenter. It decides the number of pods on a node. "
    "Default: managed.",
)
@format_option
@refuses_bad_input
def command(instance: str | None, mig: str | None, share: str | None, provisioner: str | None, form: str) -> None:
    """List GPU instance types, or show what a pool of INSTANCE would yield.

    INSTANCE is an EC2 instance type, such as p5.48xlarge. --mig and --share show the pool with its GPUs cut or shared
    in that way, judged by the same rules as a spec file: a layout that does not fit ends with exit code 2 and shows
    the calculation.
    """
    if instance is None:
        if mig or share or provisioner:
            fail("given an option without INSTANCE; rule: a pool has one instance type; change: name it", BAD_INPUT)
        _list(form)
        return
    if instance not in INSTANCES:
        from tenancy.schema.pools import nearest

        raise Violation("ref-01", f"instance {instance!r}", f"use {' or '.join(nearest(instance, INSTANCES))}")
    machine = INSTANCES[instance]
    if machine.unsupported and not (mig or share or provisioner):
        _show(form, instance, None)
        return
    _show(form, instance, _yield(instance, mig, share, provisioner or "managed"))


# All types


def _list(form: str) -> None:
    if form == "json":
        print_json({"instances": [_facts(name) for name in INSTANCES], "sources": SOURCES})
        return
    reasons = list(dict.fromkeys(of.unsupported for of in INSTANCES.values() if of.unsupported))
    table = Table(
        "GPU instance types",
        ("instance", "GPU", "n", "GiB", "vCPU", "GiB", "EFA", "NVMe GB", "pods", "arch", "MIG", "pool"),
        [
            (
                name,
                of.gpu,
                of.gpus,
                gib(boards.BOARDS[of.gpu].memory_mib),
                of.vcpu,
                of.memory,
                *_known(of),
                of.architecture,
                "yes" if boards.BOARDS[of.gpu].profiles else "no",
                f"no ({reasons.index(of.unsupported) + 1})" if of.unsupported else "old" if of.old else "yes",
            )
            for name, of in INSTANCES.items()
        ],
        [
            "GiB: memory of one GPU, then of the instance; pods: on a managed node, then on a Karpenter node if "
            "different",
            OLD,
            *(f"no ({number}): {reason}" for number, reason in enumerate(reasons, start=1)),
            _sources(),
        ],
    )
    print_tables([table])


def _known(of: Instance) -> tuple[int | None, int | None, str | None]:
    """EFA interfaces, GB of local disks and pods of a type; None where AWS publishes no numbers."""
    if not of.pods:
        return None, None, None
    managed, karpenter = nodes.pods(of, "managed"), nodes.pods(of, "karpenter")
    return of.efa, of.nvme, str(managed) if managed == karpenter else f"{managed}/{karpenter}"


def _sources() -> str:
    return f"sources: {'; '.join(SOURCES)}"


def _facts(name: str) -> dict[str, Any]:
    of = INSTANCES[name]
    board = boards.BOARDS[of.gpu]
    efa, nvme, pods = _known(of)
    return {
        "instance": name,
        "gpu": of.gpu,
        "gpus": of.gpus,
        "gpu_memory_gib": gib(board.memory_mib),
        "vcpu": of.vcpu,
        "memory_gib": of.memory,
        "efa": efa,
        "nvme_gb": nvme,
        "pods_managed": nodes.pods(of, "managed") if pods else None,
        "pods_karpenter": nodes.pods(of, "karpenter") if pods else None,
        "architecture": of.architecture,
        "mig": bool(board.profiles),
        "old": of.old,
        "unusable": of.unsupported or None,
    }


# One type


def _show(form: str, name: str, found: PoolYield | None) -> None:
    machine = INSTANCES[name]
    board = boards.BOARDS[machine.gpu]
    profiles = _profiles(machine, found.left if found else None)
    if form == "json":
        pool = as_json(found) if found else None
        source = {"source": board.source, "date": board.date, "driver": board.driver or None}
        print_json(
            {
                **_facts(name),
                "board": source,
                "profiles": profiles,
                "yields": pool,
                "assumed": ASSUMED,
                "sources": SOURCES,
            }
        )
        return
    facts = Table(
        name,
        ("GPUs", "GPU", "GiB each", "vCPU", "GiB", "EFA", "NVMe GB", "pods", "arch"),
        [
            (
                machine.gpus,
                machine.gpu,
                gib(board.memory_mib),
                machine.vcpu,
                machine.memory,
                *_known(machine),
                machine.architecture,
            )
        ],
        [f"no pool can use this type: {machine.unsupported}"] * bool(machine.unsupported)
        + [OLD] * machine.old
        + [_sources()],
    )
    cut = Table(
        f"Profiles of {machine.gpu}",
        ("profile", "on a GPU", "on a node", "part of a GPU", "vCPU", "memory GiB"),
        [tuple(of.values()) for of in profiles],
        [
            "vCPU and memory: for one slice, if the node has only slices of this profile, as many as fit",
            f"MIG needs driver {board.driver} or later",
            f"source: {board.source} ({board.date})",
        ],
    )
    tables = [facts, *(_yields(found) if found else ()), cut]
    print_tables(tables)


def _yields(found: PoolYield) -> list[Table]:
    units = sum(unit.count for unit in found.units)
    ours = found.daemonsets
    return [
        Table(
            f"A node yields, as {found.layout}",
            ("resource name", "a node", "part of a GPU", "vCPU", "memory GiB", "disk GiB"),
            [
                (u.resource, u.count, str(u.share), cores(u.each.cpu), gib(u.each.memory), gib(u.each.ephemeral))
                for u in found.units
            ],
            [
                f"vCPU, memory and disk: for one unit when all units are in use; {cores(found.left.cpu):.2f} vCPU and "
                f"{gib(found.left.memory):.2f} GiB of a node are left for tenants",
                f"pods: a {found.provisioner} node takes {found.allocatable.pods}: {ours.pods} of the platform, "
                f"{units} with one on each unit, {found.pods_left} left",
                *found.notes,
                f"assumed: {ASSUMED}",
            ],
        )
    ]


def _profiles(machine: Instance, left: nodes.Resources | None) -> list[dict[str, Any]]:
    from tenancy.planning.queueing.pool_yields import parts_of

    found = []
    for name, profile in boards.BOARDS[machine.gpu].profiles.items():
        count, share = profile.most * machine.gpus, boards.share_of(machine.gpu, name)
        each = parts_of(left, {name: (count, share)})[name] if left else None
        found.append(
            {
                "profile": name,
                "most": profile.most,
                "count": count,
                "share": str(share),
                "vcpu": cores(each.cpu) if each else None,
                "memory_gib": gib(each.memory) if each else None,
            }
        )
    return found


def _yield(instance: str, mig: str | None, share: str | None, provisioner: str) -> PoolYield:
    """What a pool yields in an environment with this pool alone, so that the rules of spec files judge it."""
    from pydantic import ValidationError

    from tenancy.planning.queueing.pool_yields import pool_yield
    from tenancy.schema.environment import Environment

    document = _document(instance, _layout(mig) if mig else None, _sharing(share) if share else None, provisioner)
    try:
        return pool_yield(Environment.from_file(document), _POOL)
    except ValidationError as error:
        from tenancy.schema.messages import explain

        mistakes = [mistake for mistake, _ in explain(Environment, error)]
        # A profile that the board lacks is also a mistake in the generated flavor, which is not the user's.
        asked = [mistake for mistake in mistakes if mistake.where[:1] == ("pools",)] or mistakes
        fail("\n".join(map(str, asked)), BAD_INPUT)


def _layout(text: str) -> dict[str, Any]:
    from tenancy.schema.pools import BALANCED

    if text == BALANCED:
        return {"named": text}
    layout: dict[str, int] = {}
    for part in text.split(","):
        profile, given, count = part.strip().partition("=")
        if not profile or profile in layout or (given and not re.fullmatch("[1-9][0-9]{0,3}", count)):
            _misread(f"--mig {text}", "a layout has one count for each profile", "write --mig 1g.5gb=4,3g.20gb=1")
        layout[profile] = int(count or "1")
    return {"layout": layout}


def _sharing(text: str) -> dict[str, int]:
    mode, _, count = text.partition("=")
    if mode not in {"time-slicing", "mps"} or not re.fullmatch("[1-9][0-9]{0,3}", count):
        _misread(f"--share {text}", "GPUs have one sharing mode", "write --share time-slicing=4, or mps=4")
    return {mode: int(count)}


def _misread(given: str, rule: str, change: str) -> NoReturn:
    fail(f"given {given}; rule: {rule}; change: {change}", BAD_INPUT)


def _document(
    instance: str, mig: Mapping[str, Any] | None, share: Mapping[str, int] | None, provisioner: str
) -> dict[str, Any]:
    board = INSTANCES[instance].gpu
    mode = {"share": next(iter(share))} if share else {}
    slices = (mig or {}).get("layout") or (boards.balanced(board) if mig else {})
    flavors = {f"slice-{i}": {"gpu": board, "mig": name, **mode} for i, name in enumerate(slices)}
    pool = {
        "instance": instance,
        "nodes": 1 if provisioner == "managed" else {"min": 0, "max": 1},
        "tenants": [_SOLE_TENANT],
        **({"mig": mig} if mig else {}),
        **({"share": share} if share else {}),
    }
    return {
        "environment": "catalog",
        "organisation": {"name": "none", "departments": {"none": {}}},
        "platform": {"group": "none"},
        "cluster": {"name": "catalog", "context": "catalog"},
        "images": {"registries": ["none.example/"], "sample": "none.example/none:0"},
        "tiers": {"any": {"priority": 0, "interruptible": True}},
        "flavors": flavors or {"gpu": {"gpu": board, **mode}},
        "pools": {_POOL: pool},
    }
