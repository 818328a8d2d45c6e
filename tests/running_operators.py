"""Operators of others' kinds of work as processes beside a lab: their own programs, under their own service accounts'
names and rights, with their webhooks; as the lab runs Kueue."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tenancy.catalog import vocabulary
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.lab import pki, ports, processes
from tenancy.lab.api import LabApi
from tenancy.lab.kueue import TOKEN_SECONDS
from tenancy.lab.layout import Lab, write
from tests import operators
from tests.answering import free_ports, wait_until_free
from tests.conftest import documents
from tests.judges import folder
from tests.waiting import until

Object = dict[str, Any]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
TENANTS = {"matchExpressions": [{"key": vocabulary.TENANT, "operator": "Exists"}]}
"""Namespaces whose pods a webhook sees: those of tenants. A controller that ends would keep the lab's own from
starting."""


@dataclass(frozen=True)
class Program:
    """One operator's program, as its module and its manifests describe it."""

    name: str
    framework: str
    """A kind of its work in `FRAMEWORKS`, which names its namespace and its service account."""
    module: str
    rights: str
    """File of the module with its ClusterRole."""
    hooks: str = ""
    configuration: str = ""
    """API version of its configuration."""
    certificates: str = "internalCertManagement"
    """Field of its configuration by which it makes its own certificates."""
    kinds: tuple[str, ...] = ()
    """Files with further definitions, without which it does not start."""


TOGETHER = "operators"
"""The tests' own program around the controllers that have no configuration."""
PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (
        Program(
            "jobset",
            "jobset",
            "sigs.k8s.io/jobset",
            "config/components/rbac/role.yaml",
            "config/components/webhook/manifests.yaml",
            "config.jobset.x-k8s.io/v1alpha1",
        ),
        Program(
            "lws",
            "leaderworkerset",
            "sigs.k8s.io/lws",
            "config/rbac/role.yaml",
            "config/webhook/manifests.yaml",
            "config.lws.x-k8s.io/v1alpha1",
            kinds=("config/crd/bases/disaggregatedset.x-k8s.io_disaggregatedsets.yaml",),
        ),
        Program(
            "trainer",
            "trainjob",
            "github.com/kubeflow/trainer/v2",
            "manifests/base/rbac/role.yaml",
            "manifests/base/webhook/manifests.yaml",
            "config.trainer.kubeflow.org/v1alpha1",
            "certManagement",
        ),
        Program("kuberay", "raycluster", "github.com/ray-project/kuberay/ray-operator", "config/rbac/role.yaml"),
        Program("mpi-operator", "mpijob", "github.com/kubeflow/mpi-operator", "manifests/base/cluster-role.yaml"),
    )
}


def definitions() -> list[Object]:
    """Definitions of the kinds that the operators need besides those of their work."""
    items = []
    for program in PROGRAMS.values():
        for file in program.kinds:
            items += documents((operators.source(program.module) / file).read_text("utf-8"))
    for item in items:
        item.pop("status", None)
    return items


@dataclass
class Operators:
    """The operators that run beside one lab."""

    lab: Lab
    names: tuple[str, ...]
    _commands: dict[str, list[str]] = field(default_factory=dict)
    _ports: dict[str, list[int]] = field(default_factory=dict)
    """Ports of the health probe and of the webhooks."""
    _hooks: list[str] = field(default_factory=list)

    def start(self, name: str) -> None:
        """Start one that does not run; what it needs in the cluster is made the first time."""
        program = PROGRAMS[name]
        if name not in self._commands:
            self._prepare(program)
        home = self._home(name)
        with pytest.MonkeyPatch.context() as patch:
            # Where a webhook server of controller-runtime looks for its certificate, unless it is told another place.
            patch.setenv("TMPDIR", str(home))
            # A killed process leaves the process table a moment before its sockets close.
            wait_until_free(self._ports[name])
            processes.start(self.lab, name, self._commands[name])

    def until_ready(self, *names: str) -> None:
        """Wait until these answer their probes, by default all."""
        for name in names or self.names:

            def is_ready(name: str = name) -> bool:
                assert self._processes(name), f"{name} ended: {processes.tail(self.lab, name)}"
                return self._answers(name)

            until(is_ready, lambda name=name: f"{name} is ready: {processes.tail(self.lab, name)}")

    def stop(self, name: str) -> None:
        """End it at once, as a node that fails does."""
        processes.stop(self._processes(name), at_once=True)

    def end(self) -> None:
        """End all, and take their webhooks off the cluster: they would refuse every pod."""
        with self._api() as api:
            for path in self._hooks:
                api.request("DELETE", path)
        for name in self.names:
            self.stop(name)

    def _api(self) -> LabApi:
        """A connection of its own each time: the API server ends one that is idle."""
        return LabApi(self.lab, ports.remembered(self.lab)["kube-apiserver"])

    def _processes(self, name: str) -> list[processes.Process]:
        program = name if PROGRAMS[name].configuration else TOGETHER
        started = processes.running(self.lab, (program,)).get(program, [])
        return [process for process in started if process.argv == tuple(self._commands[name])]

    def _answers(self, name: str) -> bool:
        path = "readyz" if PROGRAMS[name].configuration else "healthz"
        try:
            with urllib.request.urlopen(f"http://{pki.LOOPBACK}:{self._ports[name][0]}/{path}", timeout=2):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def _home(self, name: str) -> Path:
        return self.lab.folder / "operators" / name

    def _prepare(self, program: Program) -> None:
        with self._api() as api:
            self._prepare_with(api, program)

    def _prepare_with(self, api: LabApi, program: Program) -> None:
        framework, source = FRAMEWORKS[program.framework], operators.source(program.module)
        api.apply("/api/v1/namespaces", _object("v1", "Namespace", framework.namespace))
        account = _object("v1", "ServiceAccount", framework.service_account)
        accounts = f"/api/v1/namespaces/{framework.namespace}/serviceaccounts"
        api.apply(accounts, account)
        for role in documents((source / program.rights).read_text("utf-8")):
            if role["kind"] == "ClusterRole" and "rules" in role:
                role["metadata"] = {"name": f"{program.name}-{role['metadata']['name']}"}
                api.apply(f"{RBAC}/clusterroles", role)
                api.apply(f"{RBAC}/clusterrolebindings", _bound(role["metadata"]["name"], program))
                break
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        token = api.request(
            "POST",
            f"{accounts}/{framework.service_account}/token",
            {**request, "spec": {"expirationSeconds": TOKEN_SECONDS}},
            "application/json",
        )["status"]["token"]
        port = ports.remembered(self.lab)["kube-apiserver"]
        access = pki.write_service_account(self.lab, program.name, token, port)
        health, hooks = self._ports[program.name] = free_ports(2)
        self._commands[program.name] = self._command(program, access, health, hooks)
        if program.hooks:
            self._hook(api, program, source, hooks)

    def _command(self, program: Program, access: Path, health: int, hooks: int) -> list[str]:
        home = self._home(program.name)
        if not program.configuration:
            probes = f"--health-probe-bind-address={pki.LOOPBACK}:{health}"
            return [str(folder(TOGETHER)), f"--kubeconfig={access}", probes, program.name]
        certificates = home / "k8s-webhook-server" / "serving-certs"
        for name, file in (("tls.crt", "serving.crt"), ("tls.key", "serving.key")):
            write(certificates / name, (self.lab.pki / file).read_bytes())
        place = {"certDir": str(certificates)} if program.certificates == "internalCertManagement" else {}
        configuration = {
            "apiVersion": program.configuration,
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            program.certificates: {"enable": False},
            "webhook": {"host": pki.LOOPBACK, "port": hooks, **place},
            "health": {"healthProbeBindAddress": f"{pki.LOOPBACK}:{health}"},
            "metrics": {"bindAddress": "0"},
        }
        file = home / "configuration.yaml"

        write(file, json.dumps(configuration))
        return [str(folder(program.name)), f"--config={file}", f"--kubeconfig={access}"]

    def _hook(self, api: LabApi, program: Program, source: Path, port: int) -> None:
        authority = base64.b64encode((self.lab.pki / "ca.crt").read_bytes()).decode()
        for item in documents((source / program.hooks).read_text("utf-8")):
            item["metadata"] = {"name": f"{program.name}-{item['metadata']['name']}"}
            for hook in item["webhooks"]:
                path = hook["clientConfig"]["service"]["path"]
                hook["clientConfig"] = {"url": f"https://{pki.LOOPBACK}:{port}{path}", "caBundle": authority}
                if any("pods" in rule["resources"] for rule in hook["rules"]):
                    hook["namespaceSelector"] = TENANTS
            where = f"{HOOKS}/{item['kind'].lower()}s"
            api.apply(where, item)
            self._hooks.append(f"{where}/{item['metadata']['name']}")


def _object(version: str, kind: str, name: str) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}


def _bound(role: str, program: Program) -> Object:
    framework, group = FRAMEWORKS[program.framework], "rbac.authorization.k8s.io"
    account = {"kind": "ServiceAccount", "name": framework.service_account, "namespace": framework.namespace}
    return {
        **_object(f"{group}/v1", "ClusterRoleBinding", role),
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [account],
    }


@contextmanager
def running(lab: Lab, names: Iterable[str] = tuple(PROGRAMS)) -> Iterator[Operators]:
    """These operators beside a lab that knows their kinds, until the end."""
    operators_beside = Operators(lab, tuple(names))
    try:
        for name in operators_beside.names:
            operators_beside.start(name)
        operators_beside.until_ready()
        yield operators_beside
    finally:
        operators_beside.end()
