"""`tenancy check`: 200 objects that keep the rules and 200 that break them, without and with an environment."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import yaml

from bench import child
from bench.child import Run

COUNT = 200
ROUNDS = 3
_NAMESPACE = "fraud--train"
_REQUESTS = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}
_CLOSED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}


def measure() -> str:
    """The rows of the section, as Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        kept, broken = Path(folder) / "kept.yaml", Path(folder) / "broken.yaml"
        kept.write_text(yaml.safe_dump_all(_objects(_kept)), "utf-8")
        broken.write_text(yaml.safe_dump_all(_objects(_broken)), "utf-8")
        local = ("--env", str(Path(__file__).parent.parent / "stacks" / "local"))
        rows = [
            _row("objects that keep the rules", kept, code=0),
            _row("the same, with an environment", kept, *local, code=0),
            _row("objects that break rules", broken, code=1),
            _row("the same, with an environment", broken, *local, code=1),
        ]
    head = f"{COUNT} objects, each with another name; the whole process, best of {ROUNDS}."
    load = f"Load when it ended: {os.getloadavg()[0]:.1f}."
    return "\n".join([f"{head} {load}", "", "| `tenancy check` | seconds | seconds of CPU |", "|---|---|---|", *rows])


def _row(name: str, file: Path, *options: str, code: int) -> str:
    best: Run = min(child.tenancy("check", str(file), *options, code=code) for _ in range(ROUNDS))
    return f"| {name} | {best.wall:.2f} | {best.cpu:.2f} |"


def _objects(pod: Any) -> list[dict[str, Any]]:
    return [_job(f"fit-{number}", pod(number)) for number in range(COUNT)]


def _job(name: str, pod: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": _NAMESPACE}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}}}


def _kept(number: int) -> dict[str, Any]:
    image = f"registry.bank.example/teams/fraud/fit-{number}@sha256:{'0' * 64}"
    resources = {"requests": _REQUESTS, "limits": _REQUESTS}
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "main", "image": image, "securityContext": _CLOSED, "resources": resources}],
    }


def _broken(number: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": f"docker.io/library/fit-{number}:latest",
        "securityContext": {"privileged": True},
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        "resources": {"limits": {"xilinx.com/fpga": "1"}},
    }
    volumes = [{"name": "host", "hostPath": {"path": "/"}}]
    return {
        "restartPolicy": "Never",
        "hostNetwork": True,
        "tolerations": [{"operator": "Exists"}],
        "volumes": volumes,
        "containers": [container],
    }
