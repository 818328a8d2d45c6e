"""Whatever NetworkPolicies tenants may write, no pod of one reaches another's, by the word of others' engines."""

from __future__ import annotations

from pathlib import Path

import judges
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tenancy.kube.objects import Object
from tests.network_strategies import admitted, policies
from tests.network_worlds import ENGINES, World, adversarial, between_tenants, let_through


@pytest.fixture(scope="module", params=["vpc-cni", "cilium"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    folder: Path = tmp_path_factory.mktemp("own") / request.param / "small"
    return World(adversarial(folder, request.param))


def _tenant_policies(world: World, data: st.DataObject) -> list[Object]:
    """A few legal policies in every namespace of every tenant, each by another tenant's choice."""
    admitted_policies = []
    for tenant in world.plan.tenants:
        for space in tenant.namespaces:
            for number, policy in enumerate(data.draw(st.lists(policies(world, space.name), max_size=2))):
                if admitted(world, policy):
                    policy["metadata"]["name"] = f"own-{number}"
                    admitted_policies.append(policy)
    return admitted_policies


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_legal_policies_open_nothing_between_tenants_and_nothing_that_no_file_names(
    world: World, data: st.DataObject
) -> None:
    own_policies = _tenant_policies(world, data)
    event(f"{len(own_policies)} legal policies")
    verdicts = judges.verdicts(ENGINES[world.cni], [*world.policies, *own_policies], world.peers, world.flows)
    open_flows = let_through(world.flows, verdicts)
    assert open_flows & {*between_tenants(world, world.flows)} == set()
    more = {flow for flow in open_flows if not world.is_named(flow)}
    # A part that is closed inside opens itself by policies of its own, and to its siblings where they are open.
    assert [flow for flow in sorted(more) if not _may_open(world, flow.source, flow.target)] == []
    closed_flows = {flow for flow in world.flows if world.is_named(flow)} - open_flows
    assert sorted(closed_flows) == [], "policies add up: none takes away what the platform's open"


def _may_open(world: World, source: str, target: str) -> bool:
    source_pod, target_pod = world.pods.get(source), world.pods.get(target)
    if source_pod is None or target_pod is None or source_pod.tenant is not target_pod.tenant:
        return False
    return source_pod.part is target_pod.part or source_pod.tenant.allow_cross_namespace
