"""What a manifest of a tenant's shows before any guard sees it, each beside a twin that differs in one field."""

from __future__ import annotations

from typing import Any

import pytest

from tenancy.catalog import sizes, vocabulary
from tenancy.check import judge
from tenancy.rules.attacks import ABSENT, differences, put
from tenancy.rules.workloads import workload

TERM = {"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}}
PROBE = {"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 600}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {vocabulary.TENANT: "fraud"}, "annotations": {"note": "x"}},
    "spec": {
        "containers": [{"name": "c", "image": "i", "startupProbe": PROBE, "env": [{"name": "NOTE", "value": "x"}]}],
        "affinity": {"podAntiAffinity": {PREFERRED: [TERM] * sizes.AFFINITY_TERMS}},
        "terminationGracePeriodSeconds": 600,
    },
}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "s", "labels": {vocabulary.TENANT: "fraud"}},
    "spec": {"clusterIP": "None"},
}
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labels": {vocabulary.TENANT: "fraud"}}}
TOO_MANY_ANNOTATIONS = {f"note-{number}": "x" for number in range(sizes.KEYS + 1)}
CASES = [
    ("avail-01", POD, "/spec/terminationGracePeriodSeconds", 601),
    ("avail-01", POD, "/spec/containers/0/startupProbe/terminationGracePeriodSeconds", 601),
    ("avail-03", POD, "/metadata/finalizers", ["bank.example/keep"]),
    ("avail-05", POD, "/metadata/annotations", TOO_MANY_ANNOTATIONS),
    ("avail-05", POD, "/metadata/annotations/note", "\u00e9" * (sizes.METADATA // 2)),
    ("avail-05", POD, "/spec/containers/0/env/0/value", "a" * sizes.SPEC),
    ("avail-06", POD, "/spec/terminationGracePeriodSeconds", 0),
    ("sched-06", POD, f"/spec/affinity/podAntiAffinity/{PREFERRED}/0/podAffinityTerm/namespaceSelector", {}),
    ("sched-06", POD, f"/spec/affinity/podAntiAffinity/{PREFERRED}/0/podAffinityTerm/namespaces", ["other"]),
    ("sched-09", POD, f"/spec/affinity/podAntiAffinity/{PREFERRED}/{sizes.AFFINITY_TERMS}", TERM),
    ("net-11", SERVICE, "/spec/clusterIP", "10.100.0.10"),
    ("obs-01", CONFIG, "/metadata/labels/grafana_dashboard", "1"),
]


RULES = {rule for rule, *_ in CASES}


def broken_rules(item: dict[str, Any]) -> set[str]:
    return {finding.rule for finding in judge.findings_alone(item)} & RULES


@pytest.mark.parametrize(("rule", "good", "at", "bad"), CASES, ids=[f"{rule} {at}" for rule, _, at, _ in CASES])
def test_a_manifest_that_a_guard_would_refuse_is_found_before(rule: str, good: Any, at: str, bad: Any) -> None:
    assert broken_rules(good) == set()
    assert broken_rules(put(good, at, bad)) == {rule}
    assert (
        broken_rules(put(put(good, at, bad), f"/metadata/labels/{vocabulary.TENANT.replace('/', '~1')}", ABSENT))
        == set()
    )


@pytest.mark.parametrize("kind", ["Job", "CronJob", "Deployment"])
def test_a_template_is_judged_like_a_pod(kind: str) -> None:
    valid_item = put(workload(kind, POD), "/metadata/labels", {vocabulary.TENANT: "fraud"})
    at = "/spec/jobTemplate/spec/template" if kind == "CronJob" else "/spec/template"
    assert broken_rules(valid_item) == set()
    for rule, _, field, bad in CASES[:10]:
        if rule not in ("avail-03", "avail-05") or "annotations" in field:
            wrong = put(valid_item, f"{at}{field}", bad)
            assert differences(valid_item, wrong)
            assert broken_rules(wrong) == {rule}, field


def test_every_rule_has_a_case_and_the_command_judges_it() -> None:
    assert judge.JUDGED >= RULES
