"""Changes of single resources, by the program that uses a component."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import pulumi

from tenancy.catalog import vocabulary
from tenancy.catalog.days import today
from tenancy.components.inputs import Transformation
from tenancy.components.kubernetes.manifest import BACKGROUND_DELETION
from tenancy.rules.catalogue import Violation
from tenancy.spec.fields.tenant import Tenant

Change: TypeAlias = "Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any] | None]"
"""Properties to merge into a resource's, as a JSON merge patch (RFC 7396: None removes), or a function of a copy of
its properties that changes them or returns others."""

RULE = "custom-01"
_KUBERNETES, _OWN_PREFIX = "kubernetes:", "gpu-tenancy:"
_OPEN_KINDS = frozenset({"Release", "PrometheusRule", "ServiceMonitor", "PodMonitor", "StorageClass"})
"""Kinds that isolate no tenant: all of their fields but their names may change."""
_OPEN_ON_AWS = frozenset(
    {"description", "imageScanningConfiguration", "limitAmount", "notifications", "recoveryWindowInDays"}
    | {"retentionInDays"}
)
"""Properties of AWS resources that isolate no tenant."""
_METADATA = ("labels", "annotations")


class Customization:
    """The changes that a program asks one component for. Targets are logical names, `Kind/name`, or
    `Kind/namespace/name`."""

    def __init__(
        self,
        changes: Mapping[str, Change],
        component: str,
        tenant: Tenant | None = None,
    ) -> None:
        """`component` names the component in messages; `tenant` is the one whose exceptions count."""
        self._changes, self._component = dict(changes), component
        self._exceptions = dict(_excepted_namespaces(tenant)) if tenant else {}
        self._used_targets: dict[str, set[str]] = {}
        """Targets, with the clearest names of the resources that they meant."""
        self._resource_names: set[str] = set()

    def transformations(self) -> list[Transformation]:
        """For the options of the component: its children inherit them. Empty without changes."""
        return [self._transform] if self._changes else []

    def check_used(self) -> None:
        """ValueError for a target that no resource of the component has, or more than one."""
        for target, resources in self._used_targets.items():
            if len(resources) > 1:
                resource_list = " and ".join(sorted(resources))
                raise ValueError(
                    f"given customize of {target!r} in {self._component}, which is {resource_list}; rule: "
                    "a target is one resource; change: use the longer name"
                )
        for target in self._changes.keys() - self._used_targets:
            close_names = (
                difflib.get_close_matches(target, self._resource_names, n=3, cutoff=0.5)
                or sorted(self._resource_names)[:3]
            )
            raise ValueError(
                f"given customize of {target!r} in {self._component}; rule: a target is a resource that the component "
                f"makes; change: use {' or '.join(close_names)}"
            )

    def _transform(self, args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        if args.type_.startswith(_OWN_PREFIX) or not isinstance(args.props, Mapping):
            return None
        names = list(_names(args))
        self._resource_names.update(names)
        targets = [name for name in names if name in self._changes]
        if not targets:
            return None
        old_props = dict(args.props)
        new_props = old_props
        for target in targets:
            self._used_targets.setdefault(target, set()).add(names[-1])
            new_props = _apply_change(new_props, self._changes[target])
        self._check(args, names[-1], old_props, new_props)
        return pulumi.ResourceTransformationResult(new_props, args.opts)

    def _check(
        self, args: pulumi.ResourceTransformationArgs, name: str, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> None:
        isolating = sorted(_isolating(args.type_, before, after))
        if not isolating:
            return
        namespace = before.get("metadata", {}).get("namespace") or (
            before["metadata"]["name"] if _kind(args.type_) == "Namespace" else None
        )
        fixed = [path for path in isolating if path in {"apiVersion", "kind", "metadata.name", "metadata.namespace"}]
        until = self._exceptions.get(namespace)
        if until and until >= today() and not fixed:
            pulumi.log.warn(
                f"{self._component}: {name} is customized in {', '.join(isolating)}, excepted until {until}"
            )
            return
        change = None
        if fixed:
            change = f"leave {', '.join(fixed)} as it is: it is the object's identity"
        elif namespace is None:
            change = "write it in the spec: no exception covers a resource outside of the tenant's namespaces"
        raise Violation(RULE, f"customize of {name} in {self._component}, which changes {', '.join(isolating)}", change)


def _excepted_namespaces(tenant: Tenant) -> Iterator[tuple[str | None, Any]]:
    """Namespaces with an exception from the rule, and its last day."""
    names = {namespace.name: tenant.namespace_name(namespace) for namespace in tenant.namespaces}
    for entry in tenant.exceptions:
        if entry.rule == RULE:
            yield names[entry.namespace], entry.until


def _kind(kind: str) -> str:
    return kind.rpartition(":")[2].removesuffix("Patch")


def _names(args: pulumi.ResourceTransformationArgs) -> Iterator[str]:
    """Names by which a program may target a resource, the clearest last."""
    yield args.name
    if args.type_.startswith(_KUBERNETES):
        props: Mapping[str, Any] = args.props
        metadata: Mapping[str, Any] = props.get("metadata") or {}
        if name := metadata.get("name") or props.get("name"):
            kind, namespace = _kind(args.type_), metadata.get("namespace")
            yield f"{kind}/{name}"
            if namespace:
                yield f"{kind}/{namespace}/{name}"


def _apply_change(props: Mapping[str, Any], change: Change) -> dict[str, Any]:
    copy = _plain_copy(props)
    if callable(change):
        returned = change(copy)
        return dict(returned) if isinstance(returned, Mapping) else copy
    return _merge_patch(copy, change)


def _plain_copy(value: Any) -> Any:
    """A copy of mappings and lists, which a function may change; other values, outputs among them, as they are."""
    if isinstance(value, Mapping):
        return {key: _plain_copy(item) for key, item in value.items()}
    return [_plain_copy(item) for item in value] if isinstance(value, list | tuple) else value


def _merge_patch(before: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(before) if isinstance(before, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_patch(merged.get(key), value)
    return merged


def _isolating(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Paths of changed fields that isolate tenants."""
    for key in before.keys() | after.keys():
        if before.get(key) == after.get(key):
            continue
        if not kind.startswith(_KUBERNETES):
            if key == "tags":
                old_tags, new_tags = before.get(key) or {}, after.get(key) or {}
                yield from (f"tags.{tag}" for tag, value in old_tags.items() if new_tags.get(tag) != value)
            elif _camel(key) not in _OPEN_ON_AWS:
                yield key
        elif key == "metadata":
            yield from _isolating_metadata(before.get(key) or {}, after.get(key) or {})
        elif _kind(kind) not in _OPEN_KINDS or key in {"apiVersion", "kind", "name", "namespace"}:
            yield key


def _camel(key: str) -> str:
    """As the provider writes it: the SDK's own classes have Python's names."""
    first_word, *other_words = key.split("_")
    return first_word + "".join(word.title() for word in other_words)


def _isolating_metadata(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for field in before.keys() | after.keys():
        old_value, new_value = before.get(field), after.get(field)
        if old_value == new_value:
            continue
        if field not in _METADATA:
            yield f"metadata.{field}"
            continue
        old_value, new_value = old_value or {}, new_value or {}
        for key in old_value.keys() | new_value.keys():
            if old_value.get(key) != new_value.get(key) and (key in old_value or _is_platform_key(key)):
                yield f"metadata.{field}.{key}"


def _is_platform_key(key: str) -> bool:
    """Whether a label or annotation has a meaning to the platform: a program may not add it."""
    if key in {*vocabulary.COST_LABELS, *vocabulary.LOADED_LABELS, vocabulary.MANAGED_BY, *BACKGROUND_DELETION}:
        return True
    domain = key.rpartition("/")[0]
    domains = (vocabulary.PREFIX.rstrip("/"), *(d for d in vocabulary.PLATFORM_DOMAINS if d != "pulumi.com"))
    return any(domain == platform_domain or domain.endswith(f".{platform_domain}") for platform_domain in domains)
