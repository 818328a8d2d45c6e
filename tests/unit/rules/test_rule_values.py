"""The rules on plain values, as the policy pack uses them too."""

from __future__ import annotations

import pytest

from tenancy.rules.catalogue import RULES, Violation
from tenancy.rules.values import (
    astray_image,
    foreign_subject,
    gpu_keys,
    moving_image,
    name_misfit,
    too_wide_together,
    unenforced_quota_keys,
    unsafe_prefix,
    unsafe_range,
    weak_pod_security,
    whole_private,
    wide_range,
)
from tests.conftest import every

DIGEST = "@sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("name", "tags", "moves"),
    [
        (f"r.example/x{DIGEST}", False, False),
        (f"r.example/x:1{DIGEST}", False, False),
        (f"r.example/x:latest{DIGEST}", True, False),
        ("r.example/x:1", True, False),
        ("r.example/x:1", False, True),
        ("r.example:5000/x", True, True),
        ("r.example/x:", True, True),
        ("r.example/x@sha256:abc", True, True),
        (f"r.example/x{DIGEST}0", True, True),
        (f"r.example/x{DIGEST.upper()}", True, True),
        (f"r.example/x{DIGEST}/..", True, True),
        (f"r.example/x{DIGEST}/y:1", True, True),
        ("r.example/x@sha512:" + "0a" * 64, True, True),
    ],
)
def test_an_image_stays_by_a_whole_digest_or_by_a_tag_where_tags_count(name: str, tags: bool, moves: bool) -> None:
    assert bool(moving_image(name, tags=tags)) is moves


@pytest.mark.parametrize(
    ("name", "astray"),
    [
        (f"r.example:5000/team/a.b__c-d:1{DIGEST}", False),
        ("r.example/team/x:1.0-RC_1", False),
        ("r.example/team/../x:1", True),
        ("r.example/team/./x:1", True),
        ("r.example/team//x:1", True),
        ("r.example/team/", True),
        ("r.example/team/%2e%2e/x:1", True),
        ("r.example/team/a%2f..%2fb:1", True),
        ("r.example/team/x:1?y", True),
        (f"r.example/team/x{DIGEST}/..", True),
    ],
)
def test_an_image_has_no_way_out_of_its_registry(name: str, astray: bool) -> None:
    assert bool(astray_image(name)) is astray


@pytest.mark.parametrize("name", ["a", "fraud", "fraud-2", "a" * 30, "x1-y2-z3", "alls", "systems"])
def test_a_dns_label_without_double_dash_is_a_name(name: str) -> None:
    assert name_misfit(name, 30) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-a",
        "a-",
        "a--b",
        "A",
        "1a",
        "a_b",
        "a.b",
        "a b",
        "a\n",
        "ä",
        "a" * 31,
        "all",
        "system",
        "kube-x",
        "eks-1",
        "aws-x",
    ],
)
def test_anything_else_is_no_name(name: str) -> None:
    assert name_misfit(name, 30)


@pytest.mark.parametrize(
    "key",
    [
        "requests.nvidia.com/gpu",
        "requests.nvidia.com/mig-1g.5gb",
        "requests.cpu",
        "limits.memory",
        "pods",
        "count/jobs.batch",
        "requests.hugepages-2Mi",
        "gold.storageclass.storage.k8s.io/requests.storage",
        "count/Jobs.batch",
        f"count/{'a' * 63}",
        f"requests.{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 52}/x",
    ],
)
def test_a_quota_key_that_is_counted_passes(key: str) -> None:
    assert unenforced_quota_keys([key]) == []


@pytest.mark.parametrize(
    "key",
    [
        "nvidia.com/gpu",
        "limits.nvidia.com/gpu",
        "requests.gpu",
        "gpus",
        "count/",
        "requests./gpu",
        "limits.hugepages-2Mi",
        "Pods",
        "count/a b",
        "count/a/b",
        "count/é",
        "count/a.",
        "count/a\n",
        f"count/{'a' * 64}",
        f"requests.{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 53}/x",
        "requests.é/x",
        "requests.X/y",
        "requests.x./y",
        "requests.x/y/z",
        "requests.hugepages-2 Mi",
        " .storageclass.storage.k8s.io/requests.storage",
        ".storageclass.storage.k8s.io/requests.storage",
    ],
)
def test_a_quota_key_that_is_refused_or_never_counted_is_named(key: str) -> None:
    assert unenforced_quota_keys(["pods", key]) == [key]


def test_extended_resources_are_told_from_plain_ones() -> None:
    assert gpu_keys(["cpu", "nvidia.com/gpu", "memory", "aws.amazon.com/neuron"]) == [
        "aws.amazon.com/neuron",
        "nvidia.com/gpu",
    ]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Group", "system:masters"),
        ("Group", "system:authenticated"),
        ("Group", "system:serviceaccounts"),
        ("User", "system:anonymous"),
        ("Group", "*"),
        ("Group", ""),
        ("Group", "platform"),
    ],
)
def test_identities_that_are_not_a_tenants_are_foreign(kind: str, name: str) -> None:
    assert foreign_subject(kind, name, "platform")


@pytest.mark.parametrize(("kind", "name"), [("Group", "fraud"), ("User", "jane@bank.example"), ("Group", "systems:x")])
def test_peoples_own_identities_are_not_foreign(kind: str, name: str) -> None:
    assert foreign_subject(kind, name, "platform") is None


@pytest.mark.parametrize("cidr", ["198.51.100.0/24", "198.51.100.7/32", "11.0.0.0/8", "2001:db8::/32", "fd00:ec3::/32"])
def test_a_narrow_range_is_safe(cidr: str) -> None:
    assert unsafe_range(cidr) is None


@pytest.mark.parametrize(
    "cidr",
    [
        "0.0.0.0/0",
        "::/0",
        "10.0.0.0/7",
        "169.254.169.254/32",
        "169.254.0.0/15",
        "127.0.0.1/32",
        "fd00:ec2::254/128",
        "fe80::/64",
        "::1/128",
        "::ffff:169.254.169.254/128",
        "64:ff9b::a9fe:a9fe/128",
        "198.51.100.1/24",
        "198.51.100.7",
        "198.51.100.0/255.255.255.0",
        "198.51.100.0/33",
        "everywhere",
        "",
    ],
)
def test_a_wide_special_or_broken_range_is_unsafe(cidr: str) -> None:
    assert unsafe_range(cidr)


@pytest.mark.parametrize(
    ("cidrs", "last"),
    [
        (["10.0.0.0/8", "11.0.0.0/8"], 1),
        (["198.51.100.0/24", "11.0.0.0/9", "12.0.0.0/8", "11.128.0.0/9"], 2),
        (["11.0.0.0/8", "198.51.100.7/32"], 1),
        (["11.0.0.0/9", "11.128.0.0/9", "11.64.0.0/10", "12.0.0.0/30"], 3),
        ([f"{first}.0.0.0/10" for first in (11, 13, 15, 17, 19)], 4),
        (["2001:db8::/32", "2001:db9::/48"], 1),
    ],
)
def test_ranges_add_up_to_no_more_than_the_widest_one(cidrs: list[str], last: int) -> None:
    common_ranges = too_wide_together(cidrs)
    assert common_ranges
    assert common_ranges[0] == last
    assert too_wide_together(cidrs[:last]) is None


@pytest.mark.parametrize(
    "cidrs",
    [
        [],
        ["11.0.0.0/9", "11.128.0.0/9"],
        ["11.0.0.0/8", "11.0.0.0/8", "11.7.0.0/16"],
        ["11.0.0.0/8", "2001:db8::/32"],
        ["0.0.0.0/0", "198.51.100.0/24", "no range"],
    ],
)
def test_a_range_counts_once_and_by_its_family_and_what_is_unsafe_alone_says_so_itself(cidrs: list[str]) -> None:
    assert too_wide_together(cidrs) is None


@pytest.mark.parametrize(
    ("cidrs", "covers_private_range"),
    [
        (["10.0.0.0/8"], True),
        (["10.0.0.0/9", "10.128.0.0/9"], True),
        (["10.0.0.0/9", "10.128.0.0/10"], False),
        (["172.16.0.0/13", "172.24.0.0/13", "198.51.100.0/24"], True),
        (["192.168.0.0/15"], True),
        (["192.168.0.0/17"], False),
        (["11.0.0.0/8", "2001:db8::/32"], False),
    ],
)
def test_a_private_range_is_whole_however_it_is_cut(cidrs: list[str], covers_private_range: bool) -> None:
    assert bool(whole_private(cidrs)) is covers_private_range


@pytest.mark.parametrize(
    ("cidr", "wide"),
    [
        ("198.51.100.7/32", False),
        ("198.51.100.7/24", False),
        ("11.0.0.0/8", False),
        ("2001:db8::/32", False),
        ("0.0.0.0/0", True),
        ("128.0.0.0/1", True),
        ("::/0", True),
        ("anywhere", True),
        ("", True),
    ],
)
def test_a_range_that_identifies_no_peer_is_wide(cidr: str, wide: bool) -> None:
    assert bool(wide_range(cidr)) is wide


@pytest.mark.parametrize("prefix", ["a/", "teams/fraud/", "teams/fraud-2/2026/", "teams/..fraud/", "+'~/"])
def test_an_exact_prefix_is_safe(prefix: str) -> None:
    assert unsafe_prefix(prefix) is None


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "/",
        "a",
        "/a/",
        "a//b/",
        "../a/",
        "a/../b/",
        "./a/",
        "a/./",
        "*/",
        "a?/",
        "${x}/",
        "a b/",
        "a\n/",
        "a\\/",
        "a/\x00/",
        "a\u200b/",
        "ü/",
        'a"/',
    ],
)
def test_a_prefix_that_could_match_more_or_is_written_longer_is_unsafe(prefix: str) -> None:
    assert unsafe_prefix(prefix) is not None


@pytest.mark.parametrize(
    ("level", "weak"), [("restricted", False), ("baseline", True), ("privileged", True), (None, True), ("", True)]
)
def test_only_restricted_is_strong_enough(level: str | None, weak: bool) -> None:
    assert bool(weak_pod_security(level)) is weak


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_rule_says_why_it_is_there_and_what_to_do(rule: object) -> None:
    assert every(len(getattr(rule, field)) > 10 for field in ("title", "why", "fix"))


def test_a_violation_says_what_was_given_which_rule_and_what_to_change() -> None:
    assert str(Violation("gpu-01", "nvidia")).startswith("given nvidia; rule gpu-01: ")
