"""Components of a lab and their arguments: pure functions of the lab's folder, ports and tools.

The processes are started here rather than by kwokctl: that runs the scheduler and the controllers
as `system:masters`, signs service account tokens with the admin's world-readable key, leaves etcd
open to every user of the machine and cannot move to other ports.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from tenancy.lab.layout import Lab, write
from tenancy.lab.pki import LOOPBACK

# In the order they start; the later ones need the earlier ones.
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
# Only in a lab with queues; starts last.
KUEUE = "kueue"
# Only in a lab with metrics; after all else.
PROMETHEUS = "prometheus"
GENERATOR = "metrics-generator"
# Only in the lab of an environment with a clock.
CLOCK = "clock"

# As EKS runs them. Not among them, as there: PodNodeSelector, PodTolerationRestriction,
# AlwaysPullImages, EventRateLimit, DenyServiceExternalIPs.
ADMISSION_PLUGINS = (
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "DefaultTolerationSeconds",
    "ExtendedResourceToleration",
    "LimitRanger",
    "MutatingAdmissionWebhook",
    "NamespaceLifecycle",
    "NodeRestriction",
    "PersistentVolumeClaimResize",
    "PodSecurity",
    "Priority",
    "ResourceQuota",
    "RuntimeClass",
    "ServiceAccount",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
)
TYPE_CHECKER = "validatingadmissionpolicy-status-controller"
AUDIT_FILE_MEGABYTES = 20
AUDIT_OLD_FILES = 2


def write_config(lab: Lab, name: str) -> Path:
    """Write a configuration file of the package into the lab under a name with its digest.

    A changed file has another name, so that the component's arguments differ and it is restarted.
    """
    content = files("tenancy.lab").joinpath(name).read_bytes()
    stem, _, suffix = name.rpartition(".")
    path = lab.config / f"{stem}-{hashlib.sha256(content).hexdigest()[:8]}.{suffix}"
    write(path, content)
    return path


def commands(
    lab: Lab, ports: Mapping[str, int], binaries: Mapping[str, Path], *, type_checks: bool = False
) -> dict[str, list[str]]:
    """The command line of each component, in the order of starting.

    Without `type_checks` no controller checks the types of admission policies' expressions.
    """
    pki = lab.pki
    serving = [f"--tls-cert-file={pki / 'serving.crt'}", f"--tls-private-key-file={pki / 'serving.key'}"]

    def tls(prefix: str) -> list[str]:
        return [
            f"--{prefix}cert-file={pki / 'etcd.crt'}",
            f"--{prefix}key-file={pki / 'etcd.key'}",
            f"--{prefix}trusted-ca-file={pki / 'etcd-ca.crt'}",
            f"--{prefix}client-cert-auth=true",
        ]

    def client(name: str) -> list[str]:
        kubeconfig = pki / f"{name}.kubeconfig"
        return [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={ports[name]}",
            "--leader-elect=false",
            # At the default of 20 a second the controllers take 4 s to fetch their own tokens.
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            *serving,
        ]

    etcd, peer = (f"https://{LOOPBACK}:{ports[name]}" for name in ("etcd", "etcd-peer"))
    arguments = {
        "etcd": [
            "--name=lab",
            f"--data-dir={lab.folder / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=lab={peer}",
            *tls(""),
            *tls("peer-"),
            # A killed process loses nothing by it; only a crash of the machine would.
            "--unsafe-no-fsync=true",
            "--auto-compaction-mode=periodic",
            "--auto-compaction-retention=10m",
            "--log-level=warn",
        ],
        "kube-apiserver": [
            f"--etcd-servers={etcd}",
            f"--etcd-cafile={pki / 'etcd-ca.crt'}",
            f"--etcd-certfile={pki / 'kube-apiserver-etcd.crt'}",
            f"--etcd-keyfile={pki / 'kube-apiserver-etcd.key'}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={ports['kube-apiserver']}",
            # No pod ever connects, and a machine without a network has no other address to give.
            f"--advertise-address={LOOPBACK}",
            "--endpoint-reconciler-type=none",
            *serving,
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={pki / 'front-proxy.crt'}",
            f"--proxy-client-key-file={pki / 'front-proxy.key'}",
            f"--service-account-key-file={pki / 'service-accounts.key'}",
            f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.100.0.0/16",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            # It reads all objects from etcd again every five minutes, to compare them with the cache: with the 48,000
            # objects of 1,000 tenants it took a third of a core, on which other programs are measured here.
            "--feature-gates=DetectCacheInconsistency=false",
            f"--enable-admission-plugins={','.join(ADMISSION_PLUGINS)}",
            f"--audit-policy-file={write_config(lab, 'audit-policy.yaml')}",
            f"--audit-log-path={lab.logs / 'audit.log'}",
            f"--audit-log-maxsize={AUDIT_FILE_MEGABYTES}",
            f"--audit-log-maxbackup={AUDIT_OLD_FILES}",
        ],
        "kube-controller-manager": [
            *client("kube-controller-manager"),
            # As on EKS: each controller acts as its own service account.
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={pki / 'service-accounts.key'}",
            f"--root-ca-file={pki / 'ca.crt'}",
            f"--cluster-signing-cert-file={pki / 'ca.crt'}",
            f"--cluster-signing-key-file={pki / 'ca.key'}",
            # A laptop that slept must not find its pods evicted.
            "--node-monitor-grace-period=1h",
            *([] if type_checks else [f"--controllers=*,-{TYPE_CHECKER}"]),
        ],
        "kube-scheduler": client("kube-scheduler"),
        "kwok": [
            f"--kubeconfig={pki / 'kwok.kubeconfig'}",
            f"--config={write_config(lab, 'stages.yaml')}",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--node-lease-duration-seconds=40",
            f"--server-address={LOOPBACK}:{ports['kwok']}",
        ],
    }
    return {name: [str(binaries[name]), *arguments[name]] for name in COMPONENTS}


# Health endpoint of each component: the client identity, and the path.
PROBES: dict[str, tuple[str | None, str]] = {
    "etcd": ("kube-apiserver-etcd", "/health"),
    "kube-apiserver": ("admin", "/readyz"),
    "kube-controller-manager": ("admin", "/healthz"),
    "kube-scheduler": ("admin", "/healthz"),
    "kwok": (None, "/healthz"),
    # It is healthy before its webhooks listen, and ready only after that.
    KUEUE: (None, "/readyz"),
    PROMETHEUS: (None, "/-/ready"),
    GENERATOR: (None, "/healthz"),
    CLOCK: (None, "/healthz"),
}
