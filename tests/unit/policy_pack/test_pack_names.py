"""Each rule is a policy with a name in the console, and the SDK still runs two."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest
from google.protobuf import json_format
from pulumi.runtime.proto import analyzer_pb2 as proto
from pulumi_policy import EnforcementLevel
from pulumi_policy.policy import _PolicyAnalyzerServicer

from tenancy.check.judge import JUDGED
from tenancy.rules.catalogue import RULES

QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "gpus", "namespace": "vision"},
    "spec": {"hard": {"nvidia.com/gpu": "8"}},
}


@pytest.fixture(scope="module")
def names_module() -> ModuleType:
    from tenancy.policy_pack import names

    return names


def server(pack: ModuleType, config: Mapping[str, Any] | None = None) -> Any:
    """The SDK's own server of the pack, configured as by the engine."""
    analyzer = _PolicyAnalyzerServicer("gpu-tenancy", "0.0.1", pack.served(), EnforcementLevel.MANDATORY)
    request = proto.ConfigureAnalyzerRequest()
    for policy in analyzer.GetAnalyzerInfo(None, None).policies:
        # The engine sends every policy's level, its default too.
        request.policyConfig[policy.name].enforcementLevel = policy.enforcementLevel
    for name, level in (config or {}).items():
        request.policyConfig[name].enforcementLevel = level
    analyzer.Configure(request, None)
    return analyzer


def judged(pack: ModuleType, config: Mapping[str, Any] | None = None) -> list[Any]:
    """Diagnostics of the server for a quota that counts nothing."""
    request = proto.AnalyzeRequest(type="kubernetes:core/v1:ResourceQuota", name="gpus", urn="urn")
    json_format.ParseDict(QUOTA, request.properties)
    return [
        diagnostic
        for diagnostic in server(pack, config).Analyze(request, None).diagnostics
        if "quota-01" in diagnostic.message
    ]


def test_every_rule_of_a_preview_is_a_policy_of_its_name(pack: ModuleType, names_module: ModuleType) -> None:
    policies_by_name = {policy.name: policy for policy in server(pack).GetAnalyzerInfo(None, None).policies}
    assert set(policies_by_name) == {"isolation", "isolation-stack", *JUDGED}
    quota = policies_by_name["quota-01"]
    assert quota.severity == proto.POLICY_SEVERITY_HIGH
    assert quota.remediation_steps == RULES["quota-01"].fix
    assert (quota.framework.name, quota.framework.reference) == (names_module.PACK_NAME, "quota-01")
    assert policies_by_name["net-01"].framework.specification == "5.4.5 load balancers use TLS"
    assert policies_by_name["reg-01"].enforcementLevel == proto.DISABLED


def test_the_sdk_runs_two_policies(pack: ModuleType, names_module: ModuleType) -> None:
    from pulumi_policy import ResourceValidationPolicy, StackValidationPolicy

    assert names_module.names_work()
    run = [p.name for p in pack.served() if isinstance(p, ResourceValidationPolicy | StackValidationPolicy)]
    assert run == ["isolation", "isolation-stack"]


def test_a_finding_has_the_name_level_and_severity_of_its_rule(pack: ModuleType) -> None:
    (diagnostic,) = judged(pack)
    assert (diagnostic.policyName, diagnostic.enforcementLevel) == ("quota-01", proto.MANDATORY)
    assert diagnostic.severity == proto.POLICY_SEVERITY_HIGH
    assert diagnostic.message.splitlines()[1].startswith("quota-01: ResourceQuota vision/gpus: given ")


def test_the_engines_configuration_sets_a_rules_level(pack: ModuleType) -> None:
    (diagnostic,) = judged(pack, {"quota-01": proto.ADVISORY})
    assert (diagnostic.policyName, diagnostic.enforcementLevel) == ("quota-01", proto.ADVISORY)
    assert judged(pack, {"quota-01": proto.DISABLED}) == []
    assert judged(pack, {"quota-02": proto.DISABLED}) != []


def test_under_another_sdk_findings_keep_the_wide_names(
    pack: ModuleType, names_module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_module, "_inside", lambda _report: {})
    assert not names_module.names_work()
    assert pack.served() == pack.POLICIES
    (diagnostic,) = judged(pack)
    assert (diagnostic.policyName, diagnostic.enforcementLevel) == ("isolation", proto.MANDATORY)
