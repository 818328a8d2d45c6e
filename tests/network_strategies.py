"""NetworkPolicies that a tenant might write, and what the rule on them says: what the file opens and nothing else."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tests.network_worlds import World

_LABELS = st.sampled_from([{}, {"app": "x"}, {"k8s-app": "kube-dns"}, {"app": "registry"}])


def _selectors(world: World) -> st.SearchStrategy[Object]:
    tenants = [tenant.tenant for tenant in world.loaded.tenants]
    spaces = sorted({peer["namespace"] for peer in world.peers.values() if "namespace" in peer})
    labels = st.one_of(
        st.sampled_from([{vocabulary.TENANT: name} for name in tenants]),
        st.sampled_from([{vocabulary.SPACE_NAME: name} for name in spaces]),
        st.builds(
            lambda t, s: {vocabulary.TENANT: t, vocabulary.SPACE_NAME: s},
            st.sampled_from(tenants),
            st.sampled_from(spaces),
        ),
        st.just({"team": "t"}),
    )
    expressions = st.sampled_from(
        [
            {"key": vocabulary.TENANT, "operator": "Exists"},
            {"key": vocabulary.TENANT, "operator": "In", "values": tenants[:2]},
            {"key": vocabulary.SPACE_NAME, "operator": "NotIn", "values": spaces[:1]},
        ]
    )
    return st.one_of(
        st.just({}),
        labels.map(lambda match_labels: {"matchLabels": match_labels}),
        expressions.map(lambda expression: {"matchExpressions": [expression]}),
        st.builds(
            lambda match_labels, more: {"matchLabels": match_labels, "matchExpressions": [more]}, labels, expressions
        ),
    )


def policies(world: World, space: str) -> st.SearchStrategy[Object]:
    """Policies of a namespace, half of them such as its file allows."""
    tenant = next(t for t in world.loaded.tenants if space.startswith(f"{t.tenant}{vocabulary.SEPARATOR}"))
    everywhere = [way for t in world.loaded.tenants for way in (*t.egress, *t.ingress) if way.cidr]
    ranges = sorted({way.cidr or "" for way in everywhere} | {"0.0.0.0/0", "10.64.0.0/16", "169.254.169.254/32"})
    numbers = sorted({way.port for way in everywhere} | {53})

    inside = st.one_of(
        _LABELS.map(lambda match_labels: {"podSelector": {"matchLabels": match_labels}}),
        st.just({"namespaceSelector": {"matchLabels": {vocabulary.SPACE_NAME: space}}}),
        st.just({"namespaceSelector": {"matchLabels": {vocabulary.TENANT: tenant.tenant}}}),
    )
    elsewhere = st.one_of(
        _selectors(world).map(lambda selector: {"namespaceSelector": selector}),
        st.builds(lambda s, p: {"namespaceSelector": s, "podSelector": {"matchLabels": p}}, _selectors(world), _LABELS),
        st.sampled_from(ranges).map(lambda cidr: {"ipBlock": {"cidr": cidr}}),
    )
    port = st.fixed_dictionaries(
        {"protocol": st.sampled_from(["TCP", "UDP"]), "port": st.sampled_from([*numbers, "http"])},
        optional={"endPort": st.just(65535)},
    ).filter(lambda port_rule: "endPort" not in port_rule or isinstance(port_rule["port"], int))

    def given_rules(ways: Any) -> st.SearchStrategy[tuple[list[Object], list[Object]]]:
        rules_of_ways = [
            ([{"ipBlock": {"cidr": way.cidr}}], [{"protocol": way.protocol, "port": way.port}])
            for way in ways
            if way.cidr
        ]
        return st.sampled_from(rules_of_ways) if rules_of_ways else st.nothing()

    def rules(side: str, ways: Any) -> st.SearchStrategy[Object]:
        peers = st.lists(st.one_of(inside, elsewhere), max_size=2)
        free = st.fixed_dictionaries({side: peers}, optional={"ports": st.lists(port, max_size=2)})
        own_rules = st.fixed_dictionaries({side: st.lists(inside, min_size=1, max_size=2)})
        return st.one_of(
            own_rules, given_rules(ways).map(lambda pair: {side: pair[0], "ports": pair[1]}), free, st.just({})
        )

    spec = st.fixed_dictionaries(
        {
            "podSelector": _LABELS.map(lambda match_labels: {"matchLabels": match_labels}),
            "policyTypes": st.just(["Ingress", "Egress"]),
        },
        optional={
            "ingress": st.lists(rules("from", tenant.ingress), max_size=2),
            "egress": st.lists(rules("to", tenant.egress), max_size=2),
        },
    )
    head = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    return spec.map(lambda policy_spec: {**head, "metadata": {"name": "own", "namespace": space}, "spec": policy_spec})


def admitted(world: World, policy: Object) -> bool:
    """net-02, said once more; a lab's API server says whether it is the same."""
    space = policy["metadata"]["namespace"]
    pod = next(pod for name, pod in world.pods.items() if world.peers[name]["namespace"] == space)
    tenant = pod.tenant
    siblings = tenant.allow_cross_namespace and len(tenant.namespaces) > 1
    for direction, side, ways in (("ingress", "from", tenant.ingress), ("egress", "to", tenant.egress)):
        known_ways = {(way.cidr, way.port, way.protocol) for way in ways if way.cidr}
        for rule in policy["spec"].get(direction, []):
            if not rule.get(side):
                return False
            for peer in rule[side]:
                labels = peer.get("namespaceSelector", {}).get("matchLabels", {})
                if "ipBlock" in peer:
                    ports = rule.get("ports", [])
                    requested_ways = {
                        (peer["ipBlock"]["cidr"], p["port"], p["protocol"]) for p in ports if "endPort" not in p
                    }
                    fine = (
                        bool(ports)
                        and len(requested_ways) == len({str(p) for p in ports})
                        and requested_ways <= known_ways
                    )
                elif "namespaceSelector" in peer:
                    is_own_namespace = labels.get(vocabulary.SPACE_NAME) == space
                    fine = is_own_namespace or (siblings and labels.get(vocabulary.TENANT) == tenant.tenant)
                else:
                    fine = True
                if not fine:
                    return False
    return True
