"""The example that passes the preset `regulated`, and what in it makes it pass."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pack_worlds import findings_of

from tenancy.planning import make_plan
from tenancy.planning.aws.identity import key_policy
from tenancy.planning.common import names
from tenancy.planning.scope import StackScope
from tenancy.rules import aws
from tenancy.rules.levels import REGULATED_ALONE, PolicyPreset
from tenancy.spec.loader import load
from tests import registered as components
from tests.aws_answers import Answers
from tests.conftest import SpecFolder, every
from tests.registered import register
from tests.registered_aws import inputs

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "stacks" / "regulated"
ENV = "environment.yaml"


@pytest.fixture
def folder(tmp_path: Path) -> SpecFolder:
    regulated_spec = SpecFolder(tmp_path / "regulated")
    shutil.rmtree(regulated_spec.path)
    shutil.copytree(EXAMPLE, regulated_spec.path)
    return regulated_spec


def resource_inputs(request: Any) -> dict[str, Any]:
    return {"kind": request.type, "metadata": {"name": request.name}}


def items(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Resources that the programs of all its stacks register, as the pack reads it."""
    echo, answers = components.Echo.new_resource, Answers()

    def resource(mocks: Any, arguments: Any) -> tuple[str, dict[str, Any]]:
        resource_id, outputs = echo(mocks, arguments)
        return resource_id, {**outputs, "arn": f"arn:{resource_id}", "allocationId": resource_id}

    monkeypatch.setattr(components.Echo, "new_resource", resource)
    monkeypatch.setattr(components.Echo, "call", lambda mocks, call: answers(mocks, call))
    loaded = load(folder)
    plan = make_plan(loaded, loaded.day)
    for scope in (StackScope.CLUSTER, StackScope.ALL):
        registered = register(plan, scope)
        for request in registered.requests.values():
            if request.type.startswith("kubernetes:") and "kind" in inputs(request):
                yield inputs(request)
            elif request.type.startswith("aws:"):
                buckets = [registered.requests[urn] for urn in request.propertyDependencies["bucket"].urns]
                sources = (
                    {aws.BUCKETS: [resource_inputs(bucket) for bucket in buckets]}
                    if request.type == aws.ENCRYPTION
                    else {}
                )
                yield {**resource_inputs(request), **inputs(request), **sources}


def broken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """Rule and object, of the rules that `regulated` alone asks."""
    findings = findings_of(items(folder, monkeypatch), PolicyPreset.REGULATED)
    return {(finding.rule, finding.object) for finding in findings if finding.rule in REGULATED_ALONE}


def test_the_example_breaks_no_rule_of_regulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tenants write logs, have data in a bucket, GPUs and claims."""
    loaded = load(EXAMPLE)
    assert every(tenant.aws_resources.log_groups and tenant.storage and tenant.gpus for tenant in loaded.tenants)
    assert broken(EXAMPLE, monkeypatch) == set()


def test_without_a_key_of_logs_it_breaks_reg_02(folder: SpecFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    (key,) = re.findall(r"  tenant-log-kms-key-arn: .*\n", (folder.path / ENV).read_text("utf-8"))
    folder.edit(ENV, key, "")
    assert broken(folder.path, monkeypatch) == {
        ("reg-02", f"aws:cloudwatch/logGroup:LogGroup {tenant}-aws-own-decisions") for tenant in ("payments", "risk")
    }


def test_with_a_pool_for_both_tenants_it_breaks_reg_01(folder: SpecFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.edit(ENV, "nodes: 2, tenants: [risk]}", "nodes: 2, tenants: [risk, payments]}")
    assert {rule for rule, _ in broken(folder.path, monkeypatch)} == {"reg-01"}


def test_the_statement_of_the_key_of_logs_is_the_clusters_own_for_the_tenants_groups() -> None:
    page = (ROOT / "docs" / "identity.md").read_text("utf-8")
    (text,) = re.findall(r'```json\n(\{"Sid": "TenantsLogs".*?)```', page, re.DOTALL)
    printed_statement = json.loads(text)
    loaded = load(ROOT / "stacks" / "bank")
    (planned_statement,) = [
        statement for statement in key_policy(loaded.environment)["Statement"] if statement["Sid"] == "Logs"
    ]
    assert (printed_statement["Effect"], printed_statement["Principal"], printed_statement["Resource"]) == (
        planned_statement["Effect"],
        planned_statement["Principal"],
        planned_statement["Resource"],
    )
    words = [action.partition("*")[0] for action in printed_statement["Action"]]
    assert every(any(action.startswith(word) for word in words) for action in planned_statement["Action"]), (
        "as much as it needs"
    )
    assert every(any(action.startswith(word) for action in planned_statement["Action"]) for word in words), (
        "and no more"
    )
    (pattern,) = printed_statement["Condition"]["ArnLike"].values()
    assert printed_statement["Condition"].keys() == planned_statement["Condition"].keys()
    assert printed_statement["Condition"]["ArnLike"].keys() == planned_statement["Condition"]["ArnLike"].keys()
    group = names.tenant_log_group(loaded.environment, loaded.tenants[0], "decisions")
    assert group.startswith(pattern.partition("log-group:")[2].removesuffix("*"))
