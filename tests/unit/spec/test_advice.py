"""The change that a message names, made once and literally, makes the files valid; all problems are shown at once."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import SpecFolder, every

ENV, FRAUD, RESEARCH = "environment.yaml", "tenants/fraud.yaml", "tenants/research.yaml"
SHARE = "a100: {guaranteed: 16, sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16}"
CHEAP = "instance-type: p4d.24xlarge, nodes: {min: 0, max: 2}, tiers: [batch]"
TEAM = "team: quant-research"
TRAIN = "train: {instance-type: p4d.24xlarge, nodes: 4}"


class Seeded(NamedTuple):
    """A mistake: `old` of a file becomes `bad`; `message_parts` are in the one message; `edits` do what it says."""

    file: str
    old: str
    bad: str
    message_parts: tuple[str, ...]
    edits: tuple[tuple[str, str, str], ...]


def seeded(file: str, old: str, bad: str, message_part: str, good: str) -> Seeded:
    """A mistake that another text in the same place mends."""
    return Seeded(file, old, bad, (message_part,), ((file, bad, good),))


SEEDED = {
    "Kueue's word for a limit": seeded(
        FRAUD, "borrowing-limit: 16", "borrowingLimit: 16", "'borrowing-limit'", "borrowing-limit: 16"
    ),
    "Kueue's word for a lent amount": seeded(
        FRAUD, "lending-limit: 8", "lendingLimit: 8", "'lending-limit'", "lending-limit: 8"
    ),
    "Karpenter's word for spot": Seeded(
        ENV,
        "  notebooks:\n",
        f"  cheap: {{{CHEAP}, capacity-type: spot}}\n  notebooks:\n",
        ("did you mean 'purchase'?",),
        ((ENV, "capacity-type: spot", "purchase: spot"),),
    ),
    "a resource as a flavor": Seeded(
        RESEARCH,
        "a100: {guaranteed: 8}",
        "nvidia.com/gpu: {guaranteed: 8}",
        ("name a flavor under flavors of environment.yaml",),
        ((RESEARCH, "nvidia.com/gpu:", "a100:"),),
    ),
    "slices that do not fit beside each other": Seeded(
        ENV,
        "layout: {1g.5gb: 7}",
        "layout: {1g.5gb: 7, 3g.20gb: 1}",
        ("the nearest that fit: 4 x 1g.5gb + 1 x 3g.20gb",),
        (
            (ENV, "layout: {1g.5gb: 7, 3g.20gb: 1}", "layout: {1g.5gb: 4, 3g.20gb: 1}"),
            (ENV, "  l4-shared: {gpu", "  a100-3g.20gb: {gpu: a100-40gb, mig: 3g.20gb}\n  l4-shared: {gpu"),
        ),
    ),
    "profiles of another board": Seeded(
        ENV,
        "layout: {1g.5gb: 7}",
        "layout: {1g.10gb: 4, 3g.40gb: 1}",
        ("the nearest that fit: 4 x 1g.5gb + 1 x 3g.20gb",),
        (
            (ENV, "layout: {1g.10gb: 4, 3g.40gb: 1}", "layout: {1g.5gb: 4, 3g.20gb: 1}"),
            (ENV, "  l4-shared: {gpu", "  a100-3g.20gb: {gpu: a100-40gb, mig: 3g.20gb}\n  l4-shared: {gpu"),
        ),
    ),
    "a capital letter": seeded(RESEARCH, "tier: batch", "tier: Batch", "write batch", "tier: batch"),
    "words with spaces": seeded(
        RESEARCH, "team: quant-research", "team: Quant Research", "write quant-research", "team: quant-research"
    ),
    "all of the internet": Seeded(
        FRAUD,
        "{cidr: 198.51.100.0/24, port: 8443}",
        "{cidr: 0.0.0.0/0, port: 8443}",
        ("internet: true", "cluster.node-and-pod-cidrs"),
        (
            (FRAUD, "cidr: 0.0.0.0/0", "internet: true"),
            (ENV, "  cni: vpc-cni\n", "  cni: vpc-cni\n  node-and-pod-cidrs: [10.0.0.0/16]\n"),
        ),
    ),
    "ports in a list": seeded(FRAUD, "port: 8443}", "ports: [8443]}", "write port: 8443", "port: 8443}"),
    "GPUs in a quota": Seeded(
        FRAUD,
        "quota: {cpu: 16, pods: 20}",
        "quota: {cpu: 16, nvidia.com/gpu: 2}",
        ("drop it, and write the number under gpus of the tenant or of the namespace, by flavor",),
        ((FRAUD, ", nvidia.com/gpu: 2", ""),),
    ),
    "GPUs in a quota's further keys": Seeded(
        FRAUD,
        "quota: {cpu: 16, pods: 20}",
        "quota: {cpu: 16, hard: {requests.nvidia.com/gpu: 2}}",
        ("drop it, and write the number under gpus of the tenant or of the namespace, by flavor",),
        ((FRAUD, ", hard: {requests.nvidia.com/gpu: 2}", ""),),
    ),
    "a quota above the tier's": Seeded(
        FRAUD,
        "quota: {cpu: 16, pods: 20}",
        "quota: {cpu: 200, cpu-limit: 16}",
        ("cpu 200, more than the 128 of tier production", "lower it to 128"),
        ((FRAUD, "cpu: 200, cpu-limit: 16", "cpu: 128, cpu-limit: 256"),),
    ),
    "an owner as a mail address": seeded(
        RESEARCH,
        "owner: {name: research-leads, mail: research@bank.example}",
        "owner: research@bank.example",
        "write it as {name: …, mail: research@bank.example}",
        "owner: {name: research-leads, mail: research@bank.example}",
    ),
    "an instance type that there is not": seeded(ENV, TRAIN, TRAIN.replace("p4d", "p4x"), "use p4d.24xlarge", TRAIN),
    "spot for a pool with guarantees": Seeded(
        ENV,
        TRAIN,
        "train: {instance-type: p4d.24xlarge, nodes: 4, purchase: spot}",
        ("set nodes.min to 0", "tiers to interruptible ones", "guarantees need another pool with the flavor"),
        (
            (
                ENV,
                "train: {instance-type: p4d.24xlarge, nodes: 4, purchase: spot}",
                "train: {instance-type: p4d.24xlarge, nodes: {min: 0, max: 4}, tiers: [batch], purchase: spot}\n"
                "  firm: {instance-type: p4d.24xlarge, nodes: 3}",
            ),
        ),
    ),
    "a time of day with am": Seeded(
        FRAUD,
        "budget: {monthly-usd: 180000}",
        "gpu-windows: [{name: day, flavor: a100, gpus: 4, starts: 9am, ends: 17:00}]",
        ('write "09:00"', "time-01", "set queues.clock to true"),
        (
            (FRAUD, "starts: 9am, ends: 17:00", 'starts: "09:00", ends: "17:00"'),
            (ENV, "buckets:", "queues: {clock: true}\nbuckets:"),
        ),
    ),
}


@pytest.mark.parametrize("about", SEEDED)
def test_what_the_messages_say_is_done_once_and_the_files_are_valid(spec: SpecFolder, about: str) -> None:
    case = SEEDED[about]
    spec.edit(case.file, case.old, case.bad)
    messages = "\n".join(map(str, spec.problems()))
    assert every(text in messages for text in case.message_parts), messages
    assert "tenancy/catalog" not in messages
    for file, old, new in case.edits:
        spec.edit(file, old, new)
    assert spec.problems() == ()


@pytest.mark.parametrize(
    ("typed_time", "advised_time"),
    [("9am", "09:00"), ("5pm", "17:00"), ("12am", "00:00"), ("930", "09:30"), ("9:30", "09:30")],
)
def test_a_time_in_another_spelling_is_said_in_ours(spec: SpecFolder, typed_time: str, advised_time: str) -> None:
    window = f"gpu-windows: [{{name: day, flavor: a100, gpus: 4, starts: '{typed_time}', ends: '23:00'}}]"
    spec.edit(FRAUD, "budget: {monthly-usd: 180000}", window)
    assert any(f'write "{advised_time}"' in problem.change for problem in spec.problems())


# All at once


def fields(spec: SpecFolder) -> list[tuple[str, str]]:
    return [(Path(problem.file).name, problem.field) for problem in spec.problems()]


def test_an_unknown_flavor_is_told_beside_a_mistake_in_the_namespaces(spec: SpecFolder) -> None:
    spec.edit(FRAUD, SHARE, "h100: {guaranteed: 16}")
    spec.edit(FRAUD, "gpus: {a100-1g.5gb: 14}", "gpus: {a100: 14}")
    problems_by_field = {problem.field: problem for problem in spec.problems()}
    assert {"namespaces[1].gpus.a100", "gpus.h100"} <= problems_by_field.keys()
    assert problems_by_field["gpus.h100"].id == "ref-01"


def test_a_broken_environment_hides_nothing_of_the_tenants_that_can_be_known(spec: SpecFolder) -> None:
    spec.edit(ENV, "cni: vpc-cni", "cni: calico")
    spec.edit(RESEARCH, "department: research", "department: risks")
    spec.edit(RESEARCH, "bucket: datasets", "bucket: dataset")
    spec.edit(FRAUD, "tier: batch", "tier: bach")
    assert fields(spec) == [
        ("environment.yaml", "cluster.cni"),
        ("fraud.yaml", "tier"),
        ("research.yaml", "department"),
        ("research.yaml", "storage[0].bucket"),
    ]


def test_what_a_first_mistake_of_the_environment_hides_is_told_too(spec: SpecFolder) -> None:
    """A wrong value of one field, and a pool that names no tier of the environment."""
    spec.edit(ENV, 'kubernetes: "1.36"', "kubernetes: 1.36")
    spec.edit(ENV, "tiers: [production]", "tiers: [prod]")
    assert fields(spec) == [("environment.yaml", "cluster.kubernetes"), ("environment.yaml", "pools.serve.tiers[0]")]


def test_no_consequence_of_a_pool_that_cannot_be_read_is_told(spec: SpecFolder) -> None:
    """fraud and research have their guarantees in it."""
    spec.edit(ENV, TRAIN, TRAIN.replace("nodes: 4", "nodes: four"))
    assert fields(spec) == [("environment.yaml", "pools.train.nodes")]


def test_no_consequence_of_a_tier_that_cannot_be_read_is_told(spec: SpecFolder) -> None:
    spec.edit(ENV, "  batch:\n    priority: 100", "  batch:\n    priority: high")
    assert fields(spec) == [("environment.yaml", "tiers.batch.priority")]


def test_a_guarantee_that_is_too_large_is_told_once_with_its_cause(spec: SpecFolder) -> None:
    """The quota that it would need is no mistake of its own; one that is short of what the pools have is."""
    spec.edit(
        FRAUD, "guaranteed: 16, sharing: lend-and-borrow, lending-limit: 8", "guaranteed: 240, sharing: lend-and-borrow"
    )
    (problem,) = spec.problems()
    assert problem.id == "pool-03"
    assert "take back 216" in problem.change


def test_a_quota_that_is_short_in_several_ways_is_one_problem(spec: SpecFolder) -> None:
    spec.edit(
        RESEARCH,
        "people:",
        "namespaces: [{name: main, quota: {cpu: 1, cpu-limit: 2, memory: 1Gi, memory-limit: 2Gi}}]\npeople:",
    )
    problems = [problem for problem in spec.problems() if problem.id == "queue-02"]
    assert len(problems) == 1
    assert "cpu 1 at 500m each by default, memory 1Gi at 2Gi each by default" in problems[0].given
