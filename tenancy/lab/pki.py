"""Certificates and kubeconfigs: one identity for each component, one for the platform engineer."""

from __future__ import annotations

import base64
import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING

from tenancy.lab.layout import CONTEXT, Lab, LabError, write

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

# Certificates of components outlive every lab; only the platform engineer's is meant to expire.
COMPONENT_LIFE = datetime.timedelta(days=3650)
PLATFORM_LIFE = datetime.timedelta(days=30)
RENEW_BEFORE = datetime.timedelta(days=2)

PLATFORM_USER = "platform-engineer"
KUBELETS_USER = "gpu-tenancy-lab:kubelets"

# Separate authorities: a client certificate of the API server gives access neither to etcd nor to other identities.
AUTHORITIES = ("ca", "etcd-ca", "front-proxy-ca")
# name -> (user, groups) of the certificates the cluster's authority signs.
CLUSTER_IDENTITIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "admin": ("gpu-tenancy-lab:admin", ("system:masters",)),
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
    "kwok": (KUBELETS_USER, ("system:nodes",)),
}
SERVING_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
LOOPBACK = "127.0.0.1"


def ensure(lab: Lab) -> None:
    """Create the components' keys and certificates that are missing."""
    etcd, proxy = ("etcd", "kube-apiserver-etcd"), "front-proxy"
    key_names = (*AUTHORITIES, "serving", *etcd, proxy, *CLUSTER_IDENTITIES, "service-accounts")
    if all((lab.pki / f"{name}.key").is_file() for name in key_names):
        return
    from cryptography.hazmat.primitives.asymmetric import rsa

    lab.pki.mkdir(mode=0o700, parents=True, exist_ok=True)
    for authority in AUTHORITIES:
        _issue(lab, authority, f"gpu-tenancy-lab-{authority}", (), COMPONENT_LIFE, signer=None)
    _issue(lab, "serving", "kubernetes", (), COMPONENT_LIFE, serving=True)
    for name in etcd:
        _issue(lab, name, name, (), COMPONENT_LIFE, serving=True, signer="etcd-ca")
    _issue(lab, proxy, proxy, (), COMPONENT_LIFE, signer="front-proxy-ca")
    for name, (user, groups) in CLUSTER_IDENTITIES.items():
        _issue(lab, name, user, groups, COMPONENT_LIFE)
    # RSA, so that service account tokens are signed as those of EKS are.
    signing = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_key(lab.pki / "service-accounts.key", signing)


def ensure_platform(lab: Lab, group: str) -> bool:
    """Issue a certificate with `group` to `platform-engineer`; False if the present one is still good."""
    recorded = lab.recall().get("platform", {})
    now = datetime.datetime.now(datetime.UTC)
    if (
        recorded.get("group") == group
        and datetime.datetime.fromisoformat(recorded["expires"]) - now > RENEW_BEFORE
        and (lab.pki / "platform.key").is_file()
    ):
        return False
    expires = _issue(lab, "platform", PLATFORM_USER, (group,), PLATFORM_LIFE)
    lab.remember(platform={"group": group, "expires": expires.isoformat()})
    return True


def write_kubeconfigs(lab: Lab, port: int) -> None:
    """Write the kubeconfigs of the components, the admin and the platform engineer."""
    _write_kubeconfig(lab, lab.kubeconfig, "platform", PLATFORM_USER, port)
    _write_kubeconfig(lab, lab.admin_kubeconfig, "admin", "admin", port)
    for name in CLUSTER_IDENTITIES:
        if name != "admin":
            _write_kubeconfig(lab, lab.pki / f"{name}.kubeconfig", name, name, port)


def write_service_account(lab: Lab, name: str, token: str, port: int) -> Path:
    """Write the kubeconfig of a component that acts as its service account, as it would in a cluster."""
    file = lab.pki / f"{name}.token"
    write(file, token)
    path = lab.pki / f"{name}.kubeconfig"
    _write_kubeconfig(lab, path, name, name, port, {"tokenFile": str(file)})
    return path


def write_user(lab: Lab, name: str, user: str, groups: tuple[str, ...], port: int) -> Path:
    """Write the kubeconfig of a component that acts as a user of the cluster, with a certificate of its own."""
    if not (lab.pki / f"{name}.key").is_file():
        _issue(lab, name, user, groups, COMPONENT_LIFE)
    path = lab.pki / f"{name}.kubeconfig"
    _write_kubeconfig(lab, path, name, name, port)
    return path


def _write_kubeconfig(
    lab: Lab, path: Path, name: str, user: str, port: int, credentials: dict[str, str] | None = None
) -> None:
    def data(file: str) -> str:
        return base64.b64encode((lab.pki / file).read_bytes()).decode()

    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "clusters": [
            {
                "name": CONTEXT,
                "cluster": {
                    "server": f"https://{LOOPBACK}:{port}",
                    "certificate-authority-data": data("ca.crt"),
                },
            }
        ],
        "users": [
            {
                "name": user,
                "user": credentials
                or {"client-certificate-data": data(f"{name}.crt"), "client-key-data": data(f"{name}.key")},
            }
        ],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user}}],
    }
    write(path, json.dumps(content, indent=2) + "\n")


def _write_key(path: Path, key: PrivateKeyTypes) -> None:
    from cryptography.hazmat.primitives import serialization

    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write(path, pem)


def _issue(
    lab: Lab,
    name: str,
    user: str,
    groups: tuple[str, ...],
    life: datetime.timedelta,
    *,
    serving: bool = False,
    signer: str | None = "ca",
) -> datetime.datetime:
    """Write a key and a certificate for it; without `signer` it is an authority. Returns the expiry."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError as missing:
        raise LabError(
            "the lab makes its certificates with the Python package `cryptography`, which is not installed. "
            "Run `pip install -e '.[lab]'` in the checkout."
        ) from missing
    import ipaddress

    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
    now = datetime.datetime.now(datetime.UTC)
    expires = now + life
    if signer is None:
        issuer, signing_key = subject, key
    else:
        issuer = x509.load_pem_x509_certificate((lab.pki / f"{signer}.crt").read_bytes()).subject
        loaded = serialization.load_pem_private_key((lab.pki / f"{signer}.key").read_bytes(), None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise LabError(f"{lab.pki / signer}.key is not a key of this lab: run `tenancy lab down`.")
        signing_key = loaded
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of a container and its host differ a little.
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(expires)
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_encipherment=False,
                content_commitment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=signer is None,
                crl_sign=signer is None,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if signer is not None:
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if serving:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if serving:
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in SERVING_NAMES]
        names.append(x509.IPAddress(ipaddress.ip_address(LOOPBACK)))
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(signing_key, hashes.SHA256())
    # The key last: its presence says that the pair is whole.
    write(lab.pki / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(lab.pki / f"{name}.key", key)
    return expires
