"""Rules on identity and data that the files are judged by: an input that breaks it, its twin that does not, a mutant."""

# ruff: noqa: E501 - a case is a row

from __future__ import annotations

from typing import Any

import pytest

from tenancy.rules.catalogue import RULES
from tests.aws_cases import (
    BUCKETS,
    CASES,
    MORE_OF_FRAUD,
    MORE_OF_RESEARCH,
    ON_AWS,
    OWN_GRANT,
    POINT,
    ROLE,
    SHARED_GRANT,
    Case,
)
from tests.conftest import every
from tests.spec_cases import ENV, FRAUD, RESEARCH, silence


@pytest.fixture
def on_aws(spec: Any) -> Any:
    spec.edit(ENV, "  cni: vpc-cni\n", ON_AWS)
    spec.edit(ENV, "buckets: [datasets, models]\n", BUCKETS)
    spec.add(FRAUD, MORE_OF_FRAUD)
    spec.add(RESEARCH, MORE_OF_RESEARCH)
    return spec


for_each_case = pytest.mark.parametrize("case", CASES, ids=[f"{case.rule} {case.about}" for case in CASES])


def write_case(spec: Any, case: Case, new: str) -> None:
    if case.shared:
        spec.edit(ENV, "  service-quotas: {}", "  identity: shared")
        spec.edit(FRAUD, OWN_GRANT, SHARED_GRANT)
        spec.edit(FRAUD, "  secrets: [card]\n", "")
        spec.edit(FRAUD, f'  efs-access-points:\n    - {{file-system: fs-0123abcd, access-point: "{POINT}"}}\n', "")
    spec.edit(case.file, case.old, new)


@for_each_case
def test_the_broken_rule_is_named_where_it_is_broken(on_aws: Any, case: Case) -> None:
    write_case(on_aws, case, case.bad)
    problems = on_aws.problems()
    rules_and_fields = {(p.id, p.field) for p in problems if p.file.endswith(case.where or case.file)}
    assert (case.rule, case.field) in rules_and_fields, [str(p) for p in problems]
    assert {p.id for p in problems} == {case.rule}, "nothing else is wrong"
    assert every(p.line > 1 and p.given and p.change for p in problems), "a person finds it and knows what to do"


@for_each_case
def test_the_twin_is_admitted(on_aws: Any, case: Case) -> None:
    write_case(on_aws, case, case.good)
    assert on_aws.problems() == ()


@for_each_case
def test_without_the_rule_nothing_else_says_that_it_was_broken(
    on_aws: Any, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence(case.rule, monkeypatch)
    write_case(on_aws, case, case.bad)
    assert on_aws.problems() == ()


QUOTAS, VPC = "  service-quotas: {}", "  network: {vpc: vpc-0123abcd, subnets: {eu-central-1a: subnet-0123abcd, %s}}"
NETWORK = "  network: {cidr: %s}"
FORMS = {
    "one zone twice": ("aws.zones[1]", "eu-central-1a, eu-central-1b", "eu-central-1a, eu-central-1a", "eu-central-1a, eu-central-1c"),
    "one subnet in two zones": ("aws.network.subnets.eu-central-1b", QUOTAS, VPC % "eu-central-1b: subnet-0123abcd", VPC % "eu-central-1b: subnet-1123abcd"),
    "services on Graviton": ("aws.system.instance-type", QUOTAS, "  system: {instance-type: m7g.xlarge}", "  system: {instance-type: m7i.xlarge}"),
    "services on a small machine": ("aws.system.instance-type", QUOTAS, "  system: {instance-type: t3.small}", "  system: {instance-type: t3.large}"),
    "services beside a GPU": ("aws.system.instance-type", QUOTAS, "  system: {instance-type: g6.xlarge}", "  system: {instance-type: m6i.xlarge}"),
    "a bucket's purpose that is no tag": ("buckets.vault.purpose", "  vault: {tenant: fraud}", "  vault: {purpose: 'cards, and more'}", "  vault: {purpose: 'cards / more @ bank: a+b=c_d-e.f'}"),
    "a bucket's purpose that is too long": ("buckets.vault.purpose", "  vault: {tenant: fraud}", f"  vault: {{purpose: {'x' * 257}}}", f"  vault: {{purpose: {'x' * 256}}}"),
    "loopback": ("aws.network.cidr", QUOTAS, NETWORK % "127.0.0.0/16", NETWORK % "10.0.0.0/16"),
    "link-local": ("aws.network.cidr", QUOTAS, NETWORK % "169.254.0.0/16", NETWORK % "192.168.0.0/16"),
    "for benchmarks": ("aws.network.cidr", QUOTAS, NETWORK % "198.18.0.0/16", NETWORK % "172.31.0.0/16"),
    "public": ("aws.network.cidr", QUOTAS, NETWORK % "100.128.0.0/16", NETWORK % "100.64.0.0/16"),
    "internationalised bucket": ("buckets.xn--a", "  vault:", "  xn--a: {}\n  vault:", "  xn-a: {}\n  vault:"),
    "bucket of a tool of S3's": ("buckets.sthree-a", "  vault:", "  sthree-a: {}\n  vault:", "  three-a: {}\n  vault:"),
    "bucket like an access point": ("buckets.a-s3alias", "  vault:", "  a-s3alias: {}\n  vault:", "  a-s3-alias: {}\n  vault:"),
    "bucket like a lambda": ("buckets.a--ol-s3", "  vault:", "  a--ol-s3: {}\n  vault:", "  a-ol-s3: {}\n  vault:"),
    "bucket of a zone": ("buckets.a--x-s3", "  vault:", "  a--x-s3: {}\n  vault:", "  a-x-s3: {}\n  vault:"),
}  # fmt: skip
"""Mistakes that AWS refuses or that run nothing: the field, and the texts before and after in the environment's file."""


@pytest.mark.parametrize(("field", "old", "bad", "good"), FORMS.values(), ids=list(FORMS))
def test_a_value_that_aws_refuses_is_refused_when_read(on_aws: Any, field: str, old: str, bad: str, good: str) -> None:
    if old == QUOTAS and "vpc" in bad:
        on_aws.edit(ENV, "  zones: [eu-central-1a, eu-central-1b]\n", "")
    on_aws.edit(ENV, old, bad)
    problem = on_aws.problem()
    assert (problem.field, problem.id) == (field, "")
    on_aws.edit(ENV, bad, good)
    assert on_aws.problems() == ()


REGION = "eu-central-1"


def moved(spec: Any, region: str) -> None:
    """The same account in a region of another partition."""
    partition = "aws-us-gov" if region.startswith("us-gov-") else "aws-cn"
    for file in (ENV, FRAUD):
        path = spec.path / file
        text = path.read_text("utf-8").replace(REGION, region).replace("arn:aws:", f"arn:{partition}:")
        path.write_text(text, "utf-8")


@pytest.mark.parametrize("region", ["us-gov-west-1", "cn-north-1", REGION])
def test_a_budget_is_refused_where_aws_has_none_or_bills_in_another_currency(on_aws: Any, region: str) -> None:
    if region != REGION:
        moved(on_aws, region)
    files_and_fields = [(problem.file.rpartition("/")[2], problem.field) for problem in on_aws.problems()]
    assert files_and_fields == ([] if region == REGION else [("fraud.yaml", "budget")])


@pytest.mark.parametrize("region", ["us-gov-west-1", "cn-north-1", REGION])
def test_cost_tags_are_activated_where_there_is_cost_explorer(on_aws: Any, region: str) -> None:
    if region != REGION:
        moved(on_aws, region)
    on_aws.edit(ENV, "  service-quotas: {}", "  management-account: true")
    fields = {problem.field for problem in on_aws.problems()}
    assert ("aws.management-account" in fields) is region.startswith("us-gov-")


def test_every_rule_of_a_case_is_in_the_catalogue() -> None:
    assert {case.rule for case in CASES} <= set(RULES)


def test_two_tenants_may_read_one_folder_and_not_if_one_of_them_writes(on_aws: Any) -> None:
    grant = f'aws-resources: {{efs-access-points: [{{file-system: fs-0123abcd, access-point: "{POINT}"%s}}]}}\n'
    on_aws.add(RESEARCH, grant % "")
    assert on_aws.problems() == ()
    on_aws.edit(RESEARCH, f'"{POINT}"', f'"{POINT}", access: read-write')
    assert (on_aws.problem().id, on_aws.problem().field) == (
        "stor-02",
        "aws-resources.efs-access-points[0].access-point",
    )


def test_an_arn_is_as_long_in_a_policy_as_it_looks(on_aws: Any) -> None:
    on_aws.edit(ENV, f"researchers: {ROLE}research", f"researchers: {ROLE}forschungä")
    assert on_aws.problem().field == "aws.group-roles.researchers"
    on_aws.edit(ENV, f"researchers: {ROLE}forschungä", f"researchers: {ROLE}forschung")
    assert on_aws.problems() == ()


@pytest.mark.parametrize("host", ["github.com", "token.actions.githubusercontent.com"])
def test_github_is_no_gitlab(on_aws: Any, host: str) -> None:
    on_aws.edit(ENV, "  service-quotas: {}", f"  ci-hosts: [{host}, github.com, gitlab.bank.example]")
    on_aws.edit(RESEARCH, "branch: main", f"branch: main, host: {host}")
    assert [problem.field for problem in on_aws.problems()] == ["ci.host"]
    on_aws.edit(RESEARCH, f"host: {host}", "host: gitlab.bank.example")
    assert on_aws.problems() == ()


def test_access_points_may_be_a_list(on_aws: Any) -> None:
    on_aws.edit(ENV, f'  "{POINT}": {{}}', f'  - "{POINT}"')
    assert on_aws.problems() == ()


def test_a_bucket_has_a_name_that_s3_takes(on_aws: Any) -> None:
    on_aws.edit(ENV, "  vault: {tenant: fraud}", "  va: {tenant: fraud}")
    assert on_aws.problem().field == "buckets.va"
    on_aws.edit(ENV, "  va: {tenant: fraud}", "  val: {tenant: fraud}")
    assert on_aws.problems() == ()


def test_a_group_whose_tenants_file_is_broken_is_not_unknown(on_aws: Any) -> None:
    on_aws.edit(RESEARCH, "team: quant-research", "team: 5")
    assert [p.field for p in on_aws.problems()] == ["team"], "the environment is not to blame"


def test_where_aws_is_off_nothing_is_asked_of_an_account(spec: Any) -> None:
    spec.edit(ENV, "  cni: vpc-cni\n", ON_AWS.replace("enabled: true", "enabled: false"))
    spec.edit(ENV, "service-quotas: {}", "service-quotas: {roles: 1}")
    assert spec.problems() == ()


def test_an_unknown_quota_is_answered_with_those_there_are(on_aws: Any) -> None:
    on_aws.edit(ENV, "service-quotas: {}", "service-quotas: {role: 5000}")
    assert "roles" in on_aws.problem().rule


def test_a_quota_is_not_raised_above_what_aws_gives(on_aws: Any) -> None:
    on_aws.edit(ENV, "service-quotas: {}", "service-quotas: {associations: 5001}")
    assert on_aws.problem().field == "aws.service-quotas.associations"
    on_aws.edit(ENV, "associations: 5001", "associations: 5000")
    assert on_aws.problems() == ()
