"""Labels that a kubelet may write on its own node: k8s.io/kubelet v0.36.3 `pkg/apis/well_known_labels.go`."""

from __future__ import annotations

_KUBELET_LABELS = frozenset(
    {f"{prefix}kubernetes.io/{name}" for prefix in ("", "beta.") for name in ("os", "arch")}
    | {
        f"{prefix}.kubernetes.io/{name}"
        for prefix in ("topology", "failure-domain.beta")
        for name in ("zone", "region")
    }
    | {"kubernetes.io/hostname", "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"}
)
RESTRICTED = "node-restriction.kubernetes.io"
"""Prefix of labels that no kubelet may write, whatever the cluster's guards."""


def kubelet_may_label(key: str) -> bool:
    """Whether the API server lets a kubelet write a label of its node."""
    domain = f".{key.partition('/')[0]}" if "/" in key else "."
    if domain.endswith(f".{RESTRICTED}"):
        return False
    if not domain.endswith((".kubernetes.io", ".k8s.io")):
        return True
    return key in _KUBELET_LABELS or domain.endswith((".kubelet.kubernetes.io", ".node.kubernetes.io"))
