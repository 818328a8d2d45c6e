"""Objects that Kueue would refuse are refused when the files are read, or cannot be written at all.

Each row holds an object that the real API server refuses, with Kueue's definitions and webhooks in force, and the line
of a spec file that would lead to it, with the rule that stands against it; or the reason why no line does.
"""

# ruff: noqa: E501 - a case is a row

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tenancy.catalog import vocabulary
from tenancy.components.kubernetes.manifest import IMMUTABLE_FIELDS
from tenancy.kube.objects import Object
from tenancy.lab import control_plane, ports
from tenancy.lab.api import ApiError, LabApi
from tenancy.lab.layout import Lab
from tenancy.planning import Plan, make_plan
from tenancy.planning.queueing.queue_names import API
from tenancy.planning.services import queue_chart
from tenancy.spec.loader import load
from tests.conftest import SpecFolder

STACKS = Path(__file__).parents[2] / "stacks"
ENV, FRAUD = "environment.yaml", "tenants/fraud.yaml"
CREATE = "application/json"
PLURALS = {
    "AdmissionCheck": "admissionchecks",
    "ClusterQueue": "clusterqueues",
    "Cohort": "cohorts",
    "LocalQueue": "localqueues",
    "ProvisioningRequestConfig": "provisioningrequestconfigs",
    "ResourceFlavor": "resourceflavors",
    "Topology": "topologies",
    "WorkloadPriorityClass": "workloadpriorityclasses",
}
EVERYTHING = """\
queues: {provisioning-class: check-capacity.autoscaling.x-k8s.io}
"""
FAR = "  far: {instance-type: p4d.24xlarge, nodes: 2, efa: on, zones: [eu-central-1a], tenants: [fraud]}\n  serve:\n"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabApi]:
    """The API server as the platform engineer sees it, with Kueue as the example's plan configures it."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "Pulumi.yaml").write_text("name: scratch\nruntime: python\n")
    chart = queue_chart(load(STACKS / "local").environment)
    assert chart
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        try:
            control_plane.up(root=folder, platform_group="gpu-platform-team", nodes=[], queues=chart.values)
            lab = Lab.locate(folder)
            with LabApi(lab, ports.remembered(lab)["kube-apiserver"], identity="platform") as api:
                yield api
        finally:
            control_plane.down(root=folder)


def address(item: Object) -> str:
    where = f"/namespaces/{item['metadata']['namespace']}" if "namespace" in item["metadata"] else ""
    return f"/apis/{API}{where}/{PLURALS[item['kind']]}"


def refusal(api: LabApi, item: Object) -> str:
    """The refusal of an object in a dry run; empty if it is admitted."""
    try:
        api.request("POST", f"{address(item)}?dryRun=All", item, CREATE)
    except ApiError as refused:
        if refused.status not in REFUSED:
            raise
        return str(refused)
    return ""


REFUSED = (400, 403, 422)
"""Parts of messages: no amount, refused by a webhook, not allowed by the definition."""


def queue_objects(plan: Plan) -> list[Object]:
    return [item for item in plan.objects() if item["apiVersion"] == API]


# What is planned is admitted


@pytest.mark.parametrize(
    "stack",
    [
        pytest.param(
            "bank", marks=pytest.mark.exhaustive(reason="the queues of the bank; `make test` asks for those of `local`")
        ),
        "local",
    ],
)
def test_every_queue_of_an_example_is_admitted(platform: LabApi, stack: str) -> None:
    loaded = load(STACKS / stack)
    queue_items = queue_objects(make_plan(loaded, loaded.day))
    assert {item["kind"] for item in queue_items} >= {
        "ResourceFlavor",
        "WorkloadPriorityClass",
        "Cohort",
        "ClusterQueue",
    }
    spaces = {item["metadata"]["namespace"] for item in queue_items if item["kind"] == "LocalQueue"}
    for name in spaces:
        platform.apply("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    assert {item["metadata"]["name"]: message for item in queue_items if (message := refusal(platform, item))} == {}


def test_amounts_come_back_as_they_were_sent(platform: LabApi) -> None:
    """Kueue's webhook writes the whole object anew: what it would spell otherwise would change at every run."""
    loaded = load(STACKS / "bank")
    for item in queue_objects(make_plan(loaded, loaded.day)):
        if item["kind"] in ("ClusterQueue", "Cohort"):
            answer = platform.request("POST", f"{address(item)}?dryRun=All", item, CREATE)
            assert answer["spec"]["resourceGroups"] == item["spec"]["resourceGroups"], item["metadata"]["name"]


def test_an_amount_that_is_spelt_otherwise_does_not_come_back(platform: LabApi, plan: Plan) -> None:
    item = pick(plan, QUEUE)
    quota(0, group=0, nominalQuota="2000", lendingLimit="2k")(item)
    answer = platform.request("POST", f"{address(item)}?dryRun=All", item, CREATE)
    assert answer["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] == "2k"


# What Kueue refuses


class Input(NamedTuple):
    """A line of a file that becomes another, the rule that refuses it, or none for its form, and the field."""

    file: str
    old: str
    new: str
    rule: str
    field: str


class Row(NamedTuple):
    about: str
    name: str
    """Kind and name of the object."""
    broken: Callable[[Object], Any]
    says: str
    spec_input: Input | str
    """The edit of a file that would lead to it, or the reason that none does."""


def quota(number: int, group: int = 1, flavor: int = 0, **values: str) -> Callable[[Object], Any]:
    def change(item: Object) -> None:
        item["spec"]["resourceGroups"][group]["flavors"][flavor]["resources"][number].update(values)

    return change


def spec_of(**values: Any) -> Callable[[Object], Any]:
    def change(item: Object) -> None:
        item["spec"].update(values)

    return change


def repeated(item: Object) -> None:
    machines, gpus = item["spec"]["resourceGroups"]
    gpus["coveredResources"][0] = machines["coveredResources"][0]
    for flavor in gpus["flavors"]:
        flavor["resources"][0]["name"] = machines["coveredResources"][0]


def without_cohort(item: Object, *limits: str) -> None:
    del item["spec"]["cohortName"]
    for group in item["spec"]["resourceGroups"]:
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                for limit in limits:
                    del resource[limit]


def many_flavors(item: Object, count: int) -> None:
    group = item["spec"]["resourceGroups"][1]
    group["flavors"] = [{**group["flavors"][0], "name": f"pool-{i}"} for i in range(count)]


def many_resources(item: Object, count: int) -> None:
    group = item["spec"]["resourceGroups"][1]
    group["coveredResources"] = [f"example.com/r{i}" for i in range(count)]
    amounts = {key: value for key, value in group["flavors"][0]["resources"][0].items() if key != "name"}
    group["flavors"] = [
        {**flavor, "resources": [{"name": name, **amounts} for name in group["coveredResources"]]}
        for flavor in group["flavors"]
    ]


def many_amounts(item: Object) -> None:
    many_resources(item, 9)
    many_flavors(item, 57)


def more_pools(count: int) -> str:
    return "".join(f"  more-{i}: {{instance-type: p4d.24xlarge, nodes: 1}}\n" for i in range(count)) + "  serve:\n"


def with_name(name: str) -> Callable[[Object], Any]:
    return lambda item: item["metadata"].update(name=name)


QUEUE, COHORT, ROOT = "ClusterQueue fraud--batch", "Cohort tenant--fraud", "Cohort organisation"
FLAVOR, EFA, TOPOLOGY = "ResourceFlavor train", "ResourceFlavor far.eks-network", "Topology eks-network"
LOCAL, CLASS, CONFIG = (
    "LocalQueue default",
    "WorkloadPriorityClass tenancy-tier-batch",
    "ProvisioningRequestConfig provisioning",
)
BELOW_ROOT = "everything below the root has a parent"
ALL_RESOURCES = "every flavor of a group is listed with all of the group's resources, in one order"
CONSTANT = "the same for every environment"
DERIVED = "made of the pool's own taints, two at most"
GUARANTEE = "a100: {guaranteed: 16"
TRAIN = "{name: train, purpose"

ROWS = (
    Row("borrows without a cohort", QUEUE, lambda o: without_cohort(o, "lendingLimit"), "must be nil when cohort is empty", BELOW_ROOT),
    Row("lends without a cohort", QUEUE, lambda o: without_cohort(o, "borrowingLimit"), "must be nil when cohort is empty", BELOW_ROOT),
    Row("a root that lends", ROOT, quota(0, lendingLimit="1"), "must be nil when parent is empty", "the root alone has no limits"),
    Row("a root that borrows", ROOT, quota(0, borrowingLimit="1"), "must be nil when parent is empty", "the root alone has no limits"),
    Row("lends more than it has", QUEUE, quota(0, lendingLimit="17"), "must be less than or equal to the nominalQuota", Input(FRAUD, "lending-limit: 8", "lending-limit: 17", "share-01", "gpus.a100.lending-limit")),
    Row("negative quota", QUEUE, quota(0, nominalQuota="-1"), "greater than or equal to 0", Input(FRAUD, GUARANTEE, "a100: {guaranteed: -1", "", "gpus.a100.guaranteed")),
    Row("negative lending", COHORT, quota(0, lendingLimit="-1"), "greater than or equal to 0", Input(FRAUD, "lending-limit: 8", "lending-limit: -8", "", "gpus.a100.lending-limit")),
    Row("negative borrowing", COHORT, quota(0, borrowingLimit="-1"), "greater than or equal to 0", Input(FRAUD, "borrowing-limit: 16", "borrowing-limit: -16", "", "gpus.a100.borrowing-limit")),
    Row("no amount", QUEUE, quota(0, nominalQuota="much"), "quantities must match", Input(FRAUD, GUARANTEE, "a100: {guaranteed: much", "", "gpus.a100.guaranteed")),
    Row("negative weight", COHORT, spec_of(fairSharing={"weight": "-1"}), "greater than or equal to 0", Input(FRAUD, "tier: batch\n", "tier: batch\nweight: -1\n", "", "weight")),
    Row("next to no weight", COHORT, spec_of(fairSharing={"weight": "1n"}), "weight", Input(FRAUD, "tier: batch\n", "tier: batch\nweight: 0.000000001\n", "", "weight")),
    Row("resources in another order", QUEUE, lambda o: o["spec"]["resourceGroups"][1]["flavors"][0]["resources"].reverse(), "must match the name in coveredResources", ALL_RESOURCES),
    Row("a resource left out", QUEUE, lambda o: o["spec"]["resourceGroups"][1]["flavors"][0]["resources"].pop(), "same number of resources as the coveredResources", ALL_RESOURCES),
    Row("one resource in two groups", QUEUE, repeated, "Duplicate", "CPU and memory are in the first group, and GPUs in the second"),
    Row("one flavor in two groups", QUEUE, lambda o: o["spec"]["resourceGroups"][1]["flavors"][0].update(name="any.pool"), "Duplicate", Input(ENV, "  train: {inst", "  any.pool: {inst", "name-01", "pools.any.pool")),
    Row("65 flavors", QUEUE, lambda o: many_flavors(o, 65), "64", Input(ENV, "  serve:\n", more_pools(62), "queue-01", "pools")),
    Row("65 flavors of a cohort", ROOT, lambda o: many_flavors(o, 65), "64", Input(ENV, "  serve:\n", more_pools(62), "queue-01", "pools")),
    Row("65 resources", ROOT, lambda o: many_resources(o, 65), "64", "there are no 63 names of slices, and by claim at most 16 classes: queue-01"),
    Row("513 amounts", QUEUE, many_amounts, "must be ≤ 512", "queue-01: test_a_queue_has_at_most_512_amounts"),
    Row("reclaims nothing and borrows by force", QUEUE, lambda o: o["spec"]["preemption"].update(reclaimWithinCohort="Never", borrowWithinCohort={"policy": "LowerPriority"}), "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never", CONSTANT),
    Row("a preference between what is not tried", QUEUE, lambda o: o["spec"]["flavorFungibility"].update(preference="BorrowingOverPreemption", whenCanBorrow="MayStopSearch"), "preference can only be set when", CONSTANT),
    Row("a stop that there is not", QUEUE, spec_of(stopPolicy="Stop"), "Unsupported value", Input(FRAUD, "tier: batch\n", "tier: batch\nstop-policy: stop\n", "", "stop-policy")),
    Row("an order that there is not", QUEUE, spec_of(queueingStrategy="FIFO"), "Unsupported value", Input(ENV, "    priority: 100\n", "    priority: 100\n    queueing-strategy: fifo\n", "", "tiers.batch.queueing-strategy")),
    Row("a check on another's flavor", QUEUE, spec_of(admissionChecksStrategy={"admissionChecks": [{"name": "provisioning", "onFlavors": ["serve"]}]}), "Unsupported value", "a queue asks for its own pools that scale"),
    Row("a queue's name in capitals", QUEUE, with_name("Fraud--batch"), "RFC 1123", Input(FRAUD, "tenant: fraud\n", "tenant: Fraud\n", "name-01", "tenant")),
    Row("a queue's name with a tier's space", QUEUE, with_name("fraud--ba tch"), "RFC 1123", Input(ENV, "  batch:\n", "  ba tch:\n", "", "tiers.ba tch")),
    Row("a selector that is no label", QUEUE, spec_of(namespaceSelector={"matchLabels": {vocabulary.TENANT: "t" * 64}}), "must be no more than 63", Input(FRAUD, "tenant: fraud\n", f"tenant: {'t' * 64}\n", "name-01", "tenant")),
    Row("a parent in capitals", COHORT, spec_of(parentName="department--Risk"), "should match", Input(ENV, "    risk: {title", "    Risk: {title", "", "organisation.departments.Risk")),
    Row("a pool in capitals", FLAVOR, lambda o: o["spec"]["nodeLabels"].update({vocabulary.POOL: "Train!"}), "Invalid value", Input(ENV, "  train: {inst", "  Train!: {inst", "name-01", "pools.Train!")),
    Row("nine node labels", FLAVOR, lambda o: o["spec"]["nodeLabels"].update({f"l{i}": "x" for i in range(9)}), "8", "a flavor has one label, the pool's"),
    Row("nine taints", FLAVOR, spec_of(nodeTaints=[{"key": f"k{i}", "effect": "NoSchedule"} for i in range(9)]), "8", DERIVED),
    Row("one taint twice", FLAVOR, lambda o: o["spec"]["nodeTaints"].append(o["spec"]["nodeTaints"][0]), "unique by key and effect", DERIVED),
    Row("an effect that there is not", FLAVOR, lambda o: o["spec"]["nodeTaints"][0].update(effect="Never"), "supported taint effect", DERIVED),
    Row("a toleration of everything that is equal", FLAVOR, spec_of(tolerations=[{"operator": "Equal"}]), "operator must be Exists", DERIVED),
    Row("a topology without a label", EFA, lambda o: o["spec"].pop("nodeLabels"), "at least one nodeLabel is required", "every flavor of a pool has the pool's label"),
    Row("hosts above racks", TOPOLOGY, lambda o: o["spec"]["levels"].reverse(), "can only be used at the lowest level", CONSTANT),
    Row("one level twice", TOPOLOGY, lambda o: o["spec"]["levels"].insert(0, o["spec"]["levels"][0]), "must be unique", CONSTANT),
    Row("no level", TOPOLOGY, spec_of(levels=[]), "at least 1", CONSTANT),
    Row("a priority beyond numbers", CLASS, lambda o: o.update(value=3_000_000_000), "value", Input(ENV, "    priority: 100\n", "    priority: 3000000000\n", "", "tiers.batch.priority")),
    Row("a class of nodes with a space", CONFIG, spec_of(provisioningClassName="Check Capacity"), "should match", Input(ENV, "check-capacity.autoscaling.x-k8s.io", "Check Capacity", "", "queues.provisioning-class")),
    Row("a queue of a namespace in capitals", LOCAL, with_name("Urgent"), "RFC 1123", Input(FRAUD, TRAIN, "{name: train, queues: {Urgent: 2}, purpose", "", "namespaces[0].queues.Urgent")),
    Row("a queue of a part that stops otherwise", LOCAL, spec_of(stopPolicy="Stop"), "Unsupported value", Input(FRAUD, TRAIN, "{name: train, stop-policy: stop, purpose", "", "namespaces[0].stop-policy")),
)  # fmt: skip


@pytest.fixture
def full(spec: SpecFolder) -> SpecFolder:
    """The small environment with every kind of object: a topology and provisioning too."""
    spec.add(ENV, EVERYTHING)
    spec.edit(ENV, "  serve:\n", FAR)
    return spec


@pytest.fixture
def plan(full: SpecFolder) -> Plan:
    loaded = full.load()
    return make_plan(loaded, loaded.day)


def pick(plan: Plan, name: str) -> Object:
    matching_objects = [o for o in queue_objects(plan) if f"{o['kind']} {o['metadata']['name']}" == name]
    return copy.deepcopy(matching_objects[0])


for_each_row = pytest.mark.parametrize("row", ROWS, ids=[row.about for row in ROWS])


@pytest.fixture
def spaces(platform: LabApi, plan: Plan) -> None:
    for tenant in plan.tenants:
        for space in tenant.namespaces:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space.name}}
            platform.apply("/api/v1/namespaces", body)


@for_each_row
@pytest.mark.usefixtures("spaces")
def test_kueue_refuses_the_object_and_admits_its_twin(platform: LabApi, plan: Plan, row: Row) -> None:
    item = pick(plan, row.name)
    assert refusal(platform, item) == "", "as it is planned"
    row.broken(item)
    assert row.says in refusal(platform, item)


@pytest.mark.parametrize("row", [r for r in ROWS if isinstance(r.spec_input, Input)], ids=lambda row: row.about)
def test_the_line_that_would_lead_to_it_is_refused_when_it_is_read(full: SpecFolder, row: Row) -> None:
    assert isinstance(row.spec_input, Input)
    file, old, new, rule, field = row.spec_input
    assert full.problems() == ()
    full.edit(file, old, new)
    assert (rule, field) in {(problem.id, problem.field) for problem in full.problems()}


# Immutable fields

CHANGES: tuple[tuple[str, Callable[[Object], Any], str, str], ...] = (
    (LOCAL, spec_of(clusterQueue="fraud--production"), "field is immutable", "LocalQueue"),
    (EFA, lambda o: o["spec"].pop("topologyName"), "topologyName is immutable", "a flavor without it has another name"),
    (
        EFA,
        lambda o: o["spec"]["nodeLabels"].update(x="y"),
        "nodeLabels are immutable",
        "a flavor has one label, its own",
    ),
    (
        EFA,
        spec_of(tolerations=[{"operator": "Exists"}]),
        "tolerations are immutable",
        "a pool with EFA is one tenant's",
    ),
    (TOPOLOGY, lambda o: o["spec"]["levels"].pop(0), "field is immutable", CONSTANT),
    ("AdmissionCheck provisioning", spec_of(controllerName="other"), "field is immutable", CONSTANT),
)


@pytest.mark.parametrize(("name", "change", "says", "why"), CHANGES, ids=[f"{c[0]} {c[2]}" for c in CHANGES])
@pytest.mark.usefixtures("spaces")
def test_a_field_that_kueue_makes_immutable_is_made_anew_or_never_changes(
    platform: LabApi, plan: Plan, name: str, change: Callable[[Object], Any], says: str, why: str
) -> None:
    item = pick(plan, name)
    path = f"{address(item)}/{item['metadata']['name']}"
    platform.apply(address(item), item)
    try:
        assert says in said_against_a_change(platform, path, change)
    finally:
        platform.request("PATCH", path, {"metadata": {"finalizers": None}})
        platform.request("DELETE", path)
    if why in IMMUTABLE_FIELDS:
        assert IMMUTABLE_FIELDS[why] == ["spec.clusterQueue"]


def said_against_a_change(api: LabApi, path: str, change: Callable[[Object], Any]) -> str:
    """Kueue may write to the object in between: then once more."""
    for _ in range(20):
        item = api.get(path)
        change(item)
        try:
            api.request("PUT", f"{path}?dryRun=All", item, CREATE)
        except ApiError as refused:
            if refused.status != 409:
                return str(refused)
            time.sleep(0.1)
        else:
            return ""
    raise TimeoutError(f"{path} never stands still")
