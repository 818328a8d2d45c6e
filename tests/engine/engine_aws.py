"""An environment in a project whose AWS is the double and whose API server is the lab's."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aws_double import AwsDouble
from chart_repository import serving
from engine_project import CommandResult, Project

from tenancy.planning.common.charts import SYSTEM_NODES

RELEASE = "aws:ssm/getParameter:getParameter"


@dataclass(frozen=True)
class OnAws:
    name: str
    """Name of the environment and of its cluster's context."""
    project: Project
    aws: AwsDouble
    kubeconfig: Path
    charts: str
    """Address of the Helm repository."""

    @property
    def folder(self) -> Path:
        return self.project.folder / "stacks" / self.name

    def edit(self, old: str, new: str, file: str = "environment.yaml") -> None:
        text = (self.folder / file).read_text("utf-8")
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times"
        (self.folder / file).write_text(text.replace(old, new), "utf-8")

    def run(self, *command: str, kubeconfig: bool = True) -> CommandResult:
        self.aws.calls.clear()
        return self.project.run(*command, env=self.environ(kubeconfig))

    def environ(self, kubeconfig: bool = True) -> dict[str, str]:
        return {**self.aws.environ, "KUBECONFIG": str(self.kubeconfig if kubeconfig else "/dev/null")}

    def tenancy(self, *arguments: str, kubeconfig: bool = True) -> CommandResult:
        return self.run(sys.executable, "-m", "tenancy", *arguments, kubeconfig=kubeconfig)

    def pulumi(self, *arguments: str) -> CommandResult:
        return self.run("pulumi", *arguments, "--non-interactive")

    def steps(self, stack: str) -> dict[str, str]:
        """Steps of a preview: operation by `type name`."""
        result = self.pulumi("preview", "--json", "--stack", stack)
        assert result.code == 0, result.text
        steps = json.loads(result.out)["steps"]
        return {f"{_type(s['urn'])} {s['urn'].rpartition('::')[2]}": s["op"] for s in steps}

    def updated(self) -> list[str]:
        return [call.name for call in self.aws.calls if call.kind == "update" and not call.preview]


@contextmanager
def on_aws(name: str, project: Project, folder: Path) -> Generator[OnAws]:
    """`folder` is for what belongs to no project."""
    with serving(folder / "charts") as charts, AwsDouble() as aws:
        aws.answers[RELEASE] = _release
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(project.lab.kubeconfig.read_text("utf-8").replace("gpu-tenancy-lab", name), "utf-8")
        yield OnAws(name, project, aws, kubeconfig, charts)


def _release(arguments: Mapping[str, Any], region: str) -> dict[str, Any]:
    """EKS' public parameter of an image: here of the minor and the day that its name has."""
    parts = arguments["name"].split("/")
    value = {
        "value": f"{parts[5]}.3-{parts[-2].rpartition('-v')[2]}",
        "insecureValue": "",
        "type": "String",
        "version": 1,
        "arn": "arn:aws:ssm:::x",
    }
    return {**value, "name": arguments["name"], "id": arguments["name"], "withDecryption": True, "region": region}


def system_node(number: int) -> dict[str, Any]:
    """A node of the system's group, as kwok plays it."""
    resources = {"cpu": "4", "memory": "16Gi", "pods": "58", "ephemeral-storage": "180Gi"}
    labels = {**SYSTEM_NODES, "topology.kubernetes.io/zone": f"eu-central-1{'ab'[number]}"}
    return {
        "metadata": {"name": f"system-{number}", "labels": labels},
        "spec": {"taints": [{"key": "CriticalAddonsOnly", "value": "true", "effect": "NoSchedule"}]},
        "status": {"allocatable": resources, "capacity": resources},
    }


def _type(urn: str) -> str:
    return urn.split("::")[2].rpartition("$")[2]
