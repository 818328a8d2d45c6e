"""Judges of a running cluster: a lab of their own, with the example environment `local` and its samples in it."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from judged import homes, mtb, parse
from judged.homes import ROOT
from judged.model import SkippedJudge, Verdict
from tenancy.spec.loader import load

ENVIRONMENT = "local"
ON = "a lab with samples"
ASKS_AWS = (
    *("check_endpoint_public_access", "check_aws_node_daemonset_service_account", "check_access_to_instance_profile"),
    *("check_logs_are_enabled", "check_vpc_flow_logs", "deploy_workers_onto_private_subnets", "use_managed_nodegroups"),
    *("make_sure_inspector_is_enabled", "use_immutable_tags_with_ecr", "check_eks_version"),
    *("ensure_cluster_autoscaler_and_cluster_versions_match", "use_separate_iam_role_for_cluster_autoscaler"),
    *("employ_least_privileged_access_cluster_autoscaler_role", "ensure_cluster_autoscaler_has_autodiscovery_mode"),
    # Of the reader's own kubeconfig, not of the cluster.
    "check_kubectl_compression",
)
"""Rules of hardeneks that ask AWS, or look at add-ons and node groups of EKS, which a lab does not have."""


class LabOfJudges:
    """A lab in `folder`, started when a judge first asks for it and deleted at the end."""

    def __init__(self, folder: Path, is_enabled: bool) -> None:
        self._folder = folder
        self._is_enabled = is_enabled
        self._started = False
        self._problem = ""

    def __enter__(self) -> LabOfJudges:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._started:
            self._run("lab", "down")

    @property
    def home(self) -> Path:
        """Folder for files that a judge writes."""
        return self._folder

    def kubeconfig(self) -> Path:
        """The administrator's. Raises SkippedJudge if the lab does not start."""
        if not self._is_enabled:
            raise SkippedJudge("it asks a running cluster, and no lab was to be started (--no-lab)")
        path = self._folder / "lab" / "admin.kubeconfig"
        if not self._started:
            self._started = True
            self._run("lab", "up", ENVIRONMENT)
            self._run("up", ENVIRONMENT)
            self._problem = self._make_samples()
        # Without all samples every judge would have less to find.
        if self._problem:
            raise SkippedJudge(f"the lab refused a sample: {self._problem}")
        if not path.exists():
            raise SkippedJudge("the lab did not start")
        return path

    def _make_samples(self) -> str:
        """The lab's refusal of a sample, in the third try: on a busy machine an answer takes too long."""
        folder = self._folder / "objects" / f"samples-{ENVIRONMENT}"
        for _ in range(3):
            process = self._kubectl("apply", "--server-side", "--filename", folder)
            if not process.returncode:
                return ""
        return process.stderr.strip().splitlines()[-1].replace(str(self._folder), "")

    def tenancy(self, *words: str) -> str:
        """Standard output of a command of the product on the lab."""
        self.kubeconfig()
        return self._run(*words).stdout

    def leave_alone(self, names: str, until: dt.date, reason: str) -> None:
        """Update the lab's environment with `names` as one of its temporary namespaces, which guards leave alone."""
        self.kubeconfig()
        project = self._folder / "project"
        project.mkdir()
        for path in ROOT.iterdir():
            if path.name not in (".git", "stacks"):
                (project / path.name).symlink_to(path)
        shutil.copytree(ROOT / "stacks", project / "stacks")
        file = project / "stacks" / ENVIRONMENT / "environment.yaml"
        spec = yaml.safe_load(file.read_text("utf-8"))
        spec["platform"]["temporary-namespaces"] = [{"name": names, "until": until, "reason": reason}]
        file.write_text(yaml.safe_dump(spec), "utf-8")
        self._run("up", ENVIRONMENT, project=project)

    def wait_for_samples(self) -> None:
        """Wait until queues have admitted the samples and nodes have started their pods, a minute each at most."""
        everything = ("--all", "--all-namespaces", "--timeout=60s")
        self.ask("wait", "workloads.kueue.x-k8s.io", "--for=condition=Admitted", *everything)
        self.ask("wait", "pods", "--for=jsonpath={.status.startTime}", *everything)

    def ask(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """A command of kubectl as the administrator."""
        self.kubeconfig()
        return self._kubectl(*words)

    def _kubectl(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [homes.lab_tool("kubectl"), "--kubeconfig", self._folder / "lab" / "admin.kubeconfig", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def _run(self, *words: str, project: Path = ROOT) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "GPU_TENANCY_LAB": str(self._folder / "lab")}
        command = [sys.executable, "-m", "tenancy", *words]
        process = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)
        if process.returncode > 1 or (process.returncode and words[0] in ("lab", "up")):
            raise SkippedJudge(
                f"`tenancy {' '.join(words)}`: {(process.stderr.strip().splitlines() or ['failed'])[-1]}"
            )
        return process


def prowler(lab: LabOfJudges) -> Verdict:
    """Its checks for Kubernetes: rights, and what pods may do."""
    program, out = homes.environment("prowler") / "prowler", lab.home / "prowler"
    words = ("--kubeconfig-file", lab.kubeconfig(), "--output-formats", "json-ocsf", "--output-directory", out)
    text = homes.output(program, "kubernetes", *words, "--output-filename", "lab", "--no-banner", "--no-color")
    answer = out / "lab.ocsf.json"
    if not answer.exists():
        raise SkippedJudge(f"it wrote no result: {(text.strip().splitlines() or ['no output'])[-1]}")
    items = json.loads(answer.read_text("utf-8"))
    return parse.prowler(items, homes.pin("prowler", "prowler"), ON)


def hardeneks(lab: LabOfJudges) -> Verdict:
    """The rules of its configuration that ask the API server alone."""
    program = homes.environment("hardeneks") / "hardeneks"
    config_path = next(program.parent.parent.glob("lib/python*/site-packages/hardeneks/config.yaml"))
    config, answer = lab.home / "hardeneks.yaml", lab.home / "hardeneks.json"
    config.write_text(yaml.safe_dump(without_aws(yaml.safe_load(config_path.read_text("utf-8")))), "utf-8")
    # It reads the kubeconfig of the home folder alone.
    home = lab.home / "hardeneks" / ".kube"
    home.mkdir(parents=True, exist_ok=True)
    (home / "config").write_bytes(lab.kubeconfig().read_bytes())
    words = ("--region", "eu-central-1", "--cluster", "lab", "--config", config, "--export-json", answer)
    homes.output("env", f"HOME={home.parent}", f"KUBECONFIG={home / 'config'}", program, *words)
    if not answer.exists():
        raise SkippedJudge("it wrote no result")
    return parse.hardeneks(json.loads(answer.read_text("utf-8")), homes.pin("hardeneks", "hardeneks"), ON)


def without_aws(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of hardeneks without the rules that ask AWS."""
    rules = {
        scope: {
            pillar: {section: [name for name in names if name not in ASKS_AWS] for section, names in sections.items()}
            for pillar, sections in pillars.items()
        }
        for scope, pillars in config["rules"].items()
    }
    return {**config, "rules": rules}


def multi_tenancy(lab: LabOfJudges) -> Verdict:
    """The behaviours of the Kubernetes multi-tenancy benchmark, as a tenant and with a twin for each refusal."""
    results = json.loads(lab.tenancy("verify", ENVIRONMENT, "--lab", "--format", "json"))
    loaded = load(ROOT / "stacks" / ENVIRONMENT)
    return mtb.verdict(results, loaded, lab.ask)
