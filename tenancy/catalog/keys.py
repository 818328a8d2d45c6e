"""Labels and annotations that tenants may write: keys that no agent of the platform obeys, or that another rule judges.

An agent is a program with rights of its own that reads the objects of every namespace: a driver's installer, an
autoscaler, a collector of logs or metrics, a mesh, a controller that copies secrets. New ones come with each chart, so
the list names what is allowed, and `platform.metadata-keys` of environment.yaml adds to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenancy.catalog import vocabulary

DOMAINS = (
    # Kubernetes' own, which describe, or which its controllers and kubectl write (kubernetes.io/docs/reference,
    # "Well-Known Labels, Annotations and Taints", 2026-11-27).
    *("kubernetes.io", "app.kubernetes.io", "apps.kubernetes.io", "batch.kubernetes.io", "cronjob.kubernetes.io"),
    *("controller.kubernetes.io", "deployment.kubernetes.io", "kubectl.kubernetes.io", "statefulset.kubernetes.io"),
    "autoscaling.alpha.kubernetes.io",
    # Judged by Pod Security and by the rules on claims of devices.
    *("container.apparmor.security.beta.kubernetes.io", "seccomp.security.alpha.kubernetes.io"),
    *("container.seccomp.security.alpha.kubernetes.io", "resource.kubernetes.io"),
    # Tools that deploy: they say which release, commit or file an object is from, and act on that object alone.
    *("helm.sh", "meta.helm.sh", "config.kubernetes.io", "internal.config.kubernetes.io", "argocd.argoproj.io"),
    *("kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io", "pulumi.com", "skaffold.dev"),
    # Judged by the rules on queues.
    *("kueue.x-k8s.io", "provreq.kueue.x-k8s.io"),
    # Digests by which charts roll pods when a config map changes (helm.sh/docs, "Chart Development Tips").
    "checksum",
    # Settings of KubeRay and of Kubeflow's Trainer for the work that has them.
    *("ray.io", "trainer.kubeflow.org", "training.kubeflow.org"),
)
"""Domains of keys, without those below them."""

KEYS = (
    # Judged by avail-04.
    *("cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt"),
    # Judged by stor-03.
    "volume.beta.kubernetes.io/storage-class",
    # A collector that obeys them asks the pod's own address.
    *("prometheus.io/scrape", "prometheus.io/port", "prometheus.io/scheme"),
    # Judged by cost-01, and read by the lab alone.
    *(key for key in vocabulary.CHARGED_LABELS if "/" in key),
    vocabulary.LAB_SECONDS,
)
"""Keys of other domains."""

VALUES: Mapping[str, str] = {"prometheus.io/path": "/metrics"}
"""Keys with the one value that they may have: another path would have the collector call any handler of the pod."""

SYNCED_DOMAIN = "vcluster.loft.sh"
"""Prefixes of the keys that a virtual cluster's syncer writes onto its objects."""
