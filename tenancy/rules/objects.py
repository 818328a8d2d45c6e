"""Rules of the policy pack on a program's objects, each by itself and all together.

An object is a dict as the API accepts it, from any author and tool. The rules on tenants' objects are here, those on
nodes in `aws` and `nodes`, those on queues in `queues`.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping

from tenancy.catalog import vocabulary
from tenancy.catalog.versions import COMPATIBLE, incompatible
from tenancy.kube.objects import UNKNOWN, get_path, labels_of, name_of
from tenancy.rules import access, aws, network, nodes, queues
from tenancy.rules.exceptions import FindingWaiver
from tenancy.rules.findings import Finding, Given, Object, finding_on
from tenancy.rules.owned import annotations_of, is_tenants, spec_of
from tenancy.rules.values import (
    day,
    gpu_keys,
    huge_pages_for_all,
    unbounded_end,
    unenforced_quota_keys,
    weak_pod_security,
    without_default,
)


def _carried(item: Object, rule: str, today: dt.date | None = None) -> tuple[dt.date | None, str]:
    """Last day of an exception in an object's annotation, or why the exception is not valid."""
    for text in str(annotations_of(item).get(vocabulary.EXCEPTIONS, "")).split(","):
        name, _, until = text.partition("=")
        if name != rule:
            continue
        if (end := day(until)) is None:
            return None, f"; its exception ends on {until!r}, which is not a day"
        if vocabulary.ENVIRONMENT not in labels_of(item):
            return None, f"; its exception is valid only on objects of this product, with {vocabulary.ENVIRONMENT}"
        return (None, f"; its exception has {problem}") if (problem := unbounded_end(end, today)) else (end, "")
    return None, ""


def excepted(item: Object, today: dt.date | None = None) -> Iterator[tuple[Finding, FindingWaiver]]:
    """Findings on an object that a valid exception of a tenant's file covers, by the object's annotation."""
    if item.get("kind") != "Namespace" or not is_tenants(item):
        return
    until, _ = _carried(item, "ns-03", today)
    if until and (problem := weak_pod_security(labels_of(item).get(vocabulary.PSA_ENFORCE))):
        owner = str(annotations_of(item).get(vocabulary.OWNER_MAIL, "unknown"))
        waiver = FindingWaiver(
            "ns-03", name_of(item), "an exception in the tenant's file, with its reason there", owner, until
        )
        yield Finding("ns-03", name_of(item), f"{vocabulary.PSA_ENFORCE}: {problem}"), waiver


def _namespace(item: Object) -> Given:
    if not is_tenants(item):
        return
    labels = labels_of(item)
    level = labels.get(vocabulary.PSA_ENFORCE)
    weak: list[str] = []
    if problem := weak_pod_security(level):
        until, reason = _carried(item, "ns-03")
        if until is None:
            weak.append(f"{vocabulary.PSA_ENFORCE}: {problem}{reason}")
    version = str(labels.get(vocabulary.PSA_VERSION, "none"))
    if version != UNKNOWN and (misfit := _unpinned(version)) is not None:
        weak.append(f"{vocabulary.PSA_VERSION}: {version}{misfit}")
    if weak:
        yield "ns-03", "; ".join(weak)
    if missing := [key for key in vocabulary.COST_LABELS if not labels.get(key)]:
        yield "cost-02", f"no label {', '.join(missing)}"
    # Only a preview shows it; a plain manifest is not checked for it.
    if (
        item.get(aws.PROTECTED) is False
        and vocabulary.ENVIRONMENT in labels
        and vocabulary.LEAVING not in annotations_of(item)
    ):
        yield "ns-07", "no protection from deletion when its file is deleted"


_PINNED = re.compile(r"v(1\.\d+)")


def _unpinned(version: str) -> str | None:
    """Why a version of the Pod Security Standards is not accepted; None if it is."""
    version_match = _PINNED.fullmatch(version)
    if not version_match:
        return ""
    return f", older than v{COMPATIBLE['guards'].oldest}" if incompatible(version_match[1], "guards") else None


def _quota(item: Object) -> Given:
    if unenforced_keys := unenforced_quota_keys(spec_of(item).get("hard") or {}):
        yield "quota-01", ", ".join(unenforced_keys)


def _limit_range(item: Object) -> Given:
    fields = ("default", "defaultRequest", "min", "max", "maxLimitRequestRatio")
    limits = spec_of(item).get("limits") or ()
    gpu_limits = {k for limit in limits for f in fields for k in gpu_keys(limit.get(f) or {})}
    gpu_limits |= {
        f"{key} under {field}"
        for limit in limits
        for field in fields[:3]
        for key in huge_pages_for_all(limit.get(field))
    }
    gpu_limits |= {
        f"{key} {amount} under max without a default"
        for limit in limits
        if limit.get("type") == "Container" and UNKNOWN not in (limit.get("max"), limit.get("default"))
        for key, amount in without_default(limit.get("max") or {}, limit.get("default") or {}).items()
    }
    if gpu_limits:
        yield "quota-02", ", ".join(sorted(gpu_limits))


_MOUNTPOINT = "s3.csi.aws.com"


def _volume(item: Object) -> Given:
    """stor-09."""
    spec = spec_of(item)
    claim = [get_path(spec, "claimRef", key) for key in ("namespace", "name")]
    if UNKNOWN in claim or not all(claim):
        yield "stor-09", f"claimRef {UNKNOWN if UNKNOWN in claim else 'without its namespace and name'}"
    if "hostPath" in spec:
        yield "stor-09", f"hostPath {get_path(spec, 'hostPath', 'path')}"
    if get_path(spec, "csi", "driver") == _MOUNTPOINT:
        source = get_path(spec, "csi", "volumeAttributes", "authenticationSource") or "driver, the default"
        if source != "pod":
            yield "stor-09", f"authenticationSource {source}"


def _pod_identity(item: Object) -> Given:
    yield from aws.untagged(spec_of(item).get("disableSessionTags"))


def _guard(item: Object) -> Given:
    if spec_of(item).get("failurePolicy", "Fail") != "Fail":
        yield "guard-01", f"failurePolicy {spec_of(item)['failurePolicy']}"


def _guard_binding(item: Object) -> Given:
    actions = spec_of(item).get("validationActions") or []
    if "Deny" not in actions:
        is_audit = ((item.get("metadata") or {}).get("annotations") or {}).get(vocabulary.GUARDS_MODE) == "audit"
        yield "guard-03" if is_audit and "Warn" in actions else "guard-01", f"validationActions {list(actions)}"


def _release(item: Object) -> Given:
    yield from nodes.CHECKS["Release"](item)
    yield from queues.CHECKS["Release"](item)


CHECKS: Mapping[str, Callable[[Object], Given]] = {
    "LimitRange": _limit_range,
    "Namespace": _namespace,
    "PersistentVolume": _volume,
    "PodIdentityAssociation": _pod_identity,
    "ResourceQuota": _quota,
    "ValidatingAdmissionPolicy": _guard,
    "ValidatingAdmissionPolicyBinding": _guard_binding,
    "Deployment": queues.waiting_deployment,
    **access.CHECKS,
    **network.CHECKS,
    **aws.CHECKS,
    **nodes.CHECKS,
    **queues.CHECKS,
    "Release": _release,
}
MACHINES = frozenset({*aws.CHECKS, *nodes.CHECKS, "ConfigMap"})
"""Kinds whose rules report unknown values themselves; for others, every unknown field is reported."""


def object_findings(item: Object) -> Iterator[Finding]:
    """Findings on one object by itself."""
    if check := CHECKS.get(str(item.get("kind"))):
        for rule, detail in check(item):
            yield finding_on(item, rule, detail)
