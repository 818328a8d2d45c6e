"""The ways to share a cluster that are compared: what each of them makes for its tenants."""

from __future__ import annotations

import base64
import contextlib
import datetime
import ipaddress
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Api, path_of
from tenancy.kube.objects import Object
from tenancy.kube.requests import MERGE, Impersonation
from tenancy.lab import recipes, tools
from tenancy.lab.layout import Lab, environ
from tenancy.planning import Plan
from tenancy.planning.common.priorities import allowed_classes
from tenancy.planning.guards import QUESTION
from tenancy.spec.fields.people import Role
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import Loaded

ROOT = Path(__file__).parents[1]
MODULES = ROOT / "tests" / "modules"
PATIENCE = 90.0
"""Maximum seconds until a column has settled."""
RBAC = "rbac.authorization.k8s.io"
COMMON = frozenset(
    {"PriorityClass", "WorkloadPriorityClass", "ResourceFlavor", "Topology", "Cohort", "ClusterQueue", "LocalQueue"}
)
ROLES = {Role.VIEWER: "view", Role.DEVELOPER: "edit", Role.OPERATOR: "edit", Role.OWNER: "admin"}
"""The built-in role closest to each of our roles."""
CAPSULE = "capsule-system"


@dataclass(frozen=True)
class Column:
    key: str
    title: str
    about: str
    build: Callable[[Api, Loaded, Plan, Lab], contextlib.AbstractContextManager[None]]
    path_in_column: Callable[[str, Loaded], str] = lambda path, _: path
    """The path of an isolation resource by its name in this column."""


@contextmanager
def _gpu_tenancy(api: Api, _loaded: Loaded, plan: Plan, _lab: Lab) -> Generator[None]:
    with _applied(api, plan.objects()):
        until(lambda: unguarded(api), "guards are enforced")
        yield


@contextmanager
def _plain(api: Api, loaded: Loaded, plan: Plan, _lab: Lab) -> Generator[None]:
    with _applied(api, [*namespaces_of(plan, security=True), *_of_kind(plan, "ResourceQuota"), *_bindings(loaded)]):
        yield


@contextmanager
def _by_modules(api: Api, loaded: Loaded, plan: Plan, _lab: Lab) -> Generator[None]:
    isolation_resources = _of_kind(plan, "ResourceQuota", "LimitRange", "NetworkPolicy")
    items = [*namespaces_of(plan, security=False), *isolation_resources, *_bindings(loaded), *_platform_view(loaded)]
    with _applied(api, items):
        yield


@contextmanager
def _by_capsule(api: Api, loaded: Loaded, plan: Plan, lab: Lab) -> Generator[None]:
    """Tenants' owners create their namespaces here, so those of the other columns are removed first. This column is the
    last one: nothing is cleaned up after it."""
    namespaces = namespaces_of(plan, security=True)
    for namespace in namespaces:
        api.request("DELETE", path_of(namespace))
    until(lambda: [n for n in map(path_of, namespaces) if api.request("GET", n).ok], "the namespaces are gone")
    with _capsule_running(api, loaded, lab):
        apply([_capsule_tenant(loaded, tenant, plan) for tenant in loaded.tenants])
        for tenant in plan.tenants:
            until(lambda name=tenant.name: _unready(api, name), f"Capsule has seen {tenant.name}")
        for namespace in namespaces:
            name = namespace["metadata"]["labels"][vocabulary.TENANT]
            namespace["metadata"]["labels"]["capsule.clastix.io/tenant"] = name
            answer = api.request("POST", "/api/v1/namespaces", namespace, _owner(loaded, name))
            if not answer.ok:
                raise SystemExit(f"Capsule refused {namespace['metadata']['name']}: {answer.message}")
        apply([*common(plan), *_of_kind(plan, "ResourceQuota")])
        until(lambda: _unbound(api, plan), "Capsule has created all role bindings")
        yield


@contextmanager
def _applied(api: Api, items: Iterable[Object]) -> Generator[None]:
    """Apply objects for the duration of the context; namespaces and objects common to all columns stay."""
    objects = list(items)
    apply(objects)
    try:
        yield
    finally:
        isolation_objects = [item for item in objects if item["kind"] not in {*COMMON, "Namespace"}]
        # Kubernetes makes one in every namespace: it is restored, not deleted.
        default_accounts = [
            item for item in isolation_objects if item["metadata"]["name"] == vocabulary.DEFAULT_ACCOUNT
        ]
        for item in default_accounts:
            before = {"automountServiceAccountToken": None}
            answer = api.request("PATCH", path_of(item), before, content_type=MERGE)
            if not answer.ok:
                raise SystemExit(f"{path_of(item)} cannot be restored: {answer.message}")
        isolation_objects = [item for item in isolation_objects if item not in default_accounts]
        for item in reversed(isolation_objects):
            api.request("DELETE", path_of(item))
        until(
            lambda: [path for path in map(path_of, isolation_objects) if api.request("GET", path).ok],
            "a column is removed",
        )


def apply(items: Iterable[Object]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})
    command = ["kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-"]
    process = subprocess.run(command, input=text, env=environ(ROOT), text=True, capture_output=True, check=False)
    if process.returncode:
        raise SystemExit(f"kubectl apply: {process.stderr.strip()[-2000:]}")


def common(plan: Plan) -> list[Object]:
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "nvidia"}
    common_objects = [item for item in plan.objects() if item["kind"] in COMMON]
    return [{**runtime, "metadata": {"name": "nvidia"}}, *common_objects]


def _of_kind(plan: Plan, *kinds: str) -> list[Object]:
    """Isolation resources of tenants' namespaces, as our plan has them."""
    return [o for tenant in plan.tenants for o in tenant.objects() if o["kind"] in kinds]


def namespaces_of(plan: Plan, security: bool) -> list[Object]:
    """Every tenant's namespaces with the labels that name the tenant, without annotations, which only guards read."""
    namespaces = []
    for tenant in plan.tenants:
        for part in tenant.namespaces:
            labels = {
                key: value
                for key, value in part.namespace["metadata"]["labels"].items()
                if security or not key.startswith("pod-security.")
            }
            metadata = {"name": part.name, "labels": labels}
            namespaces.append({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return namespaces


def _subjects(tenant: Tenant, role: Role, namespace: str) -> list[Object]:
    people = [p for p in tenant.people if p.role is role and p.kind in ("Group", "User")]
    return [
        {"apiGroup": RBAC, "kind": person.kind, "name": person.name}
        for person in people
        if not person.namespaces or namespace in person.namespaces
    ]


def _bindings(loaded: Loaded) -> list[Object]:
    bindings = []
    for tenant in loaded.tenants:
        for part in tenant.namespaces:
            for role, built_in in ROLES.items():
                if subjects := _subjects(tenant, role, part.name):
                    bindings.append(
                        {
                            "apiVersion": f"{RBAC}/v1",
                            "kind": "RoleBinding",
                            "metadata": {"name": role.value, "namespace": tenant.namespace_name(part)},
                            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": built_in},
                            "subjects": subjects,
                        }
                    )
    return bindings


def _platform_view(loaded: Loaded) -> list[Object]:
    """The right to list all namespaces and nodes, which such modules grant so that dashboards work."""
    groups = sorted({p.name for tenant in loaded.tenants for p in tenant.people if p.kind == "Group"})
    name = "teams-view"
    role = {"rules": [{"apiGroups": [""], "resources": ["namespaces", "nodes"], "verbs": ["get", "list", "watch"]}]}
    bound = {
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group} for group in groups],
    }
    kinds = (("ClusterRole", role), ("ClusterRoleBinding", bound))
    return [{"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": name}, **body} for kind, body in kinds]


def _owner(loaded: Loaded, name: str) -> Impersonation:
    tenant = next(t for t in loaded.tenants if t.tenant == name)
    groups = [p.name for p in tenant.people if p.kind == "Group" and p.role is Role.OWNER]
    return Impersonation(f"owner@{name}", groups)


def _capsule_tenant(loaded: Loaded, tenant: Tenant, plan: Plan) -> Object:
    """A Tenant with every option of Capsule that counters one of these attacks."""
    environment = loaded.environment
    parts = next(t for t in plan.tenants if t.name == tenant.tenant).namespaces
    isolation_resources = {
        kind: [o["spec"] for o in parts[0].isolation if o["kind"] == kind] for kind in ("LimitRange",)
    }
    policies = [o["spec"] for o in parts[0].isolation if o["kind"] == "NetworkPolicy"]
    registries = [registry.replace("{tenant}", tenant.tenant) for registry in environment.images.registries]
    owners = [{"kind": "Group", "name": p.name} for p in tenant.people if p.kind == "Group" and p.role is Role.OWNER]
    bindings = [
        {"clusterRoleName": built_in, "subjects": subjects}
        for role, built_in in ROLES.items()
        if role is not Role.OWNER
        and (subjects := [s for part in tenant.namespaces[:1] for s in _subjects(tenant, role, part.name)])
    ]
    classes = sorted({c for part in tenant.namespaces for c in allowed_classes(environment, tenant.tier_of(part))})
    images = [{"exp": f"^{re.escape(registry)}.*"} for registry in registries]
    allowed = {"registries": images, "schedulers": [{"exact": ["default-scheduler"]}]}
    spec = {
        "owners": owners,
        "additionalRoleBindings": bindings,
        "priorityClasses": {"allowed": classes},
        "runtimeClasses": {"allowed": ["none-of-these"]},
        "storageClasses": {"allowed": ["gp3"]},
        "serviceOptions": {
            "allowedServices": {"nodePort": False, "loadBalancer": False, "externalName": False},
            "externalIPs": {"allowed": []},
        },
        "limitRanges": {"items": isolation_resources["LimitRange"]},
        "networkPolicies": {"items": policies},
        "rules": [{"enforce": {"action": "allow", "workloads": allowed}}],
        "preventDeletion": True,
    }
    return {
        "apiVersion": "capsule.clastix.io/v1beta2",
        "kind": "Tenant",
        "metadata": {"name": tenant.tenant},
        "spec": spec,
    }


def _unready(api: Api, name: str) -> bool:
    answer = api.request("GET", f"/apis/capsule.clastix.io/v1beta2/tenants/{name}")
    conditions = (answer.body.get("status") or {}).get("conditions") or []
    return not any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _unbound(api: Api, plan: Plan) -> list[str]:
    names = [part.name for tenant in plan.tenants for part in tenant.namespaces]
    paths = [f"/apis/{RBAC}/v1/namespaces/{name}/rolebindings" for name in names]
    return [path for path in paths if not api.items(path)]


def _in_capsule(path: str, loaded: Loaded) -> str:
    """The path of a limit range or network policy by the name that Capsule gives it."""
    for tenant in loaded.tenants:
        for part in tenant.namespaces:
            where = f"/namespaces/{tenant.namespace_name(part)}/"
            if where in path:
                path = re.sub(
                    r"(limitranges|networkpolicies)/(?!capsule-)[^/?]+$", rf"\1/capsule-{tenant.tenant}-0", path
                )
    return path


def _pinned(name: str) -> Path:
    return tools.ensure(only=[name], pins=recipes.load(MODULES / "modules.toml", MODULES))[name]


@contextmanager
def _capsule_running(api: Api, loaded: Loaded, lab: Lab) -> Generator[None]:
    folder = lab.folder / "capsule"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    authority = _certificates(folder)
    port = _free_port()
    items = _rendered(folder, authority, port, loaded)
    kinds = [item for item in items if item["kind"] == "CustomResourceDefinition"]
    apply(kinds)
    names = [item["metadata"]["name"] for item in kinds]
    until(lambda: [name for name in names if _unserved(api, name)], "Capsule's kinds are served")
    apply(item for item in items if item not in kinds)
    identity = _as_capsule(lab, folder)
    command = [
        str(_pinned("capsule")),
        f"--webhook-port={port}",
        f"--webhook-cert-path={folder}",
        "--metrics-addr=0",
        "--configuration-name=default",
    ]
    env = {**os.environ, "NAMESPACE": CAPSULE, "SERVICE_ACCOUNT": "capsule", "KUBECONFIG": str(identity)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            until(lambda: process.poll() is None and _silent(api), f"Capsule answers (log: {folder / 'log'})")
            yield
        finally:
            process.terminate()
            process.wait(20)


def _rendered(folder: Path, authority: bytes, port: int, loaded: Loaded) -> list[Object]:
    """The chart's objects, without those that a local process does not need."""
    chart = folder / "chart"
    shutil.copytree(_pinned("chart-capsule"), chart)
    facts = yaml.safe_load((chart / "Chart.yaml").read_text("utf-8"))
    # A proxy in front of the API server, which is not compared and not in the module.
    facts.pop("dependencies", None)
    (chart / "Chart.yaml").write_text(yaml.safe_dump(facts), "utf-8")
    (chart / "Chart.lock").unlink(missing_ok=True)
    service = {"url": f"https://localhost:{port}", "caBundle": base64.b64encode(authority).decode()}
    off = {"generateCertificates": False}
    people = {(p.kind, p.name) for tenant in loaded.tenants for p in tenant.people if p.kind in ("Group", "User")}
    users = [{"kind": kind, "name": name} for kind, name in sorted(people)]
    values = {
        "webhooks": {"service": service},
        "certManager": off,
        "tls": {"create": False},
        "manager": {"options": {"users": users}},
    }
    helm = str(tools.ensure(only=["helm"])["helm"])
    argv = [helm, "template", "capsule", str(chart), "-n", CAPSULE, "--include-crds", "--no-hooks", "--values=-"]
    process = subprocess.run(argv, input=json.dumps(values), capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(f"helm cannot render Capsule's chart: {process.stderr.strip()}")
    left_out = {"Deployment", "Certificate", "Issuer", "Service"}
    items = [item for item in yaml.safe_load_all(process.stdout) if item and item["kind"] not in left_out]
    namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CAPSULE}}
    for item in items:
        if item["kind"] == "CapsuleConfiguration":
            item["metadata"].pop("namespace", None)
    return [namespace, *items]


def _as_capsule(lab: Lab, folder: Path) -> Path:
    """A kubeconfig that acts as Capsule's own service account."""
    kubeconfig = yaml.safe_load(lab.kubeconfig.read_text("utf-8"))
    account = f"system:serviceaccount:{CAPSULE}:capsule"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{CAPSULE}", "system:authenticated"]
    for user in kubeconfig["users"]:
        user["user"] |= {"as": account, "as-groups": groups}
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(kubeconfig), "utf-8")
    file.chmod(0o600)
    return file


def _certificates(folder: Path) -> bytes:
    """Write a key and a self-signed certificate for localhost; return the certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "tls.crt").write_bytes(pem)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "tls.key"
    file.touch(mode=0o600)
    file.write_bytes(secret)
    return pem


def _free_port() -> int:
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def _unserved(api: Api, name: str) -> bool:
    answer = api.request("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
    conditions = (answer.body.get("status") or {}).get("conditions") or []
    return not any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _silent(api: Api) -> bool:
    """Whether Capsule's webhooks are missing, or refuse a namespace that belongs to no tenant."""
    hooks = api.items("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations")
    if not any(hook["metadata"]["name"].startswith("capsule") for hook in hooks):
        return True
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "capsule-probe"}}
    return not api.request("POST", "/api/v1/namespaces?dryRun=All", body).ok


def unguarded(api: Api) -> bool:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": QUESTION}}
    path = f"/api/v1/namespaces/{vocabulary.PLATFORM_NAMESPACE}/configmaps?dryRun=All"
    return api.request("POST", path, body).ok


COLUMNS = (
    Column(
        "plain",
        "plain namespaces",
        "a namespace with Pod Security `restricted`, our quota, and the built-in roles view, edit and admin",
        _plain,
    ),
    Column(
        "modules",
        "team modules",
        "what common Terraform and CDK modules for teams create: namespaces, quota, limit range, network policies, "
        "bindings to built-in roles, and a right to see all namespaces and nodes; no Pod Security label",
        _by_modules,
    ),
    Column("ours", "gpu-tenancy", "what `tenancy up` creates", _gpu_tenancy),
    Column(
        "capsule",
        "Capsule 0.14.0",
        "its controller as a process, a Tenant with allowed registries, schedulers, priority, runtime and storage "
        "classes, services of type ClusterIP only, limit ranges and network policies; our quota; Pod Security "
        "`restricted`; owners by its own role, others by the built-in ones",
        _by_capsule,
        _in_capsule,
    ),
)


def until(obstacle: Callable[[], object], what: str) -> None:
    """Wait until `obstacle` returns nothing; SystemExit after PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    while pending := obstacle():
        if time.monotonic() > deadline:
            raise SystemExit(f"after {PATIENCE:.0f} s still not: {what}; obstacle: {str(pending)[:500]}")
        time.sleep(0.1)
