"""Safe corrections, made if `isolation` is configured with `"enforcementLevel": "remediate"`.

- quota-01: a quota of `nvidia.com/gpu` or `limits.nvidia.com/gpu` counts nothing; it becomes `requests.nvidia.com/gpu`.
- cost-02, and rules that depend on a tenant's label: objects in a tenant's namespace get the namespace's labels.

Other findings are reported as usual.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi_policy import ResourceValidationArgs

from tenancy.catalog import vocabulary
from tenancy.kube.kinds import GROUPS
from tenancy.kube.objects import UNKNOWN, get_path
from tenancy.policy_pack.objects import object_of
from tenancy.rules import objects
from tenancy.rules.values import gpu_keys, unenforced_quota_keys

INHERITED = (vocabulary.TENANT, *vocabulary.COST_LABELS)
"""Labels of a namespace that its objects get too."""
_KINDS = frozenset(GROUPS) - objects.MACHINES - {"Namespace"}
_labels_of: dict[str, dict[str, str]] = {}
"""Labels of the tenants' namespaces that the program has made so far."""


def remedy(args: ResourceValidationArgs) -> Mapping[str, Any] | None:
    """The corrected properties; None if there is nothing to correct."""
    item = object_of(args.resource_type, args.props, args.name)
    if item is None or args.resource_type.endswith("Patch"):
        return None
    if item["kind"] == "Namespace":
        _remember(item)
    is_changed = _labelled(item, args.props) if item["kind"] in _KINDS else False
    is_changed |= _counted(item, args.props) if item["kind"] == "ResourceQuota" else False
    return args.props if is_changed else None


def _remember(item: Mapping[str, Any]) -> None:
    labels = get_path(item, "metadata", "labels")
    if isinstance(labels, Mapping) and labels.get(vocabulary.TENANT, UNKNOWN) != UNKNOWN:
        inherited_labels = {key: labels[key] for key in INHERITED if labels.get(key, UNKNOWN) != UNKNOWN}
        _labels_of[str(get_path(item, "metadata", "name"))] = inherited_labels


def _labelled(item: Mapping[str, Any], props: Any) -> bool:
    name, has = str(get_path(item, "metadata", "namespace")), get_path(item, "metadata", "labels") or {}
    inherited_labels = _labels_of.get(name, {})
    missing = {key: value for key, value in inherited_labels.items() if isinstance(has, Mapping) and key not in has}
    # Which of two tenants' labels is right cannot be decided here.
    if (
        not missing
        or has.get(vocabulary.TENANT, inherited_labels[vocabulary.TENANT]) != inherited_labels[vocabulary.TENANT]
    ):
        return False
    metadata = props["metadata"]
    if "labels" not in metadata or metadata["labels"] is None:
        metadata["labels"] = {}
    for key, value in missing.items():
        metadata["labels"][key] = value
    return True


def _counted(item: Mapping[str, Any], props: Any) -> bool:
    hard = get_path(item, "spec", "hard")
    if not isinstance(hard, Mapping):
        return False
    dead = [key for key in gpu_keys(unenforced_quota_keys([*hard])) if not key.startswith("requests.")]
    # If two keys of one resource differ, the intended amount is unknown.
    counted = {key: f"requests.{key.removeprefix('limits.')}" for key in dead}
    alone = {key: name for key, name in counted.items() if name not in hard and [*counted.values()].count(name) == 1}
    for key, name in alone.items():
        amounts = props["spec"]["hard"]["__target"]  # below the proxy, which hides unknown values
        amounts[name] = amounts.pop(key)
    return bool(alone)
