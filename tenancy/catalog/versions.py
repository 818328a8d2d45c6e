"""Every pin that is neither a Python package nor one of the lab's tools: charts, add-ons, node images.

Read 2026-11-20; the source is named beside each. No other module pins a version; comments elsewhere cite the version
whose source was read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime


@dataclass(frozen=True, slots=True)
class ChartPin:
    """One release of a chart. A repository with `oci://` contains the chart's folder, not an index."""

    repository: str
    chart: str
    version: str


CHARTS: Mapping[str, ChartPin] = {
    # NVIDIA/gpu-operator tag v26.7.0, 2026-08-20; that it is the supported line: cloud-native-docs platform-support.
    "gpu-operator": ChartPin("https://helm.ngc.nvidia.com/nvidia", "gpu-operator", "v26.7.0"),
    # aws/karpenter-provider-aws tag v1.14.1, 2026-08-21. The chart in that tag still says 1.13.0: releases rewrite it.
    # 1.14.3 and 1.15.2 are out: not taken, because the objects and the policies here were read in the source of 1.14.1,
    # and CRDs of 1.15.2 take them too (only additions, compared 2026-11-27).
    "karpenter": ChartPin("oci://public.ecr.aws/karpenter", "karpenter", "1.14.1"),
    "karpenter-crd": ChartPin("oci://public.ecr.aws/karpenter", "karpenter-crd", "1.14.1"),
    # A patch of 1.18 seen in use, 2026-07; the values are judged by the chart of 1.18.0 (Go module cilium v1.18.0).
    "cilium": ChartPin("https://helm.cilium.io", "cilium", "1.18.11"),
    # aws/eks-charts@5239609, 2026-08-03.
    "aws-efa-k8s-device-plugin": ChartPin("https://aws.github.io/eks-charts", "aws-efa-k8s-device-plugin", "v0.5.30"),
    # The chart in the Go module v0.19.2 takes images of a staging registry; the published one those of the release.
    "kueue": ChartPin("oci://registry.k8s.io/kueue/charts", "kueue", "0.19.2"),
    # The release of the driver that gpu-operator v26.7.0 ships; kubernetes-sigs/dra-driver-nvidia-gpu.
    "dra-driver-nvidia-gpu": ChartPin(
        "oci://registry.k8s.io/dra-driver-nvidia/charts", "dra-driver-nvidia-gpu", "0.5.0"
    ),
    # The line that vcluster's documentation called stable on 2026-11-20; values of loft-sh/vcluster tag v0.34.0.
    "vcluster": ChartPin("https://charts.loft.sh", "vcluster", "0.34.0"),
    # prometheus-community/helm-charts, 2026-09-04 and 2026-08-10. Both are of operator v0.93.1: two bug fixes after
    # v0.93.0, whose definitions tests judge by.
    "kube-prometheus-stack": ChartPin("oci://ghcr.io/prometheus-community/charts", "kube-prometheus-stack", "89.2.2"),
    "prometheus-operator-crds": ChartPin(
        "oci://ghcr.io/prometheus-community/charts", "prometheus-operator-crds", "31.0.1"
    ),
}

COST_CHARTS: Mapping[str, ChartPin] = {
    # opencost/opencost-helm-chart tag opencost-2.5.17, 2026-04-28.
    "opencost": ChartPin("https://opencost.github.io/opencost-helm-chart", "opencost", "2.5.17"),
    # kubecost/kubecost tag v3.2.1, 2026-06-24. The chart of Kubecost 1 and 2 was another one, `cost-analyzer`.
    "kubecost": ChartPin("https://kubecost.github.io/kubecost", "kubecost", "3.2.1"),
}
"""Charts for which values are written, and which others install."""

IMAGES: Mapping[str, str] = {
    # brancz/kube-rbac-proxy@0bc66fd examples/rewrites/deployment.yaml.
    "kube-rbac-proxy": "quay.io/brancz/kube-rbac-proxy:v0.14.4",
    # The release whose module the lab builds and tests.
    "prom-label-proxy": "quay.io/prometheuscommunity/prom-label-proxy:v0.11.1",
}

ADD_ONS = (
    *("vpc-cni", "kube-proxy", "eks-pod-identity-agent", "coredns", "metrics-server", "aws-ebs-csi-driver"),
    "eks-node-monitoring-agent",
)
"""None is pinned: versions differ from minor to minor (kube-proxy's is the minor itself), so a run asks EKS for the
version of the cluster's Kubernetes."""

ADD_ON_FLOORS: Mapping[str, tuple[str, str]] = {
    # kubernetes-sigs/aws-ebs-csi-driver#2918, 2026-04.
    "aws-ebs-csi-driver": ("v1.58.0", "the driver, before it, does not tag volumes with the cluster's name"),
    # aws/eks-node-monitoring-agent CHANGELOG.md, v1.6.4 of 2026-04-10, "Update well known XID codes"; the list before
    # is in v1.6.3 `dcgm_policies.go`.
    "eks-node-monitoring-agent": ("v1.6.4", "the agent, before it, takes a program's fault for the GPU's (XID 13, 31)"),
}
"""Oldest version of an add-on that does what the platform depends on, and why."""

_ADD_ON_FORM = re.compile(r"v(\d+)\.(\d+)\.(\d+)(-eksbuild\.\d+)?")


def add_on_misfit(name: str, version: str) -> str | None:
    """Why a version of an add-on is refused; None if it is accepted."""
    if not _ADD_ON_FORM.fullmatch(version):
        return f"version {version!r} of {name}, which is not like v1.2.3-eksbuild.1"
    return add_on_too_old(name, version)


def add_on_too_old(name: str, version: str) -> str | None:
    """Why a version that EKS lists is too old; None if it is not."""
    floor, why = ADD_ON_FLOORS.get(name, ("v0.0.0", ""))
    numbers, oldest = _ADD_ON_FORM.fullmatch(version), _ADD_ON_FORM.fullmatch(floor)
    if numbers and oldest and tuple(map(int, numbers.groups()[:3])) < tuple(map(int, oldest.groups()[:3])):
        return f"version {version} of {name}, before {floor}: {why}"
    return None


AMI_FLOORS: tuple[tuple[str, str], ...] = (
    # awslabs/amazon-eks-ami#2706 compares v20260403 and v20260423.
    ("v20260423", "an image's own NVIDIA_VISIBLE_DEVICES=all opens every GPU of the node"),
    # v20260512 has 1.19.0: aws-samples/sample-eks-enterprise-quickstart docs/AMI_VERSIONS.md. v20260523 has 1.19.1: its
    # release notes, second-hand.
    ("v20260523", "the container toolkit, before 1.19.1, has the escape CVE-2026-24260"),
    # AWS bulletin 2026-046. Inferred: ECS' AL2023 images got containerd 2.2.5 on 2026-07-10 (amazon-ecs-ami#737); no
    # release note of the EKS images that was read names theirs.
    ("v20260724", "containerd, before 2.2.5, runs what a label of an image says, as root on the node (CVE-2026-53488)"),
)
"""Releases of the AL2023 EKS images that fix a vulnerability, oldest first.

Not among them: runc before 1.3.6 (CVE-2026-41579, GHSA-xjvp-4fhw-gc47), low by its makers' own judgement. Amazon Linux
2023.12.20260914 is the first with 1.3.6 (its release notes), v20260714 has 1.3.5 (its change log); v20260917, the first
image after it, picks one of two drivers at first boot, a greater change than this vulnerability justifies.
"""

AMI_FLOOR = AMI_FLOORS[-1][0]
AMI_DEFAULT = "v20260903"
"""With kubelet 1.36.3. From v20260917 on an image picks one of two drivers at first boot (amazon-eks-ami#2768)."""

_AMI_FORM = re.compile(r"v20\d{6}")


def ami_release_misfit(release: str, today: date | None = None) -> str | None:
    """Why a release of the node images is refused, with `today` also because it is still to come; None if it is
    accepted."""
    if not _AMI_FORM.fullmatch(release) or not _is_day(release[1:]):
        return f"AMI release {release!r}, which is not v and a day, like {AMI_DEFAULT}"
    if today and (day := datetime.strptime(release[1:], "%Y%m%d").replace(tzinfo=UTC).date()) > today:
        return f"AMI release {release}, of {day}, which is still to come"
    if release < AMI_FLOOR:
        return f"AMI release {release}, before {AMI_FLOOR}: {_unfixed_vulnerability(release)}"
    return None


def _is_day(text: str) -> bool:
    try:
        datetime.strptime(text, "%Y%m%d").replace(tzinfo=UTC)
    except ValueError:
        return False
    return True


def _unfixed_vulnerability(release: str) -> str:
    """The oldest vulnerability that a release still has."""
    return next(vulnerability for floor, vulnerability in AMI_FLOORS if release < floor)


def ami_name(kubernetes: str, architecture: str, variant: str, release: str) -> str:
    """Name of an AL2023 image: architecture x86_64 or arm64, variant nvidia, neuron or standard.

    As the release notes list them. A node group's own release version, such as 1.36.3-20260903, holds the kubelet's
    patch besides and does not follow from the files.
    """
    return f"amazon-eks-node-al2023-{architecture}-{variant}-{kubernetes}-{release}"


def karpenter_alias(release: str) -> str:
    """Name of a release in an EC2NodeClass, which selects the architecture and variant itself."""
    return f"al2023@{release}"


@dataclass(frozen=True, slots=True)
class Minors:
    """Kubernetes minors that a component supports."""

    oldest: str
    newest: str | None
    """None if its makers name no newest minor."""
    why: str


COMPATIBLE: Mapping[str, Minors] = {
    # kubernetes `pkg/apis/admissionregistration`: v1 since 1.30.
    "guards": Minors("1.30", None, "ValidatingAdmissionPolicy is stable there"),
    # kubernetes KEP 3962: admissionregistration.k8s.io/v1 has it since 1.36.
    "pod-defaults": Minors("1.36", None, "MutatingAdmissionPolicy is stable there"),
    # k8s.io/pod-security-admission `policy/check_hostProbesAndHostLifecycle.go`: from the standard of 1.34 on.
    "probe-hosts": Minors("1.34", None, "Pod Security checks hosts of probes and lifecycle hooks there"),
    # kubernetes KEP 4381: resource.k8s.io/v1 since 1.34. The driver's chart itself takes 1.32 with the beta API.
    "dra": Minors("1.34", None, "resource.k8s.io/v1 is served there"),
    # karpenter-provider-aws v1.14.1 `hack/docs/compatibilitymatrix_gen/compatibility.yaml` and `pkg/providers/version`.
    "karpenter": Minors("1.26", "1.36", "Karpenter 1.14 supports 1.26 to 1.36"),
    # kueue v0.19.2 README.
    "kueue": Minors("1.29", None, "Kueue 0.19 requires 1.29"),
    # amazon-eks-ami `nodeadm/internal/containerd/runtime_config_nvidia.go` turns CDI on from kubelet 1.32, and the
    # operator is told to use CDI. Its chart itself takes any Kubernetes.
    "gpu-operator": Minors("1.32", None, "EKS' node images switch device injection by CDI on there"),
    # cilium v1.18.14 `Documentation/network/kubernetes/compatibility.rst`: tested on 1.30 to 1.33; older have no
    # support, newer depend on what Kubernetes keeps compatible. AWS runs 1.18 on each version of EKS (awsdocs PR 1163).
    "cilium": Minors(
        "1.30", "1.36", "Cilium 1.18 is tested on 1.30 to 1.33, runs on EKS up to 1.36, and is unknown on newer ones"
    ),
}
NEWEST_KNOWN = "1.36"
"""Newest Kubernetes for which the guards, the charts and their limits were read and tested; of newer ones nothing is
known, where a component names no newest version itself."""


def is_unknown(kubernetes: str) -> bool:
    """Whether this minor version of Kubernetes is newer than any that was tested."""
    return _minor(kubernetes) > _minor(NEWEST_KNOWN)


def incompatible(kubernetes: str, component: str) -> str | None:
    """Change to make if a component of the platform does not support a minor of Kubernetes; None if it does."""
    minors = COMPATIBLE[component]
    if _minor(kubernetes) < _minor(minors.oldest):
        return f"use Kubernetes {minors.oldest} or newer: {minors.why}"
    if minors.newest and _minor(kubernetes) > _minor(minors.newest):
        return f"use Kubernetes {minors.newest} or older: {minors.why}"
    return None


MINOR_RULE = "EKS updates a cluster by one minor at a time, and none back"
"""Source: EKS user guide, "Update existing cluster to new Kubernetes version", 2026-11-27."""


def minor_step(current: str, target: str) -> str | None:
    """The minor to write instead where MINOR_RULE forbids an update of a cluster from one minor to another; None if it
    does not."""
    (major, old), (_, new) = _minor(current), _minor(target)
    if new < old:
        return f"{major}.{old}"
    return f"{major}.{old + 1}" if new > old + 1 else None


def _minor(version: str) -> tuple[int, int]:
    major, minor = version.removeprefix("v").split(".")[:2]
    return int(major), int(minor)
