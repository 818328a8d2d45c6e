"""A copy of the project with a lab of its own, driven as a person drives it: by its commands."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tenancy.catalog import vocabulary
from tenancy.components.kubernetes.manifest import BACKGROUND_DELETION
from tenancy.lab import control_plane, ports, processes
from tenancy.lab.api import ApiError, LabApi
from tenancy.lab.layout import Lab, environ
from tests.printed import Printed, compare
from tests.waiting import PATIENCE, until

ROOT = Path(__file__).parents[2]
PROGRAM = ("__main__.py", "Pulumi.yaml", "policy", "stacks", "tenancy")
OWN_OBJECTS = f"labelSelector={vocabulary.ENVIRONMENT}"
STATE_AT_END = {"PULUMI_EXPERIMENTAL": "true", "PULUMI_SKIP_CHECKPOINTS": "true"}
"""The engine writes its state at the end of a run, not at every step: a run from nothing takes 40 % of the CPU time.
Only a killed engine shows a difference; where tests kill one they use `every_step`."""

Key = tuple[str, str, str]
"""(kind, namespace, name)"""

COLLECTIONS = (
    "/api/v1/namespaces",
    "/api/v1/configmaps",
    "/api/v1/limitranges",
    "/api/v1/resourcequotas",
    "/api/v1/serviceaccounts",
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
    "/apis/networking.k8s.io/v1/networkpolicies",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
)
QUEUES = "/apis/kueue.x-k8s.io/v1beta2"
QUEUED = ("clusterqueues", "cohorts", "localqueues", "resourceflavors", "topologies", "workloadpriorityclasses")
"""Collections of environments with queues."""
FLOWS = ("flowschemas", "prioritylevelconfigurations")
NEW_TENANT = """\
tenant: {name}
team: {name}-team
owner: {{name: {name}-leads, mail: {name}@bank.example}}
department: risk
cost-center: CC-1
tier: batch
people:
  - {{group: {name}-engineers, role: developer}}
"""


@dataclass(frozen=True)
class CommandResult:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass(frozen=True)
class AuditedRequest:
    """A request that the API server granted or refused, from its audit log."""

    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    dry_run: bool


@dataclass(frozen=True)
class Project:
    folder: Path

    @property
    def lab(self) -> Lab:
        return Lab(self.folder, self.folder / ".lab")

    @property
    def environment(self) -> Path:
        return self.folder / "stacks" / "local"

    def fresh(self) -> None:
        """An empty cluster, no state, and the files of the checkout, but without queues: tests/queues has these."""
        control_plane.down(root=self.folder)
        shutil.rmtree(self.folder / "stacks", ignore_errors=True)
        shutil.copytree(ROOT / "stacks", self.folder / "stacks")
        with (self.environment / "environment.yaml").open("a", encoding="utf-8") as file:
            file.write("queues: {scheduler: none}\n")
        for path in (self.environment / "tenants").iterdir():
            path.write_text(re.sub(r", sharing: [^}]*", "", path.read_text("utf-8")), "utf-8")
        self.start_lab()

    def write(self, name: str, text: str) -> None:
        (self.environment / name).write_text(text, "utf-8")

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.environment / name).read_text("utf-8")
        assert old in text, f"{old!r} does not stand in {name}"
        self.write(name, text.replace(old, new))

    def remove(self, name: str) -> None:
        (self.environment / name).unlink()

    def environ(self) -> dict[str, str]:
        base = {key: value for key, value in os.environ.items() if not key.startswith(("PULUMI_", "GPU_TENANCY_"))}
        return environ(self.folder, base) | STATE_AT_END

    def start_lab(self) -> None:
        """A lab in whatever state it is; started if there is none."""
        # What the type checks write, no engine reads; tests/attacks does.
        control_plane.up(root=self.folder, platform_group="gpu-platform-team")

    def start(
        self, *command: str, env: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=folder or self.folder,
            env={**self.environ(), **(env or {})},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, *command: str, env: Mapping[str, str] | None = None, folder: Path | None = None) -> CommandResult:
        process = self.start(*command, env=env, folder=folder)
        out, err = process.communicate(timeout=PATIENCE)
        return CommandResult(process.returncode, out, err)

    def tenancy(self, *arguments: str) -> CommandResult:
        return self.run(sys.executable, "-m", "tenancy", *arguments)

    def pulumi(self, *arguments: str) -> CommandResult:
        return self.run("pulumi", *arguments, "--non-interactive")

    def up(self) -> CommandResult:
        """`tenancy up local`, which has to work. A preview would take a third of its time; tests of what a preview
        finds run the command themselves."""
        result = self.tenancy("up", "local", "--skip-preview")
        assert result.code == 0, result.text
        return result

    def api(self, identity: str = "platform") -> LabApi:
        return LabApi(self.lab, ports.remembered(self.lab)["kube-apiserver"], identity=identity)

    def exists(self, path: str) -> bool:
        with self.api() as api:
            try:
                api.get(path)
            except ApiError as error:
                if error.status != 404:
                    raise
                return False
            return True

    def until_made(self, path: str, process: subprocess.Popen[str]) -> None:
        """Wait until the command has made it."""
        until(lambda: self.exists(path), f"{path} exists", process=process)

    def objects(self) -> dict[Key, dict[str, Any]]:
        """Everything on the cluster that carries our label."""
        queued = [f"{QUEUES}/{kind}" for kind in QUEUED] if self.exists(QUEUES) else []
        with self.api() as api:
            paths_and_items = [
                (path, item) for path in (*COLLECTIONS, *queued) for item in api.get(f"{path}?{OWN_OBJECTS}")["items"]
            ]
        return {
            (path.rpartition("/")[2], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item
            for path, item in paths_and_items
        }

    def versions(self) -> dict[Key, str]:
        """A text that changes with every write of an object, or of its spec if a controller writes its status."""
        return {key: item["metadata"]["uid"] + _generation_text(key, item) for key, item in self.objects().items()}

    def state(self, stack: str = "local") -> dict[str, Any]:
        """As the backend stores it: an engine takes half a second to read it."""
        file = self.lab.state / ".pulumi" / "stacks" / "gpu-tenancy" / f"{stack}.json"
        return json.loads(file.read_text("utf-8"))["checkpoint"].get("latest") or {}

    def keys_in_state(self, *stacks: str) -> set[Key]:
        """Keys of the objects that the states list."""
        keys = set()
        for stack in stacks or ("local",):
            for resource in self.state(stack).get("resources") or ():
                if resource["type"].startswith("kubernetes:"):
                    kind = resource["type"].rpartition(":")[2].removesuffix("Patch").lower()
                    plural = kind[:-1] + "ies" if kind.endswith("y") else kind + ("es" if kind.endswith("s") else "s")
                    namespace, _, name = resource["id"].rpartition("/")
                    keys.add((plural, namespace, name))
        return keys

    def state_digest(self) -> str:
        """Digest of all files of the backend, with their times."""
        digest = hashlib.sha256()
        for path in sorted((self.lab.state / ".pulumi" / "stacks").rglob("*")):
            if path.is_file():
                digest.update(f"{path} {path.stat().st_mtime_ns}".encode() + path.read_bytes())
        return digest.hexdigest()

    def audit_size(self) -> int:
        return (self.lab.folder / "audit.log").stat().st_size

    def audit(self, since: int = 0) -> Iterator[AuditedRequest]:
        """Requests of the platform's own identity, in the order in which it was answered."""
        with (self.lab.folder / "audit.log").open("rb") as file:
            file.seek(since)
            lines = file.read().splitlines()
        events = [json.loads(line) for line in lines]
        for event in sorted(events, key=lambda event: event["stageTimestamp"]):
            object_reference = event.get("objectRef") or {}
            if event["user"]["username"].startswith("system:") or event["verb"] in {"get", "list", "watch"}:
                continue
            if object_reference.get("resource") == "selfsubjectreviews":
                continue  # a question, though it is asked by a create: nothing is stored
            yield AuditedRequest(
                event["verb"],
                object_reference.get("resource", ""),
                object_reference.get("namespace", ""),
                object_reference.get("name", ""),
                event["responseStatus"]["code"],
                "dryRun=All" in event["requestURI"],
            )

    def kill_server(self) -> None:
        """End the API server at once, as a crash does."""
        processes.stop(processes.running(self.lab, ("kube-apiserver",))["kube-apiserver"], at_once=True)

    def mend_server(self) -> None:
        control_plane.up(root=self.folder)

    def engines(self) -> dict[int, str]:
        """Processes of the engine and its plugins that work for this project."""
        processes_by_name = processes.running(self.lab, ("pulumi", "pulumi-resource-kubernetes"))
        process_table = subprocess.run(
            ["ps", "-A", "-ww", "-o", "pid=,command="], capture_output=True, text=True, check=True
        )
        rows = (line.strip().partition(" ") for line in process_table.stdout.splitlines())
        plugins = {int(pid): command for pid, _, command in rows if command.startswith(f"{self.lab.folder}/pulumi/")}
        return plugins | {
            process.pid: " ".join(process.argv) for group in processes_by_name.values() for process in group
        }


def run_as_shown(project: Project, printed: Printed) -> None:
    """Run the command of a page's block as a person's shell does, after the block's earlier commands, and compare."""
    shell = {"PATH": f"{project.folder}/.venv/bin:{project.environ()['PATH']}"}
    for command in printed.earlier:
        result = project.run("bash", "-c", command, env=shell)
        assert result.code == 0, result.text
    # Problems and progress go to stderr, and a person sees both in their order.
    compare(printed, project.run("bash", "-c", f"({printed.command}) 2>&1", env=shell).out)


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    process_table = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in process_table.stdout.splitlines()]
    return [child for child, parent in pairs if parent == pid]


def kill_engine(process: subprocess.Popen[str]) -> None:
    """Kill the engine that a `tenancy` command drives, and nothing else: the command itself goes on."""
    engines = children(process.pid)
    assert engines, "an engine is at work"
    for pid in engines:
        os.kill(pid, signal.SIGKILL)


def _generation_text(key: Key, item: Mapping[str, Any]) -> str:
    """Text that changes when the engine writes an object, and not when a controller writes a status."""
    metadata = item["metadata"]
    if key[0] == "resourcequotas":
        # They count no generations, and their status follows whatever a namespace gets.
        return json.dumps([entry for entry in metadata["managedFields"] if "subresource" not in entry])
    # The controller manager writes the types of a guard's expressions into its status, some time after the guard.
    counted = key[0] in {*QUEUED, *FLOWS, "validatingadmissionpolicies"}
    return str(metadata["generation" if counted else "resourceVersion"])


def canonical(item: Mapping[str, Any]) -> dict[str, Any]:
    """An object without what every cluster and every writer fills in for itself."""
    metadata = {
        key: value
        for key, value in item["metadata"].items()
        if key not in {"creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"}
    }
    notes = {key: value for key, value in metadata.pop("annotations", {}).items() if key not in BACKGROUND_DELETION}
    if notes:
        metadata["annotations"] = notes
    return {**{key: value for key, value in item.items() if key != "status"}, "metadata": metadata}


def make_project(folder: Path) -> Project:
    """The program as a checkout has it, without tests and git."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAM:
        source = ROOT / name
        if source.is_dir():
            # With its bytecode: every process of a copy without would compile it anew. Files with another ending are
            # about to be renamed by another process.
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("*.pyc.*"))
        else:
            shutil.copy(source, folder / name)
    (folder / ".venv").symlink_to(sys.prefix)
    return Project(folder)


@contextmanager
def copied(folder: Path) -> Generator[Project]:
    """A project with a lab of its own, of which nothing is left running."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        project = make_project(folder)
        try:
            yield project
        finally:
            end(project)


def end(project: Project) -> None:
    """Leave nothing running."""
    for pid in project.engines():
        os.kill(pid, signal.SIGKILL)
    control_plane.down(root=project.folder)
