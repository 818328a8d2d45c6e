"""A tenant that leaves: what its stages leave of it in the plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Response
from tenancy.cluster.user_copies import user_copy
from tenancy.deploy.changes import Outcome, ResourceChange, is_access_binding, tenant_resources, tenants_without_file
from tenancy.diff.changes import ChangeTopic, SpecState, diff
from tenancy.kube.objects import Object
from tenancy.lifecycle.adoption import below_use, namespace_rules, warnings
from tenancy.lifecycle.removal import report
from tenancy.planning import Plan, make_plan
from tenancy.planning.access_review import review
from tenancy.planning.common.stages import without_removed_tenants
from tenancy.planning.guards import READINESS_PROBE, guard_objects, guards, marker, readiness_probe
from tenancy.planning.kubernetes.api_storage import api_storage
from tenancy.planning.queueing.capacity import losses, supply
from tenancy.report.page import Pages
from tenancy.rules.objects import object_findings
from tenancy.simulation.generate import generate
from tests.conftest import FRAUD, SpecFolder, every, nonempty

FILE = "tenants/fraud.yaml"
CI = "ci: {github: bank/fraud, branch: main, role: developer}\n"


def planned(spec: SpecFolder, more: str) -> Plan:
    spec.write(FILE, FRAUD + more)
    loaded = spec.load()
    return make_plan(loaded, loaded.day)


def kinds(objects: Iterable[Object], kind: str) -> list[Any]:
    return [item for item in objects if item["kind"] == kind]


def roles(plan: Plan) -> dict[tuple[str, str], set[str]]:
    """(Namespace, name of a subject) -> the roles that it has there, of fraud."""
    roles_by_subject: dict[tuple[str, str], set[str]] = {}
    for item in kinds(plan.tenant("fraud").objects(), "RoleBinding"):
        for subject in item["subjects"]:
            key = (item["metadata"]["namespace"], subject["name"])
            roles_by_subject.setdefault(key, set()).add(item["roleRef"]["name"])
    return roles_by_subject


@pytest.mark.parametrize("stage", ["hold", "export"])
def test_all_who_had_access_read_and_no_others_do(spec: SpecFolder, stage: str) -> None:
    before = roles(planned(spec, CI))
    after = roles(planned(spec, f"{CI}offboarding: {stage}\n"))
    assert set(before) == set(after)
    assert ("fraud--train", vocabulary.CI_GROUP.format(tenant="fraud")) in after
    assert {role for role_names in after.values() for role in role_names} == {"tenancy-viewer"}


@pytest.mark.parametrize("stage", ["hold", "export"])
def test_isolation_stay_as_they_are(spec: SpecFolder, stage: str) -> None:
    isolation_resources = [space.isolation for space in planned(spec, "").tenant("fraud").namespaces]
    assert [
        space.isolation for space in planned(spec, f"offboarding: {stage}\n").tenant("fraud").namespaces
    ] == isolation_resources


@pytest.mark.parametrize(
    ("more", "policy"),
    [
        ("", "None"),
        ("offboarding: hold\n", "Hold"),
        ("offboarding: export\n", "Hold"),
        ("offboarding: hold\nstop-policy: hold-and-drain\n", "HoldAndDrain"),
        ("offboarding: hold\nstop-policy: none\n", "Hold"),
    ],
)
def test_nothing_new_starts_and_what_runs_ends_only_where_it_is_drained(
    spec: SpecFolder, more: str, policy: str
) -> None:
    queues = kinds(planned(spec, more).tenant("fraud").queues, "ClusterQueue")
    assert {queue["spec"]["stopPolicy"] for queue in queues} == {policy}


def test_its_namespaces_say_the_stage_and_others_do_not(spec: SpecFolder) -> None:
    plan = planned(spec, "offboarding: export\n")
    notes = {
        item["metadata"]["name"]: item["metadata"]["annotations"].get(vocabulary.LEAVING)
        for item in kinds(plan.objects(), "Namespace")
        if vocabulary.TENANT in item["metadata"]["labels"]
    }
    assert notes == {"fraud--serve": "export", "fraud--train": "export", "research--main": None}


def test_a_removed_tenant_has_no_object_and_is_named_in_none(spec: SpecFolder) -> None:
    plan = planned(spec, "offboarding: remove\n")
    assert list(plan.tenant("fraud").objects()) == []
    assert "fraud" not in str(list(plan.objects()))
    assert [tenant.name for tenant in plan.tenants] == ["fraud", "research"], "its stack is known"


def test_who_stays_has_the_same_beside_one_that_is_removed(spec: SpecFolder) -> None:
    before = planned(spec, "").tenant("research")
    assert planned(spec, "offboarding: hold\n").tenant("research") == before
    assert planned(spec, "offboarding: remove\n").tenant("research") == before


def test_another_word_is_no_stage(spec: SpecFolder) -> None:
    spec.write(FILE, FRAUD + "offboarding: soon\n")
    problem = spec.problem()
    assert problem.field == "offboarding"
    assert "hold" in problem.change


def test_the_review_shows_what_is_left(spec: SpecFolder) -> None:
    spec.write(FILE, FRAUD + "offboarding: hold\n")
    loaded = spec.load()
    entries = review(loaded.environment, loaded.tenants, make_plan(loaded, loaded.day))
    assert {e.role for e in entries if e.tenant == "fraud" and e.kind in {"Group", "User"}} == {"viewer"}
    assert every(e.field for e in entries if e.tenant == "fraud"), "each rests on a line of the file"
    spec.write(FILE, FRAUD + "offboarding: remove\n")
    loaded = spec.load()
    assert [
        e for e in review(loaded.environment, loaded.tenants, make_plan(loaded, loaded.day)) if e.tenant == "fraud"
    ] == []


def test_the_diff_of_a_removal_is_that_of_a_tenant_that_goes(spec: SpecFolder) -> None:
    side = lambda name: SpecState(name, spec.load())  # noqa: E731
    full_side = side("whole")
    spec.write(FILE, FRAUD + "offboarding: remove\n")
    removed = side("removed")
    (spec.path / FILE).unlink()
    side_without_tenant = side("gone")
    tenant_changes = lambda after: [c for c in diff(full_side, after) if c.topic is not ChangeTopic.STACK]  # noqa: E731
    assert tenant_changes(removed) == tenant_changes(side_without_tenant)
    assert [c for c in diff(removed, side_without_tenant) if c.topic is not ChangeTopic.STACK] == []


# What the engine's runs are asked


def resource(kind: str, name: str, parent: str = "", custom: bool = True) -> dict[str, Any]:
    return {"urn": f"urn:pulumi:local::gpu-tenancy::{kind}::{name}", "type": kind, "parent": parent, "custom": custom}


def test_a_tenants_resources_are_those_below_its_component() -> None:
    tenant = resource("gpu-tenancy:index:GpuTenant", "fraud", custom=False)
    other_tenant = resource("gpu-tenancy:index:GpuTenant", "fraud-2", custom=False)
    space = resource("gpu-tenancy:index:TenantNamespace", "fraud--train", tenant["urn"], custom=False)
    binding = resource("kubernetes:rbac.authorization.k8s.io/v1:RoleBinding", "fraud--train-viewer", space["urn"])
    wall = resource("kubernetes:core/v1:ResourceQuota", "fraud--train-quota", space["urn"])
    foreign = resource("kubernetes:rbac.authorization.k8s.io/v1:RoleBinding", "fraud-2--viewer", other_tenant["urn"])
    tenant_own = tenant_resources([tenant, other_tenant, space, binding, wall, foreign], "fraud")
    assert tenant_own == [binding, wall]
    assert [is_access_binding(resource) for resource in tenant_own] == [True, False]


def test_a_tenant_without_a_file_is_known_by_what_a_preview_would_delete(plan: Plan) -> None:
    deleted_namespace = ResourceChange("gone", "delete", "Namespace gone--main")
    of_fraud, shared_namespace = (
        ResourceChange("fraud", "delete", "LocalQueue x"),
        ResourceChange("platform", "delete", "ClusterRole x"),
    )
    coming = ResourceChange("new", "create", "Namespace new--main")
    assert tenants_without_file(Outcome([deleted_namespace, of_fraud, shared_namespace, coming]), plan) == ["gone"]


# Guards that only warn


def audit(spec: SpecFolder) -> list[Any]:
    spec.add("environment.yaml", "guards: audit\n")
    return list(guard_objects(spec.load().environment))


def test_in_audit_every_guard_warns_and_none_denies(spec: SpecFolder) -> None:
    enforced = kinds(guard_objects(spec.load().environment), "ValidatingAdmissionPolicyBinding")
    warned = kinds(audit(spec), "ValidatingAdmissionPolicyBinding")
    assert [b["metadata"]["name"] for b in warned] == [b["metadata"]["name"] for b in enforced]
    assert {tuple(b["spec"]["validationActions"]) for b in enforced} == {("Deny", "Audit")}
    assert {tuple(b["spec"]["validationActions"]) for b in warned} == {("Warn", "Audit")}


def test_in_audit_the_readiness_probe_still_refuses_and_tells_these_guards_from_others(spec: SpecFolder) -> None:
    enforced = guard_objects(spec.load().environment)
    warning = tuple(audit(spec))
    environment = spec.load().environment
    (binding,) = kinds(readiness_probe(environment, warning), "ValidatingAdmissionPolicyBinding")
    assert binding["metadata"]["name"] == READINESS_PROBE
    assert binding["spec"]["validationActions"] == ["Deny"]
    assert marker(environment, warning)["data"]["digest"] != marker(environment, enforced)["data"]["digest"]


def test_the_pack_advises_of_guards_that_are_meant_to_warn(spec: SpecFolder) -> None:
    for item in nonempty(kinds(audit(spec), "ValidatingAdmissionPolicyBinding")):
        assert [finding.rule for finding in object_findings(item)] == ["guard-03"]
        del item["metadata"]["annotations"]
        assert [finding.rule for finding in object_findings(item)] == ["guard-01"], "its annotation is missing"


def test_rules_that_read_the_namespace_are_those_that_a_foreign_one_cannot_answer(spec: SpecFolder) -> None:
    reading = namespace_rules(guards(spec.load().environment))
    assert {"ns-02", "img-01", "gpu-06", "sched-01", "sched-04", "cost-01"} <= reading
    assert reading.isdisjoint({"gpu-02", "sched-02", "dns-01", "avail-01", "stor-04"})


def test_several_warnings_are_read_from_one_header() -> None:
    header = '299 - "first, with \\"quotes\\"", 299 - "second: x"'
    assert warnings(Response(200, {}, {"Warning": header})) == ['first, with "quotes"', "second: x"]
    assert warnings(Response(200, {}, {})) == []


# What is copied, and what holds a namespace


def sanitized(kind: str, spec: Object, **metadata: Any) -> Any:
    item = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "uid": "u", **metadata}, "spec": spec}
    return user_copy({**item, "status": {"phase": "Running"}})


def test_a_copy_is_what_people_wrote() -> None:
    labels = {
        "app": "x",
        "controller-uid": "u",
        "kueue.x-k8s.io/queue-name": "nightly",
        "kueue.x-k8s.io/managed": "true",
    }
    notes = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "y"}
    copy = sanitized("ConfigMap", {}, labels=labels, annotations=notes, resourceVersion="7", finalizers=["a/b"])
    expected_labels = {"app": "x", "kueue.x-k8s.io/queue-name": "nightly"}
    assert copy["metadata"] == {"name": "x", "labels": expected_labels, "annotations": {"team": "y"}}
    assert "status" not in copy


def test_a_jobs_selector_is_kept_only_where_its_author_wrote_it() -> None:
    spec = {"selector": {"matchLabels": {}}, "template": {"metadata": {"labels": {"job-name": "x", "app": "x"}}}}
    job_copy = sanitized("Job", spec)
    assert job_copy["spec"] == {"template": {"metadata": {"labels": {"app": "x"}}}}
    assert "selector" in sanitized("Job", {**spec, "manualSelector": True})["spec"]


@pytest.mark.parametrize(("address", "expected_fields"), [("10.0.0.1", {}), ("None", {"clusterIP": "None"})])
def test_a_service_keeps_only_that_it_has_no_address(address: str, expected_fields: dict[str, str]) -> None:
    service_copy = sanitized(
        "Service", {"clusterIP": address, "clusterIPs": [address], "ports": [{"port": 1, "nodePort": 30000}]}
    )
    assert service_copy["spec"] == {"ports": [{"port": 1}], **expected_fields}


def test_a_pod_is_bound_to_nothing() -> None:
    volumes = [{"name": "kube-api-access-x"}, {"name": "data"}]
    mounts = [{"name": "kube-api-access-x"}, {"name": "data"}]
    spec = {"nodeName": "n", "priority": 7, "volumes": volumes, "containers": [{"name": "m", "volumeMounts": mounts}]}
    pod_copy = sanitized("Pod", spec)
    container = {"name": "m", "volumeMounts": [{"name": "data"}]}
    assert pod_copy["spec"] == {"volumes": [{"name": "data"}], "containers": [container]}


class Recorded:
    """An API server that gives recorded answers; what it was not taught is not there."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers

    def request(self, method: str, path: str, *_: Any, **__: Any) -> Response:
        answer = self.answers.get(f"{method} {path}", self.answers.get(path))
        if isinstance(answer, Response):
            return answer
        return (
            Response(200, answer)
            if answer is not None
            else Response(404, {"message": "not found", "status": "Failure"})
        )

    def items(self, path: str, absent: bool = False) -> list[Any]:  # noqa: ARG002
        return list(self.request("GET", path).body.get("items") or ())


def kind_of(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "kind": kind, "namespaced": True, "verbs": ["create", "delete", "list"]}


FLAVORS = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors?dryRun=All"
DOWN = Response(500, {"message": 'failed calling webhook "mresourceflavor.kb.io": connection refused'})


def removal_report(finalizer: str, *, kueue: Response | None = None) -> str:
    """The report on a namespace in which a ConfigMap is held by that finalizer."""
    item = {"metadata": {"name": "x", "finalizers": [finalizer], "deletionTimestamp": "2026-11-20T00:00:00Z"}}
    answers: dict[str, Any] = {
        "/api/v1": {"resources": [kind_of("configmaps", "ConfigMap")]},
        "/apis": {"groups": [{"preferredVersion": {"groupVersion": "metrics.k8s.io/v1"}}]},
        "/api/v1/namespaces/acme--main": {"metadata": {"name": "acme--main"}},
        "/api/v1/namespaces/acme--main/configmaps": {"items": [item]},
    }
    if kueue:
        answers |= {"/apis/kueue.x-k8s.io/v1beta2": {}, FLAVORS: kueue}
    api: Any = Recorded(answers)
    return report(api, ["acme--main"], 5)


def test_the_report_names_object_finalizer_and_the_way_out() -> None:
    report = removal_report("vendor.example/never")
    assert "given acme--main, whose namespace still exists after 5 s" in report
    assert "ConfigMap acme--main/x is blocked by vendor.example/never" in report
    assert "metrics.k8s.io/v1 does not answer" in report
    assert """kubectl patch configmaps x -n acme--main --type merge -p '{"metadata":{"finalizers":null}}'""" in report


@pytest.mark.parametrize(
    ("kueue", "says", "change"),
    [
        (DOWN, "Kueue, which does not run", "change: start Kueue again"),
        (Response(201, {}), "Kueue, which runs", "change: resolve what is named above"),
    ],
)
def test_whether_kueue_runs_says_its_own_webhook(kueue: Response, says: str, change: str) -> None:
    report = removal_report("kueue.x-k8s.io/resource-in-use", kueue=kueue)
    assert f"kueue.x-k8s.io/resource-in-use is removed by {says}" in report
    assert change in report


def test_what_only_kueues_webhook_holds_back_is_said_so() -> None:
    report = removal_report("batch.kubernetes.io/job-tracking", kueue=DOWN)
    assert "is removed by the job controller, asking the webhook of Kueue, which does not run" in report
    assert "change: start Kueue again, and run this again" in report


def test_a_namespace_that_goes_while_it_is_asked_about_is_no_trouble() -> None:
    api: Any = Recorded({"/api/v1": {"resources": []}, "/apis": {"groups": []}})
    assert "given acme--main" in report(api, ["acme--main"], 5)


@pytest.mark.parametrize(("used", "is_below"), [("21", True), ("20", False), ("19", False)])
def test_a_quota_is_below_use_only_if_more_is_in_use(plan: Plan, used: str, is_below: bool) -> None:
    space = next(s for s in plan.tenant("fraud").namespaces if s.name == "fraud--serve")
    live = {"metadata": {"name": "tenant", "namespace": space.name}, "status": {"used": {"pods": used}}}
    api: Any = Recorded({f"/api/v1/namespaces/{space.name}/resourcequotas": {"items": [live]}})
    assert below_use(api, [space]) == ({"fraud--serve/tenant": {"pods": ("20", "21")}} if is_below else {})


# A tenant that was removed


def test_a_removed_tenant_reserves_no_gpus(spec: SpecFolder) -> None:
    """fraud has 16 of 32 A100, research 8: 24 for fraud fit, and 32 once research is removed."""
    raised = "a100: {guaranteed: 32, sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16}"
    spec.edit(FILE, "a100: {guaranteed: 16, sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16}", raised)
    assert spec.problem().id == "pool-03"
    spec.add("tenants/research.yaml", "offboarding: hold\n")
    assert spec.problem().id == "pool-03"
    spec.edit("tenants/research.yaml", "offboarding: hold", "offboarding: remove")
    loaded = spec.load()
    a100 = supply(loaded.environment, loaded.tenants)[0]
    assert (a100.guaranteed, a100.free, [share.tenant for share in a100.tenants]) == (32, 0, ["fraud"])


def test_reports_and_simulations_leave_out_a_removed_tenant(spec: SpecFolder) -> None:
    spec.add("tenants/research.yaml", "offboarding: remove\n")
    loaded = spec.load()
    assert {job.tenant for job in generate(without_removed_tenants(loaded), 50, 24, 1)} == {"fraud"}
    assert [usage.tenant for usage in api_storage(loaded.environment, loaded.tenants).tenants] == ["fraud"]
    assert not any("research" in names for loss in losses(loaded.environment, loaded.tenants) for names in loss.tenants)
    assert "research" not in Pages(loaded).environment()
