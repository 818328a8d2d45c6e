"""Definitions of others' operators: those of kinds from the modules that Kueue is built with."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tenancy.lab.builds import toolchains
from tests.conftest import documents

MODULES = {
    "sigs.k8s.io/jobset@v0.12.0": ["config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"],
    "sigs.k8s.io/lws@v0.9.0": ["config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml"],
    "github.com/ray-project/kuberay/ray-operator@v1.6.2": [
        "config/crd/bases/ray.io_rayclusters.yaml",
        "config/crd/bases/ray.io_rayjobs.yaml",
    ],
    "github.com/kubeflow/trainer/v2@v2.2.1": [
        "manifests/base/crds/trainer.kubeflow.org_clustertrainingruntimes.yaml",
        "manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml",
        "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
    ],
    "github.com/kubeflow/mpi-operator@v0.8.2": ["manifests/base/kubeflow.org_mpijobs.yaml"],
}


@cache
def _folder(module: str) -> Path:
    """Go's folder of `path@version`; fetched if it is not there. Go checks what it fetches against its database."""
    go = next(toolchains())
    env = dict(os.environ) | ({"GOROOT": str(go.root)} if go.root else {})
    command = [go.binary, "mod", "download", "-json", module]
    process = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if process.returncode:
        pytest.fail(f"{module} cannot be had: {process.stdout}{process.stderr}")
    return Path(json.loads(process.stdout)["Dir"])


def source(path: str) -> Path:
    """The folder of a module by its path alone, in the version that is pinned here."""
    return _folder(next(module for module in MODULES if module.partition("@")[0] == path))


def crds() -> list[dict[str, Any]]:
    folders = {module: _folder(module) for module in MODULES}
    files = [folders[module] / path for module, paths in MODULES.items() for path in paths]
    items = [item for file in files for item in documents(file.read_text("utf-8"))]
    for item in items:
        item["metadata"] = {key: item["metadata"][key] for key in ("name", "annotations") if key in item["metadata"]}
        item.pop("status", None)
    return items


def training_runtime(name: str = "plain") -> dict[str, Any]:
    """The least that a TrainJob can name."""
    pods = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "any"}]}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": {"spec": pods}}}}
    spec = {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}}
    metadata = {"name": name, "labels": {"trainer.kubeflow.org/framework": name}}
    api = "trainer.kubeflow.org/v1alpha1"
    return {"apiVersion": api, "kind": "ClusterTrainingRuntime", "metadata": metadata, "spec": spec}
