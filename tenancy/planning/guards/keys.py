"""Guards on the keys of labels and annotations, and on the claims of volumes that work makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenancy.catalog import keys
from tenancy.catalog import vocabulary as words
from tenancy.planning.guards.expressions import OF_TENANT, cel, noted
from tenancy.planning.guards.pods import DOMAINS_OF_NODE
from tenancy.schema.environment import Environment

_OWN_DOMAIN = f"""{noted(words.OWNER_MAIL)}.lowerAscii().split('@')[?1].orValue('/')"""
"""Domain of the address of the tenant's owner: the organization's own keys, which are no agent's."""


def _known(environment: Environment, lists: str) -> str:
    """CEL: whether each key of some lists may be written."""
    domain = "k.split('/')[0]"
    domains = [*keys.DOMAINS, *([keys.SYNCED_DOMAIN] if environment.virtual_clusters else [])]
    names = [*keys.KEYS, *keys.VALUES, *(key for key in environment.platform.keys if "/" in key)]
    more = [f".{key}" for key in environment.platform.keys if "/" not in key]
    ways = [
        f"!k.contains('/') || {domain} in {cel(domains)} || k in {cel(names)} || {domain} == {OF_TENANT}",
        *([f"{cel(more)}.exists(d, ('.' + {domain}).endsWith(d))"] if more else []),
        f"('.' + {domain}).endsWith('.' + {_OWN_DOMAIN})",
    ]
    return f"({lists}).all(l, l.all(k, {' || '.join(ways)}))"


_BY_NODES = f"{DOMAINS_OF_NODE}.exists(d, ('.' + k.split('/')[0]).endsWith(d))"


def _valued(annotations: str) -> str:
    return " && ".join(
        f"(!({cel(key)} in {annotations}) || {annotations}[{cel(key)}] == {cel(only)})"
        for key, only in keys.VALUES.items()
    )


def own_keys(environment: Environment, resources_without_notes: Sequence[str] = ()) -> str:
    """CEL: whether the keys of an object's own metadata are known, but for those that it has already. Annotations of
    some resources are not judged."""

    def fresh(field: str) -> str:
        now, before = (f"dyn({root}).metadata.{field}" for root in ("object", "oldObject"))
        judged = f" && !{_BY_NODES}" if field == "annotations" else ""
        return f"""(has({now}) ? {now} : {{}}).filter(k, !(oldObject != null && has({before}) && k in {before}
        && {before}[k] == {now}[k]){judged})"""

    notes = fresh("annotations")
    if resources_without_notes:
        notes = f"(request.resource.resource in {cel(list(resources_without_notes))} ? [] : {notes})"
    now = "dyn(object).metadata.annotations"
    known = _known(environment, f"[{fresh('labels')}, {notes}]")
    return f"{known} && (!has({now}) || {_valued(now)})"


def _keys_of(part: str) -> str:
    """CEL: the keys of the metadata of a part without a type, as two lists."""
    fields = [f"{part}.?metadata.?{field}.orValue({{}}).map(k, k)" for field in ("labels", "annotations")]
    return f"[{', '.join(fields)}]"


def template_keys(environment: Environment) -> str:
    """CEL: whether the keys of a pod template, and of the claims that its pods make, are known."""
    notes = f"variables.podAnnotations.filter(k, !{_BY_NODES})"
    pods = _known(environment, f"[variables.podLabels.map(k, k), {notes}]")
    return f"{pods} && {_valued('variables.podAnnotations')} && {volume_keys(environment)}"


def volume_keys(environment: Environment) -> str:
    """CEL: whether the keys of the claims that a pod makes are known."""
    return _each_volume(_known(environment, _keys_of("c")))


def _each_volume(text: str) -> str:
    """A condition on each template `c` of a claim among a pod's volumes."""
    return f"""(!has(variables.spec.volumes) || variables.spec.volumes.all(v, !has(v.ephemeral)
        || [dyn(v).ephemeral.volumeClaimTemplate].all(c, {text})))"""


def claim_classes(environment: Environment, claim: str = "c") -> str:
    """CEL: whether a claim, or a template of one, names classes that the environment lists."""
    storage = f"{claim}.spec.?storageClassName.orValue('') in {cel(list(environment.claim_classes))}"
    attributes = cel(["", *environment.platform.volume_attributes_classes])
    return f"{storage} && {claim}.spec.?volumeAttributesClassName.orValue('') in {attributes}"


def claim_rules(environment: Environment) -> Mapping[str, str]:
    """Rules of pods on the claims that they make."""
    return {"stor-12": _each_volume(claim_classes(environment))}


# JobSet v0.12.0, `VolumeClaimPolicy`; LWS v0.9.0, `LeaderWorkerTemplate`.
_CLAIM_TEMPLATES: Mapping[str, str] = {
    "statefulsets": "dyn(object).spec.?volumeClaimTemplates.orValue([]).all(c, {0})",
    "jobsets": "dyn(object).spec.?volumeClaimPolicies.orValue([]).all(p, p.?templates.orValue([]).all(c, {0}))",
    "leaderworkersets": "dyn(object).spec.leaderWorkerTemplate.?volumeClaimTemplates.orValue([]).all(c, {0})",
}
_RUNTIME = "p.?trainingRuntimeSpec.?template"
_METADATA: Mapping[str, str] = {
    "cronjobs": "[dyn(object).spec.jobTemplate].all(j, {0})",
    "jobsets": "dyn(object).spec.?replicatedJobs.orValue([]).map(j, j.template).all(j, {0})",
    # Trainer v2.2.1, `RuntimePatch`: metadata of the JobSet, its jobs and their pods.
    "trainjobs": f"""dyn(object).spec.?runtimePatches.orValue([]).map(p, {_RUNTIME}.orValue({{}})).all(j, {{0}})
        && dyn(object).spec.?runtimePatches.orValue([]).all(p,
            {_RUNTIME}.?spec.?replicatedJobs.orValue([]).map(r, r.?template.orValue({{}})).all(t,
                [t, t.?spec.?template.orValue({{}})].all(j, {{0}})))""",
}
"""Metadata that work has around that of its pods, as parts `j`."""


def beside_pods(environment: Environment, resources: Sequence[str]) -> dict[str, str]:
    """What both rules ask of work beside its pods, for a guard over these resources: templates of claims, and metadata
    of what is made between the work and its pods."""
    found: dict[str, list[str]] = {}
    for rule, texts, text in (
        ("stor-12", _CLAIM_TEMPLATES, claim_classes(environment)),
        ("meta-01", _CLAIM_TEMPLATES, _known(environment, _keys_of("c"))),
        ("meta-01", _METADATA, _known(environment, _keys_of("j"))),
    ):
        for resource in resources:
            if resource in texts:
                each = texts[resource].replace("{0}", text)
                found.setdefault(rule, []).append(f"(request.resource.resource != {cel(resource)} || {each})")
    return {rule: " && ".join(texts) for rule, texts in found.items()}


def both(rules: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """The rules, each with what another map asks under its id."""
    return {rule: f"({text}) && ({more[rule]})" if rule in more else text for rule, text in rules.items()}
