"""Resources of any program as objects for the rules."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pulumi_policy import PolicyResource
from pulumi_policy.proxy import UnknownValueError

from tenancy.kube.kinds import GROUPS, placed, ruled
from tenancy.kube.objects import UNKNOWN
from tenancy.rules import aws
from tenancy.rules import manifest_rules as plain_rules

_PREFIX = "kubernetes:"


class Unknown(str):
    """A value that a preview does not know yet; every value inside of it is unknown too."""

    __slots__ = ()

    def __new__(cls) -> Unknown:
        return super().__new__(cls, UNKNOWN)

    def __iter__(self) -> Iterator[Any]:
        yield self

    def __getitem__(self, _key: Any) -> Unknown:
        return self

    def get(self, _key: str, _default: Any = None) -> Unknown:
        """Another unknown value, whatever the key."""
        return self


def object_of(
    resource_type: str, props: Mapping[str, Any], name: str = "", options: Any = None, provider: Any = None
) -> dict[str, Any] | None:
    """The Kubernetes object or AWS resource of an engine's resource; None if no rule reads it. Its kind is the type's.

    A `NamespacePatch` is checked as the Namespace that it changes.
    """
    if resource_type in aws.KINDS:
        item = {**plain(props), "kind": resource_type, "metadata": {"name": name}}
        if resource_type == aws.ROLE and (accounts := _accounts(provider)):
            item[aws.ACCOUNTS] = accounts
        return {**item, aws.PROTECTED: True} if getattr(options, "protect", False) else item
    if not resource_type.startswith(_PREFIX):
        return None
    _, version, kind = [*resource_type.split(":", 2), ""][:3]
    version = version.removeprefix("core/") if version.startswith("core/") else version
    patched_kind = kind.removesuffix("Patch")
    rule_kind = ruled(patched_kind if patched_kind in GROUPS else kind, version)
    item = {**plain(props), "kind": rule_kind, "apiVersion": version}
    if rule_kind == "Namespace" and options is not None:
        item[aws.PROTECTED] = bool(getattr(options, "protect", False))
    if rule_kind == "Release":
        item["metadata"] = {"name": item.get("name") or name, "namespace": item.get("namespace")}
    return dict(placed(item))


def _accounts(provider: Any) -> list[str]:
    """The accounts that an AWS provider is limited to; the engine has a provider's lists as JSON."""
    account_ids = plain(provider.props).get("allowedAccountIds") if provider else None
    if isinstance(account_ids, str) and account_ids != UNKNOWN:
        with suppress(ValueError):
            account_ids = json.loads(account_ids)
    return [*map(str, [account_ids] if isinstance(account_ids, str) else account_ids or ())]


def in_stack(resource: PolicyResource) -> dict[str, Any] | None:
    """The same, with references between resources: a node group's launch template, the role of a policy, and the policy
    of an attachment."""
    item = object_of(resource.resource_type, resource.props, resource.name, resource.opts, resource.provider)
    if item is None:
        return None
    for field, of_type, target_field in aws.SOURCES.get(item["kind"], ()):
        sources = resource.property_dependencies.get(field, ())
        item[target_field] = [
            object_of(s.resource_type, s.props, s.name) for s in sources if s.resource_type == of_type
        ]
    # The provider omits unknown values of a release, and has no status before the release is made.
    sources = resource.property_dependencies.get("values", ()) if item["kind"] == "Release" else ()
    if sources and item.get("status") == UNKNOWN:
        item[plain_rules.RENDERED] = f"values that depend on {', '.join(s.name for s in sources)}: {UNKNOWN}"
    return item


def plain(value: Any) -> Any:
    """Values for the rules; the SDK raises for an unknown value, and would skip the whole policy."""
    if isinstance(value, Mapping):
        return {key: _value_or_unknown(value, key) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_value_or_unknown(value, index) for index in range(len(value))]
    # All numbers of the engine are doubles.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _value_or_unknown(container: Any, key: Any) -> Any:
    try:
        return plain(container[key])
    except UnknownValueError:
        return Unknown()
