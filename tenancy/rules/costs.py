"""Costs: labels that costs are charged by, prices, and the bill that `tenancy chargeback` is given."""

from __future__ import annotations

from collections.abc import Iterator

from tenancy.catalog import vocabulary
from tenancy.kube.requests import collection
from tenancy.rules.attacks import Attack, Request, attack, escaped, put
from tenancy.rules.expressions import cost_labels_match, in_tenants_namespaces
from tenancy.rules.model import Face, GuardSubject, Rule, Severity
from tenancy.rules.scene import AttackPlace, AttackScene
from tenancy.rules.workloads import (
    ALL_KINDS,
    Case,
    at_home,
    in_each_namespace,
    kinds_of,
    objects_beside_work,
    of_api,
    through_all_kinds,
    workload,
)

_OF_OBJECT = f"!has(object.metadata.labels) || {cost_labels_match('object.metadata.labels')}"

# Attacks


def _labels(scene: AttackScene, place: AttackPlace) -> Iterator[Case]:
    other_namespace, tenant = scene.other_tenant_namespace(place), place.tenant
    other_tenant = other_namespace.tenant if other_namespace else None
    labels = {
        "team": other_tenant.team if other_tenant and other_tenant.team != tenant.team else "another-team",
        "department": "another-department",
        "cost-center": "CC-another",
        "owner": "another-owner",
        "product": "another-product",
        "gpu-tier": "another-gpu-tier",
    }
    for key, value in labels.items():
        kinds = ALL_KINDS if key == "team" else ("Pod",)
        sentence = f"charge its cost to another {key}"
        yield Case("cost-01", key, sentence, f"/metadata/labels/{key}", value, place.labels[key], kinds=kinds)
    for key in place.own_labels:
        sentence, at = f"have another {key} than its namespace", f"/metadata/labels/{escaped(key)}"
        yield Case("cost-01", "own-label", sentence, at, "another", place.labels[key])


def _tenants(scene: AttackScene, place: AttackPlace) -> Iterator[Case]:
    if other_namespace := scene.other_tenant_namespace(place):
        at, bad = f"/metadata/labels/{escaped(vocabulary.TENANT)}", other_namespace.tenant.tenant
        yield Case("cost-01", "tenant", f"charge its cost to {bad}", at, bad, place.tenant.tenant)


def _labels_of_work(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    for kind in kinds_of(place):
        if kind != "Pod":
            path = collection(of_api(kind), kind, place.name)
            charged_here = put(workload(kind, place.pod()), "/metadata/labels/team", place.tenant.team)
            yield attack(
                f"cost-01-{kind.lower()}-own",
                "cost-01",
                f"through a {kind}: have the queue count it for another team",
                scene.guard("cost-01", path.rpartition("/")[2]),
                Request("POST", path, put(charged_here, "/metadata/labels/team", "another-team"), place.developer),
                twin_body=charged_here,
            )


def _labels_of_objects(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    for body in objects_beside_work(place):
        if body["kind"] != "ServiceAccount":
            path = collection(body["apiVersion"], body["kind"], place.name)
            charged_here = put(body, "/metadata/labels", {"team": place.labels["team"]})
            bad = put(charged_here, "/metadata/labels/team", "another-team")
            request, guard = (
                Request("POST", path, bad, place.developer),
                scene.guard("cost-01", path.rpartition("/")[2]),
            )
            sentence, slug = "charge its cost to another team", f"cost-01-{body['kind'].lower()}"
            yield attack(slug, "cost-01", sentence, guard, request, twin_body=charged_here)


RULES: tuple[Rule, ...] = (
    Rule(
        id="price-01",
        title="either all boards of the flavors have a price, or none has",
        why="a GPU without a price would count as 0 in a share",
        fix="write a price for each board, or drop prices",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="cost-01",
        title="the cost of an object is charged to the tenant of its namespace",
        why="a pod, a volume or a service with another team's label is charged to that team",
        fix="drop the label; the namespace's value is used",
        severity=Severity.MEDIUM,
        partial={Face.PREVIEW: "it compares with the labels of namespaces that are among the objects"},
        guards={
            GuardSubject.PODS: cost_labels_match("variables.podLabels"),
            # The queue copies them to what it counts.
            GuardSubject.WORK: _OF_OBJECT,
            GuardSubject.SIZES_OF_OBJECTS: in_tenants_namespaces(_OF_OBJECT),
        },
        attacks=(
            through_all_kinds(_labels),
            in_each_namespace(_tenants),
            at_home(_labels_of_work),
            at_home(_labels_of_objects),
        ),
    ),
    Rule(
        id="cost-02",
        title="every object of a tenant has all cost labels",
        why="the cost of an object without them has no owner",
        fix=f"set all of the labels {', '.join(vocabulary.COST_LABELS)}",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="cost-03",
        title="every AWS resource of a tenant has the tenant's cost tags",
        why="AWS bills by tags alone: the cost of a resource without them has no owner",
        fix=f"set all of the tags {', '.join(vocabulary.COST_LABELS)}",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="cost-04",
        title="a tenant's own labels have keys without a meaning for the platform",
        why="a key of Kubernetes, Kueue, Cilium, Karpenter, AWS or of this product decides where pods run and who pays",
        fix="choose a key without a domain, or with one of your own",
    ),
    Rule(
        id="bill-01",
        title="everything that is billed has a configured price",
        why="a bill with a guessed price is wrong",
        fix="write the pool's price under costs.pools, its board's under prices, or a discount or rate under costs",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="bill-02",
        title="a flavor in use on a node is one that the node's pool yields",
        why="otherwise the share of the node is unknown: counted as one GPU, a slice would cost seven times as much",
        fix="name the flavor as environment.yaml does, or declare the pool as it was at that time",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="bill-03",
        title="a namespace belongs to one tenant at a time",
        why="usage that two tenants claim would be charged to the wrong one, or twice",
        fix="correct the label of the pods, or the times in the table of namespaces",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="bill-04",
        title="usage data covers the whole range",
        why="hours without data would cost nothing",
        fix="choose a range that was recorded, or add the missing rows to the tables",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="bill-05",
        title="usage of a node does not exceed what the node has",
        why="a row of usage is wrong, or the node is not of the kind that the data says",
        fix="look for duplicate rows, and check the pool's layout at that time",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="bill-06",
        title="every node with usage is in the data",
        why="a node that is missing in the data is missing in the bill",
        fix="add the node and its times to the table of nodes",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="bill-07",
        title="a table is complete, and every row of it can be read and counts once",
        why="the cost of a skipped row is charged to no tenant, and a row that counts twice is charged twice",
        fix="correct the row; docs/chargeback.md lists the columns",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="bill-08",
        title="all usage belongs to a tenant or to the platform",
        why="usage without an owner would be charged to all tenants",
        fix="name the tenant in the table of namespaces or in a label, or list the namespace under platform.namespaces",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="bill-09",
        title="a range, its periods and its time zone are valid",
        why="a bill of days that do not exist cannot be checked",
        fix="write days as 2026-10-01 and zones as Europe/Berlin",
        severity=Severity.MEDIUM,
    ),
    Rule(
        id="bill-10",
        title="the source of the metrics answers every query",
        why="a query that fails would look like no usage",
        fix="check the address, the token and the metrics that docs/chargeback.md lists",
        severity=Severity.MEDIUM,
    ),
)
