"""Kinds that a plan needs and the cluster does not serve: a missing operator, a missing CNI, or an older Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tenancy.catalog import vocabulary
from tenancy.catalog.frameworks import Framework
from tenancy.catalog.versions import CHARTS
from tenancy.cluster.api import Api
from tenancy.planning.guards.facts import frameworks
from tenancy.planning.plan_model import Plan, PlatformPlan, TenantPlan
from tenancy.spec.fields.environment import Environment

KUBERNETES_SUFFIX = ".k8s.io"
"""End of the names of Kubernetes' own groups; groups without a dot are its own too."""


@dataclass(frozen=True, slots=True)
class RequiredOperator:
    """The operator that defines the kinds of an API group."""

    name: str
    chart: str
    """Its name in `CHARTS`."""
    namespace: str
    rule: str
    alternative: str
    """The field that does without it."""


OPERATORS: Mapping[str, RequiredOperator] = {
    "kueue.x-k8s.io": RequiredOperator(
        "Kueue",
        "kueue",
        vocabulary.QUEUE_NAMESPACE,
        "GPUs are lent and borrowed through a queue",
        "set queues.scheduler to none",
    ),
    "cilium.io": RequiredOperator(
        "Cilium",
        "cilium",
        "kube-system",
        "with cluster.cni: cilium the network policies are Cilium's",
        "write the CNI that the cluster has into cluster.cni",
    ),
    "monitoring.coreos.com": RequiredOperator(
        "the Prometheus Operator",
        "kube-prometheus-stack",
        "monitoring",
        "it reads the rules and monitors of metrics.collector",
        "set metrics.collector to install or none",
    ),
}


def unserved(api: Api, plan: Plan, platform: PlatformPlan | None, tenants: Sequence[TenantPlan]) -> Iterator[str]:
    """One message for each group of missing kinds, except for those that this stack installs itself."""
    kinds_by_version: dict[str, set[str]] = {}
    for item in [
        *(platform.objects() if platform else ()),
        *(item for tenant in tenants for item in tenant.objects()),
    ]:
        kinds_by_version.setdefault(item["apiVersion"], set()).add(item["kind"])
    for version, kinds in sorted(kinds_by_version.items()):
        group = version.rpartition("/")[0]
        if not group or (platform and _installs(platform, group)):
            continue
        answer = api.request("GET", f"/apis/{version}")
        served = {resource["kind"] for resource in answer.body.get("resources") or ()} if answer.ok else set()
        if missing_kinds := sorted(kinds - served):
            yield _message(api, plan, group, f"{version} ({', '.join(missing_kinds)})")


def unserved_frameworks(api: Api, environment: Environment) -> tuple[Framework, ...]:
    """Kinds of queues.kinds that the cluster does not serve, because their operator is not installed."""
    answers: dict[str, set[str]] = {}

    def served(framework: Framework) -> bool:
        path = f"/apis/{framework.group}/{framework.version}"
        if path not in answers:
            answer = api.request("GET", path)
            answers[path] = (
                {resource["name"] for resource in answer.body.get("resources") or ()} if answer.ok else set()
            )
        return framework.resource in answers[path]

    return tuple(framework for framework in frameworks(environment) if not served(framework))


def frameworks_note(frameworks: Sequence[Framework]) -> str:
    """A note on kinds of work that cannot be created on the cluster yet; empty if there are none."""
    if not frameworks:
        return ""
    names = ", ".join(f"{framework.kind} ({framework.group}/{framework.version})" for framework in frameworks)
    return (
        f"given queues.kinds with {names}, which the cluster does not serve; rule: an operator defines the kind and "
        "runs its work; change: install it. Until then no such work can be created, and `tenancy verify` skips its "
        "attacks"
    )


def _is_kubernetes_group(group: str) -> bool:
    return group not in OPERATORS and ("." not in group or group.endswith(KUBERNETES_SUFFIX))


def _installs(platform: PlatformPlan, group: str) -> bool:
    """Whether charts of the platform define the group."""
    if group == "monitoring.coreos.com":
        return bool(platform.metrics_charts)
    return platform.services is not None and not _is_kubernetes_group(group)


def _message(api: Api, plan: Plan, group: str, kinds: str) -> str:
    headline = f"given a cluster that does not serve {kinds}"
    if _is_kubernetes_group(group):
        version = api.request("GET", "/version").body.get("gitVersion", "of unknown version")
        return (
            f"{headline}: its API server is {version}; rule: the cluster has the version of cluster.kubernetes at "
            "least; change: upgrade it, or write its version there"
        )
    if _installs(plan.platform, group):
        return (
            f"{headline}; rule: the platform's stack installs what its tenants need; change: update it first, "
            f"`tenancy up {plan.environment} --stack {plan.environment}`"
        )
    if not (operator := OPERATORS.get(group)):
        return f"{headline}; rule: an operator defines the kinds that it reads; change: install it"
    pin = CHARTS[operator.chart]
    oci = pin.repository.startswith("oci://")
    chart_location = f"{pin.repository}/{pin.chart}" if oci else f"{pin.chart} --repo {pin.repository}"
    lab = f" (for the lab: `tenancy lab up {plan.environment}`)" if group == "kueue.x-k8s.io" else ""
    return (
        f"{headline}; rule: {operator.rule}; change: install {operator.name}: `tenancy render {plan.environment} --out "
        f"rendered`, then `helm upgrade --install {operator.chart} {chart_location} --version {pin.version} "
        f"--namespace {operator.namespace} --create-namespace --values "
        f"rendered/charts/values-{operator.chart}.yaml`{lab}; or {operator.alternative}"
    )
