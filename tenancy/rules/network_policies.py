"""NetworkPolicies: what a tenant may open, and the policies of the platform."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.catalog.controllers import NAMESPACE_CONTROLLERS
from tenancy.kube.requests import MERGE, collection
from tenancy.rules.attacks import ABSENT, Attack, Request, attack, escaped, put
from tenancy.rules.expressions import OF_TENANT, by_platform, cel
from tenancy.rules.model import Face, GuardFacts, GuardSubject, Rule, Severity
from tenancy.rules.scene import POD_NAME, AttackPlace, AttackScene
from tenancy.rules.values import internet_block
from tenancy.rules.workloads import CLUSTER_ADMIN


def _peers(allowed: str) -> str:
    """Whether a peer `p` of a rule `r` is the namespace, a sibling, or an address that the file names."""
    labels, name, tenant = "p.namespaceSelector.matchLabels", cel(vocabulary.SPACE_NAME), cel(vocabulary.TENANT)
    return f"""has(p.ipBlock)
            ? has(r.ports) && size(r.ports) > 0 && r.ports.all(q, has(q.port) && !has(q.endPort)
                && (p.ipBlock.cidr + ':' + string(q.port) + '/' + (has(q.protocol) ? q.protocol : 'TCP'))
                    in variables.{allowed})
            : !has(p.namespaceSelector) || (has({labels}) && (
                ({name} in {labels} && {labels}[{name}] == namespaceObject.metadata.name)
                || ({cel(vocabulary.SIBLINGS)} in variables.{allowed} && {tenant} in {labels}
                    && {labels}[{tenant}] == {OF_TENANT})))"""


def _narrow(direction: str, side: str, allowed: str) -> str:
    at = f"object.spec.{direction}"
    return f"""(!has({at}) || {at}.all(r, has(r.{side}) && size(r.{side}) > 0
            && r.{side}.all(p, {_peers(allowed)})))"""


def _policies(facts: GuardFacts) -> str:
    """NetworkPolicies add up: one of a tenant's own may open only what its file opens."""
    return f"""{by_platform(facts.platform_group)} || request.operation == 'DELETE'
        || (request.operation == 'UPDATE' && object.spec == oldObject.spec)
        || ({_narrow("ingress", "from", "allowedIngress")} && {_narrow("egress", "to", "allowedEgress")})"""


def _policies_of_platform(facts: GuardFacts) -> str:
    return f"{by_platform(facts.platform_group)} || !variables.ours || request.userInfo.username in " + cel(
        list(NAMESPACE_CONTROLLERS)
    )


# Attacks

_POLICIES = "networking.k8s.io/v1"
_DEFAULT_DENY = "default-deny"


def _fronts(scene: AttackScene) -> list[AttackPlace]:
    """The first namespace of each tenant that has a developer."""
    return list({place.tenant.tenant: place for place in reversed(scene.staffed)}.values())[::-1]


def _openings(scene: AttackScene) -> Iterator[Attack]:
    """Policies of a tenant that open more than its file."""
    for place in _fronts(scene):
        yield from _opened(scene, place)


def _changes(scene: AttackScene) -> Iterator[Attack]:
    """Changes of the platform's policies."""
    for place in _fronts(scene):
        yield from _default_denies(scene, place)


def _policy_with(rules: dict[str, Any]) -> dict[str, Any]:
    types = [direction.capitalize() for direction in rules]
    spec = {"podSelector": {"matchLabels": {"app": "x"}}, "policyTypes": types, **rules}
    return {"apiVersion": _POLICIES, "kind": "NetworkPolicy", "metadata": {"name": POD_NAME}, "spec": spec}


def _opened(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    path = collection(_POLICIES, "NetworkPolicy", place.name)
    guard = scene.guard("net-02", "networkpolicies")
    inside = {"podSelector": {"matchLabels": {"app": "x"}}}

    def tried(name: str, sentence: str, twin: Any, at: str, bad: Any) -> Attack:
        request = Request("POST", path, put(twin, at, bad), place.developer)
        return attack(f"net-02-policy-{name}@{place.name}", "net-02", sentence, guard, request, twin_body=twin)

    other_namespace, tenant = scene.other_tenant_namespace(place), place.tenant
    for direction, side, word in (("ingress", "from", "in"), ("egress", "to", "out")):
        twin = _policy_with({direction: [{side: [inside]}]})
        rule = f"/spec/{direction}/0/{side}"
        peer = f"{rule}/0/namespaceSelector"
        sentence = "allow all ingress" if word == "in" else "allow all egress"
        yield tried(f"{word}-all", sentence, twin, rule, ABSENT)
        yield tried(f"{word}-none-named", f"{sentence}, by an empty list of peers", twin, rule, [])
        yield tried(f"{word}-spaces", f"{sentence}, by peers in every namespace", twin, peer, {})
        exists = {"matchExpressions": [{"key": vocabulary.TENANT, "operator": "Exists"}]}
        yield tried(f"{word}-tenants", f"{sentence}, by peers of every tenant", twin, peer, exists)
        if other_namespace:
            selectors = {
                vocabulary.TENANT: {vocabulary.TENANT: other_namespace.tenant.tenant},
                "name": {vocabulary.SPACE_NAME: other_namespace.name},
            }
            for what, labels in selectors.items():
                yield tried(
                    f"{word}-other-{what.rpartition('/')[2]}",
                    f"allow {direction} {side} another tenant, by its {what.rpartition('/')[2]}",
                    twin,
                    peer,
                    {"matchLabels": labels},
                )
        if not tenant.allow_cross_namespace:
            own_pods = {"matchLabels": {vocabulary.TENANT: tenant.tenant}}
            yield tried(
                f"{word}-parts",
                f"allow {direction} {side} a namespace that the tenant's file isolates",
                twin,
                peer,
                own_pods,
            )
        cidr_rules = [way for way in (tenant.egress if word == "out" else tenant.ingress) if way.cidr]
        for way in cidr_rules[:1]:
            port = {"protocol": way.protocol, "port": way.port}
            twin = _policy_with({direction: [{side: [{"ipBlock": {"cidr": way.cidr}}], "ports": [port]}]})
            cidr, ports = f"{rule}/0/ipBlock/cidr", f"/spec/{direction}/0/ports"
            yield tried(f"{word}-anywhere", f"allow {direction} {side} every address", twin, cidr, "0.0.0.0/0")
            peers = [{"ipBlock": {"cidr": way.cidr}}, {"ipBlock": internet_block(())}]
            sentence = f"allow {direction} {side} the internet, which the tenant's file does not open"
            yield tried(f"{word}-internet", sentence, twin, rule, peers)
            metadata = "169.254.169.254/32"
            yield tried(f"{word}-metadata", f"allow {direction} {side} the machine's metadata", twin, cidr, metadata)
            wider = f"{ports}/0/endPort"
            yield tried(f"{word}-any-port", f"allow {direction} on every port", twin, ports, ABSENT)
            yield tried(f"{word}-port", f"allow {direction} on another port", twin, f"{ports}/0/port", 65535)
            yield tried(f"{word}-ports", f"allow {direction} on a range of ports", twin, wider, 65535)
            sentence = f"allow {direction} by another transport"
            yield tried(f"{word}-transport", sentence, twin, f"{ports}/0/protocol", "SCTP")


def _default_denies(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    """The platform's own policies, changed and deleted by a developer and by a cluster admin."""
    path = f"{collection(_POLICIES, 'NetworkPolicy', place.name)}/{_DEFAULT_DENY}"
    guard = scene.guard("net-10", "networkpolicies")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "of-mine", "uid": "00000000-0000-0000-0000-000000000001"}
    patches = {
        "narrow": ("leave pods without the default-deny", {"spec": {"podSelector": {"matchLabels": {"app": "x"}}}}),
        "open": ("let the default-deny allow everything", {"spec": {"egress": [{}]}}),
        "orphan": ("relabel the default-deny as its own", {"metadata": {"labels": {vocabulary.ENVIRONMENT: None}}}),
        "owner": ("have the default-deny collected as garbage", {"metadata": {"ownerReferences": [owner]}}),
    }
    for who, identity in (("developer", place.developer), ("admin", CLUSTER_ADMIN)):
        for name, (sentence, body) in patches.items():
            request = Request("PATCH", path, body, identity, MERGE)
            id = f"net-10-policy-{name}-by-{who}@{place.name}"
            yield attack(id, "net-10", sentence, guard, request, twin_who=None)
        request = Request("DELETE", path, None, identity)
        id = f"net-10-policy-delete-by-{who}@{place.name}"
        yield attack(id, "net-10", "delete the default-deny", guard, request, twin_who=None)
    twin = _policy_with({"ingress": [{"from": [{"podSelector": {}}]}]})
    twin["metadata"]["labels"] = {"app": "x"}
    at = f"/metadata/labels/{escaped(vocabulary.ENVIRONMENT)}"
    body = put(twin, at, place.environment.environment)
    request = Request("POST", collection(_POLICIES, "NetworkPolicy", place.name), body, place.developer)
    sentence = "create a policy that only the platform could delete"
    yield attack(f"net-10-policy-forged@{place.name}", "net-10", sentence, guard, request, twin_body=twin)


RULES: tuple[Rule, ...] = (
    # Before net-02, so that a change of the platform's policy is told as one.
    Rule(
        id="net-10",
        title="only the platform changes its network policies, and no other policy has its label",
        why=(
            "without the default-deny a namespace is open to all traffic; an owner reference to a tenant's "
            "object would "
            "delete the policy together with that object"
        ),
        fix=(
            "do not change policies with the label tenancy.gpu/environment; add policies of your own without that label"
        ),
        severity=Severity.CRITICAL,
        partial={Face.PREVIEW: "it does not know who makes an object: one with the platform's label may be its own"},
        guards={GuardSubject.NETWORK_POLICIES: _policies_of_platform},
        attacks=(_changes,),
    ),
    Rule(
        id="net-02",
        title="a network policy in a tenant's namespace allows only traffic that the tenant's file allows",
        why="policies add up: one that admits all namespaces undoes the default-deny",
        fix="select pods of the same namespace, or name ranges with ports exactly as under egress and ingress",
        severity=Severity.CRITICAL,
        fix_of_object="select pods of the same namespace by podSelector, or name ranges under ipBlock.cidr, with ports",
        partial={
            Face.PREVIEW: (
                "it does not know who makes a policy: one with the platform's label counts as the platform's; and "
                "only namespaces that this product made show what a tenant's file allows"
            )
        },
        guards={GuardSubject.NETWORK_POLICIES: _policies},
        attacks=(_openings,),
    ),
)
