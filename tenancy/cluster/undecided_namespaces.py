"""Work in namespaces that are neither a tenant's nor the platform's, and that no file declares as unmanaged.

Guards refuse every new workload there (ns-02): running pods go on, and are not created again after their next restart.
So such work is reported before guards refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenancy.catalog import gpus, vocabulary
from tenancy.cluster.api import Api
from tenancy.cluster.user_copies import has_ended
from tenancy.kube.objects import Object, as_list, get_path
from tenancy.kube.pod_templates import PodTemplate, templates_of
from tenancy.kube.requests import collection
from tenancy.planning.plan_model import Plan
from tenancy.rules.catalogue import RULES

UNDECIDED_RULE = "ns-02"
HOOKS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
API_SERVER_SERVICE = ("default", "kubernetes")
"""The API server's own service, on every cluster."""
MAX_LISTED = 20
"""Namespaces of a message."""


@dataclass(frozen=True, slots=True)
class UndecidedNamespace:
    """A namespace with work that belongs to no tenant and is not unmanaged."""

    name: str
    work: Mapping[str, int]
    """Number of objects that guards would refuse by ns-02 if they were created again, by resource."""
    webhooks: tuple[str, ...]
    """Webhooks and APIServices that call a service there: without its pods, such calls fail."""
    takes_gpus: tuple[str, ...]
    """Objects that gpu-12 would still refuse if the namespace were unmanaged."""

    def __str__(self) -> str:
        work_counts = ", ".join(f"{count} {resource}" for resource, count in self.work.items())
        parts = [f"{UNDECIDED_RULE} refuses when created again: {work_counts}"] if work_counts else []
        if self.webhooks:
            parts.append(f"its services answer for {', '.join(self.webhooks)}")
        if self.takes_gpus:
            parts.append(f"as unmanaged, gpu-12 would refuse {', '.join(self.takes_gpus)}")
        return f"{self.name}: {'; '.join(parts)}"


def undecided_namespaces(api: Api, plan: Plan, namespaces: Sequence[Object]) -> tuple[UndecidedNamespace, ...]:
    """Namespaces with work that the files assign to no tenant and do not list as unmanaged."""
    tenant_namespaces = {space.name for tenant in plan.tenants for space in tenant.namespaces}
    candidates = [
        item["metadata"]["name"]
        for item in namespaces
        if item["metadata"]["name"] not in tenant_namespaces
        and not plan.admission.is_decided(item["metadata"]["name"])
        and not _is_tenant_namespace(item, plan.environment)
    ]
    # CustomResourceDefinitions are long lists: read only if a namespace has a service.
    hooks = _hooks(api) if any(_has_services(api, name) for name in candidates) else {}
    judged_resources = judged_work(plan)
    return tuple(
        examined for name in candidates if (examined := _examine(api, name, judged_resources, hooks.get(name, ())))
    )


def problem(undecided: Sequence[UndecidedNamespace]) -> str:
    """The message about undecided namespaces."""
    lines = [f"  {entry}" for entry in undecided[:MAX_LISTED]]
    if len(undecided) > MAX_LISTED:
        lines.append(f"  and {len(undecided) - MAX_LISTED} more: `tenancy report adoption` names all")
    subject = f"{len(undecided)} namespace{'s' * (len(undecided) > 1)} with work and no decision"
    return "\n".join([f"given {subject}; rule ns-06: {RULES['ns-06'].title}; change: {RULES['ns-06'].fix}", *lines])


def _is_tenant_namespace(item: Object, environment: str) -> bool:
    labels = item["metadata"].get("labels") or {}
    return labels.get(vocabulary.ENVIRONMENT) == environment and vocabulary.TENANT in labels


def judged_work(plan: Plan) -> tuple[tuple[str, str, str], ...]:
    """(group, version, resource) of objects that guards refuse outside of tenants' and the platform's namespaces."""
    resources = []
    for policy in plan.platform.guards:
        rules = {v["message"].partition(":")[0] for v in policy["spec"].get("validations") or ()}
        if UNDECIDED_RULE in rules:
            for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
                group, version = rule["apiGroups"][0], rule["apiVersions"][0]
                resources += [(group, version, resource) for resource in rule["resources"] if "/" not in resource]
    return tuple(resources)


def _has_services(api: Api, name: str) -> bool:
    services = [item["metadata"]["name"] for item in api.items(collection("v1", "Service", name))]
    return any((name, service) != API_SERVER_SERVICE for service in services)


def _examine(
    api: Api, name: str, judged: Sequence[tuple[str, str, str]], hooks: Sequence[str]
) -> UndecidedNamespace | None:
    work: dict[str, int] = {}
    gpu_objects: list[str] = []
    for group, version, resource in judged:
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        items = api.items(f"{root}/namespaces/{name}/{resource}", absent=True)
        items_not_ended = [item for item in items if not has_ended(item)]
        if items_not_ended:
            work[resource] = len(items_not_ended)
        gpu_objects += [f"{resource}/{item['metadata']['name']}" for item in items_not_ended if takes_gpus(item)]
    return UndecidedNamespace(name, work, tuple(hooks), tuple(gpu_objects)) if work or hooks else None


def takes_gpus(item: Object) -> bool:
    """Whether a pod or template meets the condition of gpu-12. Node names do not count: every running pod has one."""
    return any(_reaches_gpus(template) for template in templates_of(item))


def _reaches_gpus(template: PodTemplate) -> bool:
    for toleration in as_list(get_path(template.spec, "tolerations")):
        key = str(get_path(toleration, "key") or "")
        # The controller of DaemonSets writes those with a key.
        if not key or key.startswith("nvidia.com/") or key in {gpus.EFA, vocabulary.POOL}:
            return True
    resources = {
        str(resource)
        for _, container in template.containers
        for side in ("limits", "requests")
        for resource in get_path(container, "resources", side) or ()
    }
    return any(resource.startswith("nvidia.com/") or resource == gpus.EFA for resource in resources)


def _hooks(api: Api) -> dict[str, list[str]]:
    """Webhooks and APIServices that call services, by the services' namespace."""
    names_by_namespace: dict[str, list[str]] = {}
    for name, service in _called_services(api):
        names = names_by_namespace.setdefault(str(service.get("namespace")), [])
        if name not in names:
            names.append(name)
    return names_by_namespace


def _called_services(api: Api) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for kind in HOOKS:
        for item in api.items(collection("admissionregistration.k8s.io/v1", kind)):
            for hook in item.get("webhooks") or ():
                if service := (hook.get("clientConfig") or {}).get("service"):
                    yield f"{kind} {item['metadata']['name']}", service
    for item in api.items(collection("apiextensions.k8s.io/v1", "CustomResourceDefinition")):
        client = ((item["spec"].get("conversion") or {}).get("webhook") or {}).get("clientConfig") or {}
        if service := client.get("service"):
            yield f"CustomResourceDefinition {item['metadata']['name']}", service
    for item in api.items(collection("apiregistration.k8s.io/v1", "APIService")):
        if service := item["spec"].get("service"):
            yield f"APIService {item['metadata']['name']}", service
