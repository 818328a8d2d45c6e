"""Rules of the preset `regulated` alone: dedicated nodes, customer-managed keys, retention of logs.

An unknown key is one that the program makes, and passes; other unknown values are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.kube.objects import UNKNOWN, as_list, get_path, name_of
from tenancy.rules import aws
from tenancy.rules.findings import Finding, Given, Object
from tenancy.rules.index import Index
from tenancy.rules.model import Rule, Severity

RULES: tuple[Rule, ...] = (
    Rule(
        id="reg-01",
        title="a tenant's work shares no node with another tenant's work",
        why="after a container escape on a shared node, the data of the other tenants there can be read",
        fix=(
            "name a pool of its own under tenancy.gpu/allowed-pools of the namespace, or require podAntiAffinity "
            "on kubernetes.io/hostname against namespaces of other tenants"
        ),
    ),
    Rule(
        id="reg-02",
        title="secrets, volumes, buckets and logs are encrypted with a customer-managed key",
        why="with an AWS-owned key you cannot see or revoke who may decrypt",
        fix="name a key of KMS: encryptionConfig, kmsKeyId, or kmsMasterKeyId of a bucket's encryption configuration",
        aws_settings={aws.CLUSTER: "encryptionConfig"},
    ),
    Rule(
        id="reg-03",
        title="a log group sets how long its logs are kept",
        why="without a retention period logs are kept for ever, or are deleted without a decision",
        fix="set retentionInDays to what your auditors ask for",
        severity=Severity.MEDIUM,
        aws_settings={aws.LOGS: "retentionInDays"},
    ),
    Rule(
        id="reg-04",
        title="the control plane writes an audit log",
        why="without it, there is no record of who read or changed what",
        fix="list audit under enabledClusterLogTypes",
        aws_settings={aws.CLUSTER: "enabledClusterLogTypes"},
    ),
)

_NODE_SELECTOR = "scheduler.alpha.kubernetes.io/node-selector"
"""Annotation of a namespace whose selector the API server's PodNodeSelector adds to every pod."""
_HOSTS = "kubernetes.io/hostname"


def findings(items: Iterable[Object]) -> Iterator[Finding]:
    """Findings on objects in the preset `regulated`."""
    index = Index(items)
    yield from _apart(index)
    for kind, check in _CHECKS.items():
        for item in index.kinds(kind):
            for rule, detail in check(item):
                yield Finding(rule, name_of(item), detail)
    encrypted = {name_of(name) for item in index.kinds(aws.ENCRYPTION) for name in as_list(item.get(aws.BUCKETS))}
    for item in index.kinds(aws.BUCKET):
        has_own_rules = as_list(get_path(item, "serverSideEncryptionConfiguration", "rule"))
        if name_of(item) not in encrypted and not has_own_rules:
            yield Finding("reg-02", name_of(item), "no encryption configuration: an AWS-owned key is used")


def _apart(index: Index) -> Iterator[Finding]:
    """reg-01."""
    users: dict[str, set[str]] = {}
    for name, space in index.spaces.items():
        for place in _places(space):
            users.setdefault(place, set()).add(index.tenant_of[name])
    for name, space in sorted(index.spaces.items()):
        tenant, places = index.tenant_of[name], _places(space)
        shared_places = sorted(f"{place} with {', '.join(sorted(users[place] - {tenant}))}" for place in places)
        if places and all(users[place] == {tenant} for place in places):
            continue
        work = [template for _, template in index.templates(index.inside.get(name, ()))]
        if work and all(_keeps_apart(template.spec, tenant) for template in work):
            continue
        alone = [text for text, place in zip(shared_places, sorted(places), strict=True) if users[place] != {tenant}]
        detail = f"nodes of {', '.join(alone)}" if alone else "nothing that limits its work to its own nodes"
        yield Finding("reg-01", name_of(space), detail)


def _places(space: Object) -> list[str]:
    """Pools or node selectors that the pods of a namespace are limited to."""
    notes = get_path(space, "metadata", "annotations")
    pools = [
        f"pool {name.strip()}"
        for name in str(get_path(notes, vocabulary.ALLOWED_POOLS) or "").split(",")
        if name.strip()
    ]
    node_selector = get_path(notes, _NODE_SELECTOR)
    return sorted({*pools, *([f"node selector {node_selector}"] if node_selector else [])})


def _keeps_apart(pod: Any, tenant: str) -> bool:
    """Whether a pod runs only on nodes with its tenant's label, or only on nodes without other tenants' pods."""
    if get_path(pod, "nodeSelector", vocabulary.TENANT) == tenant:
        return True
    required = get_path(pod, "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return any(get_path(term, "topologyKey") == _HOSTS and _others(term, tenant) for term in as_list(required))


def _others(term: Any, tenant: str) -> bool:
    """Whether an anti-affinity term matches every pod of other tenants' namespaces."""
    expressions = as_list(get_path(term, "namespaceSelector", "matchExpressions"))
    selects_all_pods = get_path(term, "labelSelector") == {}
    return selects_all_pods and [
        (get_path(expression, "key"), get_path(expression, "operator"), [*as_list(get_path(expression, "values"))])
        for expression in expressions
    ] == [(vocabulary.TENANT, "NotIn", [tenant])]


def _cluster(item: Object) -> Given:
    config = get_path(item, "encryptionConfig")
    if not get_path(config, "provider", "keyArn") or not {"secrets", UNKNOWN} & set(
        map(str, as_list(get_path(config, "resources")))
    ):
        yield "reg-02", "no encryptionConfig of secrets"
    if "audit" not in (logs := list(map(str, as_list(item.get("enabledClusterLogTypes"))))):
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
    yield from _mapped(get_path(item, "spec", "blockDeviceMappings"), "kmsKeyID")


def _mapped(mappings: Any, key: str) -> Given:
    open_ones = [
        str(get_path(mapping, "deviceName")) for mapping in as_list(mappings) if not get_path(mapping, "ebs", key)
    ]
    if open_ones or not mappings:
        yield "reg-02", f"no {key} of {', '.join(open_ones) or 'any volume'}"


def _encryption(item: Object) -> Given:
    rules = [get_path(rule, "applyServerSideEncryptionByDefault") for rule in as_list(item.get("rules"))]
    if not any(get_path(rule_default, "kmsMasterKeyId") for rule_default in rules):
        algorithms = [str(get_path(rule_default, "sseAlgorithm")) for rule_default in rules]
        yield "reg-02", f"sseAlgorithm {', '.join(algorithms) or 'not set'}, no key"


_CHECKS: Mapping[str, Any] = {
    aws.CLUSTER: _cluster,
    aws.ENCRYPTION: _encryption,
    aws.LOGS: _log_group,
    aws.TEMPLATE: _template,
    aws.VOLUME: _volume,
    "EC2NodeClass": _node_class,
}
