"""The bank on a laptop: its 86 nodes and its tenants' stacks in the lab, with nothing of AWS.

A stack takes 4 s to make and 8 s to remove, so three of the fifteen tenants stand for all.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

import pytest
from engine_project import Project, run_as_shown

from tenancy import planning
from tenancy.catalog import vocabulary
from tenancy.planning import TenantPlan
from tenancy.spec.fields.cluster import Cni
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.metrics import Collector
from tenancy.spec.loader import Loaded, load, on_lab
from tests.printed import page_block

pytestmark = [
    pytest.mark.chapters,
    pytest.mark.exhaustive(
        reason="the bank with 86 nodes in a lab; `make test` brings up `local`, and plans the bank in tests/unit"
    ),
]

PLATFORM = "bank"
CHOSEN_TENANTS = ("fraud", "notebooks-lab", "performance")
STACKS = (PLATFORM, *(f"{PLATFORM}--{tenant}" for tenant in CHOSEN_TENANTS))
ONLY = [argument for stack in STACKS for argument in ("--stack", stack)]
SPACES = {"tenancy-system", "fraud--train", "fraud--serve", "notebooks-lab--main", "performance--train"}


@pytest.fixture(scope="module")
def bank(project: Project) -> Loaded:
    return load(project.folder / "stacks" / "bank")


def spaces(project: Project) -> set[str]:
    return {name for kind, _, name in project.objects() if kind == "namespaces"}


def test_the_lab_gets_the_banks_nodes(project: Project) -> None:
    run_as_shown(project, page_block("lab.md", "tenancy lab up bank"))
    run_as_shown(project, page_block("lab.md", "kubectl get nodes"))
    with project.api() as api:
        nodes = api.get("/api/v1/nodes")["items"]
    pools = Counter(node["metadata"]["labels"][vocabulary.POOL] for node in nodes)
    assert pools == {"train-a100": 72, "train-efa": 8, "serve-mig": 2, "notebooks": 1, "general": 3}


def test_a_cluster_stack_is_none_of_the_lab(project: Project) -> None:
    result = project.tenancy("up", "bank", "--lab", "--stack", "bank.cluster")
    assert result.code == 2, result.text
    assert "given --stack bank.cluster" in result.err
    assert project.objects() == {}


def test_the_platform_and_the_tenants_come_up(project: Project) -> None:
    result = project.tenancy("up", "bank", "--lab", *ONLY)
    assert result.code == 0, result.text
    assert spaces(project) == SPACES
    assert project.keys_in_state(*STACKS) == set(project.objects())


def test_nothing_is_asked_of_aws(project: Project) -> None:
    stack_list = json.loads(project.pulumi("stack", "ls", "--json").out)
    assert {stack["name"] for stack in stack_list} == set(STACKS), "no stack of a cluster"
    kinds = {resource["type"] for stack in STACKS for resource in project.state(stack)["resources"]}
    assert {kind for kind in kinds if "aws" in kind} == set()


def without_exporters(environment: Environment) -> Environment:
    """The node exporter takes 50m and 50 MiB of each node, which no queue gives away; the lab's nodes have none."""
    metrics = environment.metrics.model_copy(update={"collector": Collector.NONE})
    return environment.model_copy(update={"metrics": metrics})


def test_a_tenant_has_in_the_lab_what_it_has_on_aws(bank: Loaded) -> None:
    """The lab has no Cilium, so the network is compared with that of the same bank without it."""
    unwatched = without_exporters(bank.environment)
    cluster = unwatched.cluster.model_copy(update={"cni": Cni.VPC_CNI})
    plain = unwatched.model_copy(update={"cluster": cluster})
    # Host names need Cilium (net-06).
    unnamed = [
        tenant.model_copy(update={"egress": tuple(way for way in tenant.egress if not way.dns)})
        for tenant in bank.tenants
    ]
    on_aws, in_lab = planning.plan(plain, unnamed), planning.plan(on_lab(bank))
    assert (on_aws.cluster is None, in_lab.cluster is None) == (False, True)
    assert in_lab.tenants == tuple(replace(tenant, aws=None) for tenant in on_aws.tenants)
    assert in_lab.platform.guards == on_aws.platform.guards


def test_what_cilium_changes_is_the_network_alone(bank: Loaded) -> None:
    on_aws = planning.plan(without_exporters(bank.environment), bank.tenants)
    in_lab = planning.plan(on_lab(bank))
    assert any(tenant.cluster_policies for tenant in on_aws.tenants)
    assert [but_for_its_network(tenant) for tenant in in_lab.tenants] == [
        but_for_its_network(tenant) for tenant in on_aws.tenants
    ]
    assert in_lab.platform.guards == on_aws.platform.guards


def but_for_its_network(tenant: TenantPlan) -> TenantPlan:
    spaces = (replace(space, policies=(), cilium_policies=()) for space in tenant.namespaces)
    return replace(tenant, aws=None, cluster_policies=(), namespaces=tuple(spaces))


def test_a_second_run_changes_nothing(project: Project) -> None:
    versions, states = project.versions(), project.state_digest()
    result = project.tenancy("up", "bank", "--lab", *ONLY)
    assert result.code == 0, result.text
    assert "update" not in result.out
    assert "drifted" not in result.out
    assert project.versions() == versions
    assert project.state_digest() == states


def test_plain_pulumi_does_not_take_the_lab_for_the_banks_cluster(project: Project) -> None:
    versions = project.versions()
    result = project.pulumi("up", "--yes", "--skip-preview", "--stack", "bank--fraud")
    assert result.code != 0
    assert "'bank'" in result.text, "the context that the files name, which the lab's kubeconfig lacks"
    assert "Traceback" not in result.text
    assert project.versions() == versions


def test_every_attack_is_refused(project: Project, bank: Loaded) -> None:
    """Only with the files of the chosen tenants: the guards do not depend on the tenants. All people stay."""
    for tenant in bank.tenants:
        if tenant.tenant not in CHOSEN_TENANTS:
            (bank.folder / "tenants" / f"{tenant.tenant}.yaml").unlink()
    file = bank.folder / "environment.yaml"
    file.write_text(re.sub(r"\n  people:.*\n(    .*\n)+", "\n", file.read_text("utf-8")), "utf-8")
    result = project.tenancy("verify", "bank", "--lab", "--brief")
    assert result.code == 0, result.text
    assert " 0 gaps" in result.out
    assert "the audit log agrees" in result.out


def test_down_leaves_no_namespace(project: Project) -> None:
    result = project.tenancy("down", "bank", "--lab", "--yes")
    assert result.code == 0, result.text
    assert project.objects() == {}
    with project.api() as api:
        namespaces = {item["metadata"]["name"] for item in api.get("/api/v1/namespaces")["items"]}
        nodes = api.get("/api/v1/nodes")["items"]
    assert namespaces == {"default", "kube-node-lease", "kube-public", "kube-system", "kueue-system"}
    assert len(nodes) == 86, "the machines are the lab's, not the bank's"
