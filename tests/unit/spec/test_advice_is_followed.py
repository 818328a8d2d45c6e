"""A person who does literally what a message says ends with valid files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tenancy.spec.loader import load
from tenancy.spec.reading.problems import Problem, SpecError
from tests.demo import Demo, demo
from tests.followed_advice import NotNamed, follow

ENV, TENANT = "environment", "vision"
ROUNDS = 3
"""Times that a person reads the messages and does what they say."""


@dataclass(frozen=True)
class Slip:
    """A mistake in a file: what is written, and the edit where its message leaves a choice to the reader."""

    name: str
    file: str
    path: tuple[Any, ...]
    value: Any = None
    without: tuple[Any, ...] = ()
    """Fields that the author did not write, because they are under the other name."""
    choice: Callable[[Demo], None] | None = None
    flavors: dict[str, Any] = field(default_factory=dict)
    """Flavors that are declared for it."""
    tier: str = "steady"
    """Tier of the tenant."""

    def make(self, files: Demo) -> None:
        """Write the mistake."""
        files[ENV]["flavors"] |= self.flavors
        files[TENANT]["tier"] = self.tier
        if self.without:
            *parents, last = self.without
            _at(files[self.file], parents).pop(last)
        *parents, last = self.path
        _at(files[self.file], parents)[last] = self.value


def _at(content: Any, path: Any) -> Any:
    for part in path:
        content = content.setdefault(part, {}) if isinstance(content, dict) else content[part]
    return content


def env(name: str, *path: Any, **more: Any) -> Slip:
    return Slip(name, ENV, path[:-1], path[-1], **more)


def tenant(name: str, *path: Any, **more: Any) -> Slip:
    return Slip(name, TENANT, path[:-1], path[-1], **more)


def to_the_dns_cache(files: Demo) -> None:
    files[TENANT].pop("egress")
    files[ENV]["cluster"]["node-local-dns"] = True


def setting(*path: Any) -> Callable[[Demo], None]:
    """The change that the message asks for, with the number or name that only its reader knows."""

    def change(files: Demo) -> None:
        file, *keys, value = path
        *parents, last = keys
        _at(files[file], parents)[last] = value

    return change


TRAIN = ("pools", "train")
POOL = {"instance-type": "p5.48xlarge", "tenants": ["vision"]}
OLD = ("gpus", "h100")
SLICES = {"slice": {"gpu": "h100-80gb", "mig": "1g.10gb"}}
PARTS = {"part": {"gpu": "h100-80gb", "mig": "1g.10gb", "gpu-sharing": "time-slicing"}}
TIME_SLICED_FLAVOR = {"shared": {"gpu": "h100-80gb", "gpu-sharing": "time-slicing"}}
SLICED = {"instance-type": "p5.48xlarge", "nodes": 4, "tenants": ["vision"]}
MISTAKES = (
    # Names from Kueue
    tenant("nominalQuota", *OLD, "nominalQuota", 16, without=(*OLD, "guaranteed")),
    tenant("borrowingLimit", "gpus", "h100", {"guaranteed": 16, "sharing": "lend-and-borrow", "borrowingLimit": 4}),
    tenant("lendingLimit", "gpus", "h100", {"guaranteed": 16, "sharing": "lend", "lendingLimit": 4}),
    tenant("cohort", "cohort", "science", without=("department",)),
    tenant("cohortName", "cohortName", "science", without=("department",)),
    tenant("stopPolicy", "stopPolicy", "hold"),
    env("queueingStrategy", "tiers", "steady", {"priority": 1000, "queueingStrategy": "strict"}),
    tenant("namespaceSelector", "namespaceSelector", {"matchLabels": {"team": "vision"}}),
    tenant("preemption", "preemption", {"reclaimWithinCohort": "Any"}),
    tenant("resourceGroups", "resourceGroups", [{"coveredResources": ["nvidia.com/gpu"]}]),
    # Names from Karpenter
    env("capacityType", *TRAIN, "capacityType", "on-demand"),
    env("instanceTypes", *TRAIN, "instanceTypes", ["p5.48xlarge"], without=(*TRAIN, "instance-type")),
    env("a list of instance types", *TRAIN, "instance-type", ["p5.48xlarge", "p4d.24xlarge"]),
    env("amiSelectorTerms", *TRAIN, "amiSelectorTerms", [{"alias": "al2023@latest"}]),
    env("ami", *TRAIN, "ami", "ami-0abcdef1234567890"),
    env("consolidationPolicy", *TRAIN, "consolidationPolicy", "WhenEmpty"),
    env("expireAfter", *TRAIN, "expireAfter", "720h"),
    env("limits of a pool", *TRAIN, "limits", {"nvidia.com/gpu": 64}),
    env("weight of a pool", *TRAIN, "weight", 10),
    env("taints", *TRAIN, "taints", [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]),
    env("labels of a pool", *TRAIN, "labels", {"team": "vision"}),
    env("requirements", *TRAIN, "requirements", [{"key": "karpenter.sh/capacity-type"}]),
    # Names from Terraform
    env("instance_type", *TRAIN, "instance_type", "p5.48xlarge", without=(*TRAIN, "instance-type")),
    env("instance_types", *TRAIN, "instance_types", ["p5.48xlarge"], without=(*TRAIN, "instance-type")),
    env("desired_size", *TRAIN, "desired_size", 4, without=(*TRAIN, "nodes")),
    env("capacity_type", *TRAIN, "capacity_type", "on-demand"),
    env("availability_zones", *TRAIN, "availability_zones", ["eu-central-1a"], without=(*TRAIN, "zones")),
    env("cluster_version", "cluster", "cluster_version", "1.36", without=("cluster", "kubernetes")),
    env("cluster_name", "cluster", "cluster_name", "demo", without=("cluster", "name")),
    tenant("cost_center", "cost_center", "CC-1", without=("cost-center",)),
    env("user_data", *TRAIN, "user_data", "#!/bin/bash"),
    env("disk_size", *TRAIN, "disk_size", 200),
    *(
        env(f"{key} of a pool", *TRAIN, key, 4, without=(*TRAIN, "nodes"))
        for key in ("count", "node_count", "size", "desiredCapacity", "min_size", "maxSize", "min", "max-nodes")
    ),
    *(
        env(f"{keys} of a pool", "pools", "train", {**POOL, **keys})
        for keys in (
            {"min_size": 2, "max_size": 8},
            {"minSize": 2, "maxSize": 8, "desiredSize": 2},
            {"scaling_config": {"min_size": 2, "max_size": 8, "desired_size": 2}},
            {"autoscaling": {"minNodes": 2, "maxNodes": 8}},
        )
    ),
    # Habits from Helm and Kubernetes
    env("replicas", *TRAIN, "replicas", 4, without=(*TRAIN, "nodes")),
    tenant("resourceQuota", "namespaces", [{"name": "main", "resourceQuota": {"pods": 20}}]),
    env("limitRange", "tiers", "steady", {"priority": 1000, "limitRange": {"max": {"cpu": "8"}}}),
    env("priorityClassName", "tiers", "steady", {"priorityClassName": 1000}),
    tenant("email", "owner", {"name": "vision-leads", "email": "vision@acme.example"}),
    tenant(
        "toFQDNs",
        "egress",
        [{"toFQDNs": "api.vendor.example", "port": 443}],
        choice=setting(ENV, "cluster", "cni", "cilium"),
    ),
    tenant("ipBlock", "egress", [{"ipBlock": "198.51.100.0/24", "port": 443}]),
    tenant("requests.nvidia.com/gpu", "namespaces", [{"name": "main", "quota": {"requests.nvidia.com/gpu": 8}}]),
    env(
        "a limit of an extended resource",
        "tiers",
        "steady",
        {"priority": 1000, "quota": {"hard": {"limits.rdma/hca": 8}}},
    ),
    env("a limit of GPUs", "tiers", "steady", {"priority": 1000, "quota": {"hard": {"limits.nvidia.com/gpu": 8}}}),
    # Wrong types and units
    *(
        env(f"nodes: {nodes}", *TRAIN, "nodes", nodes)
        for nodes in ("4", "four", 4.0, "2-8", [2, 8], {"min": "2", "max": 8.0}, {"minSize": 2, "maxSize": 8})
    ),
    *(
        env(f"gpu-sharing: {sharing}", "pools", "cut", {**SLICED, "gpu-sharing": sharing}, flavors=TIME_SLICED_FLAVOR)
        for sharing in ("per-gpu", "none", "mig", "exclusive")
    ),
    *(
        env(
            f"gpu-sharing: {sharing}",
            "pools",
            "cut",
            {**SLICED, "gpu-sharing": sharing},
            flavors=TIME_SLICED_FLAVOR,
            tier="burst",
        )
        for sharing in ("time-slicing", 4, True, {"replicas": 4}, {"mode": "time-slicing", "replicas": 4})
    ),
    *(tenant(f"h100: {share}", *OLD, share) for share in (16, "16", None, {"count": 16}, {"guaranteed": 16.0})),
    *(tenant(f"the role {role}", "people", [{"group": "leads", "role": role}]) for role in ("admin", "edit", "read")),
    tenant("a person's address", "people", [{"email": "jane@acme.example", "role": "viewer"}]),
    *(
        env(f"purchase: {purchase}", *TRAIN, "purchase", purchase)
        for purchase in ("ON_DEMAND", ["on-demand"], {"type": "on-demand", "market": "on-demand"})
    ),
    tenant("namespaces as a text", "namespaces", "main"),
    tenant("a namespace in capitals", "namespaces", ["Main"]),
    tenant("a transport in small letters", "egress", [{"ip": "198.51.100.7", "port": 443, "protocol": "tcp"}]),
    env("shared per GPU", "flavors", "h100", {"gpu": "h100-80gb", "gpu-sharing": "per-gpu"}),
    env("a version without quotes", "cluster", "kubernetes", 1.36),
    env("a yes", *TRAIN, "efa", "yes"),
    tenant("a number as text", *OLD, "guaranteed", "16"),
    tenant("a cost center that is a number", "cost-center", 4711),
    env("memory in GB", "tiers", "steady", {"priority": 1000, "quota": {"memory": "512GB"}}),
    env("memory without a unit", "tiers", "steady", {"priority": 1000, "quota": {"memory": 512}}),
    env("CPU in bytes", "tiers", "steady", {"priority": 1000, "quota": {"cpu": "64Gi"}}),
    env(
        "huge pages without a unit",
        "tiers",
        "steady",
        {"priority": 1000, "quota": {"hard": {"requests.hugepages-2Mi": 5}}},
    ),
    env("a bare extended resource", "tiers", "steady", {"priority": 1000, "quota": {"hard": {"rdma/hca": 8}}}),
    tenant("a name in capitals", "team", "Vision_Team"),
    tenant("an address without a host", "owner", {"name": "leads", "mail": "vision"}),
    tenant("a port as text", "egress", [{"cidr": "198.51.100.0/24", "port": "443"}]),
    tenant("a range that begins inside of itself", "egress", [{"cidr": "198.51.100.7/24", "port": 443}]),
    env("nodes in a range that begins inside of itself", "cluster", "ranges", ["10.1.2.3/16"]),
    tenant("a range without a length", "egress", [{"cidr": "198.51.100.7", "port": 443}]),
    # Wrong boards and sums
    *(
        env(f"the board {board}", "flavors", "h100", {"gpu": board})
        for board in ("h100", "H100", "NVIDIA-H100-80GB-HBM3", "nvidia_h100_80gb")
    ),
    *(
        env(f"the board {board} besides", "flavors", "besides", {"gpu": board})
        for board in ("MI300X", "trn1", "nvidia.com/gpu", "A100", "Tesla-V100")
    ),
    env("an instance that does not exist", *TRAIN, "instance-type", "p5.48xl"),
    env("a profile of another board", "flavors", "part", {"gpu": "h100-80gb", "mig": "1g.5gb"}),
    env(
        "a slice by its resource's name",
        "pools",
        "cut",
        {**SLICED, "mig": {"layout": {"1g.10gb": 7}}},
        flavors={"slice": {"gpu": "h100-80gb", "mig": "nvidia.com/mig-1g.10gb"}},
    ),
    env("a layout of another board", "pools", "cut", {**SLICED, "mig": {"layout": {"1g.5gb": 7}}}, flavors=SLICES),
    env("a layout with too many slices", "pools", "cut", {**SLICED, "mig": {"layout": {"1g.10gb": 8}}}, flavors=SLICES),
    env("a pool without a flavor", "pools", "cut", {**SLICED, "mig": {"layout": {"1g.10gb": 7}}}),
    env(
        "more pods than a node takes",
        "pools",
        "cut",
        {**SLICED, "mig": {"layout": {"1g.10gb": 7}}, "gpu-sharing": {"time-slicing": 2}},
        flavors=PARTS,
        tier="burst",
    ),
    env(
        "more replicas than a node takes pods",
        "pools",
        "cut",
        {**SLICED, "gpu-sharing": {"time-slicing": 40}},
        flavors=TIME_SLICED_FLAVOR,
        tier="burst",
    ),
    env(
        "some GPUs shared",
        "pools",
        "cut",
        {**SLICED, "gpu-sharing": {"per-gpu": [{"gpus": 2, "time-slicing": 4}]}},
        flavors=TIME_SLICED_FLAVOR,
        tier="burst",
    ),
    env(
        "some GPUs shared by MPS",
        "pools",
        "cut",
        {**SLICED, "gpu-sharing": {"mps": 4, "per-gpu": [{"gpus": 2, "mps": 4}]}},
        flavors={"shared": {"gpu": "h100-80gb", "gpu-sharing": "mps"}},
        tier="burst",
    ),
    tenant("a flavor that is not declared", "gpus", {"a100": {"guaranteed": 1}}),
    tenant("more than the nodes have", *OLD, "guaranteed", 64, choice=setting(TENANT, *OLD, "guaranteed", 32)),
    tenant(
        "lent more than held",
        "gpus",
        "h100",
        {"guaranteed": 8, "sharing": "lend", "lending-limit": 9},
        choice=setting(TENANT, *OLD, "lending-limit", 8),
    ),
    tenant(
        "borrowed under strict",
        "gpus",
        "h100",
        {"guaranteed": 8, "borrowing-limit": 4},
        choice=setting(TENANT, *OLD, "sharing", "lend-and-borrow"),
    ),
    env(
        "min above max",
        *TRAIN,
        "nodes",
        {"min": 4, "max": 2},
        choice=setting(ENV, *TRAIN, "nodes", {"min": 2, "max": 2}),
    ),
    # Collisions
    tenant("a tier that is not declared", "tier", "stedy"),
    tenant("a department that is not declared", "department", "sience"),
    tenant(
        "two namespaces of one name",
        "namespaces",
        [{"name": "main"}, {"name": "main"}],
        choice=setting(TENANT, "namespaces", 1, "name", "other"),
    ),
    env(
        "a maximum without a default",
        "tiers",
        "steady",
        {"priority": 1000, "container": {"max": {"hugepages-2Mi": "1Gi"}}},
    ),
    env(
        "a default that leaves memory out", "tiers", "steady", {"priority": 1000, "container": {"default": {"cpu": 4}}}
    ),
    env("GPUs in a limit range", "tiers", "steady", {"priority": 1000, "container": {"max": {"nvidia.com/gpu": 8}}}),
    env("huge pages for all", "tiers", "steady", {"priority": 1000, "container": {"min": {"hugepages-2Mi": "2Mi"}}}),
    tenant(
        "everybody's group",
        "people",
        [{"group": "system:authenticated", "role": "developer"}],
        choice=setting(TENANT, "people", 0, "group", "vision-engineers"),
    ),
    tenant(
        "the address of the DNS cache",
        "egress",
        [{"cidr": "169.254.20.10/32", "port": 53, "protocol": "UDP"}],
        choice=to_the_dns_cache,
    ),
    tenant(
        "the address of the DNS cache without a length",
        "egress",
        [{"cidr": "169.254.20.10", "port": 53, "protocol": "UDP"}],
        choice=to_the_dns_cache,
    ),
)


def mend(files: Demo, folder: Path, slip: Slip) -> str:
    """Empty once the files are valid, or what a person cannot follow or is still told after it."""
    problems: tuple[Problem, ...] = ()
    for turn in range(ROUNDS + 1):
        try:
            load(files.write(folder))
        except SpecError as error:
            problems = error.problems
        else:
            return "" if turn else "it is no mistake"
        for problem in problems if turn < ROUNDS else ():
            try:
                follow(files, problem)
            except NotNamed as choice:
                if slip.choice is None:
                    return f"no change is named: {choice}"
                slip.choice(files)
    return f"still told: {problems[0]}"


def test_doing_what_the_message_says_makes_the_files_valid(tmp_path: Path) -> None:
    load(demo().write(tmp_path))
    assert len(MISTAKES) >= 60
    remaining_problems = {}
    for number, slip in enumerate(MISTAKES):
        files = demo()
        slip.make(files)
        if problem_text := mend(files, tmp_path / str(number), slip):
            remaining_problems[slip.name] = problem_text
    assert remaining_problems == {}


@pytest.mark.parametrize(
    ("slip", "change"),
    [
        (tenant("AWS resources", "uses", {}), "did you mean 'aws-resources'?"),
        (tenant("a limit", "gpus", "h100", "borrow-up-to", 8), "did you mean 'borrowing-limit'?"),
        (tenant("a gate", "queue", "hold"), "did you mean 'stop-policy'?"),
        (env("shared GPUs", "pools", "train", "share", {}), "did you mean 'gpu-sharing'?"),
        (env("further resources", "tiers", "steady", "quota", "other", {}), "did you mean 'hard'?"),
        (env("an order", "tiers", "steady", "order", "strict-fifo"), "did you mean 'queueing-strategy'?"),
        (env("an update", "rollout", "after", []), "did you mean 'depends-on'?"),
    ],
    ids=lambda value: value.name if isinstance(value, Slip) else "change",
)
def test_a_former_key_is_answered_with_the_key_of_today(slip: Slip, change: str, tmp_path: Path) -> None:
    files = demo()
    slip.make(files)
    with pytest.raises(SpecError) as error:
        load(files.write(tmp_path))
    changes = [problem.change for problem in error.value.problems if f"key '{slip.path[-1]}'" in problem.given]
    assert changes == [change]
