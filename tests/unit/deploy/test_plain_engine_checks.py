"""Checks of a run of the plain engine that need no cluster: the order of stacks, and how a cluster is reached."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Api, ApiUnreachable, Response
from tenancy.cluster.guards import PreconditionFailed
from tenancy.deploy import plain_engine
from tenancy.deploy.plain_engine import BY_COMMAND, check_cluster, is_plain
from tenancy.planning import Plan, make_plan
from tenancy.planning.scope import reach_hint
from tenancy.spec.loader import load

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def bank() -> Plan:
    loaded = load(ROOT / "stacks" / "bank")
    return make_plan(loaded, loaded.day)


class Holding(Api):
    """A cluster of an environment with the quotas of a plan."""

    def __init__(self, plan: Plan, environment: str, without: str = "") -> None:
        self.environment = environment
        self.quotas = [
            {
                "metadata": item["metadata"],
                "spec": {"hard": {key: value for key, value in item["spec"]["hard"].items() if key != without}},
            }
            for tenant in plan.tenants
            for space in tenant.namespaces
            for item in (quota.manifest() for quota in space.quotas)
        ]

    def request(self, method: str, path: str, *_: Any, **__: Any) -> Response:
        assert method == "GET"
        if path == f"/api/v1/namespaces/{vocabulary.PLATFORM_NAMESPACE}":
            return Response(200, {"metadata": {"labels": {vocabulary.ENVIRONMENT: self.environment}}})
        assert path.startswith("/api/v1/resourcequotas?labelSelector=")
        return Response(200, {"items": self.quotas})


@pytest.mark.parametrize(
    ("environment", "without", "refused"),
    [
        ("bank", "", False),
        ("bank", "requests.nvidia.com/mig-1g.5gb", True),
        ("another", "requests.nvidia.com/mig-1g.5gb", False),
    ],
)
def test_the_nodes_of_a_resource_wait_for_the_quotas_that_count_it(
    bank: Plan, environment: str, without: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_engine, "Api", lambda _: Holding(bank, environment, without))
    if not refused:
        assert check_cluster(bank) == []
        return
    with pytest.raises(
        PreconditionFailed, match=r"whose quota does not count every resource .* rule: quotas before nodes"
    ):
        check_cluster(bank)


def test_a_cluster_that_does_not_answer_is_a_warning(bank: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(_: str) -> Api:
        raise ApiUnreachable("no such context")

    monkeypatch.setattr(plain_engine, "Api", dead)
    (text,) = check_cluster(bank)
    assert text.endswith("is not checked: no such context")


def test_only_the_command_says_that_it_runs_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BY_COMMAND, raising=False)
    assert is_plain()
    monkeypatch.setenv(BY_COMMAND, "true")
    assert not is_plain()


def test_a_cluster_of_the_program_is_named_with_the_commands_that_make_and_reach_it(bank: Plan) -> None:
    hint = reach_hint(bank)
    assert hint.startswith("; `pulumi up --stack bank.cluster` makes the cluster, and `aws eks update-kubeconfig ")
    existing = replace(bank, cluster=None)
    assert reach_hint(existing).startswith("; `aws eks update-kubeconfig ")
    loaded = load(ROOT / "stacks" / "local")
    assert reach_hint(make_plan(loaded, loaded.day)) == ""
