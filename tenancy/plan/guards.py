"""Admission guards: a ValidatingAdmissionPolicy for each kind of object, a validation for each rule.

Few and wide, because each policy costs 0.3 ms at every admission and each validation almost nothing. Their
number does not grow with tenants: what differs by tenant stands in annotations of the namespace, which
`ns-01` keeps out of tenants' hands. An absent annotation is an empty list, so a damaged namespace admits
nothing. No text of a tenant file enters an expression.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tenancy.catalog import gpus
from tenancy.catalog import vocabulary as words
from tenancy.catalog.frameworks import FRAMEWORKS, Framework
from tenancy.plan.labels import beside_the_systems, manifest, platform_labels
from tenancy.plan.model import Object, digest
from tenancy.plan.pools import NETWORK_LAYER
from tenancy.rules.catalogue import RULES
from tenancy.rules.values import IMAGE_ASTRAY, IMAGE_DIGEST
from tenancy.spec.environment import Environment, GuardsMode

VERSION = 4
"""Raised when a tenant's objects need guards that older platforms lack."""
MARKER = "guards"
DELETIONS = "tenancy-deletions"
WITNESS = "tenancy-witness"
QUESTION = "are-the-guards-in-force"
"""Name of a ConfigMap that the witness always refuses: asked for in a dry run, it is never made."""

HARMLESS_ANNOTATIONS = ("app.kubernetes.io/", "kubectl.kubernetes.io/", "service.kubernetes.io/topology-mode")
CONTROLLERS = ("kubernetes.io", "k8s.io", "k8s.aws", "amazonaws.com", "cilium.io", "io.cilium")
"""Domains of controllers that publish a service, name it or open it to other clusters by its annotations; the last is
how Cilium began its older names."""

VOLUME_BINDER = "system:serviceaccount:kube-system:persistent-volume-binder"
NAMESPACE_CONTROLLERS = (
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
)
JOB_CONTROLLERS = ("system:kube-controller-manager", "system:serviceaccount:kube-system:job-controller")
"""The second wherever controllers have accounts of their own, as on EKS."""
JOB_FINALIZER = "batch.kubernetes.io/job-tracking"
"""The job controller puts it on pods that it makes. Nobody takes it off pods of another controller, and no template
needs it."""

CLAIM_CONTROLLERS = ("system:kube-controller-manager", "system:serviceaccount:kube-system:resource-claim-controller")
"""Who makes a pod's claims from their templates."""
CLAIM_OF_POD = "resource.kubernetes.io/pod-claim-name"
"""Annotation by which that controller knows again what it has made (KEP-3063)."""

KUEUE = f"system:serviceaccount:{words.QUEUE_NAMESPACE}:kueue-controller-manager"
WORKLOAD_CONTROLLERS = (
    "system:kube-controller-manager",
    *(
        f"system:serviceaccount:kube-system:{name}"
        for name in (
            *("cronjob-controller", "daemon-set-controller", "deployment-controller", "generic-garbage-collector"),
            *("job-controller", "replicaset-controller", "replication-controller", "statefulset-controller"),
        )
    ),
)
"""Who makes objects of objects; what tenants write went through a guard as a template."""

AUTOSCALERS = ("system:kube-controller-manager", "system:serviceaccount:kube-system:horizontal-pod-autoscaler")
"""Who scales for whoever made the autoscaler."""

DOMAIN = "kueue.x-k8s.io/"
QUEUE = DOMAIN + "queue-name"
URGENCY = DOMAIN + "priority-class"
RUN_TIME = DOMAIN + "max-exec-time-seconds"
MANAGED = DOMAIN + "managed"
"""Label and finalizer of a pod that the queue starts."""
HELD = DOMAIN + "admission"
"""Gate of a pod that waits for the queue."""
PLACED = DOMAIN + "topology"
"""Gate of a pod that waits for its place in the network."""
PARENT = DOMAIN + "pod-suspending-parent"
COUNTED = DOMAIN + "podset"
"""Label of a pod that the queue has admitted: which part of its work it is (pkg/constants, jobframework)."""

WRITABLE = (
    *(QUEUE, URGENCY, RUN_TIME),
    *(DOMAIN + f"job-{name}" for name in ("completions-equal-parallelism", "min-parallelism")),
    *(
        DOMAIN + f"podset-{name}"
        for name in (
            *("group-name", "preferred-topology", "required-topology", "slice-required-topology"),
            *("slice-required-topology-constraints", "slice-size", "unconstrained-topology"),
        )
    ),
)
"""Labels and annotations of Kueue's that ask it for something and tell it nothing; the rest of v0.19.2 is refused:

prebuilt-workload-name, multikueue-origin[-uid] (pkg/controller/constants, apis/kueue/v1beta2/multikueue_types.go)
    runs under quota that other work was given, or is nobody's to count
pod-group-name, -total-count, -fast-admission, -serving, role-hash, retriable-in-group, pod-group-pod-index[-label]
    (pkg/controller/jobs/pod/constants) pods of one `role-hash` are counted as if all were like the first: one that
    asks for no GPU makes eight free. The queue believes a hash that is there, and nobody can see who wrote it. Groups
    are made by Kueue itself, for StatefulSets and LeaderWorkerSets
managed, pod-suspending-parent, podset, cluster-queue-name, local-queue-name, workload, workload-slice-name,
pod-index-offset, stopping, raycluster-* (pkg/constants, topology_types.go, jobs/job, jobs/raycluster/common.go)
    Kueue's own notes; without the first two it takes a pod for none of its own
elastic-job (pkg/constants) work that grows while it runs; nobody has judged how it is counted
safe-to-forcefully-delete, admission-gated-by (pkg/controller/constants), provreq.kueue.x-k8s.io/* (the autoscaler's)
"""
GATED: Mapping[str, Mapping[str, str]] = {
    "pods": {MANAGED: "true", DOMAIN + "role-hash": ""},
    "deployments": {MANAGED: "true", PARENT: "deployment"},
    "statefulsets": {PARENT: "statefulset"},
    "leaderworkersets": {
        PARENT: "leaderworkerset.x-k8s.io/leaderworkerset",
        DOMAIN + "pod-group-serving": "true",
        DOMAIN + "pod-index-offset": "1",
    },
}
"""What Kueue's webhooks write before a guard sees the object, as if its maker had; empty: any value."""
OWN_CONTROLLERS = (
    *("batch.kubernetes.io/job-controller", "jobset.sigs.k8s.io/jobset-controller", "kubeflow.org/mpi-operator"),
    *("kubernetes.io/job-controller", "ray.io/kuberay-operator", "trainer.kubeflow.org/trainjob-controller"),
)
"""What `managedBy` may say: the controller that is meant anyway."""

# Annotations of pods that a network or a runtime obeys. Network plugins, by domain (a domain covers those below it):
#   k8s.v1.cni.cncf.io, v1.multus-cni.io   more networks, the default one: Multus, docs/configuration.md
#   vpc.amazonaws.com, k8s.amazonaws.com   ENIs, addresses that load balancers believe: amazon-vpc-cni-k8s README
#   cni.projectcalico.org                  addresses, pools, allowed source prefixes: Calico, "pod annotations"
#   k8s.ovn.org, ovn.kubernetes.io         OVN-Kubernetes; Kube-OVN, addresses and gateways
#   cilium.io                              policy.cilium.io/no-track-port, ipam.cilium.io/ip-pool, bandwidth.cilium.io:
#                                          cilium pkg/annotation/k8s.go
# and runtimes:
#   cri-o.io, crio.io                      seccomp, processors: CRI-O, pkg/annotations
#   nri.io, noderesource.dev               devices and mounts: containerd/nri, plugins/device-injector
#   containerd.io                          where the restart monitor writes: containerd, core/runtime/restart
NETWORK_DOMAINS = (
    *("cilium.io", "cni.projectcalico.org", "k8s.amazonaws.com", "k8s.ovn.org", "k8s.v1.cni.cncf.io"),
    *("ovn.kubernetes.io", "v1.multus-cni.io", "vpc.amazonaws.com"),
)
RUNTIME_DOMAINS = ("containerd.io", "cri-o.io", "crio.io", "noderesource.dev", "nri.io")
# Keys without a domain, by how they begin: Kata's hypervisor (kata-containers, docs/how-to/how-to-set-sandbox-config),
# CRI-O's devices and containerd's untrusted runtime, gVisor's mounts, Cilium's older names.
SANDBOX_PREFIXES = ("dev.gvisor.", "io.cilium.", "io.katacontainers.", "io.kubernetes.cri-o.", "io.kubernetes.cri.")

ON_NODES = ("system:nodes", f"system:serviceaccounts:{words.OPERATOR_NAMESPACE}")
"""Groups of kubelets, and of NVIDIA's operator: its feature discovery labels any node as the daemons there say, under
every prefix but Kubernetes' own (nfd-master, `denyLabelNs`)."""
NODE_OF_TOKEN = "authentication.kubernetes.io/node-name"
"""Of a service account's token that is bound to a pod: where that pod runs (KEP-4193, on since 1.30)."""
PLACING = (words.PREFIX, NETWORK_LAYER)
"""How the labels of nodes begin that pods, flavors and Kueue's topology choose by, and that a kubelet may write."""
PLACE = "kubernetes.io/hostname"
"""The narrowest of the topology, and what keeps pods of two tenants apart. A kubelet that registers again writes it
once more as it was."""

STEADFAST = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true", "karpenter.sh/do-not-disrupt": "false"}
"""What autoscalers ask before they take a node, and the one answer that holds none (Karpenter takes durations too)."""

MOST_GRACE = 600
"""Seconds that a pod may take to end."""

AUDIENCES = ("", "pods.eks.amazonaws.com", "sts.amazonaws.com")
"""Of tokens: the API server, and those that EKS' own webhook mounts (aws/amazon-eks-pod-identity-webhook)."""
TOKEN_SECONDS = 86400
"""What the same webhook asks for."""


def _cel(value: object) -> str:
    """A constant of ours as a CEL literal; CEL reads JSON's strings and lists."""
    return json.dumps(value)


_DEVICES = _cel(list(gpus.DEVICE_VARIABLES))
_HARMLESS, _CONTROLLERS = _cel(list(HARMLESS_ANNOTATIONS)), _cel(list(CONTROLLERS))
_CHARGED = _cel(list(words.CHARGED_LABELS))
_DOMAINS = _cel([f".{domain}" for domain in (*NETWORK_DOMAINS, *RUNTIME_DOMAINS)])
_PLAIN_RESOURCES = _cel(["cpu", "memory", "ephemeral-storage"])

_TOLERABLE = f"""(t.key in ['node.kubernetes.io/not-ready', 'node.kubernetes.io/unreachable']
            && has(t.effect) && t.effect == 'NoExecute')
        || (t.key == 'node.kubernetes.io/memory-pressure' && has(t.effect) && t.effect == 'NoSchedule')
        || (t.key == {_cel(words.POOL)} && (!has(t.operator) || t.operator in ['', 'Equal'])
            && has(t.value) && t.value in variables.allowedPools)
        || t.key in variables.asked
        || (t.key == {_cel(gpus.GPU_TAINT)} && variables.asked.exists(r, r.startsWith('nvidia.com/')))"""
"""What a toleration `t` may be."""
_ASKED = """variables.allowedResources.filter(r, {containers}.exists(c, has(c.resources) && has(c.resources.limits)
    && r in c.resources.limits && sign(quantity(string(c.resources.limits[r]))) > 0))"""
"""Of the resources that the tenant may have, those that a container asks for."""

_GRANTED = f"""authorizer.group({_cel(words.GPU_GRANT[0])}).resource({_cel(words.GPU_GRANT[1])})
            .namespace(namespaceObject.metadata.name).check({_cel(words.GPU_GRANT[2])}).allowed()"""
_Allowance = words.Allowance
_TENANT = f"namespaceObject.metadata.labels[{_cel(words.TENANT)}]"
_ACCOUNT = """(has(variables.spec.serviceAccountName) && variables.spec.serviceAccountName != ''
        ? variables.spec.serviceAccountName : 'default')"""


def _charged(labels: str) -> str:
    """Whether labels by which somebody is charged are the namespace's."""
    return f"""{labels}.all(k, !(k in {_CHARGED})
        || (k in namespaceObject.metadata.labels && {labels}[k] == namespaceObject.metadata.labels[k]))"""


def _may(leave_out: words.Allowance) -> str:
    return f"({_cel(leave_out.value)} in variables.allowances)"


# The last part holds the tag: a registry's port is in the first.
_IMAGE = f"""({{0}}.contains('@') ? {{0}}.matches({_cel(IMAGE_DIGEST).replace("{", "{{").replace("}", "}}")})
        : {_may(_Allowance.IMAGE_TAGS)} && {{0}}.matches(':[^/]+$') && !{{0}}.endsWith(':latest'))"""
_PLACED = f"(variables.allowedRegistries.exists(p, {{0}}.startsWith(p)) && !{{0}}.matches({_cel(IMAGE_ASTRAY)}))"
"""Whether an image is below a folder of an allowed registry, with no way out of it."""
_OTHERS = f"""x.namespaceSelector.matchExpressions.exists(e, e.key == {_cel(words.TENANT)} && e.operator == 'Exists')
        && x.namespaceSelector.matchExpressions.exists(e, e.key == {_cel(words.TENANT)} && e.operator == 'NotIn'
            && e.values == [{_TENANT}])"""
_APART = f"""(x.topologyKey == 'kubernetes.io/hostname' && has(x.labelSelector)
        && !has(x.labelSelector.matchLabels) && !has(x.labelSelector.matchExpressions)
        && !has(x.matchLabelKeys) && !has(x.mismatchLabelKeys) && !has(x.namespaces)
        && has(x.namespaceSelector) && !has(x.namespaceSelector.matchLabels)
        && has(x.namespaceSelector.matchExpressions) && size(x.namespaceSelector.matchExpressions) == 2
        && {_OTHERS})"""
"""Whether a term `x` keeps off the nodes of every other tenant's pods, and of nobody else's."""

# Rules on pods, over `variables.spec`, `.podLabels`, `.podAnnotations`, `.newAnnotations`, `.newFinalizers`,
# `.containers` and `.asked`. The same text judges a pod and every template of one; what differs is the expression that
# yields these variables.
_POD_RULES: Mapping[str, str] = {
    "gpu-01": f"""has(variables.spec.runtimeClassName) && variables.spec.runtimeClassName != ''
        ? variables.spec.runtimeClassName in variables.allowedRuntimes : {_may(_Allowance.NODE_RUNTIME)}""",
    "gpu-02": f"""variables.containers.all(c, !has(c.env) || c.env.all(e, !(e.name in {_DEVICES})
        || (e.name == 'NVIDIA_VISIBLE_DEVICES' && has(e.value) && e.value in ['void', 'none'])))""",
    "gpu-03": f"""variables.containers.all(c, !has(c.envFrom) || c.envFrom.all(f,
        !has(f.prefix) || f.prefix == '' || !{_DEVICES}.exists(d, d.startsWith(f.prefix))))""",
    "gpu-05": """variables.podAnnotations.all(k,
        !k.startsWith('cdi.k8s.io/') && !k.startsWith('nvidia.cdi.k8s.io/'))""",
    "gpu-06": f"""variables.containers.all(c, !has(c.resources) || (
        (!has(c.resources.limits) || c.resources.limits.all(r,
            r in {_PLAIN_RESOURCES} || r in variables.allowedResources))
        && (!has(c.resources.requests) || c.resources.requests.all(r,
            r in {_PLAIN_RESOURCES} || r in variables.allowedResources))))""",
    "gpu-07": "!has(variables.spec.resourceClaims) || size(variables.spec.resourceClaims) == 0",
    # EKS adds a toleration for each extended resource that a pod asks for, keyed by the resource.
    "sched-01": f"""!has(variables.spec.tolerations) || variables.spec.tolerations.all(t, has(t.key) && (
        {_TOLERABLE}))""",
    "sched-02": "!variables.placing || !has(variables.spec.nodeName) || variables.spec.nodeName == ''",
    "sched-03": f"""!variables.placing || {_may(_Allowance.ANY_NODE)} || (has(variables.spec.nodeSelector)
        && {_cel(words.TENANT)} in variables.spec.nodeSelector
        && variables.spec.nodeSelector[{_cel(words.TENANT)}] == {_TENANT})""",
    "sched-04": """!has(variables.spec.priorityClassName) || variables.spec.priorityClassName == ''
        || variables.spec.priorityClassName in variables.allowedPriorities""",
    "sched-05": """!has(variables.spec.schedulerName)
        || variables.spec.schedulerName in ['', 'default-scheduler']""",
    "sched-06": f"""!has(variables.spec.affinity) || (
        (!has(variables.spec.affinity.podAntiAffinity)
            || !has(variables.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution)
            || variables.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.all(x,
                (!{_may(_Allowance.BESIDE_OTHERS)} && {_APART})
                || (!has(x.namespaceSelector) && (!has(x.namespaces) || size(x.namespaces) == 0))))
        && (!has(variables.spec.affinity.podAffinity)
            || !has(variables.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution)
            || variables.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution.all(x,
                !has(x.namespaceSelector) && (!has(x.namespaces) || size(x.namespaces) == 0))))""",
    "sched-08": f"""!variables.placing || {_may(_Allowance.BESIDE_OTHERS)} || (has(variables.spec.affinity)
        && has(variables.spec.affinity.podAntiAffinity)
        && has(variables.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution)
        && variables.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.exists(x,
            {_APART}))""",
    "img-01": f"""variables.containers.all(c, has(c.image) && {_PLACED.format("c.image")})
        && (!has(variables.spec.volumes) || variables.spec.volumes.all(v, !has(v.image)
            || (has(v.image.reference) && {_PLACED.format("v.image.reference")})))""",
    "img-02": f"""variables.containers.all(c, has(c.image) && {_IMAGE.format("c.image")})
        && (!has(variables.spec.volumes) || variables.spec.volumes.all(v, !has(v.image)
            || (has(v.image.reference) && {_IMAGE.format("v.image.reference")})))""",
    "dns-01": """(!has(variables.spec.dnsPolicy) || variables.spec.dnsPolicy in ['', 'ClusterFirst'])
        && !has(variables.spec.dnsConfig) && !has(variables.spec.hostAliases)""",
    "pod-01": """(!has(variables.spec.os) || variables.spec.os.name == 'linux')
        && (!has(variables.spec.hostUsers) || variables.spec.hostUsers)""",
    "pod-03": f"""{_may(_Allowance.WRITABLE_ROOT)} || variables.containers.all(c, has(c.securityContext)
        && has(c.securityContext.readOnlyRootFilesystem) && c.securityContext.readOnlyRootFilesystem)""",
    "quota-03": "!has(variables.spec.resources)",
    "stor-04": "!has(variables.spec.volumes) || variables.spec.volumes.all(v, !has(v.csi))",
    "avail-01": f"""!has(variables.spec.terminationGracePeriodSeconds)
        || variables.spec.terminationGracePeriodSeconds <= {MOST_GRACE}""",
    "avail-03": "size(variables.newFinalizers) == 0",
    "avail-04": f"""{_cel(STEADFAST)}.all(k, !(k in variables.podAnnotations)
        || variables.podAnnotations[k] == {_cel(STEADFAST)}[k])""",
    "id-03": f"""!has(variables.spec.volumes) || variables.spec.volumes.all(v,
        !has(v.projected) || !has(v.projected.sources) || v.projected.sources.all(s,
            !has(s.serviceAccountToken) || (
                (!has(s.serviceAccountToken.audience) || s.serviceAccountToken.audience in {_cel(list(AUDIENCES))})
                && (!has(s.serviceAccountToken.expirationSeconds)
                    || s.serviceAccountToken.expirationSeconds <= {TOKEN_SECONDS}))))""",
    "id-07": f"""!variables.placing || ({_ACCOUNT} in variables.allowedAccounts
        && (!has(variables.spec.serviceAccount) || variables.spec.serviceAccount == ''
            || variables.spec.serviceAccount == {_ACCOUNT}))""",
    # A pod that nobody told not to has the token among its volumes by now.
    "id-08": f"""!variables.placing || {_ACCOUNT} in variables.tokenAccounts || (
        (!has(variables.spec.automountServiceAccountToken) || !variables.spec.automountServiceAccountToken)
        && (!has(variables.spec.volumes) || variables.spec.volumes.all(v,
            !has(v.projected) || !has(v.projected.sources) || v.projected.sources.all(s,
                !has(s.serviceAccountToken)
                || (has(s.serviceAccountToken.audience) && s.serviceAccountToken.audience != '')))))""",
    # Of what controllers make the template was judged, and its maker asked.
    "gpu-10": f"""!variables.placing || {_may(_Allowance.GPUS_FOR_ALL)} || variables.byController
        || !(size(variables.asked) > 0
            || (has(variables.spec.resourceClaims) && size(variables.spec.resourceClaims) > 0))
        || {_GRANTED}""",
    "net-07": f"""variables.newAnnotations.all(k,
        !{_cel(list(SANDBOX_PREFIXES))}.exists(p, k.startsWith(p))
        && !{_DOMAINS}.exists(d, ('.' + k.split('/')[0]).endsWith(d)))""",
    "cost-01": _charged("variables.podLabels"),
}

# Where devices are claimed. What a claim may hold is judged on the claim (gpu-08), so a pod may name any of its
# namespace; a third way to name one is refused until somebody has judged it. Nobody adds a toleration to a pod with
# a claim, so it brings the GPU nodes' own: gpu-08 lets no claim be empty.
_BY_CLAIM: Mapping[str, str] = {
    "gpu-07": """!has(variables.spec.resourceClaims) || variables.spec.resourceClaims.all(c,
        has(c.resourceClaimName) || has(c.resourceClaimTemplateName))""",
    "sched-01": f"""!has(variables.spec.tolerations) || variables.spec.tolerations.all(t, has(t.key) && (
        {_TOLERABLE}
        || (t.key == {_cel(gpus.GPU_TAINT)}
            && has(variables.spec.resourceClaims) && size(variables.spec.resourceClaims) > 0)))""",
}

# Where there are virtual clusters. A syncer writes into every pod that it makes where their DNS and API server are.
_SYNCED: Mapping[str, str] = {
    "dns-01": f"""({_POD_RULES["dns-01"]})
        || ({_may(_Allowance.SYNCED_NAMES)} && (!variables.placing || request.userInfo.username
            == 'system:serviceaccount:' + namespaceObject.metadata.name + ':' + {_cel(words.VIRTUAL_CLUSTER)}))""",
}

MOST_DEVICES = 32
"""Devices of one claim: no scheduler gives more (`AllocationResultsMaxSize`)."""

# Over `variables.requests` and `.config`, the same of a claim and of a template of one.
_CLAIM_RULES: Mapping[str, str] = {
    # A request without `exactly` is a list of alternatives, or a form that nobody has judged.
    "gpu-08": f"""size(variables.config) == 0 && size(variables.requests) > 0
        && variables.requests.all(r, has(r.exactly)
            && r.exactly.deviceClassName in variables.allowedClasses
            && has(r.exactly.allocationMode) && r.exactly.allocationMode == 'ExactCount'
            && has(r.exactly.count) && r.exactly.count <= {MOST_DEVICES}
            && (!has(r.exactly.adminAccess) || !r.exactly.adminAccess)
            && (!has(r.exactly.tolerations) || size(r.exactly.tolerations) == 0)
            && !has(r.exactly.capacity))"""
}


def _but_by_controllers(rules: Mapping[str, str]) -> dict[str, str]:
    """What controllers make was judged as a template, and what the queue changes is its own."""
    return {rule: f"variables.byController || ({text})" for rule, text in rules.items()}


# Rules on everything that queues, over what `_queue_variables` yields.
_QUEUE_RULES: Mapping[str, str] = _but_by_controllers(
    {
        "kueue-01": f"""(!variables.queues || variables.owned || {_cel(QUEUE)} in variables.workLabels)
        && variables.marks.all(m, !({_cel(QUEUE)} in m) || m[{_cel(QUEUE)}] in variables.allowedQueues)""",
        "kueue-02": "size(variables.newOwners) == 0 && size(variables.lostOwners) == 0",
        "kueue-03": "variables.gates.all(g, g in variables.usualGates)",
        "kueue-06": f"""variables.marks.all(m, !({_cel(URGENCY)} in m)
            || m[{_cel(URGENCY)}] in variables.allowedPriorities)""",
        "kueue-08": f"""variables.marks.all(m, m.all(k, !k.contains({_cel(DOMAIN)}) || k in {_cel(list(WRITABLE))}
            || (k in variables.given && (variables.given[k] == '' || variables.given[k] == m[k]))
            || variables.oldMarks.exists(o, k in o && o[k] == m[k])))
        && variables.oldMarks.all(o, o.all(k, !k.contains({_cel(DOMAIN)}) || k in {_cel(list(WRITABLE))}
            || variables.marks.exists(m, k in m)))""",
        "kueue-10": f"""variables.mostSeconds == '' || !variables.ends || variables.owned
        || ({_cel(RUN_TIME)} in variables.workLabels
            && variables.workLabels[{_cel(RUN_TIME)}].matches('^[1-9][0-9]{{0,8}}$')
            && int(variables.workLabels[{_cel(RUN_TIME)}]) <= int(variables.mostSeconds))""",
    }
)
_QUEUED_PODS: Mapping[str, str] = {
    **_QUEUE_RULES,
    # By its labels a controller knows its pods, and lets go of one that lacks them: it would run on, counted by nobody.
    # A pod that is queued by itself is counted whoever owns it.
    "kueue-02": f"""({_QUEUE_RULES["kueue-02"]}) && (variables.byController || !variables.owned
        || request.operation != 'UPDATE' || !has(oldObject.metadata.labels)
        || {_cel(MANAGED)} in oldObject.metadata.labels
        || oldObject.metadata.labels.all(k, k in variables.podLabels
            && variables.podLabels[k] == oldObject.metadata.labels[k]))""",
    # What the queue marks stays where it stands: of a pod whose label became an annotation Kueue knows nothing.
    "kueue-08": f"""({_QUEUE_RULES["kueue-08"]}) && (variables.byController || request.operation != 'UPDATE' || (
        (!has(oldObject.metadata.labels) || oldObject.metadata.labels.all(k,
            !k.contains({_cel(DOMAIN)}) || k in {_cel(list(WRITABLE))} || k in variables.podLabels))
        && (!has(oldObject.metadata.annotations) || oldObject.metadata.annotations.all(k,
            !k.contains({_cel(DOMAIN)}) || k in {_cel(list(WRITABLE))} || k in variables.podAnnotations))))""",
    # Nobody puts a gate on a pod that is there, and whoever took the queue's off would start past it. Kueue does so
    # itself: it lets go of every pod of a StatefulSet's former revision, admitted or not (pkg/util/statefulset), and a
    # rollout that never ends would run on any share. What it counted it gives a note.
    "kueue-03": f"""({_QUEUE_RULES["kueue-03"]})
        && (request.operation != 'UPDATE' || !has(oldObject.spec.schedulingGates)
            || oldObject.spec.schedulingGates.all(g,
                g.name in variables.gates || !g.name.startsWith({_cel(DOMAIN)})
                || (variables.byQueue && (g.name != {_cel(HELD)} || {_cel(COUNTED)} in variables.podLabels
                    || has(object.metadata.deletionTimestamp)))))""",
    "kueue-07": """request.operation != 'CREATE' || variables.containers.all(c,
        has(c.resources) && has(c.resources.requests)
        && 'cpu' in c.resources.requests && 'memory' in c.resources.requests)""",
    # A Deployment's and a StatefulSet's pods wait each by itself, those of other work with it.
    "kueue-09": f"""request.operation != 'CREATE' || variables.byRunner || {_cel(HELD)} in variables.gates""",
}
# Kueue reads a template before anybody has filled in what its pods will get.
_TEMPLATE_LIMITS: Mapping[str, str] = _but_by_controllers(
    {
        "quota-04": """variables.containers.all(c, !has(c.resources) || !has(c.resources.requests)
        || variables.defaultLimits.all(d, !(d.split('=')[0] in c.resources.requests)
            || (has(c.resources.limits) && d.split('=')[0] in c.resources.limits)
            || !quantity(string(c.resources.requests[d.split('=')[0]])).isGreaterThan(quantity(d.split('=')[1]))))"""
    }
)
_SUSPENSION: Mapping[str, str] = {
    "kueue-04": f"""variables.byRunner || (
        variables.controllers.all(c, c in {_cel(list(OWN_CONTROLLERS))})
        && (!variables.waits || variables.suspended
            || (request.operation == 'UPDATE' && !variables.wasSuspended)))"""
}

# Of objects that are deleted. A pod's grace period may be that of the request, and a Job's pods may stay behind it.
_DELETION_RULES: Mapping[str, str] = {
    "avail-01": f"""request.resource.resource != 'pods' || !has(request.options.gracePeriodSeconds)
        || request.options.gracePeriodSeconds <= {MOST_GRACE}""",
}
_QUEUED_DELETIONS: Mapping[str, str] = {
    "kueue-25": """variables.byController || request.resource.resource == 'pods' || (
        (!has(request.options.propagationPolicy) || request.options.propagationPolicy != 'Orphan')
        && (!has(request.options.orphanDependents) || !request.options.orphanDependents)
        && (request.resource.resource != 'jobs' || has(request.options.propagationPolicy)
            || has(request.options.orphanDependents)))""",  # of a Job without either, the API server leaves the pods
}

_SAME_PROGRAMS = " && ".join(
    f"has(object.spec.{field}) == has(oldObject.spec.{field})"
    f" && (!has(object.spec.{field}) || object.spec.{field} == oldObject.spec.{field})"
    for field in ("initContainers", "ephemeralContainers")
)
_STANDING_PODS: Mapping[str, str] = {
    # Whoever changes what runs in a pod runs it on the GPUs of whoever made the pod.
    "gpu-10": _POD_RULES["gpu-10"].replace(
        "!variables.placing",
        f"(!variables.placing && object.spec.containers == oldObject.spec.containers && {_SAME_PROGRAMS})",
        1,
    )
}

_HAS_TENANT = {"ns-02": f"{_cel(words.TENANT)} in namespaceObject.metadata.labels"}

# Each name is looked up: a walk over the keys costs the API server the square of their number.
_KEYS = f"!has(object.data) || {_DEVICES}.all(d, !(d in object.data))"
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
"""Annotation that goes before `storageClassName`: what the volume binder reads first."""


GUARDED = (
    *(*_HAS_TENANT, *_POD_RULES, *_CLAIM_RULES, "gpu-11"),
    *(*_QUEUED_PODS, *_TEMPLATE_LIMITS, *_SUSPENSION, "kueue-05", *_QUEUED_DELETIONS, "kueue-26"),
    *("avail-02", "gpu-04", "id-01", "id-02", "net-01", "net-02", "net-10", "node-08", "ns-01", "ns-05", "stor-03"),
)
"""Every rule that some guard enforces, those that stand only where there is a queue among them."""
OF_DELETIONS = tuple(_QUEUED_DELETIONS)
"""Rules that nothing breaks but a request to delete what is there."""
BACKSTOPS = ("kueue-07", "kueue-09")
"""Rules that no request comes to as long as another control stands: a limit range, Kueue's own webhooks."""


@dataclass(frozen=True, slots=True)
class Guard:
    """One policy and its binding, over one kind of object."""

    name: str
    resources: Sequence[tuple[str, str, Sequence[str]]]
    """(API group, version, resources)."""
    rules: Mapping[str, str]
    """Rule id -> CEL expression that must hold."""
    variables: Mapping[str, str]
    conditions: Mapping[str, str]
    operations: Sequence[str] = ("CREATE", "UPDATE")


def _noted(key: str) -> str:
    """An annotation of the namespace; empty if it is not there."""
    return f"namespaceObject.metadata.?annotations[?{_cel(key)}].orValue('')"


def _listed(key: str) -> str:
    """No item is empty: every image's name begins with nothing."""
    return f"{_noted(key)}.split(',').filter(x, x != '')"


_KEPT = ("containers", "allowances", "allowedResources", "asked", "defaultLimits", "byController")
"""Variables of pods and their templates that rules share and that take longer to make than to keep."""


def _written_out(guard: Guard) -> Guard:
    """The same guard, whose other variables stand where they are named.

    For what is made often: a variable costs the API server a program of its own at each admission, 3 kB and 7 µs, and
    0.5 kB where nothing asks for it, which is more than a path or a look-up that stands twice.
    """
    texts = {**guard.variables, **guard.rules}
    for name in guard.variables:
        if name not in _KEPT:
            text = texts.pop(name)
            here = text if re.fullmatch(r"[\w.]+", text) else f"({text})"
            named = re.compile(rf"\bvariables\.{name}\b")
            texts = {key: named.sub(lambda _, here=here: here, found) for key, found in texts.items()}
    # Of a template `placing` is no question.
    texts = {key: text.replace("!true || ", "") for key, text in texts.items()}
    kept = {name: texts[name] for name in _KEPT if any(f"variables.{name}" in text for text in texts.values())}
    return replace(guard, rules={rule: texts[rule] for rule in guard.rules}, variables=kept)


def _untyped(text: str) -> str:
    """Fields of whatever object is asked about: one guard reads what only some of its kinds have."""
    return re.sub(r"\b(object|oldObject)(?=\.)", r"dyn(\1)", text)


# What a pod has already is judged no more: a network's agent has written there how the pod is connected, and whoever
# takes one finalizer off leaves the others. Agents of the system write onto pods that stand; those that its controllers
# create hold what a tenant's template says.
_OF_SYSTEM = """('system:serviceaccounts:kube-system' in request.userInfo.groups
    || request.userInfo.username.startsWith('eks:'))"""
_NEW_ANNOTATIONS = f"""variables.podAnnotations.filter(k, request.operation == 'CREATE' || (!{_OF_SYSTEM}
    && !(has(oldObject.metadata.annotations) && k in oldObject.metadata.annotations
        && oldObject.metadata.annotations[k] == variables.podAnnotations[k])))"""
_IN_PLACE = f"""
    && !(f == {_cel(MANAGED)} && {_cel(MANAGED)} in variables.podLabels)"""
"""Kueue's finalizer goes when the work has ended; where no Kueue runs, it would stay for ever."""
_OWN_FINALIZERS = """(has(object.metadata.finalizers) ? object.metadata.finalizers : []).filter(f,
    request.operation == 'CREATE'
        || !(has(oldObject.metadata.finalizers) && f in oldObject.metadata.finalizers))"""
_NEW_FINALIZERS = f"""{_OWN_FINALIZERS}.filter(f,
    !(f == {_cel(JOB_FINALIZER)} && request.userInfo.username in {_cel(list(JOB_CONTROLLERS))}))"""
_OF_WORK: Mapping[str, str] = {
    "avail-03": "variables.byController || size(variables.ownFinalizers) == 0",
    # The queue copies them to what it counts.
    "cost-01": f"!has(object.metadata.labels) || {_charged('object.metadata.labels')}",
}
"""What a rule asks of work itself, beside the pods that it makes."""


def _with_work(rules: Mapping[str, str]) -> dict[str, str]:
    return {rule: f"({text}) && ({_OF_WORK[rule]})" if rule in _OF_WORK else text for rule, text in rules.items()}


_NO_NEW_FINALIZER = f"size({_OWN_FINALIZERS}) == 0"


def _pod_variables(spec: str, metadata: str, placing: str, queued: bool = False) -> dict[str, str]:
    """`spec` and `metadata` yield the pod's; `placing` holds while the scheduler has not seen it."""

    def either(field: str) -> str:
        return f"has({metadata}.{field}) ? {metadata}.{field} : {{}}"

    of_pod = metadata == "object.metadata"
    optional = "" if of_pod else f"has({metadata}) && "
    labels, annotations = (f"{optional}{either(f)}" for f in ("labels", "annotations"))
    finalizers = f"{optional}has({metadata}.finalizers) ? {metadata}.finalizers : []"
    return {
        "spec": spec,
        "podLabels": labels,
        "podAnnotations": annotations,
        "newAnnotations": _NEW_ANNOTATIONS if of_pod else "variables.podAnnotations.filter(k, true)",
        "newFinalizers": _NEW_FINALIZERS + (f".filter(f, true{_IN_PLACE})" if queued else "") if of_pod else finalizers,
        **({} if of_pod else {"ownFinalizers": _OWN_FINALIZERS}),
        "placing": placing,
        "containers": "variables.spec.containers"
        " + (has(variables.spec.initContainers) ? variables.spec.initContainers : [])"
        " + (has(variables.spec.ephemeralContainers) ? variables.spec.ephemeralContainers : [])",
        **_LISTS,
        "asked": _ASKED.format(containers="variables.containers"),
    }


def _map(at: str, optional: Sequence[str]) -> str:
    """A map that may not be there, nor what it stands in."""
    there = " && ".join([*(f"has({part})" for part in optional), f"has({at})"])
    return f"({there} ? {at} : {{}})"


def _marks(root: str, optional: Sequence[str] = ()) -> list[str]:
    return [_map(f"{root}.{field}", optional) for field in ("labels", "annotations")]


_OWN = "{0}.metadata"


@dataclass(frozen=True, slots=True)
class _Work:
    """Where a kind of object says what the queue reads. Expressions, of which `{0}` is the object."""

    work: str
    """Metadata of what is queued."""
    template: str = ""
    """A pod's template in it."""
    queues: str = "true"
    """Whether it is queued by itself, and not only the pods that it makes."""
    ends: str = "true"
    """Whether the queue keeps its run time."""
    given: str = "{}"
    usual: tuple[str, ...] = (PLACED,)


def _queue_variables(environment: Environment, of: _Work) -> dict[str, str]:
    def optional(root: str) -> list[str]:
        """An object's own metadata is always there."""
        return [] if of.work == _OWN else [of.work.format(root)]

    def found(root: str) -> str:
        pods = f"{of.template.format(root)}.metadata"
        return ", ".join(
            [*_marks(of.work.format(root), optional(root)), *(_marks(pods, [pods]) if of.template else [])]
        )

    spec = f"{of.template.format('object')}.spec" if of.template else "object.spec"
    return {
        **_who(environment),
        "workLabels": _map(f"{of.work.format('object')}.labels", optional("object")),
        "marks": f"[{found('object')}]",
        "oldMarks": f"request.operation == 'UPDATE' ? [{found('oldObject')}] : []",
        "queues": of.queues,
        "ends": of.ends,
        "given": of.given,
        "gates": f"has({spec}.schedulingGates) ? {spec}.schedulingGates.map(g, g.name) : []",
        "usualGates": _cel(list(of.usual)),
    }


def _who(environment: Environment) -> dict[str, str]:
    operators = sorted({framework.operator for framework in frameworks(environment)})

    def by(*names: str) -> str:
        return f"request.userInfo.username in {_cel(list(names))}"

    return {
        "byQueue": by(KUEUE),
        "byRunner": by(KUEUE, *JOB_CONTROLLERS, *operators),
        "byController": by(KUEUE, *WORKLOAD_CONTROLLERS, *operators),
        "owned": f"request.operation == 'UPDATE' ? {_owned('oldObject')} : {_owned('object')}",
        "newOwners": f"""(has(object.metadata.ownerReferences) ? object.metadata.ownerReferences : []).filter(o,
    ({_CONTROLS} || (request.operation == 'UPDATE' && {_owned("oldObject")}))
    && !(request.operation == 'UPDATE' && has(oldObject.metadata.ownerReferences)
        && o in oldObject.metadata.ownerReferences)
    && !(request.operation == 'CREATE' && request.resource.resource == 'jobs' && {_OF_CRONJOB}))""",
        "lostOwners": f"""(request.operation == 'UPDATE' && has(oldObject.metadata.ownerReferences)
    ? oldObject.metadata.ownerReferences : []).filter(o, {_CONTROLS}
        && !(has(object.metadata.ownerReferences) && o in object.metadata.ownerReferences))""",
        "allowedQueues": _listed(words.ALLOWED_QUEUES),
        "defaultLimits": _listed(words.DEFAULT_LIMITS),
        "mostSeconds": _noted(words.MAX_RUN_SECONDS),
    }


_CONTROLS = "has(o.controller) && o.controller"
_OF_CRONJOB = "o.kind == 'CronJob' && o.apiVersion == 'batch/v1'"
"""A CronJob is no work: its Jobs are queued like those that somebody makes, `kubectl create job --from` among them."""


def _owned(root: str) -> str:
    """Whether it is a part of other work."""
    references = f"{root}.metadata.ownerReferences"
    return f"(has({references}) && {references}.exists(o, {_CONTROLS} && !({_OF_CRONJOB})))"


_LISTS: Mapping[str, str] = {
    "allowances": _listed(words.ALLOWANCES),
    "allowedAccounts": _listed(words.ALLOWED_ACCOUNTS),
    "allowedRuntimes": _listed(words.ALLOWED_RUNTIMES),
    "tokenAccounts": _listed(words.TOKEN_ACCOUNTS),
    "allowedPools": _listed(words.ALLOWED_POOLS),
    "allowedPriorities": _listed(words.ALLOWED_PRIORITIES),
    "allowedRegistries": _listed(words.ALLOWED_REGISTRIES),
    "allowedResources": _listed(words.ALLOWED_RESOURCES),
}


def _suspension(suspend: str, managed_by: str, waits: str = "true") -> dict[str, str]:
    """Where work says that it waits, and who runs it: paths below the object."""

    def at(root: str, path: str) -> str:
        parts = path.split(".")
        return " && ".join(f"has({root}.{'.'.join(parts[: n + 1])})" for n in range(len(parts)))

    return {
        "waits": waits,
        "suspended": f"{at('object', suspend)} && object.{suspend}",
        "wasSuspended": f"{at('oldObject', suspend)} && oldObject.{suspend}",
        "controllers": f"{at('object', managed_by)} ? [object.{managed_by}] : []",
    }


def frameworks(environment: Environment) -> tuple[Framework, ...]:
    """Kinds that the environment installs and queues."""
    return tuple(FRAMEWORKS[kind] for kind in sorted(environment.queues.kinds)) if environment.queued else ()


# Pod templates of a kind, as a list. A TrainJob has none: what it overrides of a runtime's is judged on its pods.
_RAY = """([{0}.headGroupSpec.template]
    + (has({0}.workerGroupSpecs) ? {0}.workerGroupSpecs.map(w, w.template) : []))"""
_TEMPLATES: Mapping[str, str] = {
    "JobSet": """(has({0}.spec.replicatedJobs)
        ? {0}.spec.replicatedJobs.map(j, j.template.spec.template) : [])""",
    "LeaderWorkerSet": """([{0}.spec.leaderWorkerTemplate.workerTemplate]
        + (has({0}.spec.leaderWorkerTemplate.leaderTemplate) ? [{0}.spec.leaderWorkerTemplate.leaderTemplate] : []))""",
    "MPIJob": "{0}.spec.mpiReplicaSpecs.map(r, {0}.spec.mpiReplicaSpecs[r].template)",
    "RayCluster": _RAY.format("{0}.spec"),
    "RayJob": f"""((has({{0}}.spec.rayClusterSpec) ? {_RAY.format("{0}.spec.rayClusterSpec")} : [])
        + (has({{0}}.spec.submitterPodTemplate) ? [{{0}}.spec.submitterPodTemplate] : []))""",
}
_OF_POD = re.compile(r"variables\.(spec|podLabels|podAnnotations|newAnnotations|newFinalizers|containers|asked)\b")


def _for_each_pod(rule: str) -> str:
    """A rule on one pod as a rule on all of `variables.pods`."""
    text = _OF_POD.sub(r"pod.\1", rule)
    return f"variables.pods.all(pod, {text})"


def _framework_guard(environment: Environment, pod_rules: Mapping[str, str]) -> Guard:
    """Kinds of others: one guard for all, because what it reads of each is a list of templates."""
    kinds = frameworks(environment)

    def templates(root: str) -> str:
        chosen = "[]"
        for framework in kinds:
            if text := _TEMPLATES.get(framework.kind):
                # Nobody's schema: the guard reads what several kinds have in different places.
                chosen = f"object.kind == {_cel(framework.kind)} ? {text.format(f'dyn({root})')} : {chosen}"
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
        "asked": _ASKED.format(containers=containers),
    }

    def marks(root: str) -> str:
        own = ", ".join(_marks(f"{root}.metadata"))
        # A JobSet's jobs have metadata of their own around their pods'.
        jobs = f"(object.kind == 'JobSet' && has(dyn({root}).spec.replicatedJobs) ? dyn({root}).spec.replicatedJobs"
        jobs += ".map(j, j.template) : [])"
        lists = " + ".join(
            f"{found}.map(t, has(t.metadata) && has(t.metadata.{field}) ? t.metadata.{field} : {{}})"
            for field in ("labels", "annotations")
            for found in (templates(root), jobs)
        )
        return f"[{own}] + {lists}"

    def of_kind(values: Mapping[str, str], otherwise: str) -> str:
        chosen = otherwise
        for kind, text in values.items():
            chosen = f"object.kind == {_cel(kind)} ? {text} : {chosen}"
        return chosen

    variables = {
        **_LISTS,
        "templates": templates("object"),
        "pods": f"variables.templates.map(t, {{{', '.join(f'{_cel(k)}: dyn({v})' for k, v in pods.items())}}})",
        "placing": "true",
        "ownFinalizers": _OWN_FINALIZERS,
        **_queue_variables(environment, _Work(_OWN)),
        "marks": marks("object"),
        "oldMarks": f"request.operation == 'UPDATE' ? {marks('oldObject')} : []",
        "ends": "object.kind != 'LeaderWorkerSet'",
        "given": of_kind({"LeaderWorkerSet": _cel(GATED["leaderworkersets"])}, "{}"),
        "gates": """variables.templates.filter(t, has(t.spec.schedulingGates))
            .map(t, t.spec.schedulingGates.map(g, g.name))""",
        **_suspension("spec.suspend", "spec.managedBy"),
    }
    mpi = _suspension("spec.runPolicy.suspend", "spec.runPolicy.managedBy")
    for name in ("suspended", "wasSuspended", "controllers"):
        here, there = (re.sub(r"\b(object|oldObject)\b(?=\.)", r"dyn(\1)", x[name]) for x in (variables, mpi))
        variables[name] = f"object.kind == 'MPIJob' ? ({there}) : ({here})"
    variables["waits"] = "object.kind != 'LeaderWorkerSet'"
    workers = """(!has({0}.workerGroupSpecs) || {0}.workerGroupSpecs.all(w,
        !has(w.minReplicas) || w.minReplicas <= (has(w.replicas) ? w.replicas : 0)))"""
    ray_job = f"""(!has(dyn(object).spec.rayClusterSpec) || {workers.format("dyn(object).spec.rayClusterSpec")})
        && (!has(dyn(object).spec.clusterSelector) || size(dyn(object).spec.clusterSelector) == 0)
        && (!has(dyn(object).spec.ttlSecondsAfterFinished) || dyn(object).spec.ttlSecondsAfterFinished == 0)
        && !has(dyn(object).spec.deletionStrategy)"""
    ray_cluster = workers.format("dyn(object).spec")
    head = "dyn(object).spec.{0}headGroupSpec.?enableIngress.orValue(false)"
    ray = {
        # What is made beside what Kueue counts (v0.19.2, raycluster/common.go, rayjob_controller.go, against KubeRay's
        # `GetWorkerGroupDesiredReplicas` and the end of a RayJob).
        "kueue-26": of_kind({"RayCluster": f"({ray_cluster})", "RayJob": f"({ray_job})"}, "true"),
        "net-01": of_kind(
            {
                "RayCluster": f"!{head.format('')}",
                "RayJob": f"(!has(dyn(object).spec.rayClusterSpec) || !{head.format('rayClusterSpec.')})",
            },
            "true",
        ),
    }
    # A TrainJob has no template: its runtime's may ask for GPUs too.
    each = {rule: _for_each_pod(text) for rule, text in {**pod_rules, **_TEMPLATE_LIMITS}.items()}
    bare = f"{_may(_Allowance.GPUS_FOR_ALL)} || variables.byController || {_GRANTED}"
    each["gpu-10"] = f"({each['gpu-10']}) && (object.kind != 'TrainJob' || {bare})"
    # A list of gates for each template here.
    gates = _but_by_controllers({"kueue-03": "variables.gates.all(l, l.all(g, g in variables.usualGates))"})
    return Guard(
        "tenancy-frameworks",
        [(framework.group, framework.version, [framework.resource]) for framework in kinds],
        {
            **_HAS_TENANT,
            **_with_work(each),
            **_but_by_controllers(ray),
            **_QUEUE_RULES,
            **gates,
            **_SUSPENSION,
        },
        variables,
        {
            **_changed("spec", *_META, "metadata.ownerReferences", also=_NO_NEW_FINALIZER),
            **_controllers(environment.queued),
        },
    )


def _changed(*fields: str, also: str = "") -> dict[str, str]:
    """Nothing is judged twice: a finalizer's removal or a status write passes, whatever the rules say now.

    `also` is what must hold beside for nothing to have changed.
    """
    pairs = [(f"object.{field}", f"oldObject.{field}") for field in fields]
    same = " && ".join(f"(has({n}) == has({o}) && (!has({n}) || {n} == {o}))" for n, o in pairs)
    same += f" && {also}" if also else ""
    return {"changed": f"request.operation != 'UPDATE' || !({same})"}


def _controllers(queued: bool) -> dict[str, str]:
    """Work from before a rule can be stopped: scaled down by its controller, suspended by the queue.

    Whatever else they change is judged, so nothing starts that breaks a rule by now. Not everything that this is asked
    of has a template in one place, or can be suspended.
    """
    ways = [
        f"""(request.userInfo.username in {_cel(list(WORKLOAD_CONTROLLERS))}
        && has(dyn(object).spec.template) && dyn(object).spec.template == dyn(oldObject).spec.template)"""
    ]
    if queued:
        suspended = " || ".join(f"dyn(object).?spec.?{at}suspend.orValue(false)" for at in ("", "runPolicy.?"))
        ways.append(f"(request.userInfo.username == {_cel(KUEUE)} && ({suspended}))")
    return {"stopped": f"request.operation != 'UPDATE' || !({' || '.join(ways)})"}


_META = ("metadata.labels", "metadata.annotations")


def _by_resource(values: Mapping[str, Mapping[str, str]]) -> str:
    """What a guard over several resources yields for the one that is asked for."""
    chosen = "{}"
    for resource, value in values.items():
        chosen = f"request.resource.resource == {_cel(resource)} ? {_cel(value)} : {chosen}"
    return chosen


def guards(environment: Environment) -> tuple[Guard, ...]:
    platform = f"{_cel(environment.platform.group)} in request.userInfo.groups"
    templates = [
        ("batch", "v1", ["jobs"]),
        ("apps", "v1", ["deployments", "statefulsets", "replicasets", "daemonsets"]),
    ]
    pod_rules = {
        **_POD_RULES,
        **(_BY_CLAIM if environment.devices_by_claim else {}),
        **(_SYNCED if environment.virtual_clusters else {}),
    }
    queued = environment.queued
    makers = {"byController": _who(environment)["byController"]}

    def of_queue(rules: Mapping[str, str], of: _Work, **more: str) -> tuple[dict[str, str], dict[str, str]]:
        return ({**rules}, {**_queue_variables(environment, of), **more}) if queued else ({}, {})

    by_hand = "request.resource.resource in ['jobs', 'deployments', 'statefulsets']"
    on_pods = of_queue(
        _QUEUED_PODS,
        _Work(
            _OWN,
            # A pod of other work carries what that work's template says.
            given=f"request.operation == 'CREATE' ? {_cel(GATED['pods'])} : {{}}",
            usual=(HELD, PLACED),
        ),
    )
    is_job = "request.resource.resource == 'jobs'"
    on_templates = of_queue(
        {**_QUEUE_RULES, **_TEMPLATE_LIMITS, **_SUSPENSION},
        _Work(
            *(_OWN, "{0}.spec.template"),
            queues=by_hand,
            ends=is_job,
            given=_by_resource({kind: GATED[kind] for kind in ("deployments", "statefulsets")}),
        ),
        **{k: f"{is_job} && ({_untyped(v)})" for k, v in _suspension("spec.suspend", "").items() if k != "controllers"},
        controllers=f"{is_job} && has(dyn(object).spec.managedBy) ? [dyn(object).spec.managedBy] : []",
    )
    on_cronjobs = of_queue(
        {**_QUEUE_RULES, **_TEMPLATE_LIMITS, **_SUSPENSION},
        _Work("{0}.spec.jobTemplate.metadata", "{0}.spec.jobTemplate.spec.template", queues="false"),
        # Whether it makes Jobs now is its own; each of them waits.
        waits="false",
        suspended="true",
        wasSuspended="true",
        controllers="has(object.spec.jobTemplate.spec.managedBy) ? [object.spec.jobTemplate.spec.managedBy] : []",
    )
    seen = ("spec", *_META, "metadata.ownerReferences") if queued else ("spec",)
    return (
        _written_out(
            Guard(
                "tenancy-pods",
                # A pod's marks can be written by its status too.
                [("", "v1", ["pods", "pods/ephemeralcontainers", *(["pods/status"] if queued else [])])],
                {**_HAS_TENANT, **pod_rules, **_STANDING_PODS, **on_pods[0]},
                {
                    **_pod_variables("object.spec", "object.metadata", "request.operation == 'CREATE'", queued),
                    **makers,
                    **on_pods[1],
                },
                _changed("spec", *_META, *seen[3:], also=_NO_NEW_FINALIZER),
            )
        ),
        _written_out(
            Guard(
                "tenancy-templates",
                [*templates, ("", "v1", ["replicationcontrollers"])],
                {**_HAS_TENANT, **_with_work(pod_rules), **on_templates[0]},
                {
                    **_pod_variables("object.spec.template.spec", "object.spec.template.metadata", "true"),
                    **makers,
                    **on_templates[1],
                },
                {**_changed(*seen, also=_NO_NEW_FINALIZER), **_controllers(queued)},
            )
        ),
        Guard(
            "tenancy-cronjobs",
            [("batch", "v1", ["cronjobs"])],
            {**_HAS_TENANT, **_with_work(pod_rules), **on_cronjobs[0]},
            {
                **_pod_variables(
                    "object.spec.jobTemplate.spec.template.spec",
                    "object.spec.jobTemplate.spec.template.metadata",
                    "true",
                ),
                **makers,
                **on_cronjobs[1],
            },
            _changed(*seen, also=_NO_NEW_FINALIZER),
        ),
        *((_framework_guard(environment, pod_rules),) if frameworks(environment) else ()),
        _scale_guard(environment),
        _deletion_guard(environment),
        *((_queue_guard(),) if queued else ()),
        Guard(
            "tenancy-configmaps",
            [("", "v1", ["configmaps"])],
            {"gpu-04": _KEYS},
            {},
            _changed("data"),
        ),
        Guard(
            "tenancy-secrets",
            [("", "v1", ["secrets"])],
            {"gpu-04": _KEYS, "id-02": "!has(object.type) || object.type != 'kubernetes.io/service-account-token'"},
            {},
            _changed("data"),
        ),
        Guard(
            "tenancy-serviceaccounts",
            [("", "v1", ["serviceaccounts"])],
            {
                "id-01": f"""{platform} || !has(object.metadata.annotations)
        || !object.metadata.annotations.exists(k, k.startsWith('eks.amazonaws.com/'))""",
                # A tenant that leaves loses its accounts first, and the rest waits for that.
                "avail-03": _NO_NEW_FINALIZER,
            },
            {},
            _changed("metadata.annotations", also=_NO_NEW_FINALIZER),
        ),
        Guard(
            "tenancy-services",
            [("", "v1", ["services"])],
            {
                "net-01": f"""(!has(object.spec.type) || object.spec.type == 'ClusterIP')
        && (!has(object.spec.externalIPs) || size(object.spec.externalIPs) == 0)
        && !has(object.spec.externalName)
        && (!has(object.metadata.annotations) || object.metadata.annotations.all(k,
            !k.contains('/') || {_HARMLESS}.exists(p, k.startsWith(p))
            || !{_CONTROLLERS}.exists(d, k.split('/')[0].endsWith(d))))"""
            },
            {},
            _changed("spec", "metadata.annotations"),
        ),
        _network_guard(environment),
        Guard(
            "tenancy-claims",
            [("", "v1", ["persistentvolumeclaims"])],
            {
                "stor-03": f"""has(object.spec.storageClassName) && object.spec.storageClassName != ''
        && object.metadata.?annotations[?{_cel(_OLD_CLASS)}].orValue(object.spec.storageClassName)
            == object.spec.storageClassName
        && !has(object.spec.selector)
        && (!has(object.spec.volumeName) || object.spec.volumeName == ''
            || request.userInfo.username == {_cel(VOLUME_BINDER)}
            || (oldObject != null && has(oldObject.spec.volumeName)
                && oldObject.spec.volumeName == object.spec.volumeName))"""
            },
            {},
            _changed("spec", also=_same_old_class()),
        ),
        Guard(
            "tenancy-budgets",
            [("policy", "v1", ["poddisruptionbudgets"])],
            {
                # How many pods there are nobody knows here: any other number of them that stay may be all. Without
                # any number it is one.
                "avail-02": """(has(object.spec.maxUnavailable)
            ? int(string(object.spec.maxUnavailable).replace('%', '')) > 0 : has(object.spec.minAvailable))
        && (!has(object.spec.minAvailable) || int(string(object.spec.minAvailable).replace('%', '')) == 0)"""
            },
            {},
            _changed("spec"),
        ),
        Guard(
            "tenancy-namespaces",
            [("", "v1", ["namespaces", "namespaces/status", "namespaces/finalize"])],
            {"ns-01": f"{platform} || (variables.labelsKept && variables.annotationsKept)"},
            _namespace_variables(),
            _changed(*_META),
        ),
        Guard(
            "tenancy-removals",
            [("", "v1", ["namespaces"])],
            {"ns-05": f"{platform} || request.userInfo.username in {_cel(list(NAMESPACE_CONTROLLERS))}"},
            {},
            {"tenants": f"has(oldObject.metadata.labels) && {_cel(words.TENANT)} in oldObject.metadata.labels"},
            operations=("DELETE",),
        ),
        _node_guard(),
        *(_claim_guards() if environment.devices_by_claim else ()),
    )


def _scale_guard(environment: Environment) -> Guard:
    """Who may not make work with GPUs makes no more of what others made: no request to scale says what is scaled."""
    others = [(f.group, f.version, [f"{f.resource}/scale"]) for f in frameworks(environment)]
    # No replicas are no field.
    now, before = (f"dyn({root}).?spec.?replicas.orValue(0)" for root in ("object", "oldObject"))
    return Guard(
        "tenancy-scales",
        [
            ("apps", "v1", ["deployments/scale", "statefulsets/scale", "replicasets/scale"]),
            ("", "v1", ["replicationcontrollers/scale"]),
            *others,
            ("autoscaling", "v2", ["horizontalpodautoscalers"]),
        ],
        {
            "gpu-10": f"""{_may(_Allowance.GPUS_FOR_ALL)} || request.userInfo.username in {_cel(list(AUTOSCALERS))}
        || (has(request.subResource) && {now} <= {before}) || {_GRANTED}"""
        },
        {"allowances": _LISTS["allowances"]},
        _changed("spec"),
    )


def _same_old_class() -> str:
    old = f".metadata.?annotations[?{_cel(_OLD_CLASS)}].orValue('none')"
    return f"object{old} == oldObject{old}"


def _deletion_guard(environment: Environment) -> Guard:
    """How work ends. Whoever deletes it chooses how long its pods live on, and whether they go with it."""
    queued = environment.queued
    kinds = [("", "v1", ["pods"])]
    if queued:
        kinds += [("batch", "v1", ["jobs"]), ("apps", "v1", ["deployments", "statefulsets"])]
        kinds += [(f.group, f.version, [f.resource]) for f in frameworks(environment)]
    return Guard(
        DELETIONS,
        kinds,
        {**_DELETION_RULES, **(_QUEUED_DELETIONS if queued else {})},
        {"byController": _who(environment)["byController"]} if queued else {},
        {},
        operations=("DELETE",),
    )


def _node_guard() -> Guard:
    """Whoever takes a node over has its kubelet's rights, and those of the pods on it.

    A kubelet makes its Node with whatever labels it is started with, and cannot take the object away to make it anew.
    """
    key = _cel(NODE_OF_TOKEN)
    extra = f"request.userInfo.extra[{key}]"
    placing = f"({_cel(list(PLACING))}.exists(p, k.startsWith(p)) || k == {_cel(PLACE)})"
    labels, old = (_map(f"{root}.metadata.labels", ()) for root in ("object", "oldObject"))
    return Guard(
        "tenancy-nodes",
        # Labels can be written by the status too, and are by kubelets.
        [("", "v1", ["nodes", "nodes/status"])],
        {"node-08": _kept("labels", "oldLabels", placing)},
        {"labels": labels, "oldLabels": old},
        {
            **_changed("metadata.labels"),
            "node": f"""request.userInfo.groups.exists(g, g in {_cel(list(ON_NODES))})
    || (has(request.userInfo.extra) && {key} in request.userInfo.extra && object.metadata.name in {extra})""",
        },
        operations=("UPDATE",),
    )


def _kept(new: str, old: str, which: str) -> str:
    """Of a map's keys `k`, those that `which` names are as they were: none written, changed or taken off."""
    return (
        f"variables.{new}.all(k, !{which}"
        f" || (k in variables.{old} && variables.{old}[k] == variables.{new}[k]))"
        f" && variables.{old}.all(k, !{which} || k in variables.{new})"
    )


def _network_guard(environment: Environment) -> Guard:
    """NetworkPolicies add up: one of a tenant's own opens what its file opens, and the platform's stand."""
    platform = f"{_cel(environment.platform.group)} in request.userInfo.groups"
    ours = f"has({{0}}.metadata.labels) && {_cel(words.ENVIRONMENT)} in {{0}}.metadata.labels"
    name, tenant = _cel(words.SPACE_NAME), _cel(words.TENANT)

    def home(allowed: str) -> str:
        """Whether a peer `p` of a rule `r` is the namespace, a sibling, or an address that the file names."""
        chosen = "p.namespaceSelector.matchLabels"
        return f"""has(p.ipBlock)
            ? has(r.ports) && size(r.ports) > 0 && r.ports.all(q, has(q.port) && !has(q.endPort)
                && (p.ipBlock.cidr + ':' + string(q.port) + '/' + (has(q.protocol) ? q.protocol : 'TCP'))
                    in variables.{allowed})
            : !has(p.namespaceSelector) || (has({chosen}) && (
                ({name} in {chosen} && {chosen}[{name}] == namespaceObject.metadata.name)
                || ({_cel(words.SIBLINGS)} in variables.{allowed} && {tenant} in {chosen}
                    && {chosen}[{tenant}] == {_TENANT})))"""

    def narrow(direction: str, side: str, allowed: str) -> str:
        at = f"object.spec.{direction}"
        return f"""(!has({at}) || {at}.all(r, has(r.{side}) && size(r.{side}) > 0
            && r.{side}.all(p, {home(allowed)})))"""

    return Guard(
        "tenancy-networkpolicies",
        [("networking.k8s.io", "v1", ["networkpolicies"])],
        {
            "net-10": f"{platform} || !variables.ours || request.userInfo.username in "
            + _cel(list(NAMESPACE_CONTROLLERS)),
            "net-02": f"""{platform} || request.operation == 'DELETE'
        || (request.operation == 'UPDATE' && object.spec == oldObject.spec)
        || ({narrow("ingress", "from", "allowedIngress")} && {narrow("egress", "to", "allowedEgress")})""",
        },
        {
            # Whatever of it changes: with an owner of a tenant's, the garbage collector would take it away.
            "ours": f"""(object != null && {ours.format("object")})
    || (oldObject != null && {ours.format("oldObject")})""",
            "allowedEgress": _listed(words.ALLOWED_EGRESS),
            "allowedIngress": _listed(words.ALLOWED_INGRESS),
        },
        {},
        operations=("CREATE", "UPDATE", "DELETE"),
    )


def _queue_guard() -> Guard:
    """Whoever makes a queue, it leads to the tenant's own share."""
    return Guard(
        "tenancy-queues",
        [("kueue.x-k8s.io", "v1beta2", ["localqueues"])],
        {
            "kueue-05": f"""{_HAS_TENANT["ns-02"]}
        && object.spec.clusterQueue.startsWith({_TENANT} + {_cel(words.SEPARATOR)})"""
        },
        {},
        _changed("spec"),
    )


def _claim_guards() -> Iterator[Guard]:
    """Claims of devices and their templates. What a pod's template makes is a claim, and is judged once more then."""
    counted = """variables.requests.map(r, r.exactly.deviceClassName + '-' + string(r.exactly.count)).join('-')"""
    made = f"""(has(object.metadata.annotations) && {_cel(CLAIM_OF_POD)} in object.metadata.annotations)
        || (has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, {_CONTROLS}))"""
    named = f"(object.metadata.name == {counted} || object.metadata.name.startsWith({counted} + '.'))"
    rules = {
        # The cluster takes a claim for a pod's own by these two, whatever it asks for.
        "resourceclaims": {
            **_CLAIM_RULES,
            "gpu-11": f"request.userInfo.username in {_cel(list(CLAIM_CONTROLLERS))} || !({made})",
        },
        # The queue counts a template when work comes, and claims are made from what has that name by then.
        "resourceclaimtemplates": {rule: f"({text}) && {named}" for rule, text in _CLAIM_RULES.items()},
    }
    for what, spec in {"resourceclaims": "object.spec", "resourceclaimtemplates": "object.spec.spec"}.items():
        lists = {field: f"{spec}.devices.{field}" for field in ("requests", "config")}
        yield Guard(
            f"tenancy-{what}",
            [("resource.k8s.io", "v1", [what])],
            rules[what],
            {
                # The API server hands over a list that nobody wrote as null.
                **{name: f"has({at}) && {at} != null ? {at} : []" for name, at in lists.items()},
                "allowedClasses": _listed(words.ALLOWED_DEVICE_CLASSES),
            },
            _changed("spec", "metadata.annotations", "metadata.ownerReferences"),
        )


def _namespace_variables() -> dict[str, str]:
    def either(root: str, field: str) -> str:
        null = "" if root == "object" else f"{root} != null && "
        return f"{null}has({root}.metadata.{field}) ? {root}.metadata.{field} : {{}}"

    ours = f"k.startsWith({_cel(words.PREFIX)})"
    protected = (
        f"({ours} || k.startsWith('pod-security.kubernetes.io/') || k.startsWith('kueue.x-k8s.io/')"
        " || k in ['resource.kubernetes.io/admin-access', 'resource.k8s.io/admin-access']"
        f" || k in {_cel([words.MANAGED_BY, *words.COST_LABELS])})"
    )

    return {
        "labels": either("object", "labels"),
        "oldLabels": either("oldObject", "labels"),
        "annotations": either("object", "annotations"),
        "oldAnnotations": either("oldObject", "annotations"),
        "labelsKept": _kept("labels", "oldLabels", protected),
        "annotationsKept": _kept("annotations", "oldAnnotations", ours),
    }


def refusal(rule: str, docs: str) -> str:
    """What a tenant reads: the rule's id, what it asks for, what to change and where to read."""
    found = RULES[rule]
    return f"{rule}: {found.title}. To change: {found.fix}. Read {docs}#{rule}"


def guard_objects(environment: Environment) -> tuple[Object, ...]:
    """Every policy, then every binding."""
    labels = platform_labels(environment)
    selector = beside_the_systems(environment)
    policies, bindings = [], []
    for guard in guards(environment):
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                # The binding selects: of every policy it is asked before the kind, of a binding after.
                "namespaceSelector": {},
                "objectSelector": {},
                "resourceRules": [
                    {
                        "apiGroups": [group],
                        "apiVersions": [version],
                        "operations": list(guard.operations),
                        "resources": list(resources),
                        "scope": "*",
                    }
                    for group, version, resources in guard.resources
                ],
            },
            "matchConditions": _named(guard.conditions),
            **({"variables": _named(guard.variables)} if guard.variables else {}),
            "validations": [
                {
                    "expression": _one_line(expression),
                    "message": refusal(rule, environment.platform.docs),
                    "reason": "Forbidden",
                }
                for rule, expression in guard.rules.items()
            ],
        }
        api = "admissionregistration.k8s.io/v1"
        policies.append(manifest(api, "ValidatingAdmissionPolicy", guard.name, labels, {"spec": spec}))
        # Audit beside the other: the audit log then names the rule.
        audit = environment.guards is GuardsMode.AUDIT
        everywhere = {"matchPolicy": "Equivalent", "namespaceSelector": selector, "objectSelector": {}}
        actions = ["Warn" if audit else "Deny", "Audit"]
        binding = {"policyName": guard.name, "matchResources": everywhere, "validationActions": actions}
        notes = {words.GUARDS_MODE: environment.guards.value} if audit else None
        kind, body = "ValidatingAdmissionPolicyBinding", {"spec": binding}
        bindings.append(manifest(api, kind, guard.name, labels, body, annotations=notes))
    return (*policies, *bindings)


def standing(digest_of_guards: str) -> str:
    """What the witness answers."""
    return f"guards {digest_of_guards} are in force"


def witness(environment: Environment, guard_list: tuple[Object, ...]) -> tuple[Object, ...]:
    """A policy that refuses one name and says which guards stand; made after them.

    An API server takes up new policies about a second after they are stored, all that it has seen at once
    and in the order in which they were stored: one that knows the witness knows every guard.
    """
    api, labels = "admissionregistration.k8s.io/v1", platform_labels(environment)
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": words.PLATFORM_NAMESPACE}},
            "objectSelector": {},
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["configmaps"],
                    "scope": "*",
                }
            ],
        },
        "matchConditions": [{"name": "question", "expression": f"object.metadata.name == {_cel(QUESTION)}"}],
        "validations": [{"expression": "false", "message": standing(digest(list(guard_list))), "reason": "Forbidden"}],
    }
    binding = {"policyName": WITNESS, "validationActions": ["Deny"]}
    return (
        manifest(api, "ValidatingAdmissionPolicy", WITNESS, labels, {"spec": spec}),
        manifest(api, "ValidatingAdmissionPolicyBinding", WITNESS, labels, {"spec": binding}),
    )


def marker(environment: Environment, guard_list: tuple[Object, ...]) -> Object:
    """Made after the guards: what a tenant's own stack looks for before it makes anything."""
    data = {"version": str(VERSION), "digest": digest(list(guard_list))}
    return manifest(
        "v1", "ConfigMap", MARKER, platform_labels(environment), {"data": data}, namespace=words.PLATFORM_NAMESPACE
    )


def _named(expressions: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "expression": _one_line(text)} for name, text in expressions.items()]


def _one_line(text: str) -> str:
    return " ".join(text.split())
