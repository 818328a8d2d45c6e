"""Resources that an update of a cluster's stack would delete or replace, by the state of what AWS has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Network
from typing import Any

from tenancy.catalog.versions import MINOR_RULE, minor_step
from tenancy.deploy.changes import ResourceChange
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


def unrequested_changes(
    changes: Iterable[ResourceChange], plan: ClusterPlan | None, replacing: Collection[str], removed: Collection[str]
) -> list[str]:
    """Changes of a preview that replace or delete what nothing named."""
    requested_names = {urn.rpartition("::")[2] for urn in removed}
    if plan:
        requested_names |= {node_group_names(plan.name, group)[1] for group in replacing}
    guarded = {"replace": (*BY_NAME, *DATA), "delete": BY_NAME}
    return [
        str(change)
        for change in changes
        if change.object.startswith(guarded.get(change.operation, ()))
        and change.object.partition(" ")[2] not in requested_names
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
    requested_names: Collection[str] = ()
    """Node groups and zones whose replacement was asked for by name."""

    def refusals(self) -> Iterator[str]:
        """Why this plan is not applied: one message for each value that AWS cannot change in place."""
        if self._cluster is None:
            return
        if refusal := kubernetes_refusal(self.plan, self.resources):
            yield refusal
        yield from self._fixed()
        yield from self._ranges()
        yield from self._zones()
        yield from self._groups()

    def notes(self) -> Iterator[str]:
        """Notes about what stays as it is although the files changed."""
        unchanged_groups = [
            change for change in self.group_changes if change.keeps_zones and change.group.name not in self.replacing
        ]
        for change in unchanged_groups:
            yield (
                f"nodes of {change.group.name} stay in the zones that they have ({', '.join(change.differences)}): "
                f"`--replace {change.group.name}` replaces them"
            )

    @cached_property
    def replacing(self) -> frozenset[str]:
        """Names that the program may replace: node groups, and PLATFORM_ROLE."""
        groups = {
            change.group.name
            for change in self.group_changes
            if change.group.name in self.requested_names
            or set(self._zones_of(change.group)).intersection(self.requested_names)
        }
        principals = {entry["inputs"]["principalArn"] for entry in self._resources_of_type(ENTRY)}
        return frozenset(groups | ({PLATFORM_ROLE} if principals - {self.plan.platform_role} else set()))

    @cached_property
    def removed(self) -> frozenset[str]:
        """URNs of protected resources that this plan removes: the files name neither the pool nor the zone any more,
        and the zone was named on the command line."""
        planned_names = {node_group_names(self.plan.name, group.name)[1] for group in self.plan.groups}
        planned_names |= {f"{self.plan.name}-{add_on.name}" for add_on in self.plan.add_ons}
        planned_names |= {f"{self.plan.name}-platform"}
        planned_names |= {f"{self.plan.name}-karpenter"} if self.plan.karpenter else set()
        removed_urns = {
            r["urn"] for r in self._resources_of_type(*REMOVABLE) if r["urn"].rpartition("::")[2] not in planned_names
        }
        zones = set(self._removed_zones).intersection(self.requested_names)
        return frozenset(
            removed_urns
            | {r["urn"] for r in self._resources_of_type(SUBNET) if r["inputs"]["availabilityZone"] in zones}
        )

    @property
    def unprotected(self) -> frozenset[str]:
        """URNs of resources that the program protects and the state does not yet: those of a version that protected the
        cluster's key alone, and groups that were replaced."""
        if not self.plan.deletion_protection:
            return frozenset()
        return frozenset(r["urn"] for r in self._resources_of_type(*PROTECTED) if not r.get("protect"))

    @cached_property
    def group_changes(self) -> tuple[GroupChange, ...]:
        """Node groups that exist and are planned with other values that EKS fixes."""
        return tuple(self._changed_groups())

    def _resources_of_type(self, *kinds: str) -> list[Mapping[str, Any]]:
        return [resource for resource in self.resources if resource["type"] in kinds]

    @cached_property
    def _cluster(self) -> Mapping[str, Any] | None:
        return next(iter(self._resources_of_type(CLUSTER)), None)

    @cached_property
    def _private(self) -> dict[str, Mapping[str, Any]]:
        """Private subnets that the stack made, by zone."""
        subnets = (subnet["inputs"] | {"id": subnet["id"]} for subnet in self._resources_of_type(SUBNET))
        return {s["availabilityZone"]: s for s in subnets if s.get("tags", {}).get(SUBNET_TAG) == SubnetUse.PRIVATE}

    @cached_property
    def _zone_by_subnet(self) -> dict[str, str]:
        zones = {subnet["id"]: zone for zone, subnet in self._private.items()}
        return zones | {subnet.subnet_id: subnet.zone for subnet in self.plan.network.subnets if subnet.subnet_id}

    @cached_property
    def _removed_zones(self) -> list[str]:
        """Zones with a subnet of the stack that the plan no longer has."""
        planned_zones = {subnet.zone for subnet in self.plan.network.subnets}
        return sorted(zone for zone in self._private if zone not in planned_zones)

    def _recorded(self) -> dict[str, str]:
        """The values of fixed fields that AWS has; without those that the state does not know."""
        assert self._cluster
        inputs, outputs = self._cluster["inputs"], self._cluster.get("outputs") or {}
        arn = str(outputs.get("arn") or "").split(":")
        vpc = next(iter(self._resources_of_type(VPC)), None)
        network_config = inputs.get("kubernetesNetworkConfig") or outputs.get("kubernetesNetworkConfig") or {}
        key = inputs["encryptionConfig"]["provider"].get("keyArn") or ""
        values = {
            "cluster.name": inputs["name"],
            "cluster.service-cidr": network_config.get("serviceIpv4Cidr") or "",
            "aws.network.vpc": CREATED_HERE if vpc else (outputs.get("vpcConfig") or {}).get("vpcId") or "",
            "aws.network.cidr": vpc["inputs"]["cidrBlock"] if vpc else "",
            "aws.kms-key-arn": CREATED_HERE if self._resources_of_type("aws:kms/key:Key") else key,
        }
        return values | ({"aws.region": arn[3], "aws.account": arn[4]} if len(arn) > 5 else {})

    def _fixed(self) -> Iterator[str]:
        planned_values = fixed_values(self.plan)
        for field, value in self._recorded().items():
            if value and planned_values[field] and value != planned_values[field]:
                yield (
                    f"given {field}: {planned_values[field]}, and a cluster that was made with {value}; rule: "
                    f"{FIXED_FIELDS[field]}, and for another value the engine would delete its nodes, add-ons and "
                    f"access first; change: write {value} again; for {planned_values[field]} make a second environment "
                    f"with another cluster.name, and `tenancy export` saves what a tenant has here; {NOTHING_CHANGED}"
                )

    def _ranges(self) -> Iterator[str]:
        for subnet in self.plan.network.subnets:
            existing = self._private.get(subnet.zone)
            if existing is None or subnet.subnet_id or existing["cidrBlock"] == subnet.private:
                continue
            network = IPv4Network(self.plan.network.cidr)
            quarters = [str(network_quarter) for network_quarter in network.subnets(prefixlen_diff=2)]
            if existing["cidrBlock"] not in quarters:
                continue  # the VPC itself has another range
            change = f"write aws.network.zone-quarters: {{{subnet.zone}: {quarters.index(existing['cidrBlock']) + 1}}}"
            yield (
                f"given {subnet.private} for {subnet.zone}, whose subnet has {existing['cidrBlock']}; rule: EC2 fixes "
                f"the range of a subnet, and EKS that of a node group's subnets; change: {change}; {NOTHING_CHANGED}"
            )

    def _zones(self) -> Iterator[str]:
        assert self._cluster
        first = {self._zone_by_subnet.get(subnet_id) for subnet_id in self._cluster["inputs"]["vpcConfig"]["subnetIds"]}
        for zone in self._removed_zones:
            groups_in_zone = sorted(c.group.name for c in self.group_changes if zone in self._zones_of(c.group))
            nodes = f"nodes of {', '.join(groups_in_zone)}" if groups_in_zone else "no nodes"
            if zone in first:
                yield (
                    f"given aws.zones without {zone}, in which the control plane was made; rule: EKS fixes the zones "
                    f"of a control plane; change: write {zone} again; to move its nodes ({nodes}) out of it, name the "
                    f"other zones in aws.system.zones and in the pools' zones, and run this with `--replace {zone}`; "
                    f"{NOTHING_CHANGED}"
                )
            elif zone not in self.requested_names:
                yield (
                    f"given aws.zones without {zone}, which has {nodes}; rule: a zone is left by name, because its "
                    f"node groups are replaced and its subnets deleted; change: write {zone} again, or run this with "
                    f"`--replace {zone}`, which replaces the groups in waves; {NOTHING_CHANGED}"
                )

    def _groups(self) -> Iterator[str]:
        dropped = set(self._removed_zones)
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
        for resource in self._resources_of_type(NODE_GROUP):
            if resource["urn"].endswith(f"::{logical}"):
                return sorted(
                    self._zone_by_subnet.get(subnet_id, subnet_id) for subnet_id in resource["inputs"]["subnetIds"]
                )
        return []

    def _changed_groups(self) -> Iterator[GroupChange]:
        existing = {
            resource["urn"].rpartition("::")[2]: resource["inputs"] for resource in self._resources_of_type(NODE_GROUP)
        }
        for group in self.plan.groups:
            inputs = existing.get(node_group_names(self.plan.name, group.name)[1])
            if inputs is None:
                continue
            values = {"capacity type": inputs.get("capacityType"), "image type": inputs.get("amiType")}
            planned_values = group_values(group)
            differences = [
                f"{field_name} {values[field_name]} → {planned_values[field_name]}"
                for field_name in planned_values
                if values[field_name] != planned_values[field_name]
            ]
            zones = self._zones_of(group)
            keeps = adds_zones(zones, group) and not differences
            if differences := [*differences, *zone_difference(zones, group)]:
                yield GroupChange(group, tuple(differences), keeps)


def kubernetes_refusal(plan: ClusterPlan, resources: Resources) -> str | None:
    """Refusal of the Kubernetes version of a plan by the state of what AWS has; None if EKS can update the cluster to
    it, or if the cluster is not made yet."""
    for resource in resources:
        if resource["type"] != CLUSTER:
            continue
        # EKS itself updates a cluster whose standard support ends, where that is allowed.
        current = (resource.get("outputs") or {}).get("version") or resource["inputs"]["version"]
        if step := minor_step(current, plan.kubernetes):
            next_step = f', run `tenancy up`, and write "{plan.kubernetes}" afterwards' if step != current else ""
            return (
                f"given cluster.kubernetes: {plan.kubernetes}, and cluster {plan.name} of Kubernetes {current}; rule: "
                f'{MINOR_RULE}; change: write "{step}"{next_step}; nothing was changed'
            )
    return None
