"""GPUs: what opens devices to a pod, and who may ask for them."""

from __future__ import annotations

from tenancy.catalog import gpus
from tenancy.catalog import vocabulary as words
from tenancy.catalog.controllers import AUTOSCALERS, CLAIM_CONTROLLERS, CLAIM_OF_POD
from tenancy.catalog.vocabulary import Allowance
from tenancy.rules.expressions import CONTROLS, DEVICES, GRANTED, PLAIN_RESOURCES, cel, may
from tenancy.rules.model import Face, GuardFacts, Rule, Severity, Subject

MAX_DEVICES = 32
"""Devices of one claim: no scheduler gives more (`AllocationResultsMaxSize`)."""
_NVIDIA = "nvidia.com/"
"""How extended resources and taints of NVIDIA's begin."""


def _of_gpu_users(passes: str) -> str:
    """Whether a pod asks for no GPU, or its author may ask for GPUs; `passes`: true for any request."""
    return f"""{passes} || {may(Allowance.GPUS_FOR_ALL)} || variables.byController
        || !(size(variables.asked) > 0
            || (has(variables.spec.resourceClaims) && size(variables.spec.resourceClaims) > 0))
        || {GRANTED}"""


# For pods that controllers make, the template was judged, and its author's right was checked.
_NEW_GPU_PODS = _of_gpu_users("!variables.placing")
_SAME_PROGRAMS = " && ".join(
    f"has(object.spec.{field}) == has(oldObject.spec.{field})"
    f" && (!has(object.spec.{field}) || object.spec.{field} == oldObject.spec.{field})"
    for field in ("initContainers", "ephemeralContainers")
)
_REPLICAS, _OLD_REPLICAS = (f"dyn({root}).?spec.?replicas.orValue(0)" for root in ("object", "oldObject"))
_OF_TRAINER = "dyn(object).spec.?trainer.?resourcesPerNode"
# Each name is looked up: the expression does not iterate over what the requester wrote.
_NO_DEVICE_KEYS = f"!has(object.data) || {DEVICES}.all(d, !(d in object.data))"


def _claims(facts: GuardFacts) -> str:
    """Where devices are claimed, what a claim may hold is judged on the claim (gpu-08), so a pod may name any of its
    namespace; a third way to name one is refused until it has been reviewed."""
    if facts.devices_by_claim:
        return """!has(variables.spec.resourceClaims) || variables.spec.resourceClaims.all(c,
        has(c.resourceClaimName) || has(c.resourceClaimTemplateName))"""
    return "!has(variables.spec.resourceClaims) || size(variables.spec.resourceClaims) == 0"


# A request without `exactly` is a list of alternatives, or a form that no rule covers.
_CLAIM = f"""size(variables.config) == 0 && size(variables.requests) > 0
        && variables.requests.all(r, has(r.exactly)
            && r.exactly.deviceClassName in variables.allowedClasses
            && has(r.exactly.allocationMode) && r.exactly.allocationMode == 'ExactCount'
            && has(r.exactly.count) && r.exactly.count <= {MAX_DEVICES}
            && (!has(r.exactly.adminAccess) || !r.exactly.adminAccess)
            && (!has(r.exactly.tolerations) || size(r.exactly.tolerations) == 0)
            && !has(r.exactly.capacity))"""
_COUNTS = """variables.requests.map(r, r.exactly.deviceClassName + '-' + string(r.exactly.count)).join('-')"""
_OWNED_CLAIM = f"""(has(object.metadata.annotations) && {cel(CLAIM_OF_POD)} in object.metadata.annotations)
        || (has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, {CONTROLS}))"""


def _unmanaged(facts: GuardFacts) -> str:
    """A pod that stays off the nodes of tenants: it tolerates none of their taints, names no node, and asks for nothing
    for which EKS adds a toleration."""
    taken = f"(r.startsWith({cel(_NVIDIA)}) || r == {cel(gpus.EFA)})"
    conditions = [
        f"""(!has(object.spec.tolerations) || object.spec.tolerations.all(t, has(t.key) && t.key != ''
            && !t.key.startsWith({cel(_NVIDIA)}) && !(t.key in {cel([gpus.EFA, words.POOL])})))""",
        "(request.operation != 'CREATE' || !has(object.spec.nodeName) || object.spec.nodeName == '')",
        f"""variables.containers.all(c, !has(c.resources) || (
            (!has(c.resources.limits) || c.resources.limits.all(r, !{taken}))
            && (!has(c.resources.requests) || c.resources.requests.all(r, !{taken}))))""",
    ]
    if facts.devices_by_claim:
        # The claim says which class it asks for, and it may be created after the pod.
        conditions.append("(!has(object.spec.resourceClaims) || size(object.spec.resourceClaims) == 0)")
    return " && ".join(conditions)


RULES: tuple[Rule, ...] = (
    Rule(
        id="gpu-01",
        title="a pod uses the runtime class of its namespace",
        why=(
            "the nvidia runtime classes give access to every GPU of the node, and the node's default runtime is no "
            "sandbox"
        ),
        fix="drop runtimeClassName; in a sandboxed namespace set it to tenancy-sandbox",
        severity=Severity.CRITICAL,
        enforced=Face.PREVIEW | Face.ATTACK,
        partial={Face.PREVIEW: "it does not know which tiers are sandboxed, so work without a runtime class passes"},
        guards={
            Subject.PODS: f"""has(variables.spec.runtimeClassName) && variables.spec.runtimeClassName != ''
        ? variables.spec.runtimeClassName in variables.allowedRuntimes : {may(Allowance.NODE_RUNTIME)}"""
        },
    ),
    Rule(
        id="gpu-02",
        title="a container does not choose devices by environment variable",
        why="NVIDIA_VISIBLE_DEVICES and related variables open GPUs that the scheduler assigned to other pods",
        fix="drop the variable ('void' and 'none' are fine) and ask for GPUs under resources.limits",
        severity=Severity.CRITICAL,
        enforced=Face.PREVIEW | Face.ATTACK,
        partial={
            Face.PREVIEW: "it reads variables from config maps and secrets only where these are among the objects"
        },
        guards={
            Subject.PODS: f"""variables.containers.all(c, !has(c.env) || c.env.all(e, !(e.name in {DEVICES})
        || (e.name == 'NVIDIA_VISIBLE_DEVICES' && !has(e.valueFrom)
            && (!has(e.value) || e.value in ['', 'void', 'none']))))"""
        },
    ),
    Rule(
        id="gpu-03",
        title="envFrom has no prefix that can form the name of a device variable",
        why="prefix NVIDIA_ with key VISIBLE_DEVICES is NVIDIA_VISIBLE_DEVICES",
        fix="drop the prefix or choose another",
        severity=Severity.CRITICAL,
        enforced=Face.ATTACK,
        guards={
            Subject.PODS: f"""variables.containers.all(c, !has(c.envFrom) || c.envFrom.all(f,
        !has(f.prefix) || f.prefix == '' || !{DEVICES}.exists(d, d.startsWith(f.prefix))))"""
        },
    ),
    Rule(
        id="gpu-04",
        title="a config map or secret has no key that is the name of a device variable",
        why="envFrom would turn the key into the variable, which the guard on pods cannot see",
        fix="rename the key",
        severity=Severity.CRITICAL,
        enforced=Face.ATTACK,
        guards={Subject.CONFIG_MAPS: _NO_DEVICE_KEYS, Subject.SECRETS: _NO_DEVICE_KEYS},
    ),
    Rule(
        id="gpu-05",
        title="a pod has no CDI annotation",
        why="container runtimes inject any device that such an annotation names",
        fix="drop annotations under cdi.k8s.io and nvidia.cdi.k8s.io",
        severity=Severity.CRITICAL,
        enforced=Face.ATTACK,
        guards={
            Subject.PODS: """variables.podAnnotations.all(k,
        !k.startsWith('cdi.k8s.io/') && !k.startsWith('nvidia.cdi.k8s.io/'))"""
        },
    ),
    Rule(
        id="gpu-06",
        title="a container asks only for extended resources that its tenant was granted",
        why="a resource that no quota names is unlimited",
        fix="ask for a granted resource; GPUs are granted by a flavor in the tenant file, huge pages and other "
        "resources under quota.other as requests.<resource>",
        severity=Severity.CRITICAL,
        enforced=Face.ATTACK,
        guards={
            Subject.PODS: f"""variables.containers.all(c, !has(c.resources) || (
        (!has(c.resources.limits) || c.resources.limits.all(r,
            r in {PLAIN_RESOURCES} || r in variables.allowedResources))
        && (!has(c.resources.requests) || c.resources.requests.all(r,
            r in {PLAIN_RESOURCES} || r in variables.allowedResources))))""",
            Subject.FRAMEWORK_PODS: f"""object.kind != 'TrainJob'
        || [{_OF_TRAINER}.?limits.orValue({{}}), {_OF_TRAINER}.?requests.orValue({{}})].all(m, m.all(r,
            r in {PLAIN_RESOURCES} || r in variables.allowedResources))""",
        },
    ),
    Rule(
        id="gpu-07",
        title="a pod uses device claims only in a cluster with devices: dra, and only claims of its namespace",
        why="elsewhere a device claim bypasses the quota on GPUs",
        fix="ask for GPUs under resources.limits; with cluster.devices: dra, by resourceClaimTemplateName",
        severity=Severity.CRITICAL,
        enforced=Face.ATTACK,
        guards={Subject.PODS: _claims},
    ),
    Rule(
        id="gpu-08",
        title="a device claim asks for a count of devices of granted classes, and a claim template is named after both",
        why=(
            "allocation mode All, another class, device settings or a toleration reach other tenants' GPUs; a template "
            "that is replaced under the same name takes more devices than the queue counted"
        ),
        fix=(
            "name a granted class and a count under exactly; drop config, adminAccess, capacity and "
            "tolerations; name a "
            "template <class>-<count>, such as a100-2, with any suffix after a dot"
        ),
        severity=Severity.CRITICAL,
        enforced=Face.PREVIEW | Face.ATTACK,
        partial={
            Face.PREVIEW: (
                "it reads classes and templates' names only where a namespace among the objects lists its classes"
            )
        },
        guards={
            Subject.DEVICE_CLAIMS: _CLAIM,
            # The queue counts a template when work comes, and claims are made from what has that name by then.
            Subject.DEVICE_CLAIM_TEMPLATES: f"({_CLAIM}) && (object.metadata.name == {_COUNTS}"
            f" || object.metadata.name.startsWith({_COUNTS} + '.'))",
        },
    ),
    Rule(
        id="gpu-09",
        title="GPUs are assigned by the device plugin or by device claims, not by NRI",
        why="with NVIDIA's NRI plugin an annotation of a pod names the GPUs that it gets",
        fix="set cdi.nriPluginEnabled to false",
        severity=Severity.CRITICAL,
        enforced=Face.PREVIEW,
    ),
    Rule(
        id="gpu-11",
        title="only the cluster makes a pod's own claims, from the template that the pod names",
        why="a claim that passes for a pod's own gives the pod devices that the queue never counted",
        fix=(
            "drop the controller from ownerReferences and resource.kubernetes.io/pod-claim-name; name the claim in "
            "the pod"
        ),
        enforced=Face.ATTACK,
        guards={
            # The cluster takes a claim for a pod's own by these two, whatever it asks for.
            Subject.DEVICE_CLAIMS: f"request.userInfo.username in {cel(list(CLAIM_CONTROLLERS))} || !({_OWNED_CLAIM})"
        },
    ),
    Rule(
        id="gpu-10",
        title="where GPUs are granted by name, only users with the grant make work that asks for GPUs, and scale work",
        why="GPUs that a user without the grant takes are missing for the work of users who have it",
        fix="have one of the tenant's gpu-users do it, or be added there; without GPUs, change spec.replicas itself",
        severity=Severity.MEDIUM,
        enforced=Face.ATTACK,
        guards={
            Subject.PODS: _NEW_GPU_PODS,
            # A request that changes what runs in a pod uses the GPUs of the pod's author.
            Subject.POD: _of_gpu_users(
                f"(!variables.placing && object.spec.containers == oldObject.spec.containers && {_SAME_PROGRAMS})"
            ),
            # A TrainJob has no template: its runtime's may ask for GPUs too.
            Subject.FRAMEWORK_PODS: f"object.kind != 'TrainJob' || {may(Allowance.GPUS_FOR_ALL)}"
            f" || variables.byController || {GRANTED}",
            # A scale request does not say what it scales, so the rule applies to all work.
            Subject.SCALES: f"""{may(Allowance.GPUS_FOR_ALL)} || request.userInfo.username in {cel(list(AUTOSCALERS))}
        || (has(request.subResource) && {_REPLICAS} <= {_OLD_REPLICAS}) || {GRANTED}""",
        },
    ),
    Rule(
        id="gpu-12",
        title="work in an unmanaged namespace asks for no GPU and runs on no node that is reserved for tenants",
        why="it is in no quota and no queue, so it would run on GPUs that are guaranteed to tenants",
        fix=(
            "drop GPUs, device claims, nodeName, and tolerations of everything, of nvidia.com/* and of "
            "tenancy.gpu/pool; "
            "or run it as a tenant, or as the platform's under platform.namespaces"
        ),
        enforced=Face.ATTACK,
        guards={Subject.UNMANAGED_PODS: _unmanaged},
    ),
)
