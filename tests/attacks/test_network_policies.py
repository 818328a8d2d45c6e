"""NetworkPolicies of tenants' own and Cilium's objects, before a real API server with Cilium's definitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import judges
import pytest
import yaml
from attack_lab import ROOT, apply, served
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenancy import planning
from tenancy.cluster import denial
from tenancy.cluster.api import Api, path_of
from tenancy.kube import deniers
from tenancy.kube.objects import Object
from tenancy.kube.requests import Impersonation, collection
from tenancy.lab import control_plane
from tenancy.rules.attacks import put
from tests.network_strategies import admitted, policies
from tests.network_worlds import World, adversarial
from tests.waiting import until_clear

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
REFUSED = deniers.guard("tenancy-networkpolicies", "net-02")


@dataclass(frozen=True)
class Server:
    api: Api
    world: World
    has_cluster_policies: World
    """The same, for a cluster with Cilium."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("policies")
    world, has_cluster_policies = (World(adversarial(folder / cni / "small", cni)) for cni in ("vpc-cni", "cilium"))
    plan = planning.plan(world.environment.model_copy(update={"cluster": _of_lab(world)}), world.loaded.tenants)
    crds = [
        yaml.safe_load((judges.folder("schemas-cilium") / f"{name}.yaml").read_text("utf-8"))
        for name in ("ciliumnetworkpolicies", "ciliumclusterwidenetworkpolicies")
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPU_TENANCY_LAB", str(folder / "lab"))
        lab = control_plane.up(root=ROOT, platform_group=world.environment.platform.group)
        try:
            patch.setenv("KUBECONFIG", str(lab.kubeconfig))
            apply([*crds, *plan.objects()])
            api = Api(plan.context)
            until_clear(lambda: [c for c in crds if not api.request("GET", served(c)).ok], "Cilium's kinds are served")
            first = plan.tenants[0].namespaces[0].name
            until_clear(lambda: _denial_text(api, _policy(first, {"ingress": [{}]})) != REFUSED, "the guard refuses")
            yield Server(api, world, has_cluster_policies)
        finally:
            control_plane.down(root=ROOT)


def _of_lab(world: World) -> object:
    return world.environment.cluster.model_copy(update={"context": "gpu-tenancy-lab"})


def _policy(space: str, rules: Object) -> Object:
    spec = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], **rules}
    head = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    return {**head, "metadata": {"name": "own", "namespace": space}, "spec": spec}


def _denial_text(api: Api, policy: Object) -> str:
    """The denial of a developer's policy; empty if it is admitted. Nothing is created."""
    space = policy["metadata"]["namespace"]
    developer = Impersonation("jane", (f"{space.partition('--')[0]}-people",))
    path = f"{collection(policy['apiVersion'], policy['kind'], space)}?dryRun=All"
    answer = api.request("POST", path, policy, developer)
    return "" if answer.ok else denial.denier(answer.status, answer.message)


@settings(max_examples=120, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_guard_admits_what_the_other_tests_take_for_legal_and_nothing_else(
    server: Server, data: st.DataObject
) -> None:
    spaces = [space.name for tenant in server.world.plan.tenants for space in tenant.namespaces]
    policy = data.draw(policies(server.world, data.draw(st.sampled_from(spaces))))
    assert _denial_text(server.api, policy) == ("" if admitted(server.world, policy) else REFUSED), policy["spec"]


def test_a_namespace_that_lost_its_annotations_opens_no_address(server: Server) -> None:
    space = next(s for t in server.world.plan.tenants for s in t.namespaces if s.name == "fraud--train")
    way = [{"to": [{"ipBlock": {"cidr": "198.51.100.0/24"}}], "ports": [{"protocol": "TCP", "port": 8443}]}]
    policy = _policy(space.name, {"egress": way})
    assert _denial_text(server.api, policy) == ""
    key = "tenancy.gpu/allowed-egress"
    path, kind = path_of(space.namespace), "application/merge-patch+json"

    def annotate(value: str | None) -> None:
        body = {"metadata": {"annotations": {key: value}}}
        assert server.api.request("PATCH", path, body, content_type=kind).ok

    try:
        annotate(None)
        until_clear(lambda: _denial_text(server.api, policy) != REFUSED, "the address is refused")
    finally:
        annotate(space.namespace["metadata"]["annotations"][key])
        until_clear(lambda: _denial_text(server.api, policy), "the address is admitted")


def test_a_tenants_namespace_goes_with_its_policies(server: Server) -> None:
    space = server.world.plan.tenants[-1].namespaces[-1]
    assert server.api.request("DELETE", path_of(space.namespace)).ok
    until_clear(lambda: server.api.request("GET", path_of(space.namespace)).status != 404, "the namespace is gone")


def test_the_platform_removes_its_policies_as_the_engine_does(server: Server) -> None:
    policy = next(o for o in server.world.plan.tenants[0].namespaces[0].isolation if o["kind"] == "NetworkPolicy")
    assert server.api.request("DELETE", f"{path_of(policy)}?propagationPolicy=Foreground").ok
    until_clear(
        lambda: server.api.request("GET", path_of(policy)).status != 404, "the garbage collector has let go of it"
    )


def test_ciliums_definitions_take_every_policy(server: Server) -> None:
    cilium_policies = [item for item in server.has_cluster_policies.policies if item["apiVersion"] == "cilium.io/v2"]
    assert {item["kind"] for item in cilium_policies} == {"CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy"}
    # The namespace that the test above removes is none of theirs any more.
    namespaces = {item["metadata"]["name"] for item in server.api.items("/api/v1/namespaces")}
    for item in cilium_policies:
        space = item["metadata"].get("namespace")
        if space is None or space in namespaces:
            answer = server.api.request("POST", f"{_path(item)}?dryRun=All&fieldValidation=Strict", item)
            assert answer.ok, f"{item['metadata']['name']}: {answer.message}"


@pytest.mark.parametrize(
    ("name", "at", "bad"),
    [
        ("egress-hosts", "/spec/egress/0/toPorts/0/ports/0/protocol", "HTTP"),
        ("dns", "/spec/egress/0/toPorts/0/rules/dns/0/matchName", "feed.[a-z].example"),
        ("tenancy", "/spec/egressDeny/2/toEntities/0", "unknown"),
    ],
)
def test_ciliums_definitions_refuse_what_is_none(server: Server, name: str, at: str, bad: str) -> None:
    item = next(
        o for o in server.has_cluster_policies.policies if o["metadata"]["name"] == name and "cilium" in o["apiVersion"]
    )
    answer = server.api.request("POST", f"{_path(item)}?dryRun=All&fieldValidation=Strict", put(item, at, bad))
    assert answer.status == 422
    assert bad in answer.message


def _path(item: Object) -> str:
    return path_of(item).rpartition("/")[0]


def test_people_of_tenants_write_no_policies_of_ciliums(server: Server) -> None:
    for item in server.has_cluster_policies.policies:
        if item["apiVersion"] == "cilium.io/v2" and item["metadata"].get("namespace", "fraud--train") == "fraud--train":
            developer = Impersonation("jane", ("fraud-people",))
            answer = server.api.request("POST", f"{_path(item)}?dryRun=All", item, developer)
            assert denial.denier(answer.status, answer.message) == deniers.RBAC, item["metadata"]["name"]
