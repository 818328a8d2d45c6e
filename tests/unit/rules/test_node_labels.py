"""node-08: which labels of nodes the plan places work by, and which of other programs a kubelet may rewrite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from check_cases import M7I, TEAMS, flavor, home, label_guard, pod, queue
from pack_cases import cluster_queue, group, node_pool, with_field

from tenancy.catalog import vocabulary
from tenancy.kube.objects import UNKNOWN
from tenancy.planning import Plan, make_plan
from tenancy.planning.common.pools import MIG_CONFIG, PLUGIN_CONFIG, node_labels
from tenancy.planning.guards import guard_objects, guards
from tenancy.planning.kubernetes.samples import sample
from tenancy.rules import aws
from tenancy.rules.catalogue import RULES
from tenancy.rules.cross_object import findings_together
from tenancy.rules.findings import Finding
from tenancy.rules.levels import PolicyPreset, RuleLevel, level_of
from tenancy.rules.nodes import PLACE, PLACING
from tenancy.spec.loader import Loaded, load
from tenancy.verify.attacks import Scene

ROOT = Path(__file__).parents[3]
TEAM = "bank.example/team"
NONE = "no ValidatingAdmissionPolicy on updates of nodes and nodes/status"
Object = dict[str, Any]


# What our guard keeps


@pytest.fixture(scope="module", params=["local", "bank"])
def loaded(request: pytest.FixtureRequest) -> Loaded:
    return load(ROOT / "stacks" / request.param)


@pytest.fixture(scope="module")
def plan(loaded: Loaded) -> Plan:
    return make_plan(loaded, loaded.day)


def is_kept(label: str) -> bool:
    return label.startswith(PLACING) or label == PLACE


def test_every_label_that_a_flavor_or_the_topology_chooses_nodes_by_is_kept(plan: Plan) -> None:
    selecting_labels: set[str] = set()
    for item in plan.objects():
        if item["kind"] == "ResourceFlavor":
            selecting_labels |= {*item["spec"].get("nodeLabels", {})}
        elif item["kind"] == "Topology":
            selecting_labels |= {level["nodeLabel"] for level in item["spec"]["levels"]}
    assert vocabulary.POOL in selecting_labels
    assert {label for label in selecting_labels if not is_kept(label)} == set()


def test_every_label_that_sample_work_chooses_nodes_by_is_kept(loaded: Loaded) -> None:
    pods = [
        sample("pod", loaded.environment, tenant, part, {}) for tenant in loaded.tenants for part in tenant.namespaces
    ]
    selecting_labels = {label for pod in pods for label in pod["spec"].get("nodeSelector") or {}}
    assert {label for label in selecting_labels if not is_kept(label)} == set()


def test_of_the_labels_that_nodes_are_born_with_only_those_of_their_machine_are_not_kept(loaded: Loaded) -> None:
    of_machine = {"node.kubernetes.io/instance-type", "nvidia.com/gpu.present", MIG_CONFIG, PLUGIN_CONFIG}
    born = {label for name, pool in loaded.environment.pools.items() for label in node_labels(name, pool)}
    assert {label for label in born if not is_kept(label)} <= of_machine


def test_no_guard_is_asked_when_a_node_is_made_or_goes(loaded: Loaded) -> None:
    (guard,) = (guard for guard in guards(loaded.environment) if "node-08" in guard.rules)
    assert guard.operations == ("UPDATE",)
    assert guard.resources == [("", "v1", ["nodes", "nodes/status"])]


def test_a_cluster_without_a_node_of_a_pool_is_not_asked_and_says_so(loaded: Loaded) -> None:
    scene = Scene(loaded.environment, loaded.tenants, nodes=())
    skipped_attacks = [attack for attacks in RULES["node-08"].attacks for attack in attacks(scene)]
    assert [(a.rule, a.skipped) for a in skipped_attacks] == [("node-08", "the cluster has no node of a pool")]


# What the pack says of others' programs


def node_findings(*items: Object) -> list[Finding]:
    return [finding for finding in findings_together(items) if finding.rule == "node-08"]


def given_texts(*items: Object) -> list[str]:
    return [finding.given for finding in node_findings(*items)]


def tenant_pod(tenant: str, **spec: Any) -> Object:
    """A pod of a tenant's."""
    item = pod(**spec)
    return {**item, "metadata": {**item["metadata"], "namespace": tenant, "labels": {vocabulary.TENANT: tenant}}}


def pool(labels: Any = None, name: str = "p") -> Object:
    return node_pool(name, M7I, [], labels or {TEAM: "acme"})


def required(*values: str) -> Object:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": TEAM, "operator": "In", "values": [*values]}]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


ACME_POD = tenant_pod("acme", nodeSelector={TEAM: "acme"})
UNPROTECTED_LABEL = f"label {TEAM}: acme for acme, and {NONE}"


def test_a_label_that_one_tenants_work_chooses_is_told_of() -> None:
    assert given_texts(*TEAMS, pool(), ACME_POD) == [UNPROTECTED_LABEL]
    assert given_texts(*TEAMS, pool(), tenant_pod("acme", affinity=required("acme", "spare"))) == [UNPROTECTED_LABEL]


def test_a_flavor_chooses_for_the_tenants_whose_queues_have_it() -> None:
    flavors = (flavor("a100", {TEAM: "acme"}), queue("acme"), cluster_queue("acme--batch", "acme"))
    assert given_texts(*TEAMS, pool(), *flavors) == [UNPROTECTED_LABEL]
    assert given_texts(*TEAMS, pool(), *flavors, cluster_queue("rival--batch", "rival")) == [], "both have it"


def test_the_name_of_a_nodepool_and_of_a_node_group_is_a_label_as_well() -> None:
    nodepool_pod = tenant_pod("acme", nodeSelector={"karpenter.sh/nodepool": "p"})
    assert given_texts(*TEAMS, pool({"a": "b"}), nodepool_pod) == [
        f"label karpenter.sh/nodepool: p for acme, and {NONE}"
    ]
    of_group = tenant_pod("acme", nodeSelector={"eks.amazonaws.com/nodegroup": "g"})
    (finding,) = node_findings(*TEAMS, group("g", nodeGroupName="g"), of_group)
    assert finding.object == f"{aws.GROUP} g"
    assert finding.given.startswith("label eks.amazonaws.com/nodegroup: g for acme, and ")
    assert finding.given.endswith("EKS gives node groups no label of node-restriction.kubernetes.io/")


@pytest.mark.parametrize(
    "items",
    [
        (*TEAMS, pool()),
        (*TEAMS, ACME_POD),
        (*home("acme"), pool(), ACME_POD),
        (*TEAMS, pool(), ACME_POD, tenant_pod("rival", nodeSelector={TEAM: "acme"})),
        (*TEAMS, pool({TEAM: "rival"}), ACME_POD),
        (pool(), with_field(ACME_POD, ("metadata", "labels"), {})),
        (*TEAMS, pool({"team.node-restriction.kubernetes.io/of": "acme"}), ACME_POD),
    ],
    ids=["no choice", "no pool", "one tenant alone", "all tenants", "another value", "no tenant", "another label"],
)
def test_a_label_that_separates_no_tenants_is_no_finding(items: tuple[Object, ...]) -> None:
    assert given_texts(*items) == []


@pytest.mark.parametrize(
    ("label", "is_reported"),
    [
        ("node-restriction.kubernetes.io/team", False),
        ("acme.node-restriction.kubernetes.io/team", False),
        ("node-role.kubernetes.io/team", False),
        ("example.k8s.io/team", False),
        ("topology.kubernetes.io/zone", True),
        ("kubelet.kubernetes.io/team", True),
        ("feature.node.kubernetes.io/team", True),
        ("notkubernetes.io/team", True),
        ("team", True),
    ],
)
def test_a_label_is_told_of_where_a_kubelet_may_write_it(label: str, is_reported: bool) -> None:
    items = (*TEAMS, pool({label: "acme"}), tenant_pod("acme", nodeSelector={label: "acme"}))
    assert bool(given_texts(*items)) is is_reported


def policy(**rule: Any) -> tuple[Object, ...]:
    binding, item = label_guard("nodes", "nodes/status")
    rules = item["spec"]["matchConstraints"]["resourceRules"][0]
    return binding, with_field(item, ("spec", "matchConstraints", "resourceRules", 0), {**rules, **rule})


@pytest.mark.parametrize(
    ("rule", "unprotected_part"),
    [
        ({}, None),
        ({"resources": ["*/*"]}, None),
        ({"resources": ["nodes/*"]}, None),
        ({"operations": ["*"], "apiGroups": ["*"]}, None),
        ({"resources": ["nodes"]}, "nodes/status"),
        ({"resources": ["*"]}, "nodes/status"),
        ({"resources": ["*/status"]}, "nodes"),
        ({"resources": ["pods", "pods/status"]}, "nodes and nodes/status"),
        ({"operations": ["CREATE", "DELETE"]}, "nodes and nodes/status"),
        ({"apiGroups": ["apps"]}, "nodes and nodes/status"),
        ({"resources": UNKNOWN}, None),
    ],
)
def test_a_policy_is_asked_as_the_api_server_matches(rule: Object, unprotected_part: str | None) -> None:
    messages = given_texts(
        *TEAMS, pool(), ACME_POD, *policy(**(rule if rule != {"resources": UNKNOWN} else {"resources": [UNKNOWN]}))
    )
    assert [text.rpartition(" on updates of ")[2] for text in messages] == (
        [unprotected_part] if unprotected_part else []
    )


def test_a_policy_that_no_binding_names_keeps_nothing() -> None:
    assert given_texts(*TEAMS, pool(), ACME_POD, policy()[1]) == [UNPROTECTED_LABEL]


def test_labels_that_are_not_known_are_told_of() -> None:
    for path in (("spec", "template", "metadata", "labels"), ("spec", "template", "metadata", "labels", TEAM)):
        assert given_texts(*TEAMS, with_field(pool(), path, UNKNOWN), ACME_POD) == [
            f"label {TEAM}: {UNKNOWN}, and {NONE}"
        ]


def test_work_that_is_not_known_makes_of_a_finding_an_advice() -> None:
    rival_pod = tenant_pod("rival", nodeSelector=UNKNOWN)
    (message,) = given_texts(*TEAMS, pool(), ACME_POD, rival_pod)
    assert UNKNOWN in message


@pytest.mark.parametrize(
    ("preset", "level"),
    [
        (PolicyPreset.BASELINE, RuleLevel.ADVISORY),
        (PolicyPreset.RESTRICTED, RuleLevel.ADVISORY),
        (PolicyPreset.REGULATED, RuleLevel.MANDATORY),
    ],
)
def test_it_advises_and_refuses_what_is_regulated(preset: PolicyPreset, level: RuleLevel) -> None:
    (finding,) = node_findings(*TEAMS, pool(), ACME_POD)
    assert level_of(finding, preset) is level


def test_our_own_plan_is_silent_and_without_its_guard_is_told_of(loaded: Loaded, plan: Plan) -> None:
    makers = [pool(node_labels(name, pool_spec), name) for name, pool_spec in loaded.environment.pools.items()]
    objects = [*plan.objects(), *makers]
    assert given_texts(*objects) == []
    bare = [item for item in objects if item["metadata"]["name"] != "tenancy-nodes"]
    assert len(objects) - len(bare) == 2, "the policy and its binding"
    assert given_texts(*bare) != []
    assert any(item["metadata"]["name"] == "tenancy-nodes" for item in guard_objects(loaded.environment))
