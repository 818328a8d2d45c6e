"""Pods: the level of Pod Security, and keys of labels and annotations that agents of the platform obey."""

from __future__ import annotations

from tenancy.catalog import keys
from tenancy.catalog import vocabulary as words
from tenancy.catalog.versions import incompatible
from tenancy.catalog.vocabulary import Allowance
from tenancy.rules.claims_of_work import (
    CLAIM_TEMPLATES,
    PARTS_OF_WORK,
    by_resource_of_work,
    each_claim_of_volumes,
)
from tenancy.rules.expressions import (
    OF_TENANT,
    by_platform,
    cel,
    in_tenants_namespaces,
    may,
    noted,
    unless_by_controller,
)
from tenancy.rules.model import Face, GuardFacts, Rule, Severity, Subject
from tenancy.rules.network import DOMAINS_OF_NODE
from tenancy.rules.pod_security import HOSTS


def _no_host(field: str) -> str:
    steps = field.split(".")
    absent = [f"!has(c.{'.'.join(steps[: number + 1])})" for number in range(len(steps))]
    return f"({' || '.join([*absent, f'c.{field} == {cel(str())}'])})"


def _own_hosts(facts: GuardFacts) -> str | None:
    """Where Pod Security of the cluster's version has no check of them."""
    if not incompatible(facts.kubernetes, "probe-hosts"):
        return None
    return f"variables.containers.all(c, {' && '.join(_no_host(field) for field in HOSTS)})"


# Keys of labels and annotations

_OWN_DOMAIN = f"""{noted(words.OWNER_MAIL)}.lowerAscii().split('@')[?1].orValue('/')"""
"""Domain of the address of the tenant's owner: the organization's own keys, which are no agent's."""
_BY_NODES = f"{DOMAINS_OF_NODE}.exists(d, ('.' + k.split('/')[0]).endsWith(d))"
_OF_CLAIMS = [f"c.?metadata.?{field}.orValue({{}}).map(k, k)" for field in ("labels", "annotations")]
_OF_PARTS = [f"j.?metadata.?{field}.orValue({{}}).map(k, k)" for field in ("labels", "annotations")]


def _known(facts: GuardFacts, lists: str) -> str:
    """Whether each key of some lists may be written."""
    domain = "k.split('/')[0]"
    domains = [*keys.DOMAINS, *([keys.SYNCED_DOMAIN] if facts.virtual_clusters else [])]
    names = [*keys.KEYS, *keys.VALUES, *(key for key in facts.keys if "/" in key)]
    more = [f".{key}" for key in facts.keys if "/" not in key]
    ways = [
        f"!k.contains('/') || {domain} in {cel(domains)} || k in {cel(names)} || {domain} == {OF_TENANT}",
        *([f"{cel(more)}.exists(d, ('.' + {domain}).endsWith(d))"] if more else []),
        f"('.' + {domain}).endsWith('.' + {_OWN_DOMAIN})",
    ]
    return f"({lists}).all(l, l.all(k, {' || '.join(ways)}))"


def _valued(annotations: str) -> str:
    return " && ".join(
        f"(!({cel(key)} in {annotations}) || {annotations}[{cel(key)}] == {cel(only)})"
        for key, only in keys.VALUES.items()
    )


def _own_keys(facts: GuardFacts, resources_without_notes: tuple[str, ...] = ()) -> str:
    """Whether the keys of an object's own metadata are known, but for those that it has already. Annotations of some
    resources are not judged."""

    def fresh(field: str) -> str:
        now, before = (f"dyn({root}).metadata.{field}" for root in ("object", "oldObject"))
        judged = f" && !{_BY_NODES}" if field == "annotations" else ""
        return f"""(has({now}) ? {now} : {{}}).filter(k, !(oldObject != null && has({before}) && k in {before}
        && {before}[k] == {now}[k]){judged})"""

    notes = fresh("annotations")
    if resources_without_notes:
        notes = f"(request.resource.resource in {cel(list(resources_without_notes))} ? [] : {notes})"
    now = "dyn(object).metadata.annotations"
    known = _known(facts, f"[{fresh('labels')}, {notes}]")
    return f"{known} && (!has({now}) || {_valued(now)})"


def _of_objects(facts: GuardFacts) -> str:
    """Of a service and an account, annotations are judged by net-01 and id-01; of a policy, by net-10."""
    return in_tenants_namespaces(f"""request.resource.resource == 'networkpolicies'
        || ({_own_keys(facts, ("services", "serviceaccounts"))})""")


def _of_work(facts: GuardFacts) -> str:
    return in_tenants_namespaces(_own_keys(facts))


def _of_volumes(facts: GuardFacts) -> str:
    """Keys of the claims that a pod makes."""
    return each_claim_of_volumes(_known(facts, f"[{', '.join(_OF_CLAIMS)}]"))


def _of_templates(facts: GuardFacts) -> str:
    """Keys of a pod template, and of the claims that its pods make."""
    notes = f"variables.podAnnotations.filter(k, !{_BY_NODES})"
    pods = _known(facts, f"[variables.podLabels.map(k, k), {notes}]")
    text = f"{pods} && {_valued('variables.podAnnotations')} && {_of_volumes(facts)}"
    return unless_by_controller(f"{by_platform(facts.platform_group)} || ({text})")


def _beside_pods(facts: GuardFacts) -> str | None:
    """Keys of templates of claims, and of what is made between work and its pods."""
    claims, parts = (_known(facts, f"[{', '.join(keys_of)}]") for keys_of in (_OF_CLAIMS, _OF_PARTS))
    return by_resource_of_work(facts, (CLAIM_TEMPLATES, claims), (PARTS_OF_WORK, parts))


RULES: tuple[Rule, ...] = (
    Rule(
        id="pod-01",
        title="a pod runs on Linux and in the node's own user namespace",
        why="for other pods the restricted level drops its checks on root and capabilities",
        fix="drop os and hostUsers",
        enforced=Face.ATTACK,
        guards={
            Subject.PODS: """(!has(variables.spec.os) || variables.spec.os.name == 'linux')
        && (!has(variables.spec.hostUsers) || variables.spec.hostUsers)"""
        },
    ),
    Rule(
        id="pod-02",
        title="a tenant's pod shares nothing of its node: no host namespaces, no hostPath, no privileged container",
        why="root on a node can read every other tenant's memory, tokens and GPUs there",
        fix="drop the field; work that needs the node runs as a daemon set of the platform",
        severity=Severity.CRITICAL,
        enforced=Face.PREVIEW,
    ),
    Rule(
        id="pod-03",
        title="where the tier requires it, containers write only to volumes",
        why="an intruder cannot replace a program on a file system that is read-only",
        fix="set securityContext.readOnlyRootFilesystem to true, and mount an emptyDir where the program writes",
        severity=Severity.MEDIUM,
        enforced=Face.ATTACK,
        guards={
            Subject.PODS: f"""{may(Allowance.WRITABLE_ROOT)} || variables.containers.all(c, has(c.securityContext)
        && has(c.securityContext.readOnlyRootFilesystem) && c.securityContext.readOnlyRootFilesystem)"""
        },
    ),
    Rule(
        id="pod-04",
        title="pods and pod templates comply with the Pod Security level that their namespace enforces",
        why=(
            "Pod Security refuses the pods of a Job and not the Job: the queue would reserve GPUs for work that never "
            "starts"
        ),
        fix="set each field that is named to what its level allows; `tenancy sample` prints a pod that complies",
        enforced=Face.PREVIEW | Face.ATTACK,
        partial={Face.PREVIEW: "fields that give a pod access to its node, such as hostNetwork, are found as pod-02"},
        guards={Subject.POD_SECURITY: "size(variables.unfit) == 0"},
    ),
    Rule(
        id="pod-05",
        title="before Kubernetes 1.34, probes and lifecycle hooks of a pod ask the pod itself",
        why=(
            "the kubelet sends them from the node's network, past every network policy, to the instance metadata for "
            "example; Pod Security has the check from 1.34 on"
        ),
        fix="drop host from httpGet and tcpSocket of probes and lifecycle hooks",
        enforced=Face.ATTACK,
        guards={Subject.PODS: _own_hosts},
    ),
    Rule(
        id="meta-01",
        title="labels and annotations have keys that no agent of the platform obeys",
        why=(
            "an agent has rights of its own in every namespace: by a key a pod keeps its node from an upgrade or from "
            "being removed, writes into another tenant's logs or leaves a mesh, a claim changes its volume's price and "
            "tags, and a secret becomes a copy of another tenant's"
        ),
        fix=(
            "drop the key, or use one without a domain or under the domain of your owner's mail address; the "
            "platform team "
            "adds keys that its agents may obey under platform.keys"
        ),
        enforced=Face.ATTACK,
        guards={
            Subject.POD: lambda facts: unless_by_controller(_of_volumes(facts)),
            Subject.TEMPLATES: _of_templates,
            Subject.CLAIMS_OF_WORK: _beside_pods,
            Subject.SIZES_OF_WORK: _of_work,
            Subject.SIZES_OF_OBJECTS: _of_objects,
        },
    ),
    Rule(
        id="obs-01",
        title="the platform's dashboards and collectors load no config map or secret of a tenant",
        why=(
            "a sidecar that watches all namespaces loads what has its label: dashboards, data sources and "
            "alerts that the "
            "platform and other tenants see"
        ),
        fix="drop the label; the platform team adds dashboards and alerts",
        severity=Severity.MEDIUM,
        enforced=Face.PREVIEW | Face.ATTACK,
        guards={
            Subject.SIZES_OF_OBJECTS: in_tenants_namespaces(
                f"""!(request.resource.resource in ['configmaps', 'secrets'])
        || !has(object.metadata.labels) || {cel(list(words.LOADED_LABELS))}.all(k, !(k in object.metadata.labels))"""
            )
        },
    ),
)
