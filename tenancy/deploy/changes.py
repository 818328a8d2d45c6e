"""Changes of a preview or an update, by tenants and objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.iam.rights import ChangedRights, changed_rights
from tenancy.kube.objects import name_of
from tenancy.lifecycle.removal import ACCESS_BINDINGS
from tenancy.planning.common.quota_changes import spec_changes
from tenancy.planning.plan_model import Plan

PLATFORM = "platform"
TENANT_TYPE = "gpu-tenancy:index:GpuTenant"
"""Type of the component that all resources of a tenant are below."""
ROLE_POLICY, OF_TENANTS = "aws:iam/rolePolicy:RolePolicy", "gpu-tenancy:index:IamRole$"
SAME, READ, REFRESH = "same", "read", "refresh"
_SIGNS = {"create": "+", "delete": "-", "update": "~", "replace": "±"}


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """One object that was or would be made, changed or removed."""

    tenant: str
    operation: str
    object: str
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        details = f": {', '.join(self.details)}" if self.details else ""
        return f"{_SIGNS.get(self.operation, self.operation)} {self.object}{details}"


@dataclass(slots=True)
class Outcome:
    """Everything that one run of the engine said."""

    changes: list[ResourceChange] = field(default_factory=list)
    unchanged_count: int = 0
    other_changes: int = 0
    """Changes of what is no object of the cluster, such as the provider's context."""
    violations: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    grants: list[ChangedRights] = field(default_factory=list)
    """Rights that roles of tenants gain and lose on AWS."""

    def listen(self, event: Any) -> None:
        """Take in one event of the engine."""
        if event.policy_event:
            text = _without_colours(event.policy_event.message)
            mandatory = event.policy_event.enforcement_level == "mandatory"
            (self.violations if mandatory else self.advice).append(text)
        if event.diagnostic_event and event.diagnostic_event.severity == "error":
            self.errors.append(_without_colours(event.diagnostic_event.message))
        if event.resource_pre_event:
            self._step(event.resource_pre_event.metadata)

    def _step(self, step: Any) -> None:
        operation = str(step.op.value)
        if operation == REFRESH:
            return  # a later event compares it
        if not step.type.startswith(("kubernetes:", "aws:")):
            self.other_changes += operation not in {SAME, READ}
        elif operation in {SAME, READ}:
            self.unchanged_count += 1
        elif step.type.startswith("aws:") and operation in _SIGNS:
            state = (step.new or step.old).inputs
            tenant = (state.get("tags") or {}).get(vocabulary.TENANT_TAG, PLATFORM)
            details = tuple(_details(step)) if operation in {"update", "replace"} else ()
            name = f"{step.type.rpartition(':')[2]} {step.urn.rpartition('::')[2]}"
            if step.type == ROLE_POLICY and OF_TENANTS in step.urn:
                role = step.urn.rpartition("::")[2].removesuffix(f"-{state.get('name')}")
                self.grants += changed_rights(_document(step.old), _document(step.new), role)
            self.changes.append(ResourceChange(tenant, operation, name, details))
        elif operation in {"create", "delete", "update", "replace"}:
            state = (step.new or step.old).inputs
            labels = (state.get("metadata") or {}).get("labels") or {}
            details = tuple(_details(step)) if operation in {"update", "replace"} else ()
            kind = step.type.rpartition(":")[2]
            item = {**state, "kind": kind}
            self.changes.append(
                ResourceChange(labels.get(vocabulary.TENANT, PLATFORM), operation, name_of(item), details)
            )

    def by_tenant(self) -> Iterator[tuple[str, list[ResourceChange]]]:
        """Changes grouped by tenant, those of the platform first."""
        for tenant in sorted({change.tenant for change in self.changes}, key=lambda t: (t != PLATFORM, t)):
            yield tenant, [change for change in self.changes if change.tenant == tenant]


_ACCESS_BINDINGS = (
    *(f"kubernetes:{version if '/' in version else f'core/{version}'}:{kind}" for version, kind in ACCESS_BINDINGS),
    "aws:eks/accessEntry:AccessEntry",
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
    "aws:eks/podIdentityAssociation:PodIdentityAssociation",
    "aws:iam/role:Role",
    ROLE_POLICY,
)


def is_access_binding(resource: Mapping[str, Any]) -> bool:
    """Whether it gives people access or pods an identity; these are deleted before isolation resources."""
    return resource["type"] in _ACCESS_BINDINGS


def tenant_resources(resources: Sequence[Mapping[str, Any]], name: str) -> list[dict[str, Any]]:
    """Resources of a state below the component of one tenant, or of one namespace, without components. No tenant is
    called as a namespace may be."""
    components = (f"{TENANT_TYPE}::{name}", f"gpu-tenancy:index:TenantNamespace::{name}")
    return [dict(resource) for resource in resources_below(resources, components) if resource.get("custom")]


def resources_below(resources: Sequence[Mapping[str, Any]], roots: tuple[str, ...]) -> list[Mapping[str, Any]]:
    """Resources of a state whose URN, or a parent's, ends with one of `roots`."""
    parents = {resource["urn"]: resource.get("parent", "") for resource in resources}

    def is_below(urn: str) -> bool:
        while urn:
            if urn.endswith(roots):
                return True
            urn = parents.get(urn, "")
        return False

    return [resource for resource in resources if is_below(resource["urn"])]


def tenants_without_file(outcome: Outcome, plan: Plan) -> list[str]:
    """Tenants of whom a preview would delete something, and whom no file names."""
    tenant_names = {PLATFORM, *plan.names}
    return sorted({c.tenant for c in outcome.changes if c.operation == "delete" and c.tenant not in tenant_names})


def namespaces_to_delete(outcome: Outcome, plan: Plan) -> list[str]:
    """Namespaces of the plan that a preview would delete, now or to make them anew: with all that is in them.

    It happens when a resource's logical name, its stack or the cluster of the context changes, and is never
    intended: a namespace is removed by removing it from the files.
    """
    names = {c.object for c in outcome.changes if c.operation in {"delete", "replace"}}
    names = {name for name in names if name.startswith("Namespace ")}
    # Only where it is needed, because it takes the plans of all tenants.
    return sorted(names.intersection(name_of(item) for item in plan.objects())) if names else []


def _document(state: Any) -> Any:
    """The policy that a state of a role's policy has; None where there is none, or none that is known yet."""
    try:
        return json.loads(state.inputs["policy"]) if state else None
    except (KeyError, TypeError, ValueError):
        return None


def _without_colours(message: str) -> str:
    """Without the engine's colour marks."""
    return re.sub(r"<\{%[^%]*%\}>", "", message).strip()


def _details(step: Any) -> Iterable[str]:
    old, new = step.old.inputs, step.new.inputs
    sentences, reported_field = spec_changes(step.type.rpartition(":")[2], old.get("spec"), new.get("spec"))
    yield from sentences
    for path in sorted(step.detailed_diff or step.diffs or ()):
        if reported_field and path.startswith(reported_field):
            continue
        old_text, new_text = _short(_value_at(old, path)), _short(_value_at(new, path))
        yield f"{path} {old_text} → {new_text}" if old_text != new_text else path


def _value_at(value: Any, path: str) -> Any:
    """The value at a path such as `spec.hard["requests.nvidia.com/gpu"]` or `spec.ports[0].port`."""
    for key, index, name in re.findall(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.\[\]]+)', path):
        try:
            value = value[int(index)] if index else value[key or name]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _short(value: Any) -> str:
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def summary(outcome: Outcome) -> str:
    """Counts by tenant, such as `platform +26, fraud +11 ~1; 40 unchanged`."""
    parts = []
    for tenant, changes in outcome.by_tenant():
        counts = {op: sum(1 for c in changes if c.operation == op) for op in _SIGNS}
        parts.append(tenant + "".join(f" {_SIGNS[op]}{count}" for op, count in counts.items() if count))
    return "; ".join(part for part in (", ".join(parts), f"{outcome.unchanged_count} unchanged") if part)
