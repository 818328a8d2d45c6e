"""The guard of kinds that others' operators run: JobSet, Ray, MPI and the like."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from tenancy.catalog.controllers import GATED
from tenancy.planning.guards.admission_policy import NO_NEW_FINALIZER, Guard, change_condition
from tenancy.planning.guards.assembly import fields_of_work, latest, merge_expressions
from tenancy.planning.guards.counts import NO_MORE
from tenancy.planning.guards.pod_security import security_message, security_variables
from tenancy.planning.guards.variables import (
    LISTS,
    OBJECT_METADATA,
    REQUESTED_RESOURCES,
    QueueFields,
    controllers,
    marks_of,
    queue_variables,
    suspension,
)
from tenancy.rules.catalogue import expressions
from tenancy.rules.expressions import OWN_FINALIZERS, by_framework, cel
from tenancy.rules.model import GuardFacts, GuardSubject

# Pod templates of a kind, as a list. A TrainJob has none, only patches of its runtime's.
_RAY = """([{0}.headGroupSpec.template]
    + (has({0}.workerGroupSpecs) ? {0}.workerGroupSpecs.map(w, w.template) : []))"""
# Of a RayJob without a template for its submitter, and of each in SidecarMode, KubeRay makes the submitter's container
# from the head's image, without a securityContext; Kueue writes the same when it starts the job (v0.19.2,
# rayjob_controller.go, `getSubmitterTemplate`). It is judged as it will be.
_MODE = "{0}.spec.?submissionMode.orValue('K8sJobMode')"
_UNWRITTEN = f"""({_MODE} == 'SidecarMode'
            || ({_MODE} == 'K8sJobMode' && !has({{0}}.spec.submitterPodTemplate)))"""
_SUBMITTER = """[dyn({{'spec': {{'containers': [{{'name': dyn('ray-job-submitter'),
                'image': {0}.spec.rayClusterSpec.headGroupSpec.template.spec.containers[0].image}}]}}}})]"""
_TEMPLATES: Mapping[str, str] = {
    "JobSet": """(has({0}.spec.replicatedJobs)
        ? {0}.spec.replicatedJobs.map(j, j.template.spec.template) : [])""",
    "LeaderWorkerSet": """([{0}.spec.leaderWorkerTemplate.workerTemplate]
        + (has({0}.spec.leaderWorkerTemplate.leaderTemplate) ? [{0}.spec.leaderWorkerTemplate.leaderTemplate] : []))""",
    "MPIJob": "{0}.spec.mpiReplicaSpecs.map(r, {0}.spec.mpiReplicaSpecs[r].template)",
    "RayCluster": _RAY.format("{0}.spec"),
    "RayJob": f"""((has({{0}}.spec.rayClusterSpec) ? {_RAY.format("{0}.spec.rayClusterSpec")}
            + ({_UNWRITTEN} ? {_SUBMITTER} : []) : [])
        + (has({{0}}.spec.submitterPodTemplate) ? [{{0}}.spec.submitterPodTemplate] : []))""",
}

# Lists of partial pod templates: each patch has some for the jobs that its runtime makes (Kubeflow Trainer v2.2.1,
# `RuntimePatch`). The runtime is the platform's, and may itself be what Pod Security refuses.
_PATCHED = "p.?trainingRuntimeSpec.?template.?spec.?replicatedJobs.orValue([])"
_PATCHES = f"""dyn(object).spec.?runtimePatches.orValue([]).map(p,
    {_PATCHED}.map(j, j.?template.?spec.?template.orValue({{}})))"""

_ADVICE = f"""(object.kind == 'RayJob' && {_UNWRITTEN.format("dyn(object)")}
    ? 'submissionMode is HTTPMode, or K8sJobMode with a submitterPodTemplate that keeps to the level; ' : '')"""
"""Change of a RayJob whose submitter would be made without a securityContext."""


_OF_POD = re.compile(r"variables\.(spec|podLabels|podAnnotations|newAnnotations|newFinalizers|containers|asked)\b")


def _for_each_pod(rule: str) -> str:
    """A rule on one pod as a rule on all of `variables.pods`."""
    text = _OF_POD.sub(r"pod.\1", rule)
    return f"variables.pods.all(pod, {text})"


def _for_each_patch(rule: str) -> str:
    """A rule on one pod as a rule on all of `variables.patches`."""
    text = _OF_POD.sub(r"pod.\1", rule)
    return f"variables.patches.all(l, l.all(pod, {text}))"


def _security(patch: Mapping[str, str] | None) -> dict[str, str]:
    """Pod Security on templates, and on patches of a TrainJob's runtime; what these leave out is in the runtime."""
    security = security_variables(_for_each_pod)
    if patch is None:
        return security
    del security["unfit"]  # a variable reads those before it
    patch_map = f"{{{', '.join(f'{cel(k)}: dyn({v})' for k, v in patch.items())}}}"
    return {
        **security,
        "patched": f"object.kind == 'TrainJob' ? {_PATCHES} : []",
        "patches": f"variables.patched.map(l, l.map(t, {patch_map}))",
        "patchChecks": security_variables(_for_each_patch, is_whole=False)["securityChecks"],
        "unfit": "variables.securityChecks.filter(x, x != '') + variables.patchChecks.filter(x, x != '')",
    }


def framework_guard(docs: str, facts: GuardFacts) -> Guard:
    """Kinds of others: one guard for all, because what it reads of each is a list of templates."""
    kinds = facts.frameworks
    names = [framework.kind for framework in kinds]
    facts = replace(facts, resources=tuple(framework.resource for framework in kinds))

    def templates(root: str) -> str:
        expression = "[]"
        for framework in kinds:
            if text := _TEMPLATES.get(framework.kind):
                # Without a schema: the guard reads what several kinds have in different places.
                expression = f"object.kind == {cel(framework.kind)} ? {text.format(f'dyn({root})')} : {expression}"
        return f"({expression})"

    def metadata_map(field: str) -> str:
        return f"has(t.metadata) && has(t.metadata.{field}) ? t.metadata.{field} : {{}}"

    containers = """((has(t.spec.containers) ? t.spec.containers : [])
            + (has(t.spec.initContainers) ? t.spec.initContainers : []))"""
    pods = {
        "spec": "t.spec",
        "podLabels": metadata_map("labels"),
        "podAnnotations": metadata_map("annotations"),
        "newAnnotations": f"({metadata_map('annotations')}).filter(k, true)",
        "newFinalizers": "has(t.metadata) && has(t.metadata.finalizers) ? t.metadata.finalizers : []",
        "containers": containers,
        "asked": REQUESTED_RESOURCES.format(containers=containers),
    }
    patched = {
        "spec": "t.?spec.orValue({})",
        "podAnnotations": metadata_map("annotations"),
        "containers": "t.?spec.?containers.orValue([]) + t.?spec.?initContainers.orValue([])",
    }

    def jobs(root: str) -> str:
        """A JobSet's jobs have metadata of their own around their pods'."""
        path = f"dyn({root}).spec.replicatedJobs"
        return f"object.kind == 'JobSet' && has({path}) ? {path}.map(j, j.template) : []"

    def queue_marks(root: str, *list_names: str) -> str:
        object_marks = ", ".join(marks_of(f"{root}.metadata"))
        lists = " + ".join(
            f"variables.{name}.map(t, has(t.metadata) && has(t.metadata.{field}) ? t.metadata.{field} : {{}})"
            for field in ("labels", "annotations")
            for name in list_names
        )
        return f"[{object_marks}] + {lists}"

    def gates(list_name: str) -> str:
        return f"{list_name}.filter(t, has(t.spec.schedulingGates)).map(t, t.spec.schedulingGates.map(g, g.name))"

    variables = {
        **LISTS,
        "templates": templates("object"),
        "jobs": jobs("object"),
        "oldTemplates": f"request.operation == 'UPDATE' ? {templates('oldObject')} : []",
        "oldJobs": f"request.operation == 'UPDATE' ? ({jobs('oldObject')}) : []",
        "pods": f"variables.templates.map(t, {{{', '.join(f'{cel(k)}: dyn({v})' for k, v in pods.items())}}})",
        **_security(patched if any(framework.kind == "TrainJob" for framework in kinds) else None),
        "placing": "true",
        "ownFinalizers": OWN_FINALIZERS,
        **queue_variables(facts, QueueFields(OBJECT_METADATA)),
        "marks": queue_marks("object", "templates", "jobs"),
        "oldMarks": f"request.operation == 'UPDATE' ? {queue_marks('oldObject', 'oldTemplates', 'oldJobs')} : []",
        "ends": "object.kind != 'LeaderWorkerSet'",
        "given": by_framework(
            names,
            {
                "LeaderWorkerSet": cel(GATED["leaderworkersets"]),
                # The queue's webhook numbers the workers from the launcher on (v0.19.2, mpijob_webhook.go, `Default`).
                "MPIJob": f"(dyn(object).spec.?runLauncherAsWorker.orValue(false) ? {cel(GATED['mpijobs'])} : {{}})",
            },
            "{}",
        ),
        "gates": gates("variables.templates"),
        "oldGates": f"request.operation == 'UPDATE' ? {gates(templates('oldObject'))} : []",
        **suspension("spec.suspend", "spec.managedBy"),
        "noMorePods": by_framework(names, NO_MORE, "true"),
    }
    mpi = suspension("spec.runPolicy.suspend", "spec.runPolicy.managedBy")
    for name in ("suspended", "wasSuspended", "controllers"):
        common_text, mpi_text = (re.sub(r"\b(object|oldObject)\b(?=\.)", r"dyn(\1)", x[name]) for x in (variables, mpi))
        variables[name] = f"object.kind == 'MPIJob' ? ({mpi_text}) : ({common_text})"
    variables["controllers"] = f"""({variables["controllers"]})
        + variables.jobs.filter(j, has(j.spec.managedBy)).map(j, j.spec.managedBy)"""
    variables["waits"] = "object.kind != 'LeaderWorkerSet'"
    # A TrainJob has no template: its runtime's may ask for GPUs too.
    pod_rules = {
        rule: _for_each_pod(text)
        for rule, text in latest(
            facts, GuardSubject.PODS, GuardSubject.TEMPLATES, GuardSubject.QUEUED_TEMPLATES
        ).items()
    }
    work_subjects = (GuardSubject.CLAIMS_OF_WORK, GuardSubject.FRAMEWORK_PODS, GuardSubject.WORK)
    return Guard(
        "tenancy-frameworks",
        [(framework.group, framework.version, [framework.resource]) for framework in kinds],
        {
            **merge_expressions(pod_rules, *(expressions(subject, facts) for subject in work_subjects)),
            **latest(
                facts,
                *(
                    GuardSubject.NAMESPACE_OF_WORK,
                    GuardSubject.POD_SECURITY,
                    GuardSubject.QUEUED,
                    GuardSubject.QUEUED_WORK,
                ),
                *(GuardSubject.RUNNING_WORK, GuardSubject.FRAMEWORKS),
            ),
        },
        variables,
        {
            **change_condition(*fields_of_work(facts), also=NO_NEW_FINALIZER),
            **controllers(facts.queued),
        },
        messages=security_message(docs, _ADVICE),
    )
