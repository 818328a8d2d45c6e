"""Changes of single resources, by the program that uses a component."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import pulumi

from tenancy.catalog import vocabulary as words
from tenancy.catalog.days import today
from tenancy.components.inputs import Transformation
from tenancy.components.kubernetes.manifest import BACKGROUND
from tenancy.rules.catalogue import Violation
from tenancy.schema.tenant import Tenant

Change: TypeAlias = "Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any] | None]"
"""Properties to merge into a resource's, as a JSON merge patch (RFC 7396: None removes), or a function of a copy of
its properties that changes them or returns others."""

RULE = "custom-01"
_KUBERNETES, _OURS = "kubernetes:", "gpu-tenancy:"
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
        self._waived = dict(_waived(tenant)) if tenant else {}
        self._used: dict[str, set[str]] = {}
        """Targets, with the clearest names of the resources that they meant."""
        self._seen: set[str] = set()

    def transformations(self) -> list[Transformation]:
        """For the options of the component: its children inherit them. Empty without changes."""
        return [self._transformed] if self._changes else []

    def check_used(self) -> None:
        """ValueError for a target that no resource of the component has, or more than one."""
        for target, meant in self._used.items():
            if len(meant) > 1:
                others = " and ".join(sorted(meant))
                raise ValueError(
                    f"given customize of {target!r} in {self._component}, which is {others}; rule: "
                    "a target is one resource; change: use the longer name"
                )
        for target in self._changes.keys() - self._used:
            near = difflib.get_close_matches(target, self._seen, n=3, cutoff=0.5) or sorted(self._seen)[:3]
            raise ValueError(
                f"given customize of {target!r} in {self._component}; rule: a target is a resource that the component "
                f"makes; change: use {' or '.join(near)}"
            )

    def _transformed(self, args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        if args.type_.startswith(_OURS) or not isinstance(args.props, Mapping):
            return None
        names = list(_names(args))
        self._seen.update(names)
        targets = [name for name in names if name in self._changes]
        if not targets:
            return None
        before = dict(args.props)
        after = before
        for target in targets:
            self._used.setdefault(target, set()).add(names[-1])
            after = _changed(after, self._changes[target])
        self._check(args, names[-1], before, after)
        return pulumi.ResourceTransformationResult(after, args.opts)

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
        until = self._waived.get(namespace)
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


def _waived(tenant: Tenant) -> Iterator[tuple[str | None, Any]]:
    """Namespaces with an exception from the rule, and its last day."""
    names = {namespace.name: tenant.namespace_name(namespace) for namespace in tenant.namespaces}
    for entry in tenant.exceptions:
        if entry.rule == RULE:
            yield names[entry.object], entry.until


def _kind(kind: str) -> str:
    return kind.rpartition(":")[2].removesuffix("Patch")


def _names(args: pulumi.ResourceTransformationArgs) -> Iterator[str]:
    """What a program may call a resource; the clearest last."""
    yield args.name
    if args.type_.startswith(_KUBERNETES):
        props: Mapping[str, Any] = args.props
        metadata: Mapping[str, Any] = props.get("metadata") or {}
        if name := metadata.get("name") or props.get("name"):
            kind, namespace = _kind(args.type_), metadata.get("namespace")
            yield f"{kind}/{name}"
            if namespace:
                yield f"{kind}/{namespace}/{name}"


def _changed(props: Mapping[str, Any], change: Change) -> dict[str, Any]:
    own = _plain(props)
    if callable(change):
        found = change(own)
        return dict(found) if isinstance(found, Mapping) else own
    return _merged(own, change)


def _plain(value: Any) -> Any:
    """A copy of mappings and lists, which a function may change; other values, outputs among them, as they are."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _merged(before: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    made = dict(before) if isinstance(before, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = _merged(made.get(key), value)
    return made


def _isolating(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Paths of changed fields that isolate tenants."""
    for key in before.keys() | after.keys():
        if before.get(key) == after.get(key):
            continue
        if not kind.startswith(_KUBERNETES):
            if key == "tags":
                was, now = before.get(key) or {}, after.get(key) or {}
                yield from (f"tags.{tag}" for tag, value in was.items() if now.get(tag) != value)
            elif _camel(key) not in _OPEN_ON_AWS:
                yield key
        elif key == "metadata":
            yield from _of_metadata(before.get(key) or {}, after.get(key) or {})
        elif _kind(kind) not in _OPEN_KINDS or key in {"apiVersion", "kind", "name", "namespace"}:
            yield key


def _camel(key: str) -> str:
    """As the provider writes it: the SDK's own classes have Python's names."""
    first, *rest = key.split("_")
    return first + "".join(word.title() for word in rest)


def _of_metadata(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for field in before.keys() | after.keys():
        was, now = before.get(field), after.get(field)
        if was == now:
            continue
        if field not in _METADATA:
            yield f"metadata.{field}"
            continue
        was, now = was or {}, now or {}
        for key in was.keys() | now.keys():
            if was.get(key) != now.get(key) and (key in was or _owned(key)):
                yield f"metadata.{field}.{key}"


def _owned(key: str) -> bool:
    """Whether a label or annotation has a meaning to the platform: a program may not add it."""
    if key in {*words.COST_LABELS, *words.LOADED_LABELS, words.MANAGED_BY, *BACKGROUND}:
        return True
    domain = key.rpartition("/")[0]
    domains = (words.PREFIX.rstrip("/"), *(d for d in words.PLATFORM_DOMAINS if d != "pulumi.com"))
    return any(domain == each or domain.endswith(f".{each}") for each in domains)
