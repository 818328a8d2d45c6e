"""What an update of a cluster's stack would delete or replace, by the state of what AWS has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Network
from typing import Any

from tenancy.engine.changes import ResourceChange
from tenancy.engine.minors import refused_minor
from tenancy.planning.aws.cluster import PLATFORM_ROLE, ClusterPlan, NodeGroupPlan
from tenancy.planning.aws.creation import (
    CREATED_HERE,
    FIXED_FIELDS,
    adds_zones,
    fixed_values,
    group_field,
    group_values,
    zone_difference,
)
from tenancy.planning.common.names import SUBNET_TAG, SubnetUse, node_group_names

CLUSTER, VPC, SUBNET = "aws:eks/cluster:Cluster", "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet"
NODE_GROUP, ENTRY = "aws:eks/nodeGroup:NodeGroup", "aws:eks/accessEntry:AccessEntry"
REMOVABLE = (
    NODE_GROUP,
    ENTRY,
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
    "aws:eks/addon:Addon",
    "aws:eks/podIdentityAssociation:PodIdentityAssociation",
)
"""Protected resources of a cluster that go when the files no longer have them."""
PROTECTED = (CLUSTER, VPC, SUBNET, *REMOVABLE)
NOTHING_CHANGED = "nothing was changed"

Resources = Sequence[Mapping[str, Any]]


BY_NAME = ("Cluster ", "NodeGroup ", "Subnet ", "Vpc ")
"""Kinds that an update neither replaces nor deletes unless it was asked to by name."""
DATA = ("Bucket ", "Key ")
"""Kinds with data that cannot be made again: never replaced. Deleted, they leave the state and stay on AWS."""


def unasked(
    changes: Iterable[ResourceChange], plan: ClusterPlan | None, replacing: Collection[str], removed: Collection[str]
) -> list[str]:
    """Changes of a preview that replace or delete what nothing named."""
    named = {urn.rpartition("::")[2] for urn in removed}
    if plan:
        named |= {node_group_names(plan.name, group)[1] for group in replacing}
    guarded = {"replace": (*BY_NAME, *DATA), "delete": BY_NAME}
    return [
        str(change)
        for change in changes
        if change.object.startswith(guarded.get(change.operation, ())) and change.object.partition(" ")[2] not in named
    ]


@dataclass(frozen=True, slots=True)
class GroupChange:
    """A node group that another value of the files replaces."""

    group: NodeGroupPlan
    differences: tuple[str, ...]
    keeps_zones: bool
    """Whether only zones of the environment were added, for which no existing group is replaced."""


@dataclass(frozen=True)
class ClusterChanges:
    """The plan of a cluster compared with the state of its stack."""

    plan: ClusterPlan
    resources: Resources
    named: Collection[str] = ()
    """Node groups and zones whose replacement was asked for by name."""

    def refusals(self) -> Iterator[str]:
        """Why this plan is not applied: one message for each value that AWS cannot change in place."""
        if self._cluster is None:
            return
        yield from self._minor()
        yield from self._fixed()
        yield from self._ranges()
        yield from self._zones()
        yield from self._groups()

    def notes(self) -> Iterator[str]:
        """What stays as it is though the files changed."""
        kept = [
            change for change in self.group_changes if change.keeps_zones and change.group.name not in self.replacing
        ]
        for change in kept:
            yield (
                f"nodes of {change.group.name} stay in the zones that they have ({', '.join(change.differences)}): "
                f"`--replace {change.group.name}` replaces them"
            )

    @cached_property
    def replacing(self) -> frozenset[str]:
        """What the program may replace: node groups by name, and PLATFORM_ROLE."""
        groups = {
            change.group.name
            for change in self.group_changes
            if change.group.name in self.named or set(self._zones_of(change.group)).intersection(self.named)
        }
        principals = {found["inputs"]["principalArn"] for found in self._of(ENTRY)}
        return frozenset(groups | ({PLATFORM_ROLE} if principals - {self.plan.platform_role} else set()))

    @cached_property
    def removed(self) -> frozenset[str]:
        """URNs of protected resources that this plan removes: the files name neither the pool nor the zone any more,
        and the zone was named on the command line."""
        wanted = {node_group_names(self.plan.name, group.name)[1] for group in self.plan.groups}
        wanted |= {f"{self.plan.name}-{add_on.name}" for add_on in self.plan.add_ons}
        wanted |= {f"{self.plan.name}-platform"}
        wanted |= {f"{self.plan.name}-karpenter"} if self.plan.karpenter else set()
        gone = {r["urn"] for r in self._of(*REMOVABLE) if r["urn"].rpartition("::")[2] not in wanted}
        zones = set(self._dropped).intersection(self.named)
        return frozenset(gone | {r["urn"] for r in self._of(SUBNET) if r["inputs"]["availabilityZone"] in zones})

    @property
    def unprotected(self) -> frozenset[str]:
        """URNs of resources that the program protects and the state does not yet: those of a version that protected the
        cluster's key alone, and groups that were replaced."""
        if not self.plan.deletion_protection:
            return frozenset()
        return frozenset(r["urn"] for r in self._of(*PROTECTED) if not r.get("protect"))

    @cached_property
    def group_changes(self) -> tuple[GroupChange, ...]:
        """Node groups that exist and are planned with other values that EKS fixes."""
        return tuple(self._changed_groups())

    def _of(self, *kinds: str) -> list[Mapping[str, Any]]:
        return [found for found in self.resources if found["type"] in kinds]

    @cached_property
    def _cluster(self) -> Mapping[str, Any] | None:
        return next(iter(self._of(CLUSTER)), None)

    @cached_property
    def _private(self) -> dict[str, Mapping[str, Any]]:
        """Private subnets that the stack made, by zone."""
        subnets = (found["inputs"] | {"id": found["id"]} for found in self._of(SUBNET))
        return {s["availabilityZone"]: s for s in subnets if s.get("tags", {}).get(SUBNET_TAG) == SubnetUse.PRIVATE}

    @cached_property
    def _zone_by_subnet(self) -> dict[str, str]:
        made = {subnet["id"]: zone for zone, subnet in self._private.items()}
        return made | {subnet.subnet_id: subnet.zone for subnet in self.plan.network.subnets if subnet.subnet_id}

    @cached_property
    def _dropped(self) -> list[str]:
        """Zones with a subnet of the stack that the plan no longer has."""
        wanted = {subnet.zone for subnet in self.plan.network.subnets}
        return sorted(zone for zone in self._private if zone not in wanted)

    def _recorded(self) -> dict[str, str]:
        """The values of fixed fields that AWS has; without those that the state does not know."""
        assert self._cluster
        inputs, outputs = self._cluster["inputs"], self._cluster.get("outputs") or {}
        arn = str(outputs.get("arn") or "").split(":")
        made = next(iter(self._of(VPC)), None)
        given = inputs.get("kubernetesNetworkConfig") or outputs.get("kubernetesNetworkConfig") or {}
        key = inputs["encryptionConfig"]["provider"].get("keyArn") or ""
        values = {
            "cluster.name": inputs["name"],
            "cluster.service-cidr": given.get("serviceIpv4Cidr") or "",
            "aws.network.vpc": CREATED_HERE if made else (outputs.get("vpcConfig") or {}).get("vpcId") or "",
            "aws.network.cidr": made["inputs"]["cidrBlock"] if made else "",
            "aws.encryption-key": CREATED_HERE if self._of("aws:kms/key:Key") else key,
        }
        return values | ({"aws.region": arn[3], "aws.account": arn[4]} if len(arn) > 5 else {})

    def _minor(self) -> Iterator[str]:
        if refused := refused_minor(self.plan, self.resources):
            yield refused

    def _fixed(self) -> Iterator[str]:
        wanted = fixed_values(self.plan)
        for field, value in self._recorded().items():
            if value and wanted[field] and value != wanted[field]:
                yield (
                    f"given {field}: {wanted[field]}, and a cluster that was made with {value}; rule: "
                    f"{FIXED_FIELDS[field]}, and for another value the engine would delete its nodes, add-ons and "
                    f"access first; change: write {value} again; for {wanted[field]} make a second environment with "
                    f"another cluster.name, and `tenancy export` saves what a tenant has here; {NOTHING_CHANGED}"
                )

    def _ranges(self) -> Iterator[str]:
        for subnet in self.plan.network.subnets:
            made = self._private.get(subnet.zone)
            if made is None or subnet.subnet_id or made["cidrBlock"] == subnet.private:
                continue
            network = IPv4Network(self.plan.network.cidr)
            quarters = [str(each) for each in network.subnets(prefixlen_diff=2)]
            if made["cidrBlock"] not in quarters:
                continue  # the VPC itself has another range
            change = f"write aws.network.quarters: {{{subnet.zone}: {quarters.index(made['cidrBlock']) + 1}}}"
            yield (
                f"given {subnet.private} for {subnet.zone}, whose subnet has {made['cidrBlock']}; rule: EC2 fixes the "
                f"range of a subnet, and EKS that of a node group's subnets; change: {change}; {NOTHING_CHANGED}"
            )

    def _zones(self) -> Iterator[str]:
        assert self._cluster
        first = {self._zone_by_subnet.get(each) for each in self._cluster["inputs"]["vpcConfig"]["subnetIds"]}
        for zone in self._dropped:
            there = sorted(c.group.name for c in self.group_changes if zone in self._zones_of(c.group))
            nodes = f"nodes of {', '.join(there)}" if there else "no nodes"
            if zone in first:
                yield (
                    f"given aws.zones without {zone}, in which the control plane was made; rule: EKS fixes the zones "
                    f"of a control plane; change: write {zone} again; to move its nodes ({nodes}) out of it, name the "
                    f"other zones in aws.system.zones and in the pools' zones, and run this with `--replace {zone}`; "
                    f"{NOTHING_CHANGED}"
                )
            elif zone not in self.named:
                yield (
                    f"given aws.zones without {zone}, which has {nodes}; rule: a zone is left by name, because its "
                    f"node groups are replaced and its subnets deleted; change: write {zone} again, or run this with "
                    f"`--replace {zone}`, which replaces the groups in waves; {NOTHING_CHANGED}"
                )

    def _groups(self) -> Iterator[str]:
        dropped = set(self._dropped)
        for change in self.group_changes:
            group = change.group
            if group.name in self.replacing or change.keeps_zones or dropped.intersection(self._zones_of(group)):
                continue
            yield (
                f"given {group_field(group)} with {', '.join(change.differences)}; rule: EKS fixes it when a node "
                "group is made, and another value deletes the group with its nodes first; change: write the old value "
                f"again, add a pool beside it and remove this one later, or run this with `--replace {group.name}`, "
                f"which replaces its nodes, in waves; {NOTHING_CHANGED}"
            )

    def _zones_of(self, group: NodeGroupPlan) -> list[str]:
        """Zones that a group's nodes are in; ids of subnets that neither the state nor the files know."""
        logical = node_group_names(self.plan.name, group.name)[1]
        for found in self._of(NODE_GROUP):
            if found["urn"].endswith(f"::{logical}"):
                return sorted(self._zone_by_subnet.get(each, each) for each in found["inputs"]["subnetIds"])
        return []

    def _changed_groups(self) -> Iterator[GroupChange]:
        existing = {found["urn"].rpartition("::")[2]: found["inputs"] for found in self._of(NODE_GROUP)}
        for group in self.plan.groups:
            inputs = existing.get(node_group_names(self.plan.name, group.name)[1])
            if inputs is None:
                continue
            values = {"capacity type": inputs.get("capacityType"), "image type": inputs.get("amiType")}
            wanted = group_values(group)
            found = [f"{what} {values[what]} → {wanted[what]}" for what in wanted if values[what] != wanted[what]]
            zones = self._zones_of(group)
            keeps = adds_zones(zones, group) and not found
            if found := [*found, *zone_difference(zones, group)]:
                yield GroupChange(group, tuple(found), keeps)
