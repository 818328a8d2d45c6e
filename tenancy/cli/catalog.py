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
ASSUMPTIONS = "a node with the VPC CNI, without EFA, its local disks as one RAID, or a root volume of 200 GiB"
OLD_TYPE_NOTE = "old: EC2 no longer offers it to new customers or in new regions"
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
    "--gpu-sharing",
    "share",
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

    INSTANCE is an EC2 instance type, such as p5.48xlarge. --mig and --gpu-sharing show the pool with its GPUs
    partitioned or shared in that way, checked by the same rules as a spec file: a layout that does not fit ends with
    exit code 2 and shows the calculation.
    """
    if instance is None:
        if mig or share or provisioner:
            fail("given an option without INSTANCE; rule: a pool has one instance type; change: name it", BAD_INPUT)
        _list_instances(form)
        return
    if instance not in INSTANCES:
        from tenancy.spec.reading.mistakes import nearest

        raise Violation("ref-01", f"instance {instance!r}", f"use {' or '.join(nearest(instance, INSTANCES))}")
    machine = INSTANCES[instance]
    if machine.unsupported and not (mig or share or provisioner):
        _show(form, instance, None)
        return
    _show(form, instance, _compute_yield(instance, mig, share, provisioner or "managed"))


# All types


def _list_instances(form: str) -> None:
    if form == "json":
        print_json({"instances": [_instance_facts(name) for name in INSTANCES], "sources": SOURCES})
        return
    reasons = list(dict.fromkeys(instance.unsupported for instance in INSTANCES.values() if instance.unsupported))
    table = Table(
        "GPU instance types",
        ("instance", "GPU", "n", "GiB", "vCPU", "GiB", "EFA", "NVMe GB", "pods", "arch", "MIG", "pool"),
        [
            (
                name,
                instance.gpu,
                instance.gpus,
                gib(boards.BOARDS[instance.gpu].memory_mib),
                instance.vcpu,
                instance.memory,
                *_published_numbers(instance),
                instance.architecture,
                "yes" if boards.BOARDS[instance.gpu].profiles else "no",
                f"no ({reasons.index(instance.unsupported) + 1})"
                if instance.unsupported
                else "old"
                if instance.old
                else "yes",
            )
            for name, instance in INSTANCES.items()
        ],
        [
            "GiB: memory of one GPU, then of the instance; pods: on a managed node, then on a Karpenter node if "
            "different",
            OLD_TYPE_NOTE,
            *(f"no ({number}): {reason}" for number, reason in enumerate(reasons, start=1)),
            _sources(),
        ],
    )
    print_tables([table])


def _published_numbers(instance: Instance) -> tuple[int | None, int | None, str | None]:
    """EFA interfaces, GB of local disks and pods of a type; None where AWS publishes no numbers."""
    if not instance.pods:
        return None, None, None
    managed, karpenter = nodes.pods(instance, "managed"), nodes.pods(instance, "karpenter")
    return instance.efa, instance.nvme, str(managed) if managed == karpenter else f"{managed}/{karpenter}"


def _sources() -> str:
    return f"sources: {'; '.join(SOURCES)}"


def _instance_facts(name: str) -> dict[str, Any]:
    instance = INSTANCES[name]
    board = boards.BOARDS[instance.gpu]
    efa, nvme, pods = _published_numbers(instance)
    return {
        "instance": name,
        "gpu": instance.gpu,
        "gpus": instance.gpus,
        "gpu_memory_gib": gib(board.memory_mib),
        "vcpu": instance.vcpu,
        "memory_gib": instance.memory,
        "efa": efa,
        "nvme_gb": nvme,
        "pods_managed": nodes.pods(instance, "managed") if pods else None,
        "pods_karpenter": nodes.pods(instance, "karpenter") if pods else None,
        "architecture": instance.architecture,
        "mig": bool(board.profiles),
        "old": instance.old,
        "unusable": instance.unsupported or None,
    }


# One type


def _show(form: str, name: str, pool_yield: PoolYield | None) -> None:
    machine = INSTANCES[name]
    board = boards.BOARDS[machine.gpu]
    profiles = _profiles(machine, pool_yield.left if pool_yield else None)
    if form == "json":
        pool = as_json(pool_yield) if pool_yield else None
        source = {"source": board.source, "date": board.date, "driver": board.driver or None}
        print_json(
            {
                **_instance_facts(name),
                "board": source,
                "profiles": profiles,
                "yields": pool,
                "assumed": ASSUMPTIONS,
                "sources": SOURCES,
            }
        )
        return
    instance_table = Table(
        name,
        ("GPUs", "GPU", "GiB each", "vCPU", "GiB", "EFA", "NVMe GB", "pods", "arch"),
        [
            (
                machine.gpus,
                machine.gpu,
                gib(board.memory_mib),
                machine.vcpu,
                machine.memory,
                *_published_numbers(machine),
                machine.architecture,
            )
        ],
        [f"no pool can use this type: {machine.unsupported}"] * bool(machine.unsupported)
        + [OLD_TYPE_NOTE] * machine.old
        + [_sources()],
    )
    profile_table = Table(
        f"Profiles of {machine.gpu}",
        ("profile", "on a GPU", "on a node", "part of a GPU", "vCPU", "memory GiB"),
        [tuple(row.values()) for row in profiles],
        [
            "vCPU and memory: for one slice, if the node has only slices of this profile, as many as fit",
            f"MIG needs driver {board.driver} or later",
            f"source: {board.source} ({board.date})",
        ],
    )
    tables = [instance_table, *(_yield_tables(pool_yield) if pool_yield else ()), profile_table]
    print_tables(tables)


def _yield_tables(pool_yield: PoolYield) -> list[Table]:
    units = sum(unit.count for unit in pool_yield.units)
    platform_pods = pool_yield.daemonsets
    return [
        Table(
            f"A node yields, as {pool_yield.layout}",
            ("resource name", "a node", "part of a GPU", "vCPU", "memory GiB", "disk GiB"),
            [
                (
                    unit.resource,
                    unit.count,
                    str(unit.share),
                    cores(unit.each.cpu),
                    gib(unit.each.memory),
                    gib(unit.each.ephemeral),
                )
                for unit in pool_yield.units
            ],
            [
                "vCPU, memory and disk: for one unit when all units are in use; "
                f"{cores(pool_yield.left.cpu):.2f} vCPU and "
                f"{gib(pool_yield.left.memory):.2f} GiB of a node are left for tenants",
                f"pods: a {pool_yield.provisioner} node takes {pool_yield.allocatable.pods}: "
                f"{platform_pods.pods} of the platform, "
                f"{units} with one on each unit, {pool_yield.pods_left} left",
                *pool_yield.notes,
                f"assumed: {ASSUMPTIONS}",
            ],
        )
    ]


def _profiles(machine: Instance, node_resources: nodes.Resources | None) -> list[dict[str, Any]]:
    from tenancy.planning.queueing.pool_yields import parts_of

    rows = []
    for name, profile in boards.BOARDS[machine.gpu].profiles.items():
        count, share = profile.most * machine.gpus, boards.share_of(machine.gpu, name)
        slice_resources = parts_of(node_resources, {name: (count, share)})[name] if node_resources else None
        rows.append(
            {
                "profile": name,
                "most": profile.most,
                "count": count,
                "share": str(share),
                "vcpu": cores(slice_resources.cpu) if slice_resources else None,
                "memory_gib": gib(slice_resources.memory) if slice_resources else None,
            }
        )
    return rows


def _compute_yield(instance: str, mig: str | None, share: str | None, provisioner: str) -> PoolYield:
    """Yield of a pool in an environment with this pool alone, so that the rules of spec files judge it."""
    from pydantic import ValidationError

    from tenancy.planning.queueing.pool_yields import pool_yield
    from tenancy.spec.fields.environment import Environment

    document = _document(instance, _layout(mig) if mig else None, _sharing(share) if share else None, provisioner)
    try:
        return pool_yield(Environment.from_file(document), _POOL)
    except ValidationError as error:
        from tenancy.spec.reading.messages import located_mistakes

        mistakes = [mistake for mistake, _ in located_mistakes(Environment, error)]
        # A profile that the board lacks is also a mistake in the generated flavor, which is not the user's.
        user_mistakes = [mistake for mistake in mistakes if mistake.location[:1] == ("pools",)] or mistakes
        fail("\n".join(map(str, user_mistakes)), BAD_INPUT)


def _layout(text: str) -> dict[str, Any]:
    from tenancy.spec.fields.pools import BALANCED

    if text == BALANCED:
        return {"layout-name": text}
    layout: dict[str, int] = {}
    for part in text.split(","):
        profile, equals, count = part.strip().partition("=")
        if not profile or profile in layout or (equals and not re.fullmatch("[1-9][0-9]{0,3}", count)):
            _fail_bad_option(
                f"--mig {text}", "a layout has one count for each profile", "write --mig 1g.5gb=4,3g.20gb=1"
            )
        layout[profile] = int(count or "1")
    return {"layout": layout}


def _sharing(text: str) -> dict[str, int]:
    mode, _, count = text.partition("=")
    if mode not in {"time-slicing", "mps"} or not re.fullmatch("[1-9][0-9]{0,3}", count):
        _fail_bad_option(
            f"--gpu-sharing {text}", "GPUs have one sharing mode", "write --gpu-sharing time-slicing=4, or mps=4"
        )
    return {mode: int(count)}


def _fail_bad_option(input_text: str, rule: str, change: str) -> NoReturn:
    fail(f"given {input_text}; rule: {rule}; change: {change}", BAD_INPUT)


def _document(
    instance: str, mig: Mapping[str, Any] | None, share: Mapping[str, int] | None, provisioner: str
) -> dict[str, Any]:
    board = INSTANCES[instance].gpu
    mode = {"gpu-sharing": next(iter(share))} if share else {}
    slices = (mig or {}).get("layout") or (boards.balanced(board) if mig else {})
    flavors = {f"slice-{i}": {"gpu": board, "mig": name, **mode} for i, name in enumerate(slices)}
    pool = {
        "instance-type": instance,
        "nodes": 1 if provisioner == "managed" else {"min": 0, "max": 1},
        "tenants": [_SOLE_TENANT],
        **({"mig": mig} if mig else {}),
        **({"gpu-sharing": share} if share else {}),
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
