"""Rules on pods. The same text judges a pod and every template of one."""

from __future__ import annotations

from collections.abc import Mapping

from tenancy.catalog import gpus, sizes
from tenancy.catalog import vocabulary as words
from tenancy.catalog.sizes import MOST_GRACE
from tenancy.catalog.vocabulary import Allowance
from tenancy.planning.guards.expressions import (
    DEVICES,
    GRANTED,
    OF_TENANT,
    OWN_FINALIZERS,
    cel,
    charged,
    listed,
    may,
)
from tenancy.planning.guards.names import JOB_CONTROLLERS, JOB_FINALIZER, MANAGED
from tenancy.rules.pod_security import HOSTS
from tenancy.rules.values import IMAGE_ASTRAY, IMAGE_DIGEST

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

STEADFAST = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true", "karpenter.sh/do-not-disrupt": "false"}
"""Annotations that autoscalers read before they remove a node, and the one value that does not block the removal
(Karpenter takes durations too)."""

AUDIENCES = ("", "pods.eks.amazonaws.com", "sts.amazonaws.com")
"""Of tokens: the API server, and those that EKS' own webhook mounts (aws/amazon-eks-pod-identity-webhook)."""
TOKEN_SECONDS = 86400
"""What the same webhook asks for."""
DOMAINS_OF_NODE = cel([f".{domain}" for domain in (*NETWORK_DOMAINS, *RUNTIME_DOMAINS, "cdi.k8s.io")])
"""Of annotations that the node obeys: each is judged by net-07 or gpu-05."""
_DOMAINS = cel([f".{domain}" for domain in (*NETWORK_DOMAINS, *RUNTIME_DOMAINS)])
PLAIN_RESOURCES = cel(["cpu", "memory", "ephemeral-storage"])

_TOLERABLE = f"""(t.key in ['node.kubernetes.io/not-ready', 'node.kubernetes.io/unreachable']
            && has(t.effect) && t.effect == 'NoExecute')
        || (t.key == 'node.kubernetes.io/memory-pressure' && has(t.effect) && t.effect == 'NoSchedule')
        || (t.key == {cel(words.POOL)} && (!has(t.operator) || t.operator in ['', 'Equal'])
            && has(t.value) && t.value in variables.allowedPools)
        || t.key in variables.asked
        || (t.key == {cel(gpus.GPU_TAINT)} && variables.asked.exists(r, r.startsWith('nvidia.com/')))"""
"""What a toleration `t` may be."""
ASKED = """variables.allowedResources.filter(r, {containers}.exists(c, has(c.resources) && has(c.resources.limits)
    && r in c.resources.limits && sign(quantity(string(c.resources.limits[r]))) > 0))"""
"""Of the resources that the tenant may have, those that a container asks for."""
_ACCOUNT = """(has(variables.spec.serviceAccountName) && variables.spec.serviceAccountName != ''
        ? variables.spec.serviceAccountName : 'default')"""

# The last part contains the tag: a registry's port is in the first.
_IMAGE = f"""({{0}}.contains('@') ? {{0}}.matches({cel(IMAGE_DIGEST).replace("{", "{{").replace("}", "}}")})
        : {may(Allowance.IMAGE_TAGS)} && {{0}}.matches(':[^/]+$') && !{{0}}.endsWith(':latest'))"""
_PLACED = f"(variables.allowedRegistries.exists(p, {{0}}.startsWith(p)) && !{{0}}.matches({cel(IMAGE_ASTRAY)}))"
"""Whether an image is below a folder of an allowed registry, with no way out of it."""
_OTHERS = f"""x.namespaceSelector.matchExpressions.exists(e, e.key == {cel(words.TENANT)} && e.operator == 'Exists')
        && x.namespaceSelector.matchExpressions.exists(e, e.key == {cel(words.TENANT)} && e.operator == 'NotIn'
            && e.values == [{OF_TENANT}])"""
_APART = f"""(x.topologyKey == 'kubernetes.io/hostname' && has(x.labelSelector)
        && !has(x.labelSelector.matchLabels) && !has(x.labelSelector.matchExpressions)
        && !has(x.matchLabelKeys) && !has(x.mismatchLabelKeys) && !has(x.namespaces)
        && has(x.namespaceSelector) && !has(x.namespaceSelector.matchLabels)
        && has(x.namespaceSelector.matchExpressions) && size(x.namespaceSelector.matchExpressions) == 2
        && {_OTHERS})"""
"""Whether a term `x` keeps a pod off nodes with pods of other tenants, and off no other nodes."""


def _short(probe: str) -> str:
    at = f"c.{probe}.terminationGracePeriodSeconds"
    return f"(!has(c.{probe}) || !has({at}) || {at} <= {MOST_GRACE})"


def _terms(kind: str, field: str) -> str:
    """Terms of a pod's affinity of a kind; none if there are none."""
    at = f"variables.spec.affinity.{kind}"
    return f"(has({at}) && has({at}.{field}) ? {at}.{field} : [])"


_REQUIRED, _PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))
_AFFINITIES = ("podAffinity", "podAntiAffinity")
_AT_HOME = """(has(x.podAffinityTerm) && !has(x.podAffinityTerm.namespaceSelector)
            && (!has(x.podAffinityTerm.namespaces) || size(x.podAffinityTerm.namespaces) == 0))"""
# The node of a pod reveals which pods it preferred or avoided. For pods that controllers make, the template was judged.
_PREFERS = " && ".join(f"{_terms(kind, _PREFERRED)}.all(x, {_AT_HOME})" for kind in _AFFINITIES)
_FEW_TERMS = " && ".join(
    f"size({_terms(kind, field)}) <= {sizes.AFFINITY_TERMS}"
    for kind in _AFFINITIES
    for field in (_REQUIRED, _PREFERRED)
)


def _asks_for_gpus(passes: str) -> str:
    """Whether a pod asks for no GPU, or its author may ask for GPUs; `passes`: true for any request."""
    return f"""{passes} || {may(Allowance.GPUS_FOR_ALL)} || variables.byController
        || !(size(variables.asked) > 0
            || (has(variables.spec.resourceClaims) && size(variables.spec.resourceClaims) > 0))
        || {GRANTED}"""


# Rules on pods, over `variables.spec`, `.podLabels`, `.podAnnotations`, `.newAnnotations`, `.newFinalizers`,
# `.containers` and `.asked`. The same text judges a pod and every template of one; what differs is the expression that
# yields these variables.
POD_RULES: Mapping[str, str] = {
    "gpu-01": f"""has(variables.spec.runtimeClassName) && variables.spec.runtimeClassName != ''
        ? variables.spec.runtimeClassName in variables.allowedRuntimes : {may(Allowance.NODE_RUNTIME)}""",
    "gpu-02": f"""variables.containers.all(c, !has(c.env) || c.env.all(e, !(e.name in {DEVICES})
        || (e.name == 'NVIDIA_VISIBLE_DEVICES' && !has(e.valueFrom)
            && (!has(e.value) || e.value in ['', 'void', 'none']))))""",
    "gpu-03": f"""variables.containers.all(c, !has(c.envFrom) || c.envFrom.all(f,
        !has(f.prefix) || f.prefix == '' || !{DEVICES}.exists(d, d.startsWith(f.prefix))))""",
    "gpu-05": """variables.podAnnotations.all(k,
        !k.startsWith('cdi.k8s.io/') && !k.startsWith('nvidia.cdi.k8s.io/'))""",
    "gpu-06": f"""variables.containers.all(c, !has(c.resources) || (
        (!has(c.resources.limits) || c.resources.limits.all(r,
            r in {PLAIN_RESOURCES} || r in variables.allowedResources))
        && (!has(c.resources.requests) || c.resources.requests.all(r,
            r in {PLAIN_RESOURCES} || r in variables.allowedResources))))""",
    "gpu-07": "!has(variables.spec.resourceClaims) || size(variables.spec.resourceClaims) == 0",
    # EKS adds a toleration for each extended resource that a pod asks for, keyed by the resource.
    "sched-01": f"""!has(variables.spec.tolerations) || variables.spec.tolerations.all(t, has(t.key) && (
        {_TOLERABLE}))""",
    "sched-02": "!variables.placing || !has(variables.spec.nodeName) || variables.spec.nodeName == ''",
    "sched-03": f"""!variables.placing || {may(Allowance.ANY_NODE)} || (has(variables.spec.nodeSelector)
        && {cel(words.TENANT)} in variables.spec.nodeSelector
        && variables.spec.nodeSelector[{cel(words.TENANT)}] == {OF_TENANT})""",
    "sched-04": """!has(variables.spec.priorityClassName) || variables.spec.priorityClassName == ''
        || variables.spec.priorityClassName in variables.allowedPriorities""",
    "sched-05": """!has(variables.spec.schedulerName)
        || variables.spec.schedulerName in ['', 'default-scheduler']""",
    "sched-06": f"""!has(variables.spec.affinity) || (
        (!has(variables.spec.affinity.podAntiAffinity)
            || !has(variables.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution)
            || variables.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.all(x,
                (!{may(Allowance.BESIDE_OTHERS)} && {_APART})
                || (!has(x.namespaceSelector) && (!has(x.namespaces) || size(x.namespaces) == 0))))
        && (!has(variables.spec.affinity.podAffinity)
            || !has(variables.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution)
            || variables.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution.all(x,
                !has(x.namespaceSelector) && (!has(x.namespaces) || size(x.namespaces) == 0)))
        && (!variables.placing || variables.byController || ({_PREFERS})))""",
    "sched-09": f"""!variables.placing || variables.byController || !has(variables.spec.affinity)
        || ({_FEW_TERMS})""",
    "sched-08": f"""!variables.placing || {may(Allowance.BESIDE_OTHERS)} || (has(variables.spec.affinity)
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
    # The MPI operator lets workers find each other by their Service.
    "dns-01": """(!has(variables.spec.dnsPolicy) || variables.spec.dnsPolicy in ['', 'ClusterFirst'])
        && (!has(variables.spec.dnsConfig) || (!has(variables.spec.dnsConfig.nameservers)
            && !has(variables.spec.dnsConfig.options) && (!has(variables.spec.dnsConfig.searches)
            || variables.spec.dnsConfig.searches.all(s,
                s.endsWith('.' + request.namespace + '.svc.cluster.local')))))
        && !has(variables.spec.hostAliases)""",
    "pod-01": """(!has(variables.spec.os) || variables.spec.os.name == 'linux')
        && (!has(variables.spec.hostUsers) || variables.spec.hostUsers)""",
    "pod-03": f"""{may(Allowance.WRITABLE_ROOT)} || variables.containers.all(c, has(c.securityContext)
        && has(c.securityContext.readOnlyRootFilesystem) && c.securityContext.readOnlyRootFilesystem)""",
    "quota-03": "!has(variables.spec.resources)",
    "stor-04": "!has(variables.spec.volumes) || variables.spec.volumes.all(v, !has(v.csi))",
    # A probe that fails ends its container with a grace period of its own, and a deletion waits for that.
    "avail-01": f"""(!has(variables.spec.terminationGracePeriodSeconds)
            || variables.spec.terminationGracePeriodSeconds <= {MOST_GRACE})
        && variables.containers.all(c, {_short("livenessProbe")} && {_short("startupProbe")})""",
    "avail-03": "size(variables.newFinalizers) == 0",
    # With a grace period of zero a deletion leaves nothing for the kubelet to end: quota and queue are free at once.
    "avail-06": """!variables.placing || variables.byController || !has(variables.spec.terminationGracePeriodSeconds)
        || variables.spec.terminationGracePeriodSeconds > 0""",
    "avail-04": f"""{cel(STEADFAST)}.all(k, !(k in variables.podAnnotations)
        || variables.podAnnotations[k] == {cel(STEADFAST)}[k])""",
    "id-03": f"""!has(variables.spec.volumes) || variables.spec.volumes.all(v,
        !has(v.projected) || !has(v.projected.sources) || v.projected.sources.all(s,
            !has(s.serviceAccountToken) || (
                (!has(s.serviceAccountToken.audience) || s.serviceAccountToken.audience in {cel(list(AUDIENCES))})
                && (!has(s.serviceAccountToken.expirationSeconds)
                    || s.serviceAccountToken.expirationSeconds <= {TOKEN_SECONDS}))))""",
    "id-07": f"""!variables.placing || ({_ACCOUNT} in variables.allowedAccounts
        && (!has(variables.spec.serviceAccount) || variables.spec.serviceAccount == ''
            || variables.spec.serviceAccount == {_ACCOUNT}))""",
    # A pod that does not opt out has the token among its volumes by now.
    # A certificate of one of Kubernetes' own signers is a token that lives for weeks; no account is given one.
    "id-08": f"""(!variables.placing || {_ACCOUNT} in variables.tokenAccounts || (
        (!has(variables.spec.automountServiceAccountToken) || !variables.spec.automountServiceAccountToken)
        && (!has(variables.spec.volumes) || variables.spec.volumes.all(v,
            !has(v.projected) || !has(v.projected.sources) || v.projected.sources.all(s,
                !has(s.serviceAccountToken)
                || (has(s.serviceAccountToken.audience) && s.serviceAccountToken.audience != ''))))))
        && (!variables.placing || !has(variables.spec.volumes) || variables.spec.volumes.all(v,
            !has(v.projected) || !has(v.projected.sources) || v.projected.sources.all(s,
                !has(s.podCertificate) || (has(s.podCertificate.signerName)
                    && !s.podCertificate.signerName.startsWith('kubernetes.io/')))))""",
    # For pods that controllers make, the template was judged, and its author's right was checked.
    "gpu-10": _asks_for_gpus("!variables.placing"),
    "net-07": f"""variables.newAnnotations.all(k,
        !{cel(list(SANDBOX_PREFIXES))}.exists(p, k.startsWith(p))
        && !{_DOMAINS}.exists(d, ('.' + k.split('/')[0]).endsWith(d)))""",
    "cost-01": charged("variables.podLabels"),
}

# Where devices are claimed. What a claim may hold is judged on the claim (gpu-08), so a pod may name any of its
# namespace; a third way to name one is refused until it has been reviewed. No admission plugin adds a toleration to a
# pod with a claim, so the pod has to name that of the GPU nodes itself: gpu-08 lets no claim be empty.
BY_CLAIM: Mapping[str, str] = {
    "gpu-07": """!has(variables.spec.resourceClaims) || variables.spec.resourceClaims.all(c,
        has(c.resourceClaimName) || has(c.resourceClaimTemplateName))""",
    "sched-01": f"""!has(variables.spec.tolerations) || variables.spec.tolerations.all(t, has(t.key) && (
        {_TOLERABLE}
        || (t.key == {cel(gpus.GPU_TAINT)}
            && has(variables.spec.resourceClaims) && size(variables.spec.resourceClaims) > 0)))""",
}

# Where there are virtual clusters. A syncer writes into every pod that it makes where their DNS and API server are.
SYNCED: Mapping[str, str] = {
    "dns-01": f"""({POD_RULES["dns-01"]})
        || ({may(Allowance.SYNCED_NAMES)} && (!variables.placing || request.userInfo.username
            == 'system:serviceaccount:' + namespaceObject.metadata.name + ':' + {cel(words.VIRTUAL_CLUSTER)}))""",
}

_SAME_PROGRAMS = " && ".join(
    f"has(object.spec.{field}) == has(oldObject.spec.{field})"
    f" && (!has(object.spec.{field}) || object.spec.{field} == oldObject.spec.{field})"
    for field in ("initContainers", "ephemeralContainers")
)
STANDING_PODS: Mapping[str, str] = {
    # A request that changes what runs in a pod uses the GPUs of the pod's author.
    "gpu-10": _asks_for_gpus(
        f"(!variables.placing && object.spec.containers == oldObject.spec.containers && {_SAME_PROGRAMS})"
    )
}


def _own_host(field: str) -> str:
    steps = field.split(".")
    absent = [f"!has(c.{'.'.join(steps[: number + 1])})" for number in range(len(steps))]
    return f"({' || '.join([*absent, f'c.{field} == {cel(str())}'])})"


PROBE_HOSTS: Mapping[str, str] = {
    "pod-05": f"variables.containers.all(c, {' && '.join(_own_host(field) for field in HOSTS)})"
}
"""Where Pod Security of the cluster's version has no check of them."""

# What a pod has already is not judged again: a network agent has written there how the pod is connected, and a request
# that removes one finalizer leaves the others. Agents of the system write onto pods that exist; pods that its
# controllers create have what a tenant's template says.
_OF_SYSTEM = """('system:serviceaccounts:kube-system' in request.userInfo.groups
    || request.userInfo.username.startsWith('eks:'))"""
_NEW_ANNOTATIONS = f"""variables.podAnnotations.filter(k, request.operation == 'CREATE' || (!{_OF_SYSTEM}
    && !(has(oldObject.metadata.annotations) && k in oldObject.metadata.annotations
        && oldObject.metadata.annotations[k] == variables.podAnnotations[k])))"""
_IN_PLACE = f"""
    && !(f == {cel(MANAGED)} && {cel(MANAGED)} in variables.podLabels)"""
"""Kueue's finalizer goes when the work has ended; where no Kueue runs, it would stay for ever."""
_NEW_FINALIZERS = f"""{OWN_FINALIZERS}.filter(f,
    !(f == {cel(JOB_FINALIZER)} && request.userInfo.username in {cel(list(JOB_CONTROLLERS))}))"""
_OF_WORK: Mapping[str, str] = {
    "avail-03": "variables.byController || size(variables.ownFinalizers) == 0",
    # The queue copies them to what it counts.
    "cost-01": f"!has(object.metadata.labels) || {charged('object.metadata.labels')}",
}
"""What a rule asks of work itself, beside the pods that it makes."""


def with_work(rules: Mapping[str, str]) -> dict[str, str]:
    """The rules, each with what it also requires of work itself, beside its pods."""
    return {rule: f"({text}) && ({_OF_WORK[rule]})" if rule in _OF_WORK else text for rule, text in rules.items()}


def pod_variables(spec: str, metadata: str, placing: str, queued: bool = False) -> dict[str, str]:
    """`spec` and `metadata` yield the pod's; `placing` is true while the scheduler has not seen it."""

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
        **({} if of_pod else {"ownFinalizers": OWN_FINALIZERS}),
        "placing": placing,
        "containers": "variables.spec.containers"
        " + (has(variables.spec.initContainers) ? variables.spec.initContainers : [])"
        " + (has(variables.spec.ephemeralContainers) ? variables.spec.ephemeralContainers : [])",
        **LISTS,
        "asked": ASKED.format(containers="variables.containers"),
    }


LISTS: Mapping[str, str] = {
    "allowances": listed(words.ALLOWANCES),
    "allowedAccounts": listed(words.ALLOWED_ACCOUNTS),
    "allowedRuntimes": listed(words.ALLOWED_RUNTIMES),
    "tokenAccounts": listed(words.TOKEN_ACCOUNTS),
    "allowedPools": listed(words.ALLOWED_POOLS),
    "allowedPriorities": listed(words.ALLOWED_PRIORITIES),
    "allowedRegistries": listed(words.ALLOWED_REGISTRIES),
    "allowedResources": listed(words.ALLOWED_RESOURCES),
}
