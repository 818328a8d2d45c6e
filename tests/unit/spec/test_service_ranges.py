"""S3's addresses out of AWS' published list, instead of a copy by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenancy.planning import make_plan
from tests.aws_cases import ON_AWS
from tests.conftest import SpecFolder

ENV, LIST, FIELD = "environment.yaml", "ip-ranges.json", "aws.network.aws-ip-ranges-file"


def published(*rows: tuple[str, str, str]) -> str:
    """In the form of https://docs.aws.amazon.com/vpc/latest/userguide/aws-ip-syntax.html."""
    keys = ("ip_prefix", "region", "service")
    prefixes = [{**dict(zip(keys, row, strict=True)), "network_border_group": row[1]} for row in rows]
    return json.dumps(
        {"syncToken": "1", "createDate": "2026-11-24-00-00-00", "prefixes": prefixes, "ipv6_prefixes": []}
    )


ROWS = (
    ("3.5.136.0/23", "eu-central-1", "S3"),
    ("3.5.138.0/23", "eu-central-1", "S3"),
    ("52.219.44.0/22", "eu-central-1", "S3"),
    ("52.219.44.0/22", "eu-central-1", "AMAZON"),
    ("52.95.0.0/20", "eu-west-1", "S3"),
    ("18.192.0.0/15", "eu-central-1", "EC2"),
)


@pytest.fixture
def spec_with_ranges(spec: SpecFolder) -> SpecFolder:
    more = "  network: {aws-service-cidrs: [198.51.100.0/24], aws-ip-ranges-file: ip-ranges.json}\n"
    spec.edit(ENV, "  cni: vpc-cni\n", ON_AWS + more)
    spec.write(LIST, published(*ROWS))
    return spec


def test_s3s_ranges_of_the_region_are_opened_to_pods_with_an_identity(spec_with_ranges: SpecFolder) -> None:
    loaded = spec_with_ranges.load()
    expected = ["198.51.100.0/24", "3.5.136.0/22", "52.219.44.0/22"]
    assert list(loaded.environment.aws.network.aws_service_cidrs) == expected
    plan = make_plan(loaded, loaded.day)
    (policy,) = [o for o in plan.tenants[0].namespaces[0].isolation if o["metadata"]["name"] == "egress"]
    opened = [peer["ipBlock"]["cidr"] for rule in policy["spec"]["egress"] for peer in rule["to"]]
    assert set(expected) <= set(opened)


@pytest.mark.parametrize(
    "content", [None, "not JSON", "{}", '{"prefixes": [{}]}', '{"prefixes": 1}', published(ROWS[4])]
)
def test_a_list_that_says_nothing_of_the_region_is_refused(spec_with_ranges: SpecFolder, content: Any) -> None:
    if content is None:
        (spec_with_ranges.path / LIST).unlink()
    else:
        spec_with_ranges.write(LIST, content)
    assert [problem.field for problem in spec_with_ranges.problems()] == [FIELD]


def test_a_range_of_the_list_is_judged_like_one_of_the_file(spec_with_ranges: SpecFolder) -> None:
    spec_with_ranges.write(LIST, published(*ROWS, ("169.254.0.0/16", "eu-central-1", "S3")))
    (problem,) = spec_with_ranges.problems()
    assert (problem.id, problem.field) == ("net-05", FIELD)


def test_a_name_with_a_path_is_refused(spec_with_ranges: SpecFolder) -> None:
    spec_with_ranges.edit(ENV, "aws-ip-ranges-file: ip-ranges.json", "aws-ip-ranges-file: ../ip-ranges.json")
    assert [problem.field for problem in spec_with_ranges.problems()] == [FIELD]
