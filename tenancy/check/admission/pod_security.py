"""Pod Security, by the labels of a namespace.

Source: `k8s.io/pod-security-admission` v0.36.3 `admission/admission.go`; what a level allows is in
`tenancy.rules.pod_security`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenancy.catalog import vocabulary
from tenancy.check.admission.cluster import ClusterObjects
from tenancy.check.admission.requests import AdmissionRequest, Operation
from tenancy.check.admission.verdicts import Denial
from tenancy.kube.deniers import POD_SECURITY
from tenancy.kube.objects import get_path
from tenancy.kube.pod_templates import templates_of
from tenancy.rules.pod_security import LATEST, PodSecurityLevel, breaches, level_of, minor_of


def pod_security_denials(request: AdmissionRequest, cluster: ClusterObjects, minor: int) -> Iterator[Denial]:
    """Fields of a pod that the level of the namespace refuses; `minor` is the cluster's own version."""
    is_checked = request.operation is Operation.CREATE or (
        request.operation is Operation.UPDATE and request.subresource in ("", "ephemeralcontainers")
    )
    if request.group or request.resource != "pods" or not is_checked or request.object is None or not request.namespace:
        return
    if request.operation is Operation.CREATE and request.subresource:
        return
    space = cluster.namespace(request.namespace)
    if get_path(space, "metadata", "labels", vocabulary.PSA_ENFORCE) is None:
        return
    level, version = level_of(space), minor_of(space)
    if level is PodSecurityLevel.PRIVILEGED:
        return
    for template in templates_of(request.object):
        # A version that the cluster does not know yet means its own.
        broken = list(breaches(template, level, min(version, minor)))
        if broken:
            version_text = "latest" if version == LATEST else f"v1.{version}"
            fields = ", ".join(map(str, broken))
            yield Denial(POD_SECURITY, None, f'violates PodSecurity "{level}:{version_text}": {fields}', broken[0].path)
