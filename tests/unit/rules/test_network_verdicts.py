"""Who may connect to whom, by the word of engines that are not ours: Cyclonus' and Cilium's own.

What is judged is the policies, not the datapath: docs/network.md says what only a cluster shows.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import judges
import pytest

from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.planning import make_plan
from tenancy.planning.kubernetes.cilium import CLUSTER_POLICY
from tenancy.rules.objects import object_findings
from tenancy.rules.values import internet_block
from tests.conftest import SpecFolder
from tests.network_worlds import ENGINES, INTERNET, NAMES, World, adversarial, bank, between_tenants, let_through

BOTH = ("vpc-cni", "cilium")


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], World]:
    folder: Path = tmp_path_factory.mktemp("worlds")
    names = {(kind, cni) for kind in ("adversarial", "bank") for cni in BOTH}
    return {
        (kind, cni): World(bank(cni) if kind == "bank" else adversarial(folder / cni / "small", cni))
        for kind, cni in sorted(names)
    }


def judged(world: World, policies: list[Object], flows: Sequence[judges.Flow] = ()) -> list[str]:
    return judges.verdicts(ENGINES[world.cni], policies, world.peers, flows or world.flows)


@pytest.mark.parametrize("cni", BOTH)
@pytest.mark.parametrize("kind", ["adversarial", "bank"])
def test_what_is_let_through_is_exactly_what_the_files_name(
    worlds: Mapping[tuple[str, str], World], kind: str, cni: str
) -> None:
    world = worlds[kind, cni]
    allowed_flows = let_through(world.flows, judged(world, world.policies))
    expected_flows = {flow for flow in world.flows if world.is_named(flow)}
    assert sorted(allowed_flows - expected_flows) == [], "nothing but what is named"
    assert sorted(expected_flows - allowed_flows) == [], "and all of it"
    assert allowed_flows, "else nothing was asked"


@pytest.mark.parametrize("cni", BOTH)
@pytest.mark.parametrize("kind", ["adversarial", "bank"])
def test_tenants_are_strangers_to_each_other(worlds: Mapping[tuple[str, str], World], kind: str, cni: str) -> None:
    world = worlds[kind, cni]
    allowed_flows = let_through(world.flows, judged(world, world.policies))
    cross_tenant_flows = list(between_tenants(world, world.flows))
    assert len(
        {(world.pods[f.source].tenant.tenant, world.pods[f.target].tenant.tenant) for f in cross_tenant_flows}
    ) == (len(world.loaded.tenants) * (len(world.loaded.tenants) - 1)), "every pair, both ways"
    assert allowed_flows & {*cross_tenant_flows} == set()


def test_names_are_looked_up_through_cilium_and_no_others(worlds: Mapping[tuple[str, str], World]) -> None:
    world = worlds["adversarial", "cilium"]
    verdict_by_flow = dict(zip(world.flows, judged(world, world.policies), strict=True))
    dns_verdicts = {verdict_by_flow[flow] for flow in world.flows if flow.target == "dns" and flow.port == 53}
    assert dns_verdicts == {"proxied"}, "a query that bypasses the proxy asks for any name"
    patterns = {
        text
        for item in world.policies
        if item["metadata"]["name"] == "dns"
        for rule in item["spec"]["egress"]
        for port in rule["toPorts"]
        for name in port["rules"]["dns"]
        for text in name.values()
    }
    assert "feed.marketdata.example" in patterns
    short = [name for name in patterns if "*" in name and name.lstrip("*.").count(".") < 2]
    assert short == [], "what a star stands for is the cluster's or AWS'"


# The internet


@pytest.mark.parametrize("cni", BOTH)
def test_the_internet_is_neither_private_nor_the_clusters(tmp_path: Path, cni: str) -> None:
    world = World(adversarial(tmp_path / "small", cni, internet=True))
    allowed_flows = let_through(world.flows, judged(world, world.policies))
    pod = next(name for name, pod in world.pods.items() if pod.tenant.tenant == "f")
    reached = {flow for flow in allowed_flows if flow.source == pod and flow.target != "dns"}
    assert {flow.target for flow in reached} == {*INTERNET, *(NAMES if cni == "cilium" else ())}
    assert {flow.port for flow in reached} == {443}
    assert allowed_flows & {*between_tenants(world, world.flows)} == set()
    assert {flow for flow in allowed_flows if flow.source != pod} == {
        flow for flow in world.flows if world.is_named(flow) and flow.source != pod
    }
    patterns = [item for item in world.policies if item["metadata"]["name"] == "dns" and "'*'" in str(item)]
    assert len(patterns) == (cni == "cilium"), "it asks for any name, and no other tenant does"


@pytest.mark.parametrize("missing_cidr", ["10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12"])
def test_a_policy_that_leaves_one_private_range_in_is_found(missing_cidr: str) -> None:
    block = internet_block(["10.64.0.0/16"])

    def rules_broken_by(block: Mapping[str, Any]) -> set[str]:
        spec = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": block}]}]}
        metadata = {"name": "own", "namespace": "f--main", "labels": {vocabulary.TENANT: "f"}}
        policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}
        return {finding.rule for finding in object_findings(policy)}

    assert "net-05" not in rules_broken_by(block)
    left_out: Any = block["except"]
    assert "net-05" in rules_broken_by({**block, "except": [cidr for cidr in left_out if cidr != missing_cidr]})
    assert "net-05" in rules_broken_by({"cidr": "0.0.0.0/0"})


def test_the_internet_needs_the_clusters_own_ranges_and_leaves_them_out(spec: SpecFolder) -> None:
    spec.edit("tenants/fraud.yaml", "  - {cidr: 198.51.100.0/24, port: 8443}\n", "  - {internet: true, port: 443}\n")
    assert [(p.id, p.field) for p in spec.problems()] == [("net-05", "egress[0].internet")]
    spec.edit(
        "environment.yaml",
        "  cni: vpc-cni\n",
        "  cni: vpc-cni\n  node-and-pod-cidrs: [10.64.0.0/16, 198.51.100.0/24]\n",
    )
    loaded = spec.load()
    plan = make_plan(loaded, loaded.day)
    (policy,) = [o for o in plan.tenants[0].namespaces[0].isolation if o["metadata"]["name"] == "egress"]
    (peer,) = policy["spec"]["egress"][0]["to"]
    assert peer["ipBlock"]["cidr"] == "0.0.0.0/0"
    assert {"198.51.100.0/24", "10.0.0.0/8", "172.16.0.0/12"} <= set(peer["ipBlock"]["except"])


# A tenant that stepped around the guard on NetworkPolicies


def _anything(world: World) -> list[Object]:
    """Policies that would open everything in every namespace of a tenant: policies add up."""
    spec = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [{}]}
    anywhere = [{"ipBlock": {"cidr": cidr}} for cidr in ("0.0.0.0/0", "::/0")]
    spec |= {"egress": [{}, {"to": [*anywhere, {"namespaceSelector": {}}]}]}
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "anything", "namespace": space.name},
            "spec": spec,
        }
        for tenant in world.plan.tenants
        for space in tenant.namespaces
    ]


def test_under_cilium_a_policy_that_opens_everything_opens_no_other_tenant(
    worlds: Mapping[tuple[str, str], World],
) -> None:
    world = worlds["adversarial", "cilium"]
    allowed_flows = let_through(world.flows, judged(world, [*world.policies, *_anything(world)]))
    assert allowed_flows & {*between_tenants(world, world.flows)} == set()


@pytest.mark.parametrize(
    "target",
    [
        *("169.254.169.254", "169.254.169.253", "fd00:ec2::254"),
        *("remote-node", "system", "half-metrics", "registry-elsewhere", "dns-elsewhere"),
    ],
)
def test_under_cilium_a_policy_that_opens_everything_opens_no_way_to(
    worlds: Mapping[tuple[str, str], World], target: str
) -> None:
    world = worlds["adversarial", "cilium"]
    allowed_flows = let_through(world.flows, judged(world, [*world.policies, *_anything(world)]))
    assert [flow for flow in allowed_flows if flow.target == target] == []


def test_under_cilium_a_policy_that_opens_everything_opens_one_port_of_the_node(
    worlds: Mapping[tuple[str, str], World],
) -> None:
    world = worlds["adversarial", "cilium"]
    allowed_flows = let_through(world.flows, judged(world, [*world.policies, *_anything(world)]))
    assert {flow.port for flow in allowed_flows if flow.target == "host"} == {80}, "the agent's; the kubelet's is 10250"


def test_under_cilium_the_api_server_is_of_namespaces_whose_accounts_have_a_token(
    worlds: Mapping[tuple[str, str], World],
) -> None:
    world = worlds["adversarial", "cilium"]
    allowed_flows = let_through(world.flows, judged(world, [*world.policies, *_anything(world)]))
    parts = {world.peers[flow.source]["namespace"] for flow in allowed_flows if flow.target == "kube-apiserver"}
    assert parts == {s.name for t in world.plan.tenants for s in t.namespaces if s.name.endswith("--a")}


def test_without_cilium_such_a_policy_does_open_the_way_so_a_guard_refuses_it(
    worlds: Mapping[tuple[str, str], World],
) -> None:
    world = worlds["adversarial", "vpc-cni"]
    allowed_flows = let_through(world.flows, judged(world, [*world.policies, *_anything(world)]))
    assert allowed_flows & {*between_tenants(world, world.flows)}, "else the tests above prove nothing"


# What each part of the plan is unit cost


_LEAF_KEYS = ("key", "operator", "values", "port", "endPort", "kind")
"""Fields without which an object is none."""


def _paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every item, every label and every field below a spec that is not needed for its form.

    Which names may be asked for is no matter of a connection.
    """
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        if key in _LEAF_KEYS or key == "rules" or child == {}:
            continue
        # A list of one thing is mutated by the thing.
        if not (isinstance(child, list | dict) and len(child) == 1):
            yield (*at, key)
        yield from _paths(child, (*at, key))


def _without(item: Object, path: tuple[Any, ...]) -> Object:
    """Without one field or item; a range becomes every address, and a transport another one."""
    copied = copy.deepcopy(item)
    node: Any = copied["spec"] if "spec" in copied else copied["specs"]
    for key in path[:-1]:
        node = node[key]
    if path[-1] == "cidr":
        node["cidr"] = "::/0" if ":" in node["cidr"] else "0.0.0.0/0"
    elif path[-1] == "protocol":
        node["protocol"] = "UDP" if node["protocol"] == "SCTP" else "SCTP"
    else:
        del node[path[-1]]
    return copied


def _title(item: Object) -> str:
    name: str = item["metadata"]["name"]
    return f"{CLUSTER_POLICY}--*" if name.startswith(f"{CLUSTER_POLICY}--") else name


def _mutants(world: World) -> Iterator[tuple[str, list[Object]]]:
    """Without a kind of policy, and without each part of each kind, everywhere at once; by the kind's name first."""
    titles: dict[str, dict[tuple[Any, ...], None]] = {}
    for item in world.policies:
        spec = item["spec"] if "spec" in item else item["specs"]
        titles.setdefault(_title(item), {}).update(dict.fromkeys(_paths(spec)))
    for title, paths in titles.items():
        yield title, [item for item in world.policies if _title(item) != title]
        for path in paths:
            mutated = []
            for item in world.policies:
                try:
                    mutated.append(_without(item, path) if _title(item) == title else item)
                except (KeyError, IndexError):
                    mutated.append(item)
            yield f"{title} {'.'.join(map(str, path))}", mutated


@cache
def _survivors(world: World) -> frozenset[str]:
    """Parts without which the engine says the same of every connection."""
    hostile = _anything(world)
    # A second pod in one namespace that its siblings do not reach is enough: more change nothing here but the time.
    seconds = {name for name in world.pods if name.endswith("/liar")} - {"fraud-2--train/liar"}
    flows = [flow for flow in world.flows if not seconds & {flow.source, flow.target}]
    plain, opened = judged(world, world.policies, flows), judged(world, [*world.policies, *hostile], flows)
    survivors = set()
    for name, policies in _mutants(world):
        # A deny is unit cost what it withstands; everything else is judged by itself.
        denies = name.partition(" ")[0] in {CLUSTER_POLICY, f"{CLUSTER_POLICY}--*"}
        try:
            after = judged(world, [*policies, *hostile] if denies else policies, flows)
        except judges.Unjudged:
            continue  # the engine takes no such policy
        if after == (opened if denies else plain):
            survivors.add(name)
    return frozenset(survivors)


_FENCED = "the clusterwide policy denies the platform's other pods"
_CLOSED = "the clusterwide policies close both directions"
_SPACE, _NAME = "namespaceSelector.matchLabels.kubernetes.io/metadata.name", "podSelector.matchLabels"
REDUNDANT: Mapping[str, Mapping[str, str]] = {
    "vpc-cni": {"default-deny policyTypes.1": "the policy on DNS closes what leaves as well"},
    "cilium": {
        **dict.fromkeys((f"ingress ingress.0.from.0.{_SPACE}", f"egress egress.1.to.0.{_SPACE}"), _FENCED),
        **{f"ingress ingress.0.from.0.{_NAME}.{label}": _FENCED for label in ("app.kubernetes.io/name", "role")},
        f"egress egress.1.to.0.{_NAME}.app": _FENCED,
        "dns egress.0.toEndpoints.0.matchLabels.k8s:k8s-app": _FENCED,
        "default-deny": _CLOSED,
        **{
            f"{title} policyTypes{part}": _CLOSED
            for title in ("default-deny", "same-namespace", "allow-cross-namespace")
            for part in ("", ".0", ".1")
        },
        **dict.fromkeys(("ingress policyTypes.0", "egress policyTypes.0"), _CLOSED),
    },
}
"""Parts that another part stands behind, by CNI."""


@pytest.mark.parametrize(
    "cni",
    [
        BOTH[0],
        pytest.param(
            BOTH[1],
            marks=pytest.mark.exhaustive(
                reason="the same under Cilium; `make test` takes the parts away under the VPC CNI"
            ),
        ),
    ],
)
def test_without_any_part_of_the_plan_some_connection_is_judged_otherwise(
    worlds: Mapping[tuple[str, str], World], cni: str
) -> None:
    assert _survivors(worlds["adversarial", cni]) == REDUNDANT[cni].keys()


def test_under_cilium_the_default_deny_and_the_cluster_policies_stand_behind_each_other(
    worlds: Mapping[tuple[str, str], World],
) -> None:
    world = worlds["adversarial", "cilium"]
    before = judged(world, world.policies)
    plain = [item for item in world.policies if _title(item) != "default-deny"]
    assert judged(world, plain) == before
    unfenced = [item for item in world.policies if _title(item) not in {CLUSTER_POLICY, f"{CLUSTER_POLICY}--*"}]
    assert judged(world, unfenced) == [verdict.replace("denied", "not allowed") for verdict in before]
    neither = [item for item in unfenced if _title(item) != "default-deny"]
    opened = let_through(world.flows, judged(world, neither)) - let_through(world.flows, before)
    assert {world.peers[flow.target].get("namespace") for flow in opened} == {"f--main"}, "which nothing else selects"
