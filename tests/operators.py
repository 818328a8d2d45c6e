"""What others' operators bring: definitions of kinds from the modules that Kueue is built with, in Go's cache."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

WHERE = (
    "sigs.k8s.io/jobset@v0.12.0/config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
    "sigs.k8s.io/lws@v0.9.0/config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
    "github.com/ray-project/kuberay/ray-operator@v1.6.2/config/crd/bases/ray.io_rayclusters.yaml",
    "github.com/ray-project/kuberay/ray-operator@v1.6.2/config/crd/bases/ray.io_rayjobs.yaml",
    "github.com/kubeflow/trainer/v2@v2.2.1/manifests/base/crds/trainer.kubeflow.org_clustertrainingruntimes.yaml",
    "github.com/kubeflow/trainer/v2@v2.2.1/manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml",
    "github.com/kubeflow/trainer/v2@v2.2.1/manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
    "github.com/kubeflow/mpi-operator@v0.8.2/manifests/base/kubeflow.org_mpijobs.yaml",
)


def crds() -> list[dict[str, Any]]:
    found = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=False)
    cache = Path(found.stdout.strip() or "/nowhere")
    if missing := [where for where in WHERE if not (cache / where).exists()]:
        pytest.skip(f"not in Go's module cache: {', '.join(missing)}")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    items = [item for where in WHERE for item in yaml.load_all((cache / where).read_text("utf-8"), loader) if item]
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
