"""Paths in work of its templates of volume claims, and of the metadata of objects between the work and its pods."""

from __future__ import annotations

from collections.abc import Mapping

from tenancy.rules.expressions import cel, unless_by_controller
from tenancy.rules.model import GuardFacts

# JobSet v0.12.0, `VolumeClaimPolicy`; LWS v0.9.0, `LeaderWorkerTemplate`.
CLAIM_TEMPLATES: Mapping[str, str] = {
    "statefulsets": "dyn(object).spec.?volumeClaimTemplates.orValue([]).all(c, {0})",
    "jobsets": "dyn(object).spec.?volumeClaimPolicies.orValue([]).all(p, p.?templates.orValue([]).all(c, {0}))",
    "leaderworkersets": "dyn(object).spec.leaderWorkerTemplate.?volumeClaimTemplates.orValue([]).all(c, {0})",
}
"""By resource: a condition `{0}` on each template `c` of a claim."""
_RUNTIME = "p.?trainingRuntimeSpec.?template"
PARTS_OF_WORK: Mapping[str, str] = {
    "cronjobs": "[dyn(object).spec.jobTemplate].all(j, {0})",
    "jobsets": "dyn(object).spec.?replicatedJobs.orValue([]).map(j, j.template).all(j, {0})",
    # Trainer v2.2.1, `RuntimePatch`: metadata of the JobSet, its jobs and their pods.
    "trainjobs": f"""dyn(object).spec.?runtimePatches.orValue([]).map(p, {_RUNTIME}.orValue({{}})).all(j, {{0}})
        && dyn(object).spec.?runtimePatches.orValue([]).all(p,
            {_RUNTIME}.?spec.?replicatedJobs.orValue([]).map(r, r.?template.orValue({{}})).all(t,
                [t, t.?spec.?template.orValue({{}})].all(j, {{0}})))""",
}
"""By resource: a condition `{0}` on each part `j` of work that has metadata around that of its pods."""


def each_claim_of_volumes(text: str) -> str:
    """A condition on each template `c` of a claim among a pod's volumes."""
    return f"""(!has(variables.spec.volumes) || variables.spec.volumes.all(v, !has(v.ephemeral)
        || [dyn(v).ephemeral.volumeClaimTemplate].all(c, {text})))"""


def by_resource_of_work(facts: GuardFacts, *conditions: tuple[Mapping[str, str], str]) -> str | None:
    """Conditions on what work holds beside its pods, for the resources of a policy; each is a table and a text."""
    texts = [
        f"(request.resource.resource != {cel(resource)} || {table[resource].replace('{0}', text)})"
        for table, text in conditions
        for resource in facts.resources
        if resource in table
    ]
    return unless_by_controller(" && ".join(texts)) if texts else None
