"""Kubernetes' and Kueue's own ways to match and to count, each in one place."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from tenancy.kube.quantities import units
from tenancy.kube.quota_tree import Tree, most_borrowed
from tenancy.kube.selectors import has_labels, matches, meets_requirement
from tenancy.kube.tolerations import tolerates

ROOT = Path(__file__).parents[3]
LABELS = {"team": "risk", "size": "8", "zone": "a"}
UNKNOWN = "?"


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("expression", "met"),
    [
        (requirement("team", "In", "risk", "aml"), True),
        (requirement("team", "In", "aml"), False),
        (requirement("other", "In", "risk"), False),
        (requirement("team", "NotIn", "aml"), True),
        (requirement("team", "NotIn", "risk"), False),
        (requirement("other", "NotIn", "risk"), True),
        (requirement("team", "Exists"), True),
        (requirement("other", "Exists"), False),
        (requirement("other", "DoesNotExist"), True),
        (requirement("team", "DoesNotExist"), False),
        (requirement("size", "Gt", "7"), True),
        (requirement("size", "Gt", "8"), False),
        (requirement("size", "Lt", "9"), True),
        (requirement("size", "Lt", "8"), False),
        (requirement("size", "Gt", "10"), False),
        (requirement("size", "Lt", "10"), True),
        (requirement("team", "Gt", "7"), False),
        (requirement("size", "Gt", "many"), False),
        (requirement("size", "Gt", "7", "8"), False),
        (requirement("size", "Gt"), False),
        (requirement("other", "Lt", "9"), False),
        (requirement("team", "Like", "risk"), False),
    ],
)
def test_a_requirement_is_met_as_in_kubernetes(expression: dict[str, Any], met: bool) -> None:
    assert meets_requirement(expression, LABELS) is met


def test_an_absent_selector_takes_nothing_and_an_empty_one_everything() -> None:
    assert not matches(None, LABELS)
    assert matches({}, LABELS)
    assert matches({"matchLabels": {"team": "risk"}}, LABELS)
    both = {"matchLabels": {"team": "risk"}, "matchExpressions": [requirement("zone", "In", "b")]}
    assert not matches(both, LABELS), "all of it has to hold"


def test_what_is_not_known_may_turn_out_to_match() -> None:
    assert matches(UNKNOWN, LABELS, UNKNOWN)
    assert matches({"matchLabels": {"team": UNKNOWN}}, LABELS, UNKNOWN)
    assert matches({"matchExpressions": [requirement("team", "In", UNKNOWN)]}, LABELS, UNKNOWN)
    assert not matches({"matchLabels": {"team": UNKNOWN, "zone": "b"}}, LABELS, UNKNOWN), "the rest is known"
    assert not has_labels({"team": UNKNOWN}, LABELS), "to a cluster it is a value like another"


TAINT = {"key": "gpu", "value": "5", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "gpu", "value": "5"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "5"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "6"}, False),
        ({"key": "gpu"}, False),
        ({"value": "5"}, False),
        ({"key": "gpu", "operator": "Gt", "value": "4"}, True),
        ({"key": "gpu", "operator": "Gt", "value": "5"}, False),
        ({"key": "gpu", "operator": "Lt", "value": "10"}, True),
        ({"key": "gpu", "operator": "Lt", "value": "5"}, False),
        ({"key": "gpu", "operator": "Gt", "value": "04"}, False),
        ({"key": "gpu", "operator": "Gt", "value": "few"}, False),
        ({"key": "gpu", "operator": "Like", "value": "5"}, False),
    ],
)
def test_a_taint_is_tolerated_as_in_kubernetes(toleration: dict[str, Any], tolerated: bool) -> None:
    assert tolerates(toleration, TAINT) is tolerated


@pytest.mark.parametrize("unknown", [UNKNOWN, {"key": UNKNOWN}, {"key": "gpu", "value": UNKNOWN}])
@pytest.mark.parametrize("answer", [True, False])
def test_where_what_is_not_known_decides_the_caller_says_what_it_means(unknown: Any, answer: bool) -> None:
    if isinstance(unknown, dict):
        unknown = {"operator": "Exists" if "value" not in unknown else "Equal", **unknown}
    assert tolerates(unknown, TAINT, UNKNOWN, answer) is answer
    assert not tolerates({"key": "other", "value": UNKNOWN}, TAINT, UNKNOWN, True), "the key is known, and another"


# The tree of quotas

PLACE = ("train", "gpu")


def node(kind: str, name: str, parent: str | None, **limits: str) -> dict[str, Any]:
    names = {"nominal": "nominalQuota", "borrow": "borrowingLimit", "lend": "lendingLimit"}
    resource = {"name": PLACE[1], **{names[key]: value for key, value in limits.items()}}
    groups = [{"flavors": [{"name": PLACE[0], "resources": [resource]}]}] if limits else []
    parent_field = {"cohortName" if kind == "ClusterQueue" else "parentName": parent} if parent else {}
    return {"kind": kind, "metadata": {"name": name}, "spec": {**parent_field, "resourceGroups": groups}}


def test_a_tree_reads_every_spelling_of_a_quota() -> None:
    tree = Tree.read(
        [node("ClusterQueue", "a", None, nominal="1k"), node("ClusterQueue", "b", None, nominal="1e3")], units
    )
    assert [queue.available(PLACE) for queue in tree.queues.values()] == [1000, 1000]


def test_a_cohort_that_is_only_named_joins_its_queues() -> None:
    tree = Tree.read(
        [node("ClusterQueue", "a", "bank", nominal="8"), node("ClusterQueue", "b", "bank", nominal="4")], units
    )
    assert {queue.available(PLACE) for queue in tree.queues.values()} == {12}


def test_a_circle_of_cohorts_ends() -> None:
    circle = [node("Cohort", "a", "b", nominal="1"), node("Cohort", "b", "a", nominal="2"), node("Cohort", "c", "c")]
    tree = Tree.read([*circle, node("ClusterQueue", "q", "a", nominal="4")], units)
    assert tree.queues["q"].available(PLACE) == 7
    assert tree.cohorts["c"].parent is None


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, 8),
        ({"lend": "3"}, 3),
        ({"of_tenant": "5"}, 5),
        ({"borrow": "2"}, 2),
        ({"borrow": "0"}, 0),
        ({"lend": "0"}, 0),
    ],
)
def test_what_a_queue_borrows_at_most_is_the_least_of_the_limits_on_the_way(
    limits: dict[str, str], expected: int
) -> None:
    lender = {"nominal": "8", **({"lend": limits["lend"]} if "lend" in limits else {})}
    borrower = {"nominal": "0", **({"borrow": limits["borrow"]} if "borrow" in limits else {})}
    tenant = node("Cohort", "tenant", "root", **({"borrow": limits["of_tenant"]} if "of_tenant" in limits else {}))
    queues = [node("ClusterQueue", "lender", "root", **lender), node("ClusterQueue", "borrower", "tenant", **borrower)]
    tree = Tree.read([node("Cohort", "root", None), tenant, *queues], units)
    assert most_borrowed([tree.queues["borrower"]], [tree.queues["lender"]], PLACE) == expected
    assert most_borrowed([tree.queues["borrower"]], [tree.queues["lender"]], ("other", "gpu")) == 0


def test_queues_without_a_cohort_in_common_borrow_nothing() -> None:
    tree = Tree.read([node("ClusterQueue", "a", "x", nominal="8"), node("ClusterQueue", "b", "y", nominal="8")], units)
    assert most_borrowed([tree.queues["a"]], [tree.queues["b"]], PLACE) == 0


def test_nothing_else_compares_operators_of_selectors_or_tolerations() -> None:
    """A requirement of a NodeOverlay and the anti-affinity that keeps tenants apart are compared whole; scopes of a
    quota are no labels."""
    others = {
        "tenancy/check/admission/quota.py",
        "tenancy/rules/nodes.py",
        "tenancy/rules/regulated.py",
    }
    comparing_files = set()
    for path in (ROOT / "tenancy").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            expression = (
                node.pattern if isinstance(node, ast.match_case) else node if isinstance(node, ast.Compare) else None
            )
            constants = [c.value for c in ast.walk(expression) if isinstance(c, ast.Constant)] if expression else []
            if {"NotIn", "DoesNotExist", "Gt", "Lt"} & {value for value in constants if isinstance(value, str)}:
                comparing_files.add(str(path.relative_to(ROOT)))
    assert comparing_files == {*others, "tenancy/kube/selectors.py", "tenancy/kube/tolerations.py"}
