"""NodeLocal DNSCache: its pods are on the node's network, so no label selects them and one address leads to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tenancy.check.admission.server import OfflineApiServer
from tenancy.check.answers import answers
from tenancy.check.judge import judge
from tenancy.check.reader import FilePosition, Manifests
from tenancy.planning import make_plan
from tenancy.spec.loader import load
from tenancy.spec.reading.problems import SpecError
from tests.demo import Demo, demo

CACHE = "169.254.20.10/32"
DNS = [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]


def dns_policies(folder: Path) -> list[Any]:
    loaded = load(folder)
    objects = make_plan(loaded, loaded.day).objects()
    return [item for item in objects if item["kind"] == "NetworkPolicy" and item["metadata"]["name"] == "dns"]


def refused(files: Demo, folder: Path) -> Any:
    with pytest.raises(SpecError) as error:
        load(files.write(folder))
    (problem,) = error.value.problems
    return problem


def test_the_cache_is_open_for_dns_alone_where_the_cluster_has_one(tmp_path: Path) -> None:
    files = demo()
    (without,) = dns_policies(files.write(tmp_path / "without"))
    files["environment"]["cluster"]["node-local-dns"] = True
    (cached,) = dns_policies(files.write(tmp_path / "cached"))
    more = [rule for rule in cached["spec"]["egress"] if rule not in without["spec"]["egress"]]
    assert more == [{"to": [{"ipBlock": {"cidr": CACHE}}], "ports": DNS}]


def test_what_the_product_renders_for_the_cache_breaks_no_rule_and_other_ports_do(tmp_path: Path) -> None:
    files = demo()
    files["environment"]["cluster"]["node-local-dns"] = True
    (policy,) = dns_policies(files.write(tmp_path))

    def rules(item: Any) -> set[str]:
        findings = judge(Manifests([(item, FilePosition("x.yaml", 1))])).findings
        return {placed_finding.finding.rule for placed_finding in findings}

    assert "net-05" not in rules(policy)
    wide = [{**rule, "ports": [{"protocol": "TCP", "port": 80}]} for rule in policy["spec"]["egress"]]
    assert "net-05" in rules({**policy, "spec": {**policy["spec"], "egress": wide}})


@pytest.mark.parametrize(
    "peer",
    [
        {"ipBlock": {"cidr": CACHE}},
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "node-local-dns"}},
        },
    ],
    ids=["by address", "by label"],
)
def test_a_refused_policy_to_the_cache_names_the_field_and_one_to_another_range_does_not(
    peer: Any, tmp_path: Path
) -> None:
    loaded = load(demo().write(tmp_path))
    server = OfflineApiServer.of_environment(make_plan(loaded, loaded.day), loaded.environment.cluster.kubernetes)

    def refusal(peer: Any) -> str:
        spec = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [peer], "ports": DNS}]}
        item = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "to-cache", "namespace": "vision--main"},
            "spec": spec,
        }
        (answer,) = answers(
            Manifests([(item, FilePosition("x.yaml", 1))]), server, loaded.environment, loaded.folder.name
        ).answers
        (denial,) = answer.verdict.denials
        assert denial.rule == "net-02"
        return denial.message

    assert "cluster.node-local-dns" in refusal(peer)
    assert "cluster.node-local-dns" not in refusal({"ipBlock": {"cidr": "203.0.113.0/24"}})


def test_a_finding_on_the_cache_names_the_field() -> None:
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "to-cache", "namespace": "vision--main"},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": CACHE}}]}]},
    }
    findings = judge(Manifests([(policy, FilePosition("x.yaml", 1))])).findings
    (given,) = [checked.finding.given for checked in findings if checked.finding.rule == "net-05"]
    assert "cluster.node-local-dns" in given


@pytest.mark.parametrize("way", ["address", "label"])
def test_the_ways_that_match_nothing_name_the_field(tmp_path: Path, way: str) -> None:
    files = demo()
    if way == "address":
        files["vision"]["egress"] = [{"cidr": CACHE, "port": 53, "protocol": "UDP"}]
    else:
        service = {"namespace": "kube-system", "labels": {"k8s-app": "node-local-dns"}}
        files["environment"]["platform"]["services"] = {"node-local-dns": service}
    assert "set cluster.node-local-dns to true" in refused(files, tmp_path).change


def test_under_cilium_the_field_says_what_leads_to_the_cache(tmp_path: Path) -> None:
    files = demo()
    files["environment"]["cluster"] |= {"node-local-dns": True, "cni": "cilium"}
    assert "CiliumLocalRedirectPolicy" in refused(files, tmp_path).change
