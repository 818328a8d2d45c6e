"""Changes in previews of the Pulumi engine, in the same words: read from `pulumi preview --json` of any program.

A preview lists only what changes, so amounts are those of one queue or namespace, never of a whole tenant, and rules
are checked on each object alone; rules on all objects together are left to the policy pack.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.catalog.files import TRACES, read_input, read_text_file
from tenancy.diff import changes as change_facts
from tenancy.diff.changes import (
    CILIUM,
    Change,
    ChangeTopic,
    Facts,
    fact_changes,
    in_topic_order,
    rule_changes,
    rule_fact,
)
from tenancy.iam.rights import rights
from tenancy.kube import quantities
from tenancy.kube.objects import UNKNOWN, as_list, get_path
from tenancy.planning.common.quota_changes import device_amounts
from tenancy.planning.kubernetes.access import role_name
from tenancy.planning.scope import CLUSTER_SUFFIX, names_of, scope_of
from tenancy.rules import aws, manifest_rules, objects
from tenancy.rules.findings import Object
from tenancy.spec.fields.environment import Layout
from tenancy.spec.fields.people import Role

UNKNOWN_PLACEHOLDER = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""The engine's placeholder for a text that is known only after the update (pulumi
sdk/go/common/resource/plugin/rpc.go)."""
STDIN = "-"
_KUBERNETES, _ROLE_POLICY, _TENANT = "kubernetes:", "aws:iam/rolePolicy:RolePolicy", "gpu-tenancy:index:GpuTenant"
_SKIPPED_STEPS = frozenset({"create-replacement", "delete-replaced", "same", "read", "refresh"})
"""Steps to skip: the halves of a replacement, which is also listed as one step, and steps without a change."""
_TYPES_WITH_CONTENTS = frozenset(
    {
        "aws:dynamodb/table:Table",
        "aws:ecr/repository:Repository",
        "aws:efs/fileSystem:FileSystem",
        "aws:eks/cluster:Cluster",
        "aws:fsx/lustreFileSystem:LustreFileSystem",
        "aws:kms/key:Key",
        "aws:s3/bucket:Bucket",
        "aws:s3/bucketV2:BucketV2",
        "aws:secretsmanager/secret:Secret",
        "kubernetes:core/v1:PersistentVolumeClaim",
    }
)
"""Types whose deletion also deletes what they contain: data, keys, a cluster."""


class NotAPreview(ValueError):
    """A file that cannot be compared."""

    def __init__(self, given: str, change: str = "") -> None:
        change = change or "give the standard output of `pulumi preview --json --stack STACK`"
        super().__init__(f"given {given}; rule: the preview of one stack, as JSON; change: {change}")


@dataclass(slots=True)
class Preview:
    """The preview of one stack: each changed resource before and after, and the replaced ones."""

    stack: str
    before: list[Object] = field(default_factory=list)
    after: list[Object] = field(default_factory=list)
    replaced: list[tuple[Object, str]] = field(default_factory=list)
    """Each with the fields that cause the replacement."""
    operations: set[str] = field(default_factory=set)


def read(path: str) -> Preview:
    """Read a preview from a file or standard input; raises NotAPreview if it is none, or if it failed."""
    try:
        text = read_input(TRACES).decode("utf-8") if path == STDIN else read_text_file(path, TRACES)
        document = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise NotAPreview(f"{path}: {' '.join(str(error).split())[:160]}") from None
    steps = document.get("steps") if isinstance(document, dict) else None
    if not isinstance(steps, list) or not all(isinstance(get_path(step, "urn"), str) for step in steps):
        raise NotAPreview(f"{path}, without steps")
    diagnostics = document.get("diagnostics")
    if failed := [
        d for d in (diagnostics if isinstance(diagnostics, list) else ()) if get_path(d, "severity") == "error"
    ]:
        message = " ".join(str(get_path(failed[0], "message")).split())
        raise NotAPreview(f"{path}, a preview that failed: {message[:300]}", "correct the error, and preview again")
    stacks = sorted({step["urn"].split("::")[0].rpartition(":")[2] for step in steps})
    if len(stacks) != 1:
        raise NotAPreview(f"{path}, with {len(stacks)} stacks: {', '.join(stacks) or 'no step'}")
    preview = Preview(stacks[0])
    try:
        for step in steps:
            _add_step(preview, step)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NotAPreview(f"{path}, with a step of another form than the engine writes ({error})") from error
    return preview


def _add_step(preview: Preview, step: Mapping[str, Any]) -> None:
    operation = str(step.get("op"))
    if operation in _SKIPPED_STEPS:
        return
    before, after = (_item(step, state) for state in ("oldState", "newState"))
    if before or after:
        preview.operations.add(operation)
    if before:
        preview.before.append(before)
    if after and operation != "delete":
        preview.after.append(after)
    if before and operation == "replace":
        preview.replaced.append((before, ", ".join(map(str, as_list(step.get("replaceReasons"))))))


_PERSONAS = {role_name(role): role.value for role in Role}
_TYPE = "type"
"""Key of an item for the engine's type of the resource."""


def _item(step: Mapping[str, Any], key: str) -> Object | None:
    """A resource in the form that rules read: its inputs, and the engine's type."""
    state = step.get(key)
    if not isinstance(state, Mapping):
        return None
    inputs, resource_type = state.get("inputs"), str(state.get("type") or step["urn"].split("::")[2].rpartition("$")[2])
    inputs, name = _with_unknown_values(inputs if isinstance(inputs, Mapping) else {}), step["urn"].rpartition("::")[2]
    if resource_type.startswith(_KUBERNETES):
        metadata = inputs["metadata"] if isinstance(inputs.get("metadata"), dict) else {}
        return {
            **inputs,
            "kind": resource_type.rpartition(":")[2],
            "metadata": {"name": name, **metadata},
            _TYPE: resource_type,
        }
    return {**inputs, "kind": resource_type, "metadata": {"name": name}, _TYPE: resource_type}


def _with_unknown_values(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _with_unknown_values(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_unknown_values(inner) for inner in value]
    return UnknownValue() if value == UNKNOWN_PLACEHOLDER else value


class UnknownValue(str):
    """A value that is known only after the update: a text without items and fields."""

    __slots__ = ()

    def __new__(cls) -> UnknownValue:
        return super().__new__(cls, UNKNOWN)

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __getitem__(self, _key: Any) -> Any:
        return self

    def get(self, _key: str, _default: Any = None) -> Any:
        """This value: what it contains is unknown."""
        return self

    def items(self) -> tuple[()]:
        """No items: what it contains is unknown."""
        return ()


def changes(previews: Sequence[Preview]) -> tuple[Change, ...]:
    """Every change, in the order of its topics; raises NotAPreview for objects of a form that no engine writes."""
    try:
        return _changes(previews)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise NotAPreview(f"an object of another form than its API has ({error})") from error


def _changes(previews: Sequence[Preview]) -> tuple[Change, ...]:
    result: list[Change] = []
    for preview in previews:
        before, after = _facts(preview.before), _facts(preview.after)
        for topic in dict.fromkeys([*before, *after]):
            sides = before.get(topic, {}), after.get(topic, {})
            result += rule_changes(*sides) if topic is ChangeTopic.RULE else fact_changes(topic, *sides)
        result += _gained_reach(preview)
        result += _replaced(preview)
        if preview.operations:
            marks = {"create": (None, "new"), "delete": ("old", None)}
            kinds = {"create" if o == "create" else "delete" if o == "delete" else "update" for o in preview.operations}
            old_mark, new_mark = marks.get(kinds.pop(), ("old", "new")) if len(kinds) == 1 else ("old", "new")
            scope = scope_of(None, Layout.PER_TENANT, preview.stack)
            result.append(
                Change(ChangeTopic.STACK, names_of(preview.stack)[1], preview.stack, old_mark, new_mark, str(scope))
            )
    return in_topic_order(result)


def environment(previews: Sequence[Preview]) -> str:
    """The environment of the previewed stacks; of several, all names."""
    names = sorted({names_of(p.stack.removesuffix(CLUSTER_SUFFIX))[0] for p in previews})
    return ", ".join(names)


def _facts(items: Iterable[Object]) -> dict[ChangeTopic, Facts]:
    facts: dict[ChangeTopic, Facts] = {}
    for item in items:
        for topic, key, value in _facts_of_item(item):
            topic_facts = facts.setdefault(topic, {})
            # Several bindings may grant rights to one subject at one place.
            topic_facts[key] = (
                f"{topic_facts[key]} and {value}" if topic is ChangeTopic.ACCESS and key in topic_facts else value
            )
    return facts


Fact = tuple[ChangeTopic, tuple[str, str, str], change_facts.Value]


def _facts_of_item(item: Object) -> Iterator[Fact]:
    tenant = str(
        get_path(item, "metadata", "labels", vocabulary.TENANT) or get_path(item, "tags", vocabulary.TENANT_TAG) or ""
    )
    name, space = str(get_path(item, "metadata", "name")), str(get_path(item, "metadata", "namespace") or "")
    kind = item["kind"]
    for finding in (*objects.object_findings(item), *manifest_rules.object_findings(item)):
        if UNKNOWN in finding.given:
            continue  # the policy pack reports it, and checks it once the value is known
        yield ChangeTopic.RULE, rule_fact(finding), "broken"
    if item[_TYPE] == _TENANT:
        yield ChangeTopic.TENANT, (name, "", "is a tenant"), name
    elif kind in {"Namespace", "NamespacePatch"}:
        yield ChangeTopic.WORK, (tenant, name, change_facts.NAMESPACE), "made here"
        for waiver in filter(
            None, str(get_path(item, "metadata", "annotations", vocabulary.EXCEPTIONS) or "").split(",")
        ):
            rule, _, until = waiver.partition("=")
            yield ChangeTopic.EXCEPTION, (tenant or name, f"{rule} in {name}", "by its annotation"), f"until {until}"
    elif kind in {"ClusterQueue", "Cohort"}:
        yield from _amounts(item, tenant or (name if kind == "ClusterQueue" else ""))
        if kind == "ClusterQueue":
            yield ChangeTopic.WORK, (tenant, name, change_facts.SHARE), "there"
    elif kind == "LocalQueue":
        yield (
            ChangeTopic.WORK,
            (tenant, f"{space}/{name}", change_facts.QUEUE),
            str(get_path(item, "spec", "clusterQueue")),
        )
    elif kind == "ResourceQuota":
        part = f", of {name}" if get_path(item, "spec", "scopeSelector") else ""
        for resource, amount in (get_path(item, "spec", "hard") or {}).items():
            yield ChangeTopic.QUOTA, (tenant, space, f"{resource}{part}"), _quantity(resource, amount)
    elif kind == "NetworkPolicy":
        for place, value in _reach(item):
            yield ChangeTopic.NETWORK, (tenant, f"pods of {space}{_selected(item)}", place), value
    elif kind in CILIUM:
        for subject_name, place, value in _ciliums(item, ""):
            yield ChangeTopic.NETWORK, (tenant, subject_name, place), value
    elif kind in {"RoleBinding", "ClusterRoleBinding"}:
        for subject in as_list(get_path(item, "subjects")):
            subject_name = f"{get_path(subject, 'kind')} {get_path(subject, 'name')}"
            role = str(get_path(item, "roleRef", "name"))
            yield ChangeTopic.ACCESS, (tenant, subject_name, space or "every namespace"), _PERSONAS.get(role, role)
    else:
        yield from _facts_of_aws_item(item, tenant, name)


def _amounts(item: Object, tenant: str) -> Iterator[Fact]:
    """Device quotas of a queue or cohort; the CPU and memory that belong to them are left out."""
    for of_pool in device_amounts(item.get("spec")):
        if of_pool.amount:
            place = f"{get_path(item, 'metadata', 'name')}: {of_pool.resource} in {of_pool.flavor}"
            yield ChangeTopic.GPUS, (tenant, place, of_pool.limit_kind), of_pool.amount


def _quantity(resource: str, amount: Any) -> str:
    """A quantity in one spelling, so that two spellings of one amount are no change: bytes in powers of two, all else
    in powers of ten. The text itself if it is not a quantity."""
    try:
        number = quantities.parse(amount)
    except ValueError:
        return str(amount)
    bytes_ = "memory" in resource or "storage" in resource
    return quantities.write(number) if bytes_ or number % 1 else quantities.write_count(quantities.units(amount))


def _selected(item: Object) -> str:
    selector = get_path(item, "spec", "podSelector", "matchLabels") or get_path(
        item, "spec", "podSelector", "matchExpressions"
    )
    return f" with {json.dumps(selector, sort_keys=True)}" if selector else ""


_SIDES = (("egress", "to", "connect"), ("ingress", "from", "accept"))


def _reach(item: Object) -> Iterator[tuple[str, str]]:
    for direction, key, value in _SIDES:
        for rule in as_list(get_path(item, "spec", direction)):
            ports = [
                f"{get_path(p, 'port') or 'any'}/{get_path(p, 'protocol') or 'TCP'}"
                for p in as_list(get_path(rule, "ports"))
            ]
            port_text = f", port {', '.join(ports)}" if ports else ", every port"
            for peer in as_list(get_path(rule, key)) or [None]:
                yield f"{_peer(peer)}{port_text}", value


def _ciliums(item: Object, suffix: str) -> Iterator[tuple[str, str, str]]:
    """Pods, peer and direction of each rule of a Cilium policy that allows, or with the suffix `Deny` denies."""
    space = get_path(item, "metadata", "namespace")
    for spec in (get_path(item, "spec"), *as_list(get_path(item, "specs"))):
        selector = get_path(spec, "endpointSelector")
        pods = (
            f"pods of {space or 'every namespace'}{f' with {json.dumps(selector, sort_keys=True)}' if selector else ''}"
        )
        for direction, key, value in _SIDES:
            for rule in as_list(get_path(spec, f"{direction}{suffix}")):
                ports = [
                    _cilium_port(p)
                    for to_ports in as_list(get_path(rule, "toPorts"))
                    for p in as_list(get_path(to_ports, "ports"))
                ]
                port_text = f", port {', '.join(ports)}" if ports else ", every port"
                peers = [
                    f"{field.removeprefix(key)} {peer if isinstance(peer, str) else json.dumps(peer, sort_keys=True)}"
                    for field in sorted(rule)
                    if field.startswith(key) and field != "toPorts"
                    for peer in as_list(rule[field])
                ]
                for peer in peers or ["everything"]:
                    yield pods, f"{peer}{port_text}", value


def _cilium_port(port: Any) -> str:
    last = f"-{port['endPort']}" if get_path(port, "endPort") else ""
    return f"{get_path(port, 'port')}{last}/{get_path(port, 'protocol') or 'ANY'}"


def _peer(peer: Any) -> str:
    if block := get_path(peer, "ipBlock"):
        excluded = as_list(get_path(block, "except"))
        return f"{get_path(block, 'cidr')}{f' but {some}' if (some := ', '.join(map(str, excluded))) else ''}"
    if get_path(peer, "podSelector") == {} and get_path(peer, "namespaceSelector") is None:
        return "pods of the same namespace"
    parts = [
        f"{peer_kind} {json.dumps(get_path(peer, key), sort_keys=True) if get_path(peer, key) else 'all'}"
        for key, peer_kind in (("namespaceSelector", "namespaces"), ("podSelector", "pods"))
        if get_path(peer, key) is not None
    ]
    return " and ".join(parts) or "everything"


def _facts_of_aws_item(item: Object, tenant: str, name: str) -> Iterator[Fact]:
    kind = item[_TYPE]
    if kind == _ROLE_POLICY:
        role = str(item.get("role") or name)
        try:
            granted = rights(json.loads(item["policy"]))
        except (KeyError, TypeError, ValueError):
            yield ChangeTopic.ACCESS, (tenant, f"role {role}", f"what policy {name} says"), UNKNOWN
            return
        for place, actions in granted.items():
            yield ChangeTopic.ACCESS, (tenant, f"role {role}", place), ", ".join(sorted(actions))
    elif kind == aws.ENTRY:
        for group in as_list(item.get("kubernetesGroups")):
            yield ChangeTopic.ACCESS, (tenant, str(item.get("principalArn")), "the cluster"), f"group {group}"
    elif kind == aws.ASSOCIATION:
        policy = str(item.get("policyArn")).rpartition("/")[2]
        scope = ", ".join(map(str, as_list(get_path(item, "accessScope", "namespaces")))) or "every namespace"
        yield ChangeTopic.ACCESS, (tenant, str(item.get("principalArn")), scope), policy
    elif kind == aws.GROUP:
        for key, fact_name in (("minSize", change_facts.NODES_MIN), ("maxSize", change_facts.NODES_MAX)):
            count = get_path(item, "scalingConfig", key)
            if isinstance(count, int | float):
                yield ChangeTopic.WORK, ("", name, fact_name), int(count)
        yield (
            ChangeTopic.WORK,
            ("", name, change_facts.NODES),
            ", ".join(map(str, as_list(item.get("instanceTypes")))) or "nodes",
        )
    elif kind in _TYPES_WITH_CONTENTS:
        yield ChangeTopic.WORK, (tenant, f"{kind.rpartition(':')[2]} {name}", change_facts.CONTENTS), "there"


def _gained_reach(preview: Preview) -> Iterator[Change]:
    """Reach that is gained because a default-deny policy is removed from a namespace that stays."""
    yield from _lifted_denials(preview)
    denied_before, denied_after = (
        {_space(item): item for item in items if _denies(item)} for items in (preview.before, preview.after)
    )
    spaces = [{_name(i) for i in items if i["kind"] == "Namespace"} for items in (preview.before, preview.after)]
    for space in denied_before.keys() - denied_after.keys() - (spaces[0] - spaces[1]):
        tenant = str(get_path(denied_before[space], "metadata", "labels", vocabulary.TENANT) or "")
        description = "everything that no other policy denies, because its default-deny policy is removed"
        yield Change(ChangeTopic.NETWORK, tenant, description, None, "connect", f"pods of {space}")


def _lifted_denials(preview: Preview) -> Iterator[Change]:
    """Reach that is gained because Cilium policies deny less."""
    denied_before, denied_after = (
        {
            (str(get_path(item, "metadata", "labels", vocabulary.TENANT) or ""), *denial)
            for item in items
            if item["kind"] in CILIUM
            for denial in _ciliums(item, "Deny")
        }
        for items in (preview.before, preview.after)
    )
    tenants_before, tenants_after = (
        {_name(i) for i in items if i[_TYPE] == _TENANT} for items in (preview.before, preview.after)
    )
    for tenant, pods, peer, value in sorted(denied_before - denied_after):
        if tenant not in tenants_before - tenants_after:
            yield Change(ChangeTopic.NETWORK, tenant, f"{peer}, which no policy denies any longer", None, value, pods)


def _denies(item: Object) -> bool:
    spec = get_path(item, "spec")
    return (
        item["kind"] == "NetworkPolicy"
        and not get_path(spec, "podSelector")
        and {"Ingress", "Egress"} <= set(as_list(get_path(spec, "policyTypes")))
        and not (get_path(spec, "ingress") or get_path(spec, "egress"))
    )


def _space(item: Object) -> str:
    return str(get_path(item, "metadata", "namespace"))


def _name(item: Object) -> str:
    return str(get_path(item, "metadata", "name"))


def _replaced(preview: Preview) -> Iterator[Change]:
    for item, reasons in preview.replaced:
        kind = item["kind"].rpartition(":")[2]
        tenant = str(
            get_path(item, "metadata", "labels", vocabulary.TENANT)
            or get_path(item, "tags", vocabulary.TENANT_TAG)
            or ""
        )
        resource_name = objects.name_of(item) if item[_TYPE].startswith(_KUBERNETES) else f"{kind} {_name(item)}"
        reason = f" for {reasons}" if reasons else ""
        yield Change(ChangeTopic.WORK, tenant, change_facts.CONTENTS, "there", f"replaced{reason}", resource_name)
