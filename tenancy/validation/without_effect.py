"""Fields without effect in this environment, or in this run on the lab, and fields whose resources are on AWS alone.

A field is called without effect only if all is the same without it: the plan, the clock, reports and alerts. For a
tenant with grants, network policies and service accounts are made everywhere; roles are made on AWS only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tenancy.schema.base import Mistake
from tenancy.schema.cluster import Cni, Encryption
from tenancy.schema.environment import Environment, Layout
from tenancy.schema.identity import PodIdentity
from tenancy.schema.queues import SharingPreset
from tenancy.schema.services import Source
from tenancy.schema.shares import GpuShare, WhenSpent
from tenancy.schema.source import Location
from tenancy.schema.tenant import Tenant
from tenancy.validation.found import ENVIRONMENT, Found

_EFFECTIVE_WITHOUT_AWS = {"enabled", "identity", "network"}
"""Fields of `aws`: network policies allow Pod Identity's agent and the service ranges in any cluster."""
_REPORTED_WITHOUT_AWS = {"region", "zones", "platform_role", "people", "break_glass"}
"""Fields of `aws` that reports read in any environment: prices, failures of a zone, access that is not made."""
_RANGES = {"service_ranges", "service_ranges_file"}
"""Fields of `aws.network` that network policies are made of."""
_OF_BUILT_CLUSTERS = (
    *("network", "public-access", "deletion-protection", "system", "ami-release", "upgrade-pause"),
    *("permissions-boundary", "encryption-key", "add-ons", "extended-support"),
)
"""Fields of `aws` of the network, the cluster and its nodes."""
_OF_BUILT_NODES = ("ami-release", "upgrade")
"""Fields of a pool that nodes are made with; the others say what its nodes are, and zones what fails together."""
_ON_AWS = {
    "storage": "no role, bucket policy or access point",
    "uses": "no repository, secret, log group, queue or mount",
    "ci": "no role and no access entry of the pipeline",
}
"""Fields of a tenant that have an effect on AWS only, and what is not made elsewhere."""

EACH = 5
"""Tenants of which each gets its note; of more, one note names some of them and their number."""


def without_effect(environment: Environment, tenants: Sequence[Tenant], written: Environment) -> Iterator[Found]:
    """Every field without effect, by its file. `written` is the environment as in its file."""
    on_lab = environment is not written
    yield from _of_environment(environment, written, on_lab)
    alike: dict[Mistake, list[int]] = {}
    for index, tenant in enumerate(tenants):
        for mistake in _of_tenant(environment, written, tenant, on_lab):
            alike.setdefault(mistake, []).append(index)
    found: list[tuple[int, Mistake]] = []
    for mistake, indices in alike.items():
        if len(indices) <= EACH:
            found += [(index, mistake) for index in indices]
            continue
        names = ", ".join(tenants[index].tenant for index in indices[1:EACH])
        given = f"{mistake.given} (so in {len(indices)} tenants' files: also {names}, …)"
        found.append((indices[0], replace(mistake, given=given)))
    yield from sorted(found, key=lambda one: one[0])


def _of_environment(environment: Environment, written: Environment, on_lab: bool) -> Iterator[Found]:
    if written.aws.enabled and not environment.aws.enabled:
        given = "enabled: true in a run on the lab, which has no AWS: no network, cluster, node group, role or bucket"
        yield ENVIRONMENT, _on_aws(("aws", "enabled"), given, "run it without --lab to have them")
    elif not environment.aws.enabled:
        yield from _without_aws(environment)
    if written.rollout and written.stacks is Layout.ONE:
        for field in sorted(written.rollout.model_fields_set - {"after"}):
            name = field.replace("_", "-")
            given = f"{name} with stacks: one, where all tenants are in one stack and no wave is made"
            yield ENVIRONMENT, _idle(("rollout", name), given, f"drop {name}, or set stacks: per-tenant")
    if environment.aws.enabled and not environment.builds_cluster:
        yield from _of_existing(environment)
    aws = environment.aws
    untrusted = aws.identity is not PodIdentity.IRSA and (environment.builds_cluster or not aws.irsa)
    if aws.enabled and aws.oidc_issuer and untrusted:
        given = f"oidc-issuer with identity: {aws.identity}, whose roles trust no issuer of the cluster"
        yield ENVIRONMENT, _idle(("aws", "oidc-issuer"), given, "drop it")
    for name, needed in _SERVICES.items():
        if getattr(written.services, name.replace("-", "_")) is Source.INSTALL and not written.builds_cluster:
            if not written.installs(name):
                given = f"{name}: install, and {needed}"
                yield ENVIRONMENT, _idle(("services", name), given, "drop it")
            elif on_lab:
                given = f"{name}: install in a run on the lab, where no pod runs"
                yield ENVIRONMENT, _idle(("services", name), given, "run it without --lab to have it")
    if not on_lab:
        return
    change = "run it without --lab to have it"
    cluster = written.cluster
    if cluster.cni is Cni.CILIUM:
        given = "cni: cilium in a run on the lab, where no Cilium runs: plain NetworkPolicies, none of Cilium's"
        yield ENVIRONMENT, _idle(("cluster", "cni"), given, change)
    if cluster.encryption is not Encryption.NONE:
        given = f"encryption: {cluster.encryption} in a run on the lab, where no packet is sent"
        yield ENVIRONMENT, _idle(("cluster", "encryption"), given, change)
    if written.metrics.collected:
        given = (
            f"collector: {written.metrics.collector} in a run on the lab, where no operator reads rules and monitors"
        )
        yield (
            ENVIRONMENT,
            _idle(
                ("metrics", "collector"),
                given,
                f"{change}; the lab's own Prometheus, of `tenancy lab up ENV --with metrics`, evaluates the rules",
            ),
        )


def _without_aws(environment: Environment) -> Iterator[Found]:
    """Fields of AWS where it is off."""
    for field in sorted(environment.aws.model_fields_set - _EFFECTIVE_WITHOUT_AWS):
        name = field.replace("_", "-")
        if field in _REPORTED_WITHOUT_AWS:
            yield ENVIRONMENT, _on_aws(("aws", name), f"{name} with aws.enabled: false", _ENABLE)
        else:
            yield ENVIRONMENT, _idle(("aws", name), f"{name} with aws.enabled: false", _off(name))
    for field in sorted(environment.aws.network.model_fields_set - _RANGES):
        name = field.replace("_", "-")
        yield ENVIRONMENT, _idle(("aws", "network", name), f"{name} with aws.enabled: false", _off(name))
    for field in ("buckets", "file-access-points"):
        if getattr(environment, field.replace("-", "_")):
            yield ENVIRONMENT, _on_aws((field,), f"{field} with aws.enabled: false", _ENABLE)


_SERVICES = {
    "gpu-operator": "",
    "device-plugin": "cluster.devices is dra",
    "dcgm-exporter": "",
    "dra-driver": "cluster.devices is plugin",
    "efa-plugin": "no pool has efa",
    "kueue": "queues.scheduler is none",
    "storage-class": "",
}
"""Services, and when one is installed for nothing."""


def _of_existing(environment: Environment) -> Iterator[Found]:
    """Fields of a network, a cluster and nodes that are not made."""
    aws = environment.aws
    for name in _OF_BUILT_CLUSTERS:
        if name.replace("-", "_") not in aws.model_fields_set:
            continue
        if name == "permissions-boundary" and aws.break_glass:
            continue  # of the emergency role too
        if name == "encryption-key" and environment.makes_storage_class:
            continue
        if name == "network":
            for field in sorted(aws.network.model_fields_set - _RANGES):
                key = field.replace("_", "-")
                yield ENVIRONMENT, _unbuilt(("aws", "network", key), key)
            continue
        yield ENVIRONMENT, _unbuilt(("aws", name), name)
    for pool, spec in environment.pools.items():
        for name in _OF_BUILT_NODES:
            if name.replace("-", "_") in spec.model_fields_set:
                yield ENVIRONMENT, _unbuilt(("pools", pool, name), name)
    if environment.cluster.encryption is not Encryption.NONE:
        given = (
            f"encryption: {environment.cluster.encryption} with cluster.mode: existing, whose Cilium is set up already"
        )
        change = "drop it, once `cilium encrypt status` says that it is on"
        yield ENVIRONMENT, _idle(("cluster", "encryption"), given, change)


def _unbuilt(where: Location, name: str) -> Mistake:
    given = f"{name} with cluster.mode: existing, which makes no network, cluster or node"
    return _idle(where, given, f"drop {name}")


def _of_tenant(environment: Environment, written: Environment, tenant: Tenant, on_lab: bool) -> Iterator[Mistake]:
    off = "in a run on the lab, which has no AWS" if written.aws.enabled else "with aws.enabled: false"
    if not environment.aws.enabled:
        for field, missing in _ON_AWS.items():
            if field in tenant.model_fields_set and getattr(tenant, field):
                change = "run it without --lab to have them" if written.aws.enabled else _ENABLE
                yield _on_aws((field,), f"{field} {off}: {missing} is made", change)
        if tenant.budget and not environment.metrics.collected:
            yield _unalerted(tenant.budget.when_spent, off, on_lab)
    for flavor, share in tenant.gpus.items():
        yield from _unshared(environment, tenant, flavor, share)
    if environment.cluster.cni is not Cni.CILIUM:
        for i, way in enumerate(tenant.egress):
            if way.dns:
                given = f"dns: {way.dns} in a run on the lab, where no Cilium runs: this egress is not allowed"
                yield _idle(("egress", i, "dns"), given, "run it without --lab to have it")


def _unalerted(spent: WhenSpent, off: str, on_lab: bool) -> Mistake:
    """A budget of which no alert is sent; the clock and the bill go by it all the same."""
    given = f"budget {off} and without a metrics.collector: no alert is sent"
    kept = "`tenancy chargeback` compares with it"
    if spent is not WhenSpent.ALERT:
        kept += f", and the clock keeps when-spent: {spent}"
    way = "run it without --lab" if on_lab else "name a metrics.collector or use AWS"
    rule = "alerts on budgets come from a metrics.collector or from AWS"
    return Mistake(("budget",), given, rule, f"{way} to be alerted; without it {kept}")


def _unshared(environment: Environment, tenant: Tenant, flavor: str, share: GpuShare) -> Iterator[Mistake]:
    """Sharing by which nothing is lent or borrowed."""
    where = ("gpus", flavor, "sharing")
    tier_borrows = any(environment.tiers[tier].borrows for tier in tenant.tiers)
    borrows = bool(share.borrows) and tier_borrows
    if share.sharing is SharingPreset.STRICT:
        return
    if not share.lends and not borrows:
        numbers = {"lend-up-to": share.lend_up_to, "borrow-up-to": share.borrow_up_to}
        limits = "".join(f", {name}: {number}" for name, number in numbers.items() if number is not None)
        given = f"sharing: {share.sharing} with guaranteed: {share.guaranteed}{limits}: nothing is lent or borrowed"
        possible = {"lend-up-to": share.guaranteed, "borrow-up-to": share.sharing.borrows and tier_borrows}
        limits = " or ".join(name for name, effective in possible.items() if effective)
        change = f", or write a {limits} above 0" if limits else ""
        yield _idle(where, given, f"drop sharing and its limits{change}")
    elif share.sharing.borrows and not borrows and share.borrow_up_to is None:
        firm = " and ".join(sorted(tenant.tiers))
        given = f"sharing: {share.sharing} with tier {firm}, which does not borrow: GPUs are lent and none are borrowed"
        yield _idle(where, given, "write sharing: lend")


_ENABLE = "set aws.enabled: true to have them, with cluster.mode: existing on a cluster that exists"


def _on_aws(where: tuple[str | int, ...], given: str, change: str) -> Mistake:
    return Mistake(where, given, "a field whose resources are made on AWS alone is reported", change)


def _off(field: str) -> str:
    return f"drop {field}, or {_ENABLE}"


def _idle(where: tuple[str | int, ...], given: str, change: str) -> Mistake:
    return Mistake(where, given, "a field without effect is reported", change)
