"""Rules on one object of a tenant that its manifest shows: size, grace period, affinity and metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tenancy.catalog import sizes
from tenancy.catalog import vocabulary as words
from tenancy.catalog.sizes import MAX_GRACE_SECONDS
from tenancy.kube.pod_templates import PodTemplate, templates_of
from tenancy.rules.found import UNKNOWN, Given, Object, as_list, get_path
from tenancy.rules.values import SCHEDULE

_PROBES = ("livenessProbe", "startupProbe")
_LISTS = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")


def findings(item: Object) -> Given:
    """Violations of the limits on size, affinity and grace periods in a tenant's object."""
    if not get_path(item, "metadata", "labels", words.TENANT):
        return
    templates = templates_of(item)
    yield from _sizes(item, templates)
    for template in templates:
        yield from _ends(template)
        yield from _affinity(template.spec)
        if template.metadata is not item.get("metadata"):
            yield from _finalizers(template.metadata)
    yield from _finalizers(item.get("metadata"))
    if item.get("kind") == "Service" and (address := get_path(item, "spec", "clusterIP")) not in (
        None,
        "",
        "None",
        UNKNOWN,
    ):
        yield "net-11", f"clusterIP {address}"
    schedule = get_path(item, "spec", "schedule")
    if (
        item.get("kind") == "CronJob"
        and isinstance(schedule, str)
        and not re.fullmatch(f"{SCHEDULE}|{UNKNOWN}", schedule)
    ):
        yield "avail-07", f"schedule {schedule}"
    if item.get("kind") in ("ConfigMap", "Secret"):
        labels = get_path(item, "metadata", "labels")
        if loaded := [key for key in words.LOADED_LABELS if key in labels]:
            yield "obs-01", f"label {', '.join(loaded)}"


def _finalizers(metadata: Any) -> Given:
    finalizers = get_path(metadata, "finalizers")
    if isinstance(finalizers, list) and finalizers:
        yield "avail-03", f"finalizers {', '.join(map(str, finalizers))}"


def _sizes(item: Object, templates: Sequence[PodTemplate]) -> Given:
    within = {template.path.removesuffix("spec") + "metadata": template.metadata for template in templates}
    for path, metadata in {**within, "metadata": item.get("metadata")}.items():
        for field in ("labels", "annotations"):
            found = get_path(metadata, field)
            if isinstance(found, dict) and len(found) > sizes.KEYS:
                yield "avail-05", f"{len(found)} {field} under {path}"
    for field, most in (("metadata", sizes.METADATA), ("spec", sizes.SPEC)):
        if (size := _bytes(item.get(field))) > most:
            yield "avail-05", f"{size} bytes of {field}"
    managers = get_path(item, "metadata", "managedFields")
    if isinstance(managers, list) and len(managers) > sizes.MANAGERS:
        yield "avail-05", f"{len(managers)} field managers"


def _bytes(value: Any) -> int:
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ":"), default=str)
    return len(text.encode("utf-8", "surrogatepass"))


def _ends(template: PodTemplate) -> Given:
    grace = get_path(template.spec, "terminationGracePeriodSeconds")
    if _is_above(grace, MAX_GRACE_SECONDS):
        yield "avail-01", f"terminationGracePeriodSeconds {grace}"
    if type(grace) is int and grace == 0:
        yield "avail-06", "terminationGracePeriodSeconds 0"
    for _, container in template.containers:
        for probe in _PROBES:
            seconds = get_path(container, probe, "terminationGracePeriodSeconds")
            if _is_above(seconds, MAX_GRACE_SECONDS):
                yield (
                    "avail-01",
                    f"{probe}.terminationGracePeriodSeconds {seconds} in container {get_path(container, 'name')}",
                )


def _is_above(value: Any, most: int) -> bool:
    return type(value) is int and value > most


def _affinity(pod: Any) -> Given:
    for kind in ("podAffinity", "podAntiAffinity"):
        for name in _LISTS:
            terms = get_path(pod, "affinity", kind, name)
            if isinstance(terms, list) and len(terms) > sizes.AFFINITY_TERMS:
                yield "sched-09", f"{len(terms)} terms of affinity.{kind}.{name}"
        for term in as_list(get_path(pod, "affinity", kind, _LISTS[1])):
            if _elsewhere(get_path(term, "podAffinityTerm")):
                yield "sched-06", f"preferred {kind} across namespaces"
        for term in as_list(get_path(pod, "affinity", kind, _LISTS[0])):
            if _elsewhere(term) and not (kind == "podAntiAffinity" and _off_other_tenants(term)):
                yield "sched-06", f"required {kind} across namespaces"


def _elsewhere(term: Any) -> bool:
    # Unknown values are reported as such, and break no rule here.
    named = get_path(term, "namespaces")
    return isinstance(get_path(term, "namespaceSelector"), dict) or (isinstance(named, list) and bool(named))


def _off_other_tenants(term: Any) -> bool:
    """Whether a required term is the one for apart: true, against nodes with pods of any other tenant."""
    chosen = [one for one in as_list(get_path(term, "namespaceSelector", "matchExpressions")) if isinstance(one, dict)]
    return any(one.get("key") == words.TENANT and one.get("operator") == "NotIn" for one in chosen)
