"""Inputs of the judges: renders and samples of the example environments, and the files of this repository."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from judged import program, terraform
from judged.homes import ROOT
from tenancy.planning import make_plan
from tenancy.planning.kubernetes.samples import sample
from tenancy.planning.render import file_texts
from tenancy.rules.catalogue import Violation
from tenancy.spec.loader import Loaded, load

ENVIRONMENTS = ("local", "bank")
ON_AWS = "bank"
NOT_OBJECTS = ("charts/", "cluster/")
"""Folders of a render that contain values of charts and AWS resources, and no Kubernetes object."""


def write(folder: Path) -> None:
    """Write each environment's objects and samples into `folder`: one subfolder each, one object a file."""
    for name in ENVIRONMENTS:
        loaded = load(ROOT / "stacks" / name)
        _write(folder / name, _rendered(loaded))
        _write(folder / f"samples-{name}", _samples(loaded))


def aws_resources() -> Sequence[program.Resource]:
    """The AWS half of the environment that has one."""
    loaded = load(ROOT / "stacks" / ON_AWS)
    return program.aws_resources(make_plan(loaded, loaded.day))


def write_aws(folder: Path, resources: Sequence[program.Resource]) -> None:
    """Write resources as a Terraform plan: ENVIRONMENT/tfplan.json."""
    (folder / ON_AWS).mkdir(parents=True)
    (folder / ON_AWS / "tfplan.json").write_text(json.dumps(terraform.plan(resources)), "utf-8")


def _write(folder: Path, objects: Iterator[dict[str, Any]]) -> None:
    folder.mkdir(parents=True)
    for number, item in enumerate(objects):
        name = f"{number:04}-{item['kind']}-{item['metadata']['name']}".replace(":", "_").replace("/", "_")
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(item), "utf-8")


def _rendered(loaded: Loaded) -> Iterator[dict[str, Any]]:
    for name, text in file_texts(make_plan(loaded, loaded.day)).items():
        if not name.startswith(NOT_OBJECTS):
            yield from (item for item in yaml.safe_load_all(text) if item)


def _samples(loaded: Loaded) -> Iterator[dict[str, Any]]:
    """Pod and job of every namespace, without a GPU and with one of each flavor that it holds."""
    for tenant in loaded.tenants:
        for namespace in tenant.namespaces:
            usable_flavors = [flavor for flavor, count in tenant.guaranteed_in(namespace).items() if count]
            for gpus in ({}, *({flavor: 1} for flavor in usable_flavors)):
                for kind in ("pod", "job"):
                    try:
                        manifest = sample(kind, loaded.environment, tenant, namespace, gpus)
                    except Violation:
                        continue  # the environment has no pool for it, which `tenancy sample` says
                    labels = "-".join((manifest["metadata"]["name"], *gpus))
                    yield {**manifest, "metadata": {**manifest["metadata"], "name": labels.replace(".", "-")}}


def alert_groups(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and content of every rule file of Prometheus in the renders under `folder`."""
    for path in sorted(folder.rglob("*.yaml")):
        item = yaml.safe_load(path.read_text("utf-8"))
        if item["kind"] == "PrometheusRule":
            yield f"{path.parent.name}/{item['metadata']['name']}", item["spec"]


def tracked(*patterns: str) -> list[str]:
    """Files of the repository that git knows and a pattern matches, by path from the root."""
    process = subprocess.run(["git", "ls-files", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in process.stdout.splitlines() if (ROOT / name).is_file()]


def shell_scripts() -> list[str]:
    """Tracked files whose first line names a shell."""
    file_names = (name for name in tracked("ci", "scripts") if not name.endswith((".py", ".md", ".yaml", ".yml")))
    return [name for name in file_names if (ROOT / name).read_text("utf-8").partition("\n")[0].endswith(("sh", "bash"))]


def as_json(path: Path) -> Any:
    """Content of a JSON file."""
    return json.loads(path.read_text("utf-8"))
