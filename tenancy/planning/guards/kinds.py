"""The guard of kinds that others' operators run: JobSet, Ray, MPI and the like."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tenancy.catalog.vocabulary import Allowance
from tenancy.planning.guards.counts import COUNTED, NO_MORE
from tenancy.planning.guards.expressions import (
    GRANTED,
    HAS_TENANT,
    META,
    NO_NEW_FINALIZER,
    OWN_FINALIZERS,
    Guard,
    cel,
    changed,
    may,
)
from tenancy.planning.guards.keys import beside_pods, both
from tenancy.planning.guards.names import GATED
from tenancy.planning.guards.pod_security import SECURED, security_message, security_variables
from tenancy.planning.guards.pods import ASKED, LISTS, PLAIN_RESOURCES, with_work
from tenancy.planning.guards.queued import (
    COUNTS,
    OWN,
    QUEUE_RULES,
    SUSPENSION,
    TEMPLATE_LIMITS,
    QueueFields,
    marks_of,
    queue_variables,
    suspension,
)
from tenancy.planning.guards.sizes import few_marks
from tenancy.planning.guards.who import but_by_controllers, controllers, frameworks
from tenancy.schema.environment import Environment

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
"""What to change of a RayJob whose submitter would be made without a securityContext."""


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
    found = security_variables(_for_each_pod)
    if patch is None:
        return found
    del found["unfit"]  # a variable reads those before it
    each = f"{{{', '.join(f'{cel(k)}: dyn({v})' for k, v in patch.items())}}}"
    return {
        **found,
        "patched": f"object.kind == 'TrainJob' ? {_PATCHES} : []",
        "patches": f"variables.patched.map(l, l.map(t, {each}))",
        "patchChecks": security_variables(_for_each_patch, whole=False)["securityChecks"],
        "unfit": "variables.securityChecks.filter(x, x != '') + variables.patchChecks.filter(x, x != '')",
    }


def framework_guard(environment: Environment, pod_rules: Mapping[str, str]) -> Guard:
    """Kinds of others: one guard for all, because what it reads of each is a list of templates."""
    kinds = frameworks(environment)

    def templates(root: str) -> str:
        chosen = "[]"
        for framework in kinds:
            if text := _TEMPLATES.get(framework.kind):
                # Without a schema: the guard reads what several kinds have in different places.
                chosen = f"object.kind == {cel(framework.kind)} ? {text.format(f'dyn({root})')} : {chosen}"
        return f"({chosen})"

    def either(at: str) -> str:
        return f"has(t.metadata) && has(t.metadata.{at}) ? t.metadata.{at} : {{}}"

    containers = """((has(t.spec.containers) ? t.spec.containers : [])
            + (has(t.spec.initContainers) ? t.spec.initContainers : []))"""
    pods = {
        "spec": "t.spec",
        "podLabels": either("labels"),
        "podAnnotations": either("annotations"),
        "newAnnotations": f"({either('annotations')}).filter(k, true)",
        "newFinalizers": "has(t.metadata) && has(t.metadata.finalizers) ? t.metadata.finalizers : []",
        "containers": containers,
        "asked": ASKED.format(containers=containers),
    }
    patched = {
        "spec": "t.?spec.orValue({})",
        "podAnnotations": either("annotations"),
        "containers": "t.?spec.?containers.orValue([]) + t.?spec.?initContainers.orValue([])",
    }

    def jobs(root: str) -> str:
        """A JobSet's jobs have metadata of their own around their pods'."""
        at = f"dyn({root}).spec.replicatedJobs"
        return f"object.kind == 'JobSet' && has({at}) ? {at}.map(j, j.template) : []"

    def marks(root: str, *found: str) -> str:
        own = ", ".join(marks_of(f"{root}.metadata"))
        lists = " + ".join(
            f"variables.{name}.map(t, has(t.metadata) && has(t.metadata.{field}) ? t.metadata.{field} : {{}})"
            for field in ("labels", "annotations")
            for name in found
        )
        return f"[{own}] + {lists}"

    def gates(found: str) -> str:
        return f"{found}.filter(t, has(t.spec.schedulingGates)).map(t, t.spec.schedulingGates.map(g, g.name))"

    def of_kind(values: Mapping[str, str], otherwise: str) -> str:
        chosen = otherwise
        for framework in kinds:
            if text := values.get(framework.kind):
                chosen = f"object.kind == {cel(framework.kind)} ? {text} : {chosen}"
        return chosen

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
        **queue_variables(environment, QueueFields(OWN)),
        "marks": marks("object", "templates", "jobs"),
        "oldMarks": f"request.operation == 'UPDATE' ? {marks('oldObject', 'oldTemplates', 'oldJobs')} : []",
        "ends": "object.kind != 'LeaderWorkerSet'",
        "given": of_kind(
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
        "noMorePods": of_kind(NO_MORE, "true"),
    }
    mpi = suspension("spec.runPolicy.suspend", "spec.runPolicy.managedBy")
    for name in ("suspended", "wasSuspended", "controllers"):
        here, there = (re.sub(r"\b(object|oldObject)\b(?=\.)", r"dyn(\1)", x[name]) for x in (variables, mpi))
        variables[name] = f"object.kind == 'MPIJob' ? ({there}) : ({here})"
    variables["controllers"] = f"""({variables["controllers"]})
        + variables.jobs.filter(j, has(j.spec.managedBy)).map(j, j.spec.managedBy)"""
    variables["waits"] = "object.kind != 'LeaderWorkerSet'"
    head = "dyn(object).spec.{0}headGroupSpec.?enableIngress.orValue(false)"
    of_kinds = {
        **{rule: text for rule, texts in COUNTED.items() if (text := of_kind(texts, "true")) != "true"},
        "net-01": of_kind(
            {
                "RayCluster": f"!{head.format('')}",
                "RayJob": f"(!has(dyn(object).spec.rayClusterSpec) || !{head.format('rayClusterSpec.')})",
            },
            "true",
        ),
    }
    # A TrainJob has no template: its runtime's may ask for GPUs too.
    each = {
        rule: _for_each_pod(text) for rule, text in {**pod_rules, **few_marks(environment), **TEMPLATE_LIMITS}.items()
    }
    each = both(each, but_by_controllers(beside_pods(environment, [framework.resource for framework in kinds])))
    bare = f"{may(Allowance.GPUS_FOR_ALL)} || variables.byController || {GRANTED}"
    each["gpu-10"] = f"({each['gpu-10']}) && (object.kind != 'TrainJob' || {bare})"
    of_trainer = "dyn(object).spec.?trainer.?resourcesPerNode"
    each["gpu-06"] = f"""({each["gpu-06"]}) && (object.kind != 'TrainJob'
        || [{of_trainer}.?limits.orValue({{}}), {of_trainer}.?requests.orValue({{}})].all(m, m.all(r,
            r in {PLAIN_RESOURCES} || r in variables.allowedResources)))"""
    # JobSet's webhook writes Indexed where nothing is said, and the API server refuses such a Job without completions.
    children = """object.kind != 'JobSet' || !has(dyn(object).spec.replicatedJobs)
        || dyn(object).spec.replicatedJobs.all(j, !has(j.template.spec.parallelism) || has(j.template.spec.completions)
            || j.template.spec.?completionMode.orValue('Indexed') == 'NonIndexed')"""
    of_children = {"kueue-32": children} if any(framework.kind == "JobSet" for framework in kinds) else {}
    # A list of gates for each template here.
    gated = """variables.gates.all(l, l.all(g, g in variables.usualGates
        || variables.oldGates.exists(o, g in o)))"""
    return Guard(
        "tenancy-frameworks",
        [(framework.group, framework.version, [framework.resource]) for framework in kinds],
        {
            **HAS_TENANT,
            **with_work(each),
            **SECURED,
            **but_by_controllers(of_kinds),
            **QUEUE_RULES,
            **but_by_controllers({"kueue-03": gated, **of_children}),
            **SUSPENSION,
            **COUNTS,
        },
        variables,
        {
            **changed("spec", *META, "metadata.ownerReferences", also=NO_NEW_FINALIZER),
            **controllers(environment.queued),
        },
        messages=security_message(environment.platform.docs, _ADVICE),
    )
