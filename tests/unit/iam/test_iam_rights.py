"""Rights that a change of policies adds and removes: the table of a preview."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tenancy import planning
from tenancy.cli.up_report import MAX_GRANT_ROWS, show
from tenancy.deploy.changes import Outcome
from tenancy.iam.rights import WRITE_IF_NEW, ChangedRights, changed_rights, rights
from tenancy.spec.fields.tenant import Tenant
from tests.iam import worlds
from tests.iam.worlds import tenant_file

ACCESSES = {
    "read-only": {"list", "read"},
    "write-once": {"list", "read", WRITE_IF_NEW},
    "append-only": {"list", "read", "write"},
    "read-write": {"list", "read", "write", "delete"},
}
ROLE = "fraud-aws-east--fraud--train"


def _policies(**fields: Any) -> dict[str, Any]:
    tenant = Tenant.model_validate(tenant_file("fraud", namespaces=[{"name": "train"}], **fields))
    aws = planning.plan(worlds.environment(), [tenant]).tenants[0].aws
    assert aws is not None
    return {name: document for role in aws.roles for name, document in role.policies.items()}


def _storage(*grants: tuple[str, str, str]) -> Any:
    return _policies(storage=[{"bucket": b, "prefix": p, "access": a} for b, p, a in grants]).get("storage")


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("bucket", ["plain", "crowd"])
def test_a_grant_is_told_as_the_file_has_it(access: str, bucket: str) -> None:
    assert rights(_storage((bucket, "fraud/", access))) == {f"s3://{bucket}/fraud/": ACCESSES[access]}


def test_what_a_tenant_uses_beside_buckets_is_told_by_name() -> None:
    uses = {"secrets": ["card"], "log-groups": ["jobs"], "sqs-queues": ["jobs"]}
    assert rights(_policies(aws_resources=uses)["uses"]) == {
        "secretsmanager secret:tenancy/bank/fraud/card": {"read"},
        "logs log-group:/tenancy/bank/fraud/jobs": {"write"},
        "sqs east--fraud--jobs": {"receive", "send"},
    }


def test_only_what_changes_is_shown() -> None:
    before = _storage(("plain", "fraud/", "read-write"), ("plain", "reference/", "read-only"))
    after = _storage(
        ("plain", "fraud/", "read-only"), ("plain", "reference/", "read-only"), ("given", "x/", "read-only")
    )
    assert list(changed_rights(before, after, ROLE)) == [
        ChangedRights("fraud", "train", "s3://given/x/", "nothing", "list, read"),
        ChangedRights("fraud", "train", "s3://plain/fraud/", "list, read, write, delete", "list, read"),
    ]
    assert list(changed_rights(after, after, ROLE)) == []


def test_a_new_policy_gives_and_one_that_goes_takes_all_of_it() -> None:
    document = _storage(("plain", "fraud/", "write-once"))
    row = ("fraud", "train", "s3://plain/fraud/")
    assert list(changed_rights(None, document, ROLE)) == [ChangedRights(*row, "nothing", f"list, read, {WRITE_IF_NEW}")]
    assert list(changed_rights(document, None, ROLE)) == [ChangedRights(*row, f"list, read, {WRITE_IF_NEW}", "nothing")]


@pytest.mark.parametrize(
    ("role", "owner"),
    [
        ("fraud-2-aws-east--fraud-2--serve", ("fraud-2", "serve")),
        ("fraud-aws-east--fraud.ci", ("fraud", "its pipeline")),
        ("data-east.shared.0123456789ab", ("data-east.shared.0123456789ab", "")),
        ("x-aws-east--xxxx--yyyy.0123456789ab", ("x-aws-east--xxxx--yyyy.0123456789ab", "")),
    ],
)
def test_a_row_names_the_tenant_where_the_roles_name_is_whole(role: str, owner: tuple[str, str]) -> None:
    (row, *_) = changed_rights(None, _storage(("plain", "fraud/", "read-only")), role)
    assert (row.tenant, row.namespace) == owner


# In a preview


def _event(before: Any, after: Any, parent: str = "gpu-tenancy:index:IamRole") -> Any:
    def state(document: Any) -> Any:
        return SimpleNamespace(inputs={"name": "storage", "policy": json.dumps(document)}) if document else None

    kind = "aws:iam/rolePolicy:RolePolicy"
    urn = f"urn:pulumi:bank::gpu-tenancy::{parent}$aws:iam/role:Role${kind}::{ROLE}-storage"
    operation = "update" if before and after else "create" if after else "delete"
    step = SimpleNamespace(
        op=SimpleNamespace(value=operation),
        type=kind,
        urn=urn,
        old=state(before),
        new=state(after),
        detailed_diff={},
        diffs=["policy"],
    )
    return SimpleNamespace(policy_event=None, diagnostic_event=None, resource_pre_event=SimpleNamespace(metadata=step))


def test_a_preview_shows_who_gains_and_loses_what(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome()
    outcome.listen(_event(_storage(("plain", "fraud/", "read-only")), _storage(("plain", "fraud/", "read-write"))))
    show(outcome)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[-2:]]
    assert lines == [
        "tenant namespace at before after".split(),
        "fraud train s3://plain/fraud/ list, read list, read, write, delete".split(),
    ]


def test_a_preview_without_a_change_of_grants_shows_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome()
    document = _storage(("plain", "fraud/", "read-only"))
    outcome.listen(_event(document, {**document, "Id": "other"}))
    outcome.listen(_event(None, document, "gpu-tenancy:index:Roles"))
    show(outcome)
    assert outcome.changes
    assert "Grants on AWS" not in capsys.readouterr().out


def test_a_policy_that_is_not_known_yet_is_no_grant() -> None:
    outcome = Outcome()
    event = _event(None, _storage(("plain", "fraud/", "read-only")))
    event.resource_pre_event.metadata.new.inputs["policy"] = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
    outcome.listen(event)
    assert outcome.grants == []


def test_a_long_table_says_how_much_more_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        ChangedRights("fraud", "train", f"s3://plain/{number:03}/", "nothing", "read")
        for number in range(MAX_GRANT_ROWS + 2)
    ]
    show(Outcome(grants=rows))
    text = capsys.readouterr().out
    assert "s3://plain/059/" in text
    assert "s3://plain/060/" not in text
    assert "and 2 more: see `tenancy who-can`" in text
