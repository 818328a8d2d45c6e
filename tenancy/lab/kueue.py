"""Kueue as a process of the lab: what its chart makes of the given values, but for where it runs.

In a cluster it is a Deployment that mounts its configuration and its certificates. Here the API
server dials the loopback address instead of a Service, and the lab does what the mounts would.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.kube.objects import true_conditions
from tenancy.lab import pki
from tenancy.lab.api import MERGE, ApiError, LabApi
from tenancy.lab.components import KUEUE
from tenancy.lab.layout import Lab, LabError, write

Object = dict[str, Any]

NAMESPACE = vocabulary.QUEUE_NAMESPACE
SERVICE_ACCOUNT = "kueue-controller-manager"
WEBHOOK_SERVICE = "kueue-webhook-service"
CERTIFICATES = "kueue-webhook-server-cert"
CONFIGURATION = "kueue-manager-config"
DIGEST = vocabulary.LAB_NODE + "-digest"
# Objects that only a cluster can use: the pods of Kueue, and its own API server for pending workloads, which needs the
# configuration of a pod.
EXCLUDED_KINDS = frozenset({"APIService", "Deployment", "PodDisruptionBudget"})
# The operators that these talk to do not run here.
SWITCHED_OFF = ("enableCertManager", "enableKueueViz", "enablePrometheus")
CRD = "CustomResourceDefinition"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
PROBE = "lab-probe"
WAIT_SECONDS = 180.0
# As long as the components' certificates: a token of an hour would end the queues of a long run.
TOKEN_SECONDS = int(pki.COMPONENT_LIFE.total_seconds())


def digest(tools: Mapping[str, Path], ports: Mapping[str, int], values: Mapping[str, Any]) -> str:
    """Digest of everything that decides what is applied and how the process is started."""
    facts = [str(tools["kueue-chart"]), str(tools[KUEUE]), dict(sorted(ports.items())), values]
    text = json.dumps(facts, sort_keys=True) + Path(__file__).read_text(encoding="utf-8")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def command(lab: Lab, binary: Path, key: str, values: Mapping[str, Any]) -> list[str]:
    """The command line; the configuration's name contains the digest, so that a changed one restarts the process."""
    level = values.get("controllerManager", {}).get("manager", {}).get("logLevel", 2)
    return [
        str(binary),
        f"--config={_configuration_file(lab, key)}",
        f"--kubeconfig={lab.pki / KUEUE}.kubeconfig",
        f"--zap-log-level={level}",
    ]


def is_applied(lab: Lab, api: LabApi, key: str) -> bool:
    """Whether all objects of this digest are applied to the cluster."""
    if not _configuration_file(lab, key).exists():
        return False
    namespace = _get(api, f"/api/v1/namespaces/{NAMESPACE}")
    return bool(namespace) and namespace["metadata"].get("annotations", {}).get(DIGEST) == key


def objects(tools: Mapping[str, Path], ports: Mapping[str, int], values: Mapping[str, Any]) -> list[Object]:
    """The chart's objects for the values, changed for a Kueue that listens on a port of this machine."""
    return [
        _local(item, ports["kueue-webhook"]) for item in _render(tools, values) if item["kind"] not in EXCLUDED_KINDS
    ]


def kinds(items: list[Object]) -> list[Object]:
    """The definitions of kinds among the chart's objects."""
    return [item for item in items if item["kind"] == CRD]


def bring_kinds(lab: Lab, api: LabApi, items: list[Object], *, stored: bool = False) -> bool:
    """Apply the kinds and wait until the API server's discovery lists them; return whether they are new.

    The controllers look for kinds when they start, and for new ones every half a minute. `stored` kinds came with
    etcd's data.
    """
    _remember_applied(lab, list(dict.fromkeys([*map(_path, items), *_applied(lab)])))
    crds = kinds(items)
    names = {item["metadata"]["name"] for item in crds}
    are_known = names <= _established(api)
    for item in () if stored else crds:
        api.apply(CRDS, item)
    _wait("the queues' kinds are not established", lambda: names <= _established(api))
    _wait("the API server does not tell of the queues' kinds", lambda: names <= _discovered_kinds(api))
    return not are_known


def apply(
    lab: Lab, api: LabApi, items: list[Object], ports: Mapping[str, int], values: Mapping[str, Any], key: str
) -> None:
    """Apply the objects other than kinds, with the changes that a process needs."""
    former_paths, paths = _applied(lab), [_path(item) for item in items]
    namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    api.apply("/api/v1/namespaces", namespace)
    for item in items:
        if item["kind"] != CRD:
            api.apply(_path(item).rpartition("/")[0], item)
    _delete(api, [path for path in former_paths if path not in paths])
    _remember_applied(lab, paths)

    (text,) = [i["data"]["controller_manager_config.yaml"] for i in items if i["metadata"]["name"] == CONFIGURATION]
    for stale in lab.kueue.glob("configuration-*.json"):
        stale.unlink()
    content = _configuration(text, values, ports, _certificates(lab))
    write(_configuration_file(lab, key), json.dumps(content, indent=2) + "\n")
    # Last: it marks all of the above as done.
    api.apply("/api/v1/namespaces", {**namespace, "metadata": {"name": NAMESPACE, "annotations": {DIGEST: key}}})


def write_identity(lab: Lab, api: LabApi, port: int) -> None:
    """Write a token of Kueue's own service account, so that RBAC, guards and the audit log see its identity."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{SERVICE_ACCOUNT}/token"
    spec = {"expirationSeconds": TOKEN_SECONDS}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    token = api.request("POST", path, request, "application/json")["status"]["token"]
    pki.write_service_account(lab, KUEUE, token, port)


def fetch_certificates(lab: Lab, api: LabApi) -> None:
    """Copy Kueue's certificates from its Secret to the folder that a pod would mount; Kueue watches the files."""
    data = _get(api, f"/api/v1/namespaces/{NAMESPACE}/secrets/{CERTIFICATES}").get("data") or {}
    # Kueue continues as soon as a certificate exists, so its key is written first.
    for name in sorted(data, key=lambda name: name.endswith(".crt")):
        file, content = _certificates(lab) / name, base64.b64decode(data[name])
        if not file.exists() or file.read_bytes() != content:
            write(file, content)


def webhooks_answer(api: LabApi) -> bool:
    """Whether the API server reaches Kueue and trusts it: a dry run of a flavor passes both kinds of webhook."""
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": PROBE}}
    try:
        created = api.request("POST", f"{QUEUES}/resourceflavors?dryRun=All", flavor, "application/json")
    except ApiError as refused:
        # A guard that refuses it has seen it after the mutating webhooks.
        return refused.status in {403, 422}
    return bool(created["metadata"].get("finalizers"))


def wait_for_queues(api: LabApi) -> None:
    """Wait until Kueue has read the existing queues.

    Its webhooks answer before; a job created then would be taken for one without a queue, and wait for ever.
    """
    path = f"{QUEUES}/namespaces/{NAMESPACE}/localqueues"
    _delete(api, [f"{path}/{PROBE}"])
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": PROBE}}
    api.apply(path, queue | {"spec": {"clusterQueue": PROBE}})
    # Queues are read in one go, this one with the others or after them.
    _wait("Kueue does not read its queues", lambda: "conditions" in api.get(f"{path}/{PROBE}").get("status", {}))
    _delete(api, [f"{path}/{PROBE}"])


def remove(lab: Lab, api: LabApi) -> None:
    """Delete what `apply` made, with the queues and workloads; nothing if it was not applied.

    Without Kueue their finalizers would stay for ever, so they are removed with their kinds. Waiting jobs stay
    suspended.
    """
    if not lab.kueue.exists():
        return
    paths = _applied(lab)
    # First, because the webhooks fail closed for all other clients.
    _delete(api, [path for path in paths if "admissionregistration.k8s.io" in path])
    crds = [path for path in paths if path.startswith(CRDS)]
    _wait("queues and workloads keep their finalizers", lambda: all(_remove_finalizers(api, path) for path in crds))
    _delete(api, [path for path in paths if "admissionregistration.k8s.io" not in path])
    # Once more for each: another client may have created one in between.
    _wait(
        "the queues' kinds do not go",
        lambda: not [path for path in crds if _remove_finalizers(api, path) and _get(api, path)],
    )
    _free(api, "/api/v1", "pods", labelSelector="kueue.x-k8s.io/managed=true")
    # The namespace stays: its removal would take longer than all the rest, and the next `apply` would wait for it.
    if _get(api, f"/api/v1/namespaces/{NAMESPACE}"):
        api.request("PATCH", f"/api/v1/namespaces/{NAMESPACE}", {"metadata": {"annotations": {DIGEST: None}}})
    for secret in ("token", "kubeconfig"):
        (lab.pki / f"{KUEUE}.{secret}").unlink(missing_ok=True)
    shutil.rmtree(lab.kueue)


def _render(tools: Mapping[str, Path], values: Mapping[str, Any]) -> list[Object]:
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    off = [f"--set={name}=false" for name in SWITCHED_OFF]
    argv = [str(tools["helm"]), "template", KUEUE, str(tools["kueue-chart"]), "-n", NAMESPACE, "--values=-", *off]
    completed = subprocess.run(argv, input=json.dumps(values), capture_output=True, text=True, check=False)
    if completed.returncode:
        raise LabError(
            f"helm cannot render Kueue's chart with the values that the lab was given: {completed.stderr.strip()}"
        )
    return [item for item in yaml.load_all(completed.stdout, loader) if item]


def _local(item: Object, port: int) -> Object:
    """An object of the chart, changed for a Kueue that listens on a port of this machine."""
    kind = item["kind"]
    if kind.endswith("WebhookConfiguration"):
        # The chart gives these a namespace, which they do not have.
        item["metadata"].pop("namespace", None)
        for webhook in item["webhooks"]:
            webhook["clientConfig"]["service"]["port"] = port
    elif kind == CRD and "webhook" in item["spec"].get("conversion", {}):
        item["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"] = port
    elif kind == "Service" and item["metadata"]["name"] == WEBHOOK_SERVICE:
        # The API server dials this name, and asks for a certificate of the Service's.
        item["spec"] = {"type": "ExternalName", "externalName": "localhost"}
    return item


def _configuration(text: str, values: Mapping[str, Any], ports: Mapping[str, int], certificates: Path) -> Object:
    import yaml

    configuration: Object = yaml.safe_load(text)
    # In a cluster the chart passes these as arguments, and Kueue reads them from one place only.
    arguments = values.get("controllerManager", {}).get("featureGates") or []
    gates = {gate["name"]: gate["enabled"] for gate in arguments}
    # It would listen on every address.
    configuration.pop("pprofBindAddress", None)
    overrides: dict[str, Object] = {
        "leaderElection": {"leaderElect": False},
        "health": {"healthProbeBindAddress": f"{pki.LOOPBACK}:{ports[KUEUE]}"},
        "metrics": {"bindAddress": f"{pki.LOOPBACK}:{ports['kueue-metrics']}"},
        "webhook": {"host": pki.LOOPBACK, "port": ports["kueue-webhook"], "certDir": str(certificates)},
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": WEBHOOK_SERVICE,
            "webhookSecretName": CERTIFICATES,
        },
        "featureGates": {**gates, "VisibilityOnDemand": False},
    }
    return configuration | {name: (configuration.get(name) or {}) | facts for name, facts in overrides.items()}


def _configuration_file(lab: Lab, key: str) -> Path:
    return lab.kueue / f"configuration-{key}.json"


def _certificates(lab: Lab) -> Path:
    return lab.kueue / "certificates"


def _applied(lab: Lab) -> list[str]:
    try:
        return json.loads((lab.kueue / "applied.json").read_text())
    except FileNotFoundError:
        return []


def _remember_applied(lab: Lab, paths: list[str]) -> None:
    _certificates(lab).mkdir(mode=0o700, parents=True, exist_ok=True)
    write(lab.kueue / "applied.json", json.dumps(paths, indent=2) + "\n")


def _path(item: Object) -> str:
    metadata, version = item["metadata"], item["apiVersion"]
    kind = item["kind"].lower()
    plural = kind[:-1] + "ies" if kind.endswith("y") else kind + ("es" if kind.endswith("s") else "s")
    namespace_part = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"/{'apis' if '/' in version else 'api'}/{version}{namespace_part}/{plural}/{metadata['name']}"


def _get(api: LabApi, path: str) -> Object:
    try:
        return api.get(path)
    except ApiError as refused:
        if refused.status != 404:
            raise
        return {}


def _delete(api: LabApi, paths: Iterable[str]) -> None:
    for path in paths:
        try:
            api.request("DELETE", path)
        except ApiError as refused:
            if refused.status != 404:
                raise


def _remove_finalizers(api: LabApi, path: str) -> bool:
    """Remove the finalizers of a kind's objects; False while the API server does not serve the kind."""
    if crd := _get(api, path):
        stored = next(version["name"] for version in crd["spec"]["versions"] if version["storage"])
        try:
            _free(api, f"/apis/{crd['spec']['group']}/{stored}", crd["spec"]["names"]["plural"])
        except ApiError as refused:
            # A kind that has just changed is busy for a moment; a removed one is not found.
            return refused.status == 404
    return True


def _free(api: LabApi, root: str, plural: str, **query: str) -> None:
    """Remove Kueue's finalizers from the objects of a kind."""
    for item in api.get(f"{root}/{plural}", **query).get("items", []):
        metadata = item["metadata"]
        finalizers = metadata.get("finalizers", [])
        remaining = [name for name in finalizers if not name.startswith("kueue.x-k8s.io/")]
        if remaining != finalizers:
            namespace_part = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
            patch = {"metadata": {"finalizers": remaining or None}}
            with contextlib.suppress(ApiError):  # it may have gone in between
                api.request("PATCH", f"{root}{namespace_part}/{plural}/{metadata['name']}", patch, MERGE)


def _established(api: LabApi) -> set[str]:
    return {crd["metadata"]["name"] for crd in api.get(CRDS)["items"] if "Established" in true_conditions(crd)}


def _discovered_kinds(api: LabApi) -> set[str]:
    """Kinds of the API server's discovery, by the names of their definitions."""
    return {
        f"{resource['resource']}.{group['metadata']['name']}"
        for group in api.request("GET", "/apis", accept=DISCOVERY)["items"]
        for version in group["versions"]
        for resource in version["resources"]
    }


def _wait(problem: str, fact: Any) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not fact():
        if time.monotonic() > deadline:
            raise LabError(f"{problem} after {WAIT_SECONDS:.0f} s: see `tenancy lab logs kube-apiserver`.")
        time.sleep(0.05)
