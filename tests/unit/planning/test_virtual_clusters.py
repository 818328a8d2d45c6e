"""Tenants whose people have an API server of their own: what is asked of the chart, and who is left on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from virtual_worlds import DIGEST, ENV, FRAUD, SETTINGS, SHARED_REGISTRY, virtual

from tenancy.catalog import virtual_clusters as sizes
from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.planning import Plan, make_plan
from tenancy.planning.access_review import review
from tenancy.planning.guards import guards
from tenancy.planning.plan_model import NamespacePlan
from tenancy.planning.render import file_texts
from tenancy.rules.values import weak_pod_security
from tenancy.spec.loader import Loaded
from tenancy.verify.attacks import Scene
from tests.conftest import SpecFolder

SYNCER = {"kind": "ServiceAccount", "name": "virtual-cluster", "namespace": "fraud--train"}


@pytest.fixture
def folder(tmp_path: Path) -> SpecFolder:
    return virtual(tmp_path / "small")


@pytest.fixture(scope="module")
def loaded_virtual(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return virtual(tmp_path_factory.mktemp("virtual") / "small").load()


@pytest.fixture(scope="module")
def virtual_plan(loaded_virtual: Loaded) -> Plan:
    return make_plan(loaded_virtual, loaded_virtual.day)


@pytest.fixture(scope="module")
def part(virtual_plan: Plan) -> NamespacePlan:
    return virtual_plan.tenant("fraud").namespaces[0]


@pytest.fixture(scope="module")
def values(part: NamespacePlan) -> dict[str, Any]:
    assert part.chart
    return part.chart.values


def bindings(namespace: NamespacePlan) -> dict[str, list[Object]]:
    return {b["roleRef"]["name"]: b["subjects"] for b in namespace.access if b["kind"] == "RoleBinding"}


# Releases


def test_each_namespace_has_one_of_its_own(virtual_plan: Plan) -> None:
    charts = [space.chart for space in virtual_plan.tenant("fraud").namespaces]
    assert [(c.name, c.namespace) for c in charts if c] == [
        ("virtual-cluster", "fraud--train"),
        ("virtual-cluster", "fraud--serve"),
    ]


def test_no_other_tenant_has_one(virtual_plan: Plan) -> None:
    assert [space.chart for space in virtual_plan.tenant("research").namespaces] == [None]


def test_it_comes_from_the_mirror_where_there_is_one(folder: SpecFolder) -> None:
    folder.edit(
        ENV, "  namespaces: [monitoring]\n", "  namespaces: [monitoring]\n  chart-mirror: oci://bank.example/x\n"
    )
    loaded = folder.load()
    chart = make_plan(loaded, loaded.day).tenant("fraud").namespaces[0].chart
    assert chart
    assert chart.repository == "oci://bank.example/x"


def test_it_is_written_beside_what_is_rendered(virtual_plan: Plan) -> None:
    assert {path for path in file_texts(virtual_plan) if path.startswith("charts/fraud")} == {
        "charts/fraud--serve.yaml",
        "charts/fraud--train.yaml",
    }


def test_a_tenant_that_is_removed_has_none(folder: SpecFolder) -> None:
    folder.add(FRAUD, "offboarding: remove\n")
    loaded = folder.load()
    assert make_plan(loaded, loaded.day).tenant("fraud").namespaces == ()


# Values


def test_no_container_is_more_than_pod_security_allows(values: dict[str, Any]) -> None:
    plane = values["controlPlane"]
    pod = plane["statefulSet"]["security"]["podSecurityContext"]
    assert pod["runAsNonRoot"]
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["fsGroup"] == pod["runAsUser"], "else no process writes to the volume"
    for context in (
        plane["statefulSet"]["security"]["containerSecurityContext"],
        plane["distro"]["k8s"]["securityContext"],
    ):
        assert context["runAsUser"], "the chart's own is root"
        assert context["runAsNonRoot"]
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}


def test_images_are_those_of_the_file(values: dict[str, Any]) -> None:
    plane = values["controlPlane"]
    together = [
        "{registry}/{repository}:{tag}".format(**image)
        for image in (plane["statefulSet"]["image"], plane["distro"]["k8s"]["image"])
    ]
    assert [*together, plane["coredns"]["deployment"]["image"]] == [
        *(f"{SHARED_REGISTRY}/vcluster-oss:0.34.0@{DIGEST}", f"{SHARED_REGISTRY}/kubernetes:v1.35.0@{DIGEST}"),
        f"{SHARED_REGISTRY}/coredns:1.12.4@{DIGEST}",
    ]


def test_a_registry_on_a_port_stays_whole(folder: SpecFolder) -> None:
    folder.edit(ENV, "registries: [", "registries: [bank.example:5000/x/, ")
    folder.edit(ENV, f"syncer: {SHARED_REGISTRY}/", "syncer: bank.example:5000/x/")
    loaded = folder.load()
    chart = make_plan(loaded, loaded.day).tenant("fraud").namespaces[0].chart
    assert chart
    assert chart.values["controlPlane"]["statefulSet"]["image"] == {
        "registry": "bank.example:5000",
        "repository": "x/vcluster-oss",
        "tag": f"0.34.0@{DIGEST}",
    }


def test_the_chart_makes_no_role_account_or_policy(values: dict[str, Any]) -> None:
    off = {"enabled": False}
    assert values["rbac"] == dict.fromkeys(("role", "clusterRole", "enableVolumeSnapshotRules"), off)
    assert {values["policies"][what]["enabled"] for what in ("resourceQuota", "limitRange", "networkPolicy")} == {False}
    advanced = values["controlPlane"]["advanced"]
    assert advanced["serviceAccount"] == {"enabled": False, "name": "virtual-cluster"}
    assert not advanced["workloadServiceAccount"]["enabled"]


def test_what_goes_to_the_host_is_what_a_namespace_holds(values: dict[str, Any]) -> None:
    to_host = values["sync"]["toHost"]
    assert {kind for kind, settings in to_host.items() if settings["enabled"]} == {
        *("configMaps", "persistentVolumeClaims", "pods", "secrets", "services")
    }


def test_of_the_host_only_events_come_back(values: dict[str, Any]) -> None:
    assert {kind for kind, settings in values["sync"]["fromHost"].items() if settings["enabled"]} == {"events"}


def test_no_object_is_the_property_of_the_control_plane(values: dict[str, Any]) -> None:
    """With its service as their controller pods would be refused by kueue-02."""
    assert values["experimental"] == {"syncSettings": {"setOwner": False}}


def test_the_control_plane_queues_and_is_charged(values: dict[str, Any]) -> None:
    stateful = values["controlPlane"]["statefulSet"]
    assert stateful["labels"]["kueue.x-k8s.io/queue-name"] == "default"
    assert stateful["pods"]["labels"][vocabulary.TENANT] == "fraud"
    assert vocabulary.ENVIRONMENT not in stateful["labels"], "it is no object of ours"
    assert values["controlPlane"]["coredns"]["deployment"]["pods"]["labels"] == {"kueue.x-k8s.io/queue-name": "default"}


def test_without_a_queue_it_asks_for_none(folder: SpecFolder) -> None:
    folder.edit(ENV, "buckets:", "queues: {scheduler: none}\nbuckets:")
    folder.edit(FRAUD, ", sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16", "")
    loaded = folder.load()
    chart = make_plan(loaded, loaded.day).tenant("fraud").namespaces[0].chart
    assert chart
    assert "queue-name" not in yaml.safe_dump(chart.values)


def test_pods_keep_the_grants_of_their_part(values: dict[str, Any], folder: SpecFolder) -> None:
    assert values["controlPlane"]["advanced"]["workloadServiceAccount"]["name"] == "workload"
    storage = (folder.path / FRAUD).read_text("utf-8")
    start, end = storage.index("storage:"), storage.index("egress:")
    folder.write(FRAUD, storage[:start] + storage[end:])
    loaded = folder.load()
    chart = make_plan(loaded, loaded.day).tenant("fraud").namespaces[0].chart
    assert chart
    assert chart.values["controlPlane"]["advanced"]["workloadServiceAccount"]["name"] == "default"


def test_people_sign_in_as_the_file_says(folder: SpecFolder) -> None:
    folder.edit(ENV, "  resolver:", '  oidc: ["--oidc-issuer-url=https://id.bank.example"]\n  resolver:')
    loaded = folder.load()
    chart = make_plan(loaded, loaded.day).tenant("fraud").namespaces[0].chart
    assert chart
    server = chart.values["controlPlane"]["distro"]["k8s"]["apiServer"]
    assert server == {"extraArgs": ["--oidc-issuer-url=https://id.bank.example"]}


def test_it_runs_on_a_pool_of_the_tenants_alone(folder: SpecFolder) -> None:
    folder.edit(ENV, "pools:\n", "pools:\n  own: {instance-type: m7i.4xlarge, nodes: 1, tenants: [fraud]}\n")
    loaded = folder.load()
    chart = make_plan(loaded, loaded.day).tenant("fraud").namespaces[0].chart
    assert chart
    (toleration,) = chart.values["controlPlane"]["statefulSet"]["scheduling"]["tolerations"]
    assert (toleration["key"], toleration["value"], toleration["operator"]) == (vocabulary.POOL, "own", "Equal")


# Who is left on the host


def test_all_people_only_read_there(part: NamespacePlan) -> None:
    bindings_by_role = bindings(part)
    assert set(bindings_by_role) == {"tenancy-viewer", "tenancy-virtual-cluster"}
    assert [subject["name"] for subject in bindings_by_role["tenancy-viewer"]] == [
        *("fraud-engineers", "fraud-leads", "jane@bank.example")
    ]


def test_the_syncer_alone_makes_anything(virtual_plan: Plan, part: NamespacePlan) -> None:
    assert bindings(part)["tenancy-virtual-cluster"] == [SYNCER]
    holders = [
        (space.name, subject)
        for tenant in virtual_plan.tenants
        for space in tenant.namespaces
        for subject in bindings(space).get("tenancy-virtual-cluster", [])
    ]
    assert [(space, subject["namespace"]) for space, subject in holders] == [
        ("fraud--train", "fraud--train"),
        ("fraud--serve", "fraud--serve"),
    ]


def test_neighbours_keep_their_roles(virtual_plan: Plan) -> None:
    assert set(bindings(virtual_plan.tenant("research").namespaces[0])) == {"tenancy-developer"}


def test_the_syncer_writes_no_way_out_and_no_state_of_a_pod(virtual_plan: Plan) -> None:
    (role,) = [o for o in virtual_plan.platform.roles if o["metadata"]["name"] == "tenancy-virtual-cluster"]
    write = {
        resource
        for rule in role["rules"]
        for resource in rule["resources"]
        if {"create", "update", "patch"} & {*rule["verbs"]}
    }
    assert write == {
        *("configmaps", "persistentvolumeclaims", "pods", "secrets", "services"),
        *("pods/attach", "pods/ephemeralcontainers", "pods/exec", "pods/portforward"),
    }


def test_without_virtual_clusters_there_is_no_such_role(plan: Plan) -> None:
    assert "tenancy-virtual-cluster" not in {o["metadata"]["name"] for o in plan.platform.roles}


def test_its_token_and_its_way_to_the_api_server_are_the_syncers_alone(part: NamespacePlan) -> None:
    notes = part.namespace["metadata"]["annotations"]
    assert notes[vocabulary.TOKEN_ACCOUNTS] == "virtual-cluster"
    assert "virtual-cluster" in notes[vocabulary.ALLOWED_ACCOUNTS].split(",")
    (way,) = [o for o in part.isolation if o["metadata"]["name"] == "api-server"]
    (label_expression,) = way["spec"]["endpointSelector"]["matchExpressions"]
    assert label_expression["values"] == ["virtual-cluster"]


def test_names_are_the_syncers_to_write_in_its_namespace_alone(virtual_plan: Plan, part: NamespacePlan) -> None:
    research_namespace = virtual_plan.tenant("research").namespaces[0]
    key = vocabulary.ALLOWANCES
    assert "synced-names" in part.namespace["metadata"]["annotations"][key].split(",")
    assert "synced-names" not in research_namespace.namespace["metadata"]["annotations"][key].split(",")


def test_elsewhere_the_rule_on_names_reads_no_namespace(loaded_virtual: Loaded, loaded: Loaded) -> None:
    rule = {
        e: guards(loaded_spec.environment)[0].rules["dns-01"]
        for e, loaded_spec in (("v", loaded_virtual), ("n", loaded))
    }
    assert "virtual-cluster" in rule["v"]
    assert "virtual-cluster" not in rule["n"]


def test_attacks_have_no_persona_there_that_makes_anything(loaded_virtual: Loaded) -> None:
    scene = Scene(loaded_virtual.environment, loaded_virtual.tenants)
    assert {place.name for place in scene.places} == {"fraud--train", "fraud--serve", "research--main"}
    assert {place.name for place in scene.staffed} == {"research--main"}


def test_the_review_shows_readers(loaded_virtual: Loaded) -> None:
    entries = review(loaded_virtual.environment, loaded_virtual.tenants, make_plan(loaded_virtual, loaded_virtual.day))
    assert {entry.role for entry in entries if entry.subject == "fraud-engineers"} == {"viewer"}
    syncers = [entry for entry in entries if entry.role == "virtual-cluster"]
    assert [(entry.subject, entry.applies_to, entry.field) for entry in syncers] == [
        ("fraud--serve/virtual-cluster", ("fraud--serve",), ("isolation",)),
        ("fraud--train/virtual-cluster", ("fraud--train",), ("isolation",)),
    ]


def test_its_namespace_enforces_restricted(part: NamespacePlan) -> None:
    assert weak_pod_security(part.namespace["metadata"]["labels"][vocabulary.PSA_ENFORCE]) is None


# What cannot work together

TRAIN = "{name: train, purpose: nightly retraining"
SERVE = "  - {name: serve"
BATCH = "      max: {cpu: 32, memory: 128Gi}\n"
REFUSED = {
    "adopt": (FRAUD, "budget:", "adopt: true\nbudget:", "adopt: false\nbudget:", "adopt"),
    "dedicated-hosts": (
        FRAUD,
        "budget:",
        "dedicated-hosts: true\nbudget:",
        "dedicated-hosts: false\nbudget:",
        "dedicated-hosts",
    ),
    "by name": (FRAUD, "budget:", "gpu-users: [{user: ada}]\nbudget:", "budget:", "gpu-users"),
    "accounts": (
        *(FRAUD, TRAIN, f"{TRAIN}, service-accounts: [night]", f"{TRAIN}, service-accounts: []"),
        "namespaces[0].service-accounts",
    ),
    "the syncer's account": (
        *(FRAUD, TRAIN, f"{TRAIN}, service-account: virtual-cluster", f"{TRAIN}, service-account: virtual"),
        "namespaces[0].service-account",
    ),
    "closed inside": (
        *(FRAUD, TRAIN, f"{TRAIN}, allow-intra-namespace: false", f"{TRAIN}, allow-intra-namespace: true"),
        "namespaces[0].allow-intra-namespace",
    ),
    "nothing to make them of": (ENV, SETTINGS, "", SETTINGS, "isolation"),
    "another network": (ENV, "cni: cilium", "cni: vpc-cni", "cni: cilium", "isolation"),
    "an image from elsewhere": (
        *(
            ENV,
            f"dns: {SHARED_REGISTRY}/coredns",
            "dns: docker.io/coredns/coredns",
            f"dns: {SHARED_REGISTRY}/dns/coredns",
            "isolation",
        ),
    ),
    "a longest run": (
        *(ENV, "    interruptible: true\n", "    interruptible: true\n    max-run-time: 3d\n"),
        *("    interruptible: true\n    allow-borrowing: true\n", "tier"),
    ),
    "large containers": (
        *(ENV, BATCH, f"{BATCH}      min: {{cpu: 50m, memory: 16Mi}}\n"),
        *(f"{BATCH}      min: {{cpu: 20m, memory: 16Mi}}\n", "tier"),
    ),
    "small volumes": (
        *(ENV, BATCH, f"{BATCH}    volume-claim: {{max: 4Gi}}\n", f"{BATCH}    volume-claim: {{max: 5Gi}}\n", "tier"),
    ),
    "a small quota": (
        *(FRAUD, SERVE, f"  - {{name: idle, quota: {{pods: 1}}}}\n{SERVE}"),
        *(f"  - {{name: idle, quota: {{pods: 2}}}}\n{SERVE}", "namespaces[1].quota"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_where_it_cannot_work(folder: SpecFolder, case: str) -> None:
    file, old, bad, _, field = REFUSED[case]
    folder.edit(file, old, bad)
    assert {(p.id, p.field) for p in folder.problems() if p.id == "iso-03"} == {("iso-03", field)}


@pytest.mark.parametrize("case", REFUSED)
def test_its_twin_is_taken(folder: SpecFolder, case: str) -> None:
    file, old, _, good, _ = REFUSED[case]
    folder.edit(file, old, good)
    assert folder.problems() == ()


def test_an_image_without_a_digest_is_refused(folder: SpecFolder) -> None:
    folder.edit(ENV, f"coredns:1.12.4@{DIGEST}", "coredns:1.12.4")
    assert folder.problem().field == "virtual-clusters.dns"


def test_an_argument_that_is_not_about_signing_in_is_refused(folder: SpecFolder) -> None:
    folder.edit(ENV, "  resolver:", '  oidc: ["--authorization-mode=AlwaysAllow"]\n  resolver:')
    assert folder.problem().field == "virtual-clusters.oidc[0]"


def test_sizes_are_within_one_another() -> None:
    from tenancy.spec.fields.base import amount

    for size in sizes.CONTAINERS.values():
        for what, request in size["requests"].items():
            assert amount(request) <= amount(size["limits"][what])
