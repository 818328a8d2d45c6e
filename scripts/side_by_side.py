"""The same attacks on four ways to share a cluster, one after another on one lab: who refuses, and what is admitted.

    python -m scripts.side_by_side             write the table into docs/side-by-side.md
    python -m scripts.side_by_side --only gpu- print the attacks whose ids start with gpu-

All columns have in common the nodes, Kueue with the environment's queues, its priority classes and a runtime class of
NVIDIA's. They differ in a tenant's isolation resources and policies. Every request is a dry run.
"""

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
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from tenancy.catalog import vocabulary as words
from tenancy.kube.objects import Object
from tenancy.lab import control_plane, recipes, tools
from tenancy.lab.layout import Lab, environ
from tenancy.live import denial
from tenancy.live.api import Api, Impersonation, path_of
from tenancy.planning import Plan, make_plan
from tenancy.planning.common.pools import fake_nodes
from tenancy.planning.common.priorities import allowed_classes
from tenancy.planning.guards import QUESTION
from tenancy.prove.attacks import Attack, Request, Scene, all_attacks
from tenancy.prove.attacks.model import MERGE
from tenancy.prove.attacks.objects import CLUSTER_ADMIN
from tenancy.prove.verify import AT_ONCE, ask
from tenancy.schema.people import Role
from tenancy.schema.tenant import Tenant
from tenancy.validation import Loaded, load

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "side-by-side.md"
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

OURS_ALONE = {
    "kueue-10": "the maximum run time is a limit of the environment's tiers",
    "cost-01": "labels that a pod is charged by are the environment's vocabulary",
}
"""Rules on a limit that exists only in our environment files, and so have no meaning in the other columns."""


@dataclass(frozen=True)
class Verdict:
    """Outcome of an attack in a column. `by` is the control that refused it; empty if it was admitted."""

    by: str
    twin: bool
    """Whether the twin was admitted; if not, the refusal proves nothing about the attack."""


@dataclass(frozen=True)
class Column:
    key: str
    title: str
    about: str
    build: Callable[[Api, Loaded, Plan, Lab], contextlib.AbstractContextManager[None]]
    named: Callable[[str, Loaded], str] = lambda path, _: path
    """The path of an isolation resource by its name in this column."""


# A tenant's isolation in each column


@contextmanager
def _ours(api: Api, _loaded: Loaded, plan: Plan, _lab: Lab) -> Generator[None]:
    with _applied(api, plan.objects()):
        until(lambda: _unguarded(api), "guards are enforced")
        yield


@contextmanager
def _plain(api: Api, loaded: Loaded, plan: Plan, _lab: Lab) -> Generator[None]:
    with _applied(api, [*_namespaces(plan, security=True), *_of_kind(plan, "ResourceQuota"), *_bindings(loaded)]):
        yield


@contextmanager
def _by_modules(api: Api, loaded: Loaded, plan: Plan, _lab: Lab) -> Generator[None]:
    isolation_resources = _of_kind(plan, "ResourceQuota", "LimitRange", "NetworkPolicy")
    named = [*_namespaces(plan, security=False), *isolation_resources, *_bindings(loaded), *_seen_by_all(loaded)]
    with _applied(api, named):
        yield


@contextmanager
def _by_capsule(api: Api, loaded: Loaded, plan: Plan, lab: Lab) -> Generator[None]:
    """Tenants' owners create their namespaces here, so those of the other columns are removed first. This column is the
    last one: nothing is cleaned up after it."""
    namespaces = _namespaces(plan, security=True)
    for namespace in namespaces:
        api.request("DELETE", path_of(namespace))
    until(lambda: [n for n in map(path_of, namespaces) if api.request("GET", n).ok], "the namespaces are gone")
    with _capsule_running(api, loaded, lab):
        _apply([_capsule_tenant(loaded, tenant, plan) for tenant in loaded.tenants])
        for tenant in plan.tenants:
            until(lambda name=tenant.name: _unready(api, name), f"Capsule has seen {tenant.name}")
        for namespace in namespaces:
            name = namespace["metadata"]["labels"][words.TENANT]
            namespace["metadata"]["labels"]["capsule.clastix.io/tenant"] = name
            answer = api.request("POST", "/api/v1/namespaces", namespace, _owner(loaded, name))
            if not answer.ok:
                raise SystemExit(f"Capsule refused {namespace['metadata']['name']}: {answer.message}")
        _apply([*_common(plan), *_of_kind(plan, "ResourceQuota")])
        until(lambda: _unbound(api, plan), "Capsule has created all role bindings")
        yield


@contextmanager
def _applied(api: Api, items: Iterable[Object]) -> Generator[None]:
    """Apply objects for the duration of the context; namespaces and objects common to all columns stay."""
    named = list(items)
    _apply(named)
    try:
        yield
    finally:
        mine = [item for item in named if item["kind"] not in {*COMMON, "Namespace"}]
        # Kubernetes makes one in every namespace: it is restored, not deleted.
        given = [item for item in mine if item["metadata"]["name"] == words.DEFAULT_ACCOUNT]
        for item in given:
            before = {"automountServiceAccountToken": None}
            answer = api.request("PATCH", path_of(item), before, content_type=MERGE)
            if not answer.ok:
                raise SystemExit(f"{path_of(item)} cannot be restored: {answer.message}")
        mine = [item for item in mine if item not in given]
        for item in reversed(mine):
            api.request("DELETE", path_of(item))
        until(lambda: [path for path in map(path_of, mine) if api.request("GET", path).ok], "a column is removed")


def _apply(items: Iterable[Object]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})
    command = ["kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-"]
    done = subprocess.run(command, input=text, env=environ(ROOT), text=True, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"kubectl apply: {done.stderr.strip()[-2000:]}")


def _common(plan: Plan) -> list[Object]:
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "nvidia"}
    found = [item for item in plan.objects() if item["kind"] in COMMON]
    return [{**runtime, "metadata": {"name": "nvidia"}}, *found]


def _of_kind(plan: Plan, *kinds: str) -> list[Object]:
    """Isolation resources of tenants' namespaces, as our plan has them."""
    return [o for tenant in plan.tenants for o in tenant.objects() if o["kind"] in kinds]


def _namespaces(plan: Plan, security: bool) -> list[Object]:
    """Every tenant's namespaces with the labels that name the tenant, without annotations, which only guards read."""
    found = []
    for tenant in plan.tenants:
        for part in tenant.namespaces:
            labels = {
                key: value
                for key, value in part.namespace["metadata"]["labels"].items()
                if security or not key.startswith("pod-security.")
            }
            metadata = {"name": part.name, "labels": labels}
            found.append({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return found


def _subjects(tenant: Tenant, role: Role, namespace: str) -> list[Object]:
    people = [p for p in tenant.people if p.role is role and p.kind in ("Group", "User")]
    return [
        {"apiGroup": RBAC, "kind": person.kind, "name": person.name}
        for person in people
        if not person.namespaces or namespace in person.namespaces
    ]


def _bindings(loaded: Loaded) -> list[Object]:
    found = []
    for tenant in loaded.tenants:
        for part in tenant.namespaces:
            for role, built_in in ROLES.items():
                if subjects := _subjects(tenant, role, part.name):
                    found.append(
                        {
                            "apiVersion": f"{RBAC}/v1",
                            "kind": "RoleBinding",
                            "metadata": {"name": role.value, "namespace": tenant.namespace_name(part)},
                            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": built_in},
                            "subjects": subjects,
                        }
                    )
    return found


def _seen_by_all(loaded: Loaded) -> list[Object]:
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


# Capsule


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
    _apply(kinds)
    names = [item["metadata"]["name"] for item in kinds]
    until(lambda: [name for name in names if _unserved(api, name)], "Capsule's kinds are served")
    _apply(item for item in items if item not in kinds)
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
    done = subprocess.run(argv, input=json.dumps(values), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"helm cannot render Capsule's chart: {done.stderr.strip()}")
    left_out = {"Deployment", "Certificate", "Issuer", "Service"}
    items = [item for item in yaml.safe_load_all(done.stdout) if item and item["kind"] not in left_out]
    namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CAPSULE}}
    for item in items:
        if item["kind"] == "CapsuleConfiguration":
            item["metadata"].pop("namespace", None)
    return [namespace, *items]


def _as_capsule(lab: Lab, folder: Path) -> Path:
    """A kubeconfig that acts as Capsule's own service account."""
    given = yaml.safe_load(lab.kubeconfig.read_text("utf-8"))
    account = f"system:serviceaccount:{CAPSULE}:capsule"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{CAPSULE}", "system:authenticated"]
    for user in given["users"]:
        user["user"] |= {"as": account, "as-groups": groups}
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(given), "utf-8")
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

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


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
    Column("ours", "gpu-tenancy", "what `tenancy up` creates", _ours),
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


# Asking


def until(obstacle: Callable[[], object], what: str) -> None:
    """Wait until `obstacle` returns nothing; SystemExit after PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    while found := obstacle():
        if time.monotonic() > deadline:
            raise SystemExit(f"after {PATIENCE:.0f} s still not: {what}; obstacle: {str(found)[:500]}")
        time.sleep(0.1)


def has_meaning(attack: Attack) -> str:
    """Empty if the attack is comparable where none of our objects exist; else the reason why not."""
    if attack.skipped:
        return "does not apply to this environment"
    if attack.rule in OURS_ALONE:
        return OURS_ALONE[attack.rule]
    if attack.request.who in (None, CLUSTER_ADMIN):
        return "sent by an administrator, whom only our guards refuse"
    if "/tenancy-" in attack.request.path or words.PLATFORM_NAMESPACE in attack.request.path:
        return "concerns an object that only gpu-tenancy creates"
    return ""


def judge(api: Api, attack: Attack, column: Column, loaded: Loaded) -> Verdict:
    def there(request: Request) -> Request:
        return replace(request, path=column.named(request.path, loaded))

    answer = ask(api, there(attack.request))
    twin = ask(api, there(attack.twin))
    admitted = twin.ok or (attack.twin_missing and twin.status == 404)
    if answer.ok or (attack.twin_missing and answer.status == 404):
        return Verdict("", admitted)
    return Verdict(_who(answer.status, answer.message), admitted)


_WEBHOOK = re.compile(r'admission webhook "([^"]+)" denied')


def _who(status: int, message: str) -> str:
    if found := _WEBHOOK.search(message):
        return "Kueue" if found[1].endswith("kb.io") else "Capsule" if "capsule" in found[1] else found[1]
    kind = denial.denier(status, message).partition("/")[0]
    return {denial.UNKNOWN: f"HTTP {status}", "ValidatingAdmissionPolicy": "guard"}.get(kind, kind)


@contextmanager
def standing(loaded: Loaded, plan: Plan) -> Generator[tuple[Api, Lab]]:
    """A fresh lab with tenants' namespaces and the objects common to all columns."""
    chart = plan.platform.queue_chart
    before = {name: os.environ.get(name) for name in ("GPU_TENANCY_LAB", "KUBECONFIG")}
    with tempfile.TemporaryDirectory(prefix="side-by-side-") as home:
        os.environ["GPU_TENANCY_LAB"] = str(Path(home) / "lab")
        try:
            lab = control_plane.up(
                root=ROOT,
                platform_group=loaded.environment.platform.group,
                nodes=fake_nodes(loaded.environment),
                queues=chart.values if chart else None,
            )
            os.environ["KUBECONFIG"] = str(lab.kubeconfig)
            _apply([*_namespaces(plan, security=True), *_common(plan)])
            yield Api(plan.context), lab
        finally:
            control_plane.down(root=ROOT)
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _settle(api: Api, plan: Plan) -> None:
    names = [part.name for tenant in plan.tenants for part in tenant.namespaces]
    there = ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
    paths = [f"/api/v1/namespaces/{name}/{what}" for name in names for what in there]
    until(
        lambda: [path for path in paths if not api.request("GET", path).ok], "controllers have handled every namespace"
    )

    def uncounted() -> list[str]:
        return [
            name
            for name in names
            for quota in api.items(f"/api/v1/namespaces/{name}/resourcequotas")
            if (quota["spec"].get("hard") or {}).keys() - ((quota.get("status") or {}).get("used") or {}).keys()
        ]

    until(uncounted, "quotas are counted")


def _unguarded(api: Api) -> bool:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": QUESTION}}
    path = f"/api/v1/namespaces/{words.PLATFORM_NAMESPACE}/configmaps?dryRun=All"
    return api.request("POST", path, body).ok


def asked(api: Api, lab: Lab, column: Column, loaded: Loaded, attacks: Sequence[Attack]) -> dict[str, Verdict]:
    """The verdict of a column on each attack; the column exists as long as that takes."""
    plan = make_plan(loaded.environment, loaded.tenants)
    with column.build(api, loaded, plan, lab), ThreadPoolExecutor(AT_ONCE) as pool:
        _settle(api, plan)
        verdicts = pool.map(lambda attack: judge(api, attack, column, loaded), attacks)
        return dict(zip([a.id for a in attacks], verdicts, strict=True))


def attacks_of(loaded: Loaded, only: str = "") -> list[Attack]:
    found = all_attacks(Scene(loaded.environment, loaded.tenants, ["nvidia"]))
    return [attack for attack in found if attack.id.startswith(only)]


# The page


FAMILIES = {
    "gpu": "GPUs and devices",
    "sched": "scheduling, priority",
    "kueue": "the queue",
    "quota": "quota",
    "limits": "size of containers and volumes",
    "img": "images",
    "dns": "DNS",
    "net": "services, networks",
    "stor": "volumes",
    "id": "identity",
    "pod": "from a pod to its node",
    "avail": "availability",
    "rbac": "RBAC",
    "ns": "namespaces",
    "api": "refused by the API server itself",
}


def family(rule: str) -> str:
    return FAMILIES.get(rule.partition("-")[0], rule)


def compared(
    attacks: Sequence[Attack], verdicts: Mapping[str, Mapping[str, Verdict]]
) -> tuple[list[Attack], Counter[str]]:
    """Attacks that are comparable in every column, and the reasons why the others were left out."""
    left: Counter[str] = Counter()
    kept = []
    for attack in attacks:
        reason = has_meaning(attack)
        if not reason and not all(column[attack.id].twin for column in verdicts.values()):
            reason = "in one of the columns the twin is refused too, or the attacked object does not exist"
        if reason:
            left[reason] += 1
        else:
            kept.append(attack)
    return kept, left


def page(columns: Sequence[Column], verdicts: Mapping[str, Mapping[str, Verdict]], attacks: Sequence[Attack]) -> str:
    kept, left = compared(attacks, verdicts)
    through = {c.key: [a for a in kept if not verdicts[c.key][a.id].by] for c in columns}
    lines = [
        "# Side by side",
        "",
        f"The same attacks on {len(columns)} ways to share one cluster. Made by `make side-by-side`: one column after",
        "another on one lab (API server, controllers, scheduler and Kueue are real, nodes are simulated), with the",
        "files of `stacks/local`, sent as dry runs by the same users. An attack counts where its twin, which differs",
        "in one field, is admitted: a control that refuses everything proves nothing.",
        "",
        f"| | {' | '.join(c.title for c in columns)} |",
        f"|---|{'---:|' * len(columns)}",
        f"| attacks | {' | '.join(str(len(kept)) for _ in columns)} |",
        f"| refused | {' | '.join(str(len(kept) - len(through[c.key])) for c in columns)} |",
        f"| **got through** | {' | '.join(f'**{len(through[c.key])}**' for c in columns)} |",
        "",
        "## What the columns are",
        "",
        "All columns have the same nodes, Kueue with the same queues, priority classes, and labels of namespaces.",
        "",
        *(f"- **{c.title}**: {c.about}." for c in columns),
        "",
        "## What got through, by family",
        "",
        f"| family | attacks | {' | '.join(c.title for c in columns)} |",
        f"|---|---:|{'---:|' * len(columns)}",
    ]
    for name in dict.fromkeys(family(a.rule) for a in kept):
        mine = [a for a in kept if family(a.rule) == name]
        counts = [sum(not verdicts[c.key][a.id].by for a in mine) for c in columns]
        lines.append(f"| {name} | {len(mine)} | {' | '.join(map(str, counts))} |")
    lines += [
        "",
        "## Who refused",
        "",
        f"| | {' | '.join(c.title for c in columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    by = {c.key: Counter(verdicts[c.key][a.id].by for a in kept if verdicts[c.key][a.id].by) for c in columns}
    for name in sorted({name for counter in by.values() for name in counter}):
        lines.append(f"| {name} | {' | '.join(str(by[c.key][name]) for c in columns)} |")
    lines += ["", "## One attack of each rule that got through", "", "| attack | got through |", "|---|---|"]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for attack in kept:
        open_in = tuple(c.title for c in columns if attack in through[c.key])
        if open_in and (attack.rule, open_in) not in seen:
            seen.add((attack.rule, open_in))
            lines.append(f"| `{attack.id}`: {attack.attack.replace('|', '/')} | {', '.join(open_in)} |")
    lines += ["", "## What was left out", "", "| attacks | why |", "|---:|---|"]
    lines += [f"| {count} | {reason} |" for reason, count in left.most_common()]
    lines += [
        "",
        "An attack that gets through is not always a fault of the tool: neither namespaces nor Capsule are made to",
        "know about GPUs, device variables or queues. The table shows what has to be added beside them.",
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> None:
    only = arguments[1] if len(arguments) == 2 and arguments[0] == "--only" else ""
    if arguments and not only:
        print("usage: python -m scripts.side_by_side [--only START]", file=sys.stderr)
        raise SystemExit(2)
    loaded = load(ROOT / "stacks" / "local")
    attacks = attacks_of(loaded, only)
    meant = [attack for attack in attacks if not has_meaning(attack)]
    verdicts = {}
    with standing(loaded, make_plan(loaded.environment, loaded.tenants)) as (api, lab):
        for column in COLUMNS:
            since = time.monotonic()
            verdicts[column.key] = asked(api, lab, column, loaded, meant)
            print(f"{column.title}: {len(meant)} attacks in {time.monotonic() - since:.0f} s", file=sys.stderr)
    text = page(sorted(COLUMNS, key=lambda column: column.key != "ours"), verdicts, attacks)
    if only:
        print(text, end="")
    else:
        PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
