"""Fields without effect in this environment, or in this run on the lab, and fields whose resources are on AWS alone.

A field is called without effect only if all is the same without it: the plan, the clock, reports and alerts. For a
tenant with grants, network policies and service accounts are made everywhere; roles are made on AWS only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tenancy.spec.checks.indexed_mistakes import ENVIRONMENT_INDEX, IndexedMistake
from tenancy.spec.fields.cluster import Cni, Encryption
from tenancy.spec.fields.environment import Environment, Layout
from tenancy.spec.fields.identity import PodIdentity
from tenancy.spec.fields.queues import SharingPreset
from tenancy.spec.fields.services import Source
from tenancy.spec.fields.shares import GpuShare, WhenSpent
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.reading.mistakes import Mistake
from tenancy.spec.reading.source import Location

_EFFECTIVE_WITHOUT_AWS = {"enabled", "identity", "network"}
"""Fields of `aws`: network policies allow Pod Identity's agent and the service ranges in any cluster."""
_REPORTED_WITHOUT_AWS = {"region", "zones", "platform_role", "group_roles", "break_glass"}
"""Fields of `aws` that reports read in any environment: prices, failures of a zone, access that is not made."""
_RANGES = {"aws_service_cidrs", "aws_ip_ranges_file"}
"""Fields of `aws.network` that network policies are made of."""
_OF_BUILT_CLUSTERS = (
    *("network", "public-access-cidrs", "deletion-protection", "system", "ami-release", "upgrade-pause"),
    *("permissions-boundary", "kms-key-arn", "add-ons", "extended-support"),
)
"""Fields of `aws` of the network, the cluster and its nodes."""
_OF_BUILT_NODES = ("ami-release", "upgrade")
"""Fields of a pool that nodes are made with; the others say what its nodes are, and zones what fails together."""
_ON_AWS = {
    "storage": "no role, bucket policy or access point",
    "aws_resources": "no repository, secret, log group, queue or mount",
    "ci": "no role and no access entry of the pipeline",
}
"""Fields of a tenant that have an effect on AWS only, and what is not made elsewhere."""

MAX_SINGLE_NOTES = 5
"""Tenants of which each gets its note; of more, one note names some of them and their number."""


def without_effect(
    environment: Environment, tenants: Sequence[Tenant], file_environment: Environment
) -> Iterator[IndexedMistake]:
    """Every field without effect, by its file. `written` is the environment as in its file."""
    on_lab = environment is not file_environment
    yield from _of_environment(environment, file_environment, on_lab)
    tenants_by_note: dict[Mistake, list[int]] = {}
    for index, tenant in enumerate(tenants):
        for mistake in _of_tenant(environment, file_environment, tenant, on_lab):
            tenants_by_note.setdefault(mistake, []).append(index)
    notes: list[tuple[int, Mistake]] = []
    for mistake, indices in tenants_by_note.items():
        if len(indices) <= MAX_SINGLE_NOTES:
            notes += [(index, mistake) for index in indices]
            continue
        names = ", ".join(tenants[index].tenant for index in indices[1:MAX_SINGLE_NOTES])
        fault = f"{mistake.given} (so in {len(indices)} tenants' files: also {names}, …)"
        notes.append((indices[0], replace(mistake, given=fault)))
    yield from sorted(notes, key=lambda note: note[0])


def _of_environment(environment: Environment, file_environment: Environment, on_lab: bool) -> Iterator[IndexedMistake]:
    if file_environment.aws.enabled and not environment.aws.enabled:
        fault = "enabled: true in a run on the lab, which has no AWS: no network, cluster, node group, role or bucket"
        yield ENVIRONMENT_INDEX, _on_aws(("aws", "enabled"), fault, "run it without --lab to have them")
    elif not environment.aws.enabled:
        yield from _without_aws(environment)
    if file_environment.rollout and file_environment.stacks is Layout.ONE:
        for field in sorted(file_environment.rollout.model_fields_set - {"depends_on"}):
            name = field.replace("_", "-")
            fault = f"{name} with stacks: one, where all tenants are in one stack and no wave is made"
            yield ENVIRONMENT_INDEX, _ineffective(("rollout", name), fault, f"drop {name}, or set stacks: per-tenant")
    if environment.aws.enabled and not environment.builds_cluster:
        yield from _of_existing(environment)
    aws = environment.aws
    untrusted = aws.identity is not PodIdentity.IRSA and (environment.builds_cluster or not aws.irsa)
    if aws.enabled and aws.oidc_issuer and untrusted:
        fault = f"oidc-issuer with identity: {aws.identity}, whose roles trust no issuer of the cluster"
        yield ENVIRONMENT_INDEX, _ineffective(("aws", "oidc-issuer"), fault, "drop it")
    for name, reason in _SERVICES.items():
        if (
            getattr(file_environment.services, name.replace("-", "_")) is Source.INSTALL
            and not file_environment.builds_cluster
        ):
            if not file_environment.installs(name):
                fault = f"{name}: install, and {reason}"
                yield ENVIRONMENT_INDEX, _ineffective(("services", name), fault, "drop it")
            elif on_lab:
                fault = f"{name}: install in a run on the lab, where no pod runs"
                yield ENVIRONMENT_INDEX, _ineffective(("services", name), fault, "run it without --lab to have it")
    if not on_lab:
        return
    change = "run it without --lab to have it"
    cluster = file_environment.cluster
    if cluster.cni is Cni.CILIUM:
        fault = "cni: cilium in a run on the lab, where no Cilium runs: plain NetworkPolicies, none of Cilium's"
        yield ENVIRONMENT_INDEX, _ineffective(("cluster", "cni"), fault, change)
    if cluster.encryption is not Encryption.NONE:
        fault = f"encryption: {cluster.encryption} in a run on the lab, where no packet is sent"
        yield ENVIRONMENT_INDEX, _ineffective(("cluster", "encryption"), fault, change)
    if file_environment.metrics.collected:
        collector = file_environment.metrics.collector
        fault = f"collector: {collector} in a run on the lab, where no operator reads rules and monitors"
        yield (
            ENVIRONMENT_INDEX,
            _ineffective(
                ("metrics", "collector"),
                fault,
                f"{change}; the lab's own Prometheus, of `tenancy lab up ENV --with metrics`, evaluates the rules",
            ),
        )


def _without_aws(environment: Environment) -> Iterator[IndexedMistake]:
    """Fields of AWS where it is off."""
    for field in sorted(environment.aws.model_fields_set - _EFFECTIVE_WITHOUT_AWS):
        name = field.replace("_", "-")
        if field in _REPORTED_WITHOUT_AWS:
            yield ENVIRONMENT_INDEX, _on_aws(("aws", name), f"{name} with aws.enabled: false", _ENABLE)
        else:
            yield (
                ENVIRONMENT_INDEX,
                _ineffective(("aws", name), f"{name} with aws.enabled: false", _drop_or_enable(name)),
            )
    for field in sorted(environment.aws.network.model_fields_set - _RANGES):
        name = field.replace("_", "-")
        yield (
            ENVIRONMENT_INDEX,
            _ineffective(("aws", "network", name), f"{name} with aws.enabled: false", _drop_or_enable(name)),
        )
    for field in ("buckets", "efs-access-points"):
        if getattr(environment, field.replace("-", "_")):
            yield ENVIRONMENT_INDEX, _on_aws((field,), f"{field} with aws.enabled: false", _ENABLE)


_SERVICES = {
    "gpu-operator": "",
    "device-plugin": "cluster.devices is dra",
    "dcgm-exporter": "",
    "dra-driver": "cluster.devices is plugin",
    "efa-device-plugin": "no pool has efa",
    "kueue": "queues.scheduler is none",
    "storage-class": "",
}
"""Services, and when one is installed for nothing."""


def _of_existing(environment: Environment) -> Iterator[IndexedMistake]:
    """Fields of a network, a cluster and nodes that are not made."""
    aws = environment.aws
    for name in _OF_BUILT_CLUSTERS:
        if name.replace("-", "_") not in aws.model_fields_set:
            continue
        if name == "permissions-boundary" and aws.break_glass:
            continue  # of the emergency role too
        if name == "kms-key-arn" and environment.makes_storage_class:
            continue
        if name == "network":
            for field in sorted(aws.network.model_fields_set - _RANGES):
                key = field.replace("_", "-")
                yield ENVIRONMENT_INDEX, _without_built_cluster(("aws", "network", key), key)
            continue
        yield ENVIRONMENT_INDEX, _without_built_cluster(("aws", name), name)
    for pool, spec in environment.pools.items():
        for name in _OF_BUILT_NODES:
            if name.replace("-", "_") in spec.model_fields_set:
                yield ENVIRONMENT_INDEX, _without_built_cluster(("pools", pool, name), name)
    if environment.cluster.encryption is not Encryption.NONE:
        fault = (
            f"encryption: {environment.cluster.encryption} with cluster.mode: existing, whose Cilium is set up already"
        )
        change = "drop it, once `cilium encrypt status` says that it is on"
        yield ENVIRONMENT_INDEX, _ineffective(("cluster", "encryption"), fault, change)


def _without_built_cluster(location: Location, name: str) -> Mistake:
    fault = f"{name} with cluster.mode: existing, which makes no network, cluster or node"
    return _ineffective(location, fault, f"drop {name}")


def _of_tenant(
    environment: Environment, file_environment: Environment, tenant: Tenant, on_lab: bool
) -> Iterator[Mistake]:
    aws_state = "in a run on the lab, which has no AWS" if file_environment.aws.enabled else "with aws.enabled: false"
    if not environment.aws.enabled:
        for field, missing_resources in _ON_AWS.items():
            name = field.replace("_", "-")
            if field in tenant.model_fields_set and getattr(tenant, field):
                change = "run it without --lab to have them" if file_environment.aws.enabled else _ENABLE
                yield _on_aws((name,), f"{name} {aws_state}: {missing_resources} is made", change)
        if tenant.budget and not environment.metrics.collected:
            yield _budget_without_alert(tenant.budget.when_spent, aws_state, on_lab)
    for flavor, share in tenant.gpus.items():
        yield from _ineffective_sharing(environment, tenant, flavor, share)
    if environment.cluster.cni is not Cni.CILIUM:
        for i, rule in enumerate(tenant.egress):
            if rule.dns:
                fault = f"dns: {rule.dns} in a run on the lab, where no Cilium runs: this egress is not allowed"
                yield _ineffective(("egress", i, "dns"), fault, "run it without --lab to have it")


def _budget_without_alert(when_spent: WhenSpent, aws_state: str, on_lab: bool) -> Mistake:
    """A budget of which no alert is sent; the clock and the bill go by it all the same."""
    fault = f"budget {aws_state} and without a metrics.collector: no alert is sent"
    remaining_effect = "`tenancy chargeback` compares with it"
    if when_spent is not WhenSpent.ALERT:
        remaining_effect += f", and the clock keeps when-spent: {when_spent}"
    change = "run it without --lab" if on_lab else "name a metrics.collector or use AWS"
    rule = "alerts on budgets come from a metrics.collector or from AWS"
    return Mistake(("budget",), fault, rule, f"{change} to be alerted; without it {remaining_effect}")


def _ineffective_sharing(environment: Environment, tenant: Tenant, flavor: str, share: GpuShare) -> Iterator[Mistake]:
    """Sharing by which nothing is lent or borrowed."""
    location = ("gpus", flavor, "sharing")
    tier_borrows = any(environment.tiers[tier].allow_borrowing for tier in tenant.tiers)
    borrows = bool(share.borrows) and tier_borrows
    if share.sharing is SharingPreset.STRICT:
        return
    if not share.lends and not borrows:
        numbers = {"lending-limit": share.lending_limit, "borrowing-limit": share.borrowing_limit}
        limits = "".join(f", {name}: {number}" for name, number in numbers.items() if number is not None)
        fault = f"sharing: {share.sharing} with guaranteed: {share.guaranteed}{limits}: nothing is lent or borrowed"
        possible = {"lending-limit": share.guaranteed, "borrowing-limit": share.sharing.borrows and tier_borrows}
        limits = " or ".join(name for name, effective in possible.items() if effective)
        change = f", or write a {limits} above 0" if limits else ""
        yield _ineffective(location, fault, f"drop sharing and its limits{change}")
    elif share.sharing.borrows and not borrows and share.borrowing_limit is None:
        tiers_text = " and ".join(sorted(tenant.tiers))
        sharing = f"sharing: {share.sharing} with tier {tiers_text}, which does not borrow"
        fault = f"{sharing}: GPUs are lent and none are borrowed"
        yield _ineffective(location, fault, "write sharing: lend")


_ENABLE = "set aws.enabled: true to have them, with cluster.mode: existing on a cluster that exists"


def _on_aws(location: tuple[str | int, ...], fault: str, change: str) -> Mistake:
    return Mistake(location, fault, "a field whose resources are made on AWS alone is reported", change)


def _drop_or_enable(field: str) -> str:
    return f"drop {field}, or {_ENABLE}"


def _ineffective(location: tuple[str | int, ...], fault: str, change: str) -> Mistake:
    return Mistake(location, fault, "a field without effect is reported", change)
