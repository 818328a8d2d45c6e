"""The rules on roles have no word against those that the plan makes of any tenant's file."""

from __future__ import annotations

import json

from tenancy.catalog import vocabulary
from tenancy.rules import aws
from tenancy.rules.findings import Finding
from tenancy.rules.objects import object_findings
from tests.iam.worlds import world

WORLDS = 60
_TAGS = dict.fromkeys(vocabulary.COST_LABELS, "x")


def test_what_any_tenants_role_may_and_who_takes_it_breaks_no_rule() -> None:
    findings: list[Finding] = []
    documents = 0
    for seed in range(WORLDS):
        account = world(seed).account
        for role in (role for tenant in account.plan.tenants if tenant.aws for role in tenant.aws.roles):
            tags = {vocabulary.TENANT_TAG: "another", **_TAGS}
            inline = [{"name": name, "policy": json.dumps(body)} for name, body in role.policies.items()]
            body = {"assumeRolePolicy": json.dumps(role.trust), "tags": tags, "inlinePolicies": inline}
            findings += object_findings({"kind": aws.ROLE, "metadata": {"name": role.name}, **body})
            documents += 1 + len(inline)
    assert documents > WORLDS
    assert findings == []
