"""Rules that only the preset `regulated` holds: nodes of a tenant's own, keys of the customer's, logs that are kept.

A key that is not known yet is one that the program makes, and passes; whatever else is not known is told of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.rules import aws
from tenancy.rules.found import UNKNOWN, Finding, Given, Object, at, many, name_of
from tenancy.rules.index import Index
from tenancy.rules.plain import WORKLOADS, pod_of

_NODE_SELECTOR = "scheduler.alpha.kubernetes.io/node-selector"
"""What the API server's PodNodeSelector adds to every pod of the namespace."""
_HOSTS = "kubernetes.io/hostname"


def findings_together(items: Iterable[Object]) -> Iterator[Finding]:
    """Everything that is wrong with objects where they are regulated."""
    index = Index(items)
    yield from _apart(index)
    for kind, check in _CHECKS.items():
        for item in index.kinds(kind):
            for rule, given in check(item):
                yield Finding(rule, name_of(item), given)
    encrypted = {name_of(one) for item in index.kinds(aws.ENCRYPTION) for one in many(item.get(aws.BUCKETS))}
    for item in index.kinds(aws.BUCKET):
        own = many(at(item, "serverSideEncryptionConfiguration", "rule"))
        if name_of(item) not in encrypted and not own:
            yield Finding("reg-02", name_of(item), "no encryption configuration, which leaves it to a key of AWS' own")


def _apart(index: Index) -> Iterator[Finding]:
    """reg-01."""
    users: dict[str, set[str]] = {}
    for name, space in index.spaces.items():
        for place in _places(space):
            users.setdefault(place, set()).add(index.tenant_of[name])
    for name, space in sorted(index.spaces.items()):
        tenant, places = index.tenant_of[name], _places(space)
        shared = sorted(f"{place} with {', '.join(sorted(users[place] - {tenant}))}" for place in places)
        if places and all(users[place] == {tenant} for place in places):
            continue
        work = [item for item in index.inside.get(name, ()) if item.get("kind") in WORKLOADS]
        if work and all(_keeps_apart(pod_of(item), tenant) for item in work):
            continue
        alone = [text for text, place in zip(shared, sorted(places), strict=True) if users[place] != {tenant}]
        given = f"nodes of {', '.join(alone)}" if alone else "nothing that keeps its work on nodes of its own"
        yield Finding("reg-01", name_of(space), given)


def _places(space: Object) -> list[str]:
    """Pools, or choices of nodes, that the pods of a namespace are held to."""
    notes = at(space, "metadata", "annotations")
    pools = [f"pool {name.strip()}" for name in str(at(notes, words.ALLOWED_POOLS) or "").split(",") if name.strip()]
    chosen = at(notes, _NODE_SELECTOR)
    return sorted({*pools, *([f"node selector {chosen}"] if chosen else [])})


def _keeps_apart(pod: Any, tenant: str) -> bool:
    """Whether a pod runs on nodes with its tenant's label alone, or on none where another tenant's pod is."""
    if at(pod, "nodeSelector", words.TENANT) == tenant:
        return True
    required = at(pod, "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return any(at(term, "topologyKey") == _HOSTS and _others(term, tenant) for term in many(required))


def _others(term: Any, tenant: str) -> bool:
    """Whether a term of anti-affinity takes every pod of other tenants' namespaces."""
    expressions = many(at(term, "namespaceSelector", "matchExpressions"))
    every = at(term, "labelSelector") == {}
    return every and [(at(one, "key"), at(one, "operator"), [*many(at(one, "values"))]) for one in expressions] == [
        (words.TENANT, "NotIn", [tenant])
    ]


def _cluster(item: Object) -> Given:
    config = at(item, "encryptionConfig")
    if not at(config, "provider", "keyArn") or not {"secrets", UNKNOWN} & set(map(str, many(at(config, "resources")))):
        yield "reg-02", "no encryptionConfig of secrets"
    if "audit" not in (logs := list(map(str, many(item.get("enabledClusterLogTypes"))))):
        yield "reg-04", f"enabledClusterLogTypes {', '.join(logs) or 'not set'}"


def _log_group(item: Object) -> Given:
    if not item.get("kmsKeyId"):
        yield "reg-02", "no kmsKeyId"
    if (days := item.get("retentionInDays")) in {None, 0, "0", UNKNOWN}:
        yield "reg-03", f"retentionInDays {'not set' if days is None else days}"


def _volume(item: Object) -> Given:
    if not item.get("kmsKeyId"):
        yield "reg-02", "no kmsKeyId"


def _template(item: Object) -> Given:
    yield from _mapped(item.get("blockDeviceMappings"), "kmsKeyId")


def _node_class(item: Object) -> Given:
    yield from _mapped(at(item, "spec", "blockDeviceMappings"), "kmsKeyID")


def _mapped(mappings: Any, key: str) -> Given:
    open_ones = [str(at(one, "deviceName")) for one in many(mappings) if not at(one, "ebs", key)]
    if open_ones or not mappings:
        yield "reg-02", f"no {key} of {', '.join(open_ones) or 'any volume'}"


def _encryption(item: Object) -> Given:
    rules = [at(one, "applyServerSideEncryptionByDefault") for one in many(item.get("rules"))]
    if not any(at(one, "kmsMasterKeyId") for one in rules):
        yield "reg-02", f"sseAlgorithm {', '.join(str(at(one, 'sseAlgorithm')) for one in rules) or 'not set'}, no key"


_CHECKS: Mapping[str, Any] = {
    aws.CLUSTER: _cluster,
    aws.ENCRYPTION: _encryption,
    aws.LOGS: _log_group,
    aws.TEMPLATE: _template,
    aws.VOLUME: _volume,
    "EC2NodeClass": _node_class,
}
