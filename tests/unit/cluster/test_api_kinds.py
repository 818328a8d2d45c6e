"""Kinds that a cluster does not serve are named before anything is made, with the command that installs them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tenancy.catalog.versions import CHARTS
from tenancy.cli import main
from tenancy.cluster import preflight
from tenancy.cluster.api import Api, Response
from tenancy.cluster.api_kinds import OPERATORS, unserved
from tenancy.cluster.guards import PreconditionFailed
from tenancy.planning import Plan, make_plan
from tenancy.spec.loader import load
from tests.conftest import SpecFolder, every

ROOT = Path(__file__).parents[3]


class Serving(Api):
    """A cluster that serves the kinds of a plan, without some groups or kinds."""

    def __init__(self, plan: Plan, without: Collection[str]) -> None:
        self.kinds: dict[str, set[str]] = {}
        for item in [*plan.platform.objects(), *(item for tenant in plan.tenants for item in tenant.objects())]:
            version, kind = item["apiVersion"], item["kind"]
            if version.partition("/")[0] not in without and kind not in without:
                self.kinds.setdefault(version, set()).add(kind)

    def request(self, method: str, path: str, *_: Any, **__: Any) -> Response:
        assert method == "GET"
        if path == "/version":
            return Response(200, {"gitVersion": "v1.30.1"})
        kinds = self.kinds.get(path.removeprefix("/apis/"))
        if kinds is None:
            return Response(404, {"message": "not found"})
        return Response(200, {"resources": [{"kind": kind} for kind in sorted(kinds)]})


def messages(plan: Plan, *without: str, tenant: str | None = None) -> list[str]:
    platform = None if tenant else plan.platform
    return list(unserved(Serving(plan, without), plan, platform, [plan.tenant(tenant)] if tenant else plan.tenants))


def planned(name: str) -> Plan:
    loaded = load(ROOT / "stacks" / name)
    return make_plan(loaded, loaded.day)


def in_cilium_and_metrics(spec: SpecFolder) -> Plan:
    spec.edit("environment.yaml", "cni: vpc-cni", "cni: cilium")
    with (spec.path / "environment.yaml").open("a", encoding="utf-8") as file:
        file.write("metrics: {collector: existing}\n")
    loaded = spec.load()
    return make_plan(loaded, loaded.day)


@pytest.mark.parametrize("name", ["local", "bank", "regulated"])
def test_a_cluster_that_serves_all_of_them_is_told_nothing(name: str) -> None:
    assert messages(planned(name)) == []


def test_without_kueue_the_command_that_installs_it_is_named() -> None:
    (text,) = messages(planned("local"), "kueue.x-k8s.io")
    assert text.startswith("given a cluster that does not serve kueue.x-k8s.io/v1beta2 (ClusterQueue, Cohort,")
    assert "rule: GPUs are lent and borrowed through a queue" in text
    assert (
        f"helm upgrade --install kueue oci://registry.k8s.io/kueue/charts/kueue --version {CHARTS['kueue'].version}"
        in text
    )
    assert text.endswith("(for the lab: `tenancy lab up local`); or set queues.scheduler to none")


def test_an_older_kueue_is_told_by_the_kind_that_it_lacks() -> None:
    (text,) = messages(planned("local"), "Cohort")
    assert "kueue.x-k8s.io/v1beta2 (Cohort)" in text


@pytest.mark.parametrize(
    ("group", "name", "instead"),
    [
        ("cilium.io", "Cilium", "write the CNI that the cluster has into cluster.cni"),
        ("monitoring.coreos.com", "the Prometheus Operator", "set metrics.collector to install or none"),
    ],
)
def test_without_a_cni_or_an_operator_its_command_is_named(
    spec: SpecFolder, group: str, name: str, instead: str
) -> None:
    plan = in_cilium_and_metrics(spec)
    assert messages(plan) == []
    texts = messages(plan, group)
    assert texts
    for text in texts:
        assert f"does not serve {group}/" in text
        assert f"install {name}: `tenancy render small --out rendered`" in text
        assert text.endswith(instead)


def test_each_command_names_a_file_that_render_writes(spec: SpecFolder, tmp_path: Path) -> None:
    plan = in_cilium_and_metrics(spec)
    texts = messages(plan, *OPERATORS)
    assert len(texts) >= len(OPERATORS)
    result = CliRunner().invoke(main, ["render", str(spec.path), "--out", str(tmp_path / "rendered")])
    assert result.exit_code == 0, result.output
    for text in texts:
        (command,) = re.findall(r"`(helm [^`]*)`", text)
        words = shlex.split(command)
        assert (tmp_path / words[words.index("--values") + 1]).is_file(), command


def test_what_the_platforms_stack_installs_is_missed_by_tenants_stacks_alone() -> None:
    bank = planned("bank")
    assert bank.platform.services
    assert messages(bank, *OPERATORS, "karpenter.sh", "karpenter.k8s.aws") == []
    texts = messages(bank, *OPERATORS, tenant="fraud")
    assert texts
    assert every("update it first, `tenancy up bank --stack bank`" in text for text in texts)


def test_an_older_kubernetes_is_told_with_its_version() -> None:
    (text,) = messages(planned("local"), "MutatingAdmissionPolicy")
    assert "admissionregistration.k8s.io/v1 (MutatingAdmissionPolicy): its API server is v1.30.1" in text
    assert text.endswith("change: upgrade it, or write its version there")


@pytest.mark.parametrize("preview", [True, False])
def test_a_program_of_its_own_names_them_too_and_an_update_ends_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, preview: bool
) -> None:
    plan = planned("local")
    monkeypatch.setattr(preflight, "Api", lambda *_: Serving(plan, ["kueue.x-k8s.io"]))
    for name in ("require_same_environment", "deployer_problems", "_ownership_conflicts", "undecided_namespaces"):
        monkeypatch.setattr(preflight, name, lambda *_: [])
    monkeypatch.setattr(Serving, "paged_items", lambda *_, **__: iter(()))
    if preview:
        (text,) = preflight.check_platform(plan.platform, "theirs", None, preview)
    else:
        with pytest.raises(PreconditionFailed) as refused:
            preflight.check_platform(plan.platform, "theirs", None, preview)
        text = str(refused.value)
    assert "does not serve kueue.x-k8s.io/v1beta2" in text
    assert "helm upgrade --install kueue" in text
