"""Prometheus beside the lab's control plane: its targets, its identity and its command line.

It scrapes the API server as the lab's admin, and Kueue as a service account that may only read metrics: Kueue accepts
tokens only (`cmd/kueue/main.go`, `filters.WithAuthenticationAndAuthorization`).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tenancy.lab import metrics, pki
from tenancy.lab.api import LabApi
from tenancy.lab.layout import Lab, LabError, write
from tenancy.lab.recipes import PACKAGE_FOLDER, LabTool, load

NAME = "prometheus"
NAMESPACE = "kube-system"
READER = "lab-metrics"
SCRAPE_SECONDS = 15
"""Seconds between two scrapes."""


def pins() -> dict[str, LabTool]:
    """The tools of a lab with metrics."""
    return load(PACKAGE_FOLDER / "metrics.toml")


def storage(lab: Lab) -> Path:
    """Folder of Prometheus' data."""
    return lab.folder / NAME


def configuration(lab: Lab, ports: Mapping[str, int], rules: Path | None) -> dict[str, Any]:
    """Prometheus' configuration file. Exporters name namespaces and pods themselves: their labels are kept."""
    generator = [{"targets": [f"{pki.LOOPBACK}:{ports['metrics-generator']}"]}]
    jobs: list[dict[str, Any]] = [
        {
            "job_name": "apiserver",
            "scheme": "https",
            "tls_config": {
                "ca_file": str(lab.pki / "ca.crt"),
                "cert_file": str(lab.pki / "admin.crt"),
                "key_file": str(lab.pki / "admin.key"),
            },
            "static_configs": [{"targets": [f"{pki.LOOPBACK}:{ports['kube-apiserver']}"]}],
        },
        *(
            {"job_name": path[1:], "metrics_path": path, "honor_labels": True, "static_configs": generator}
            for path in (metrics.STATE, metrics.DEVICES)
        ),
    ]
    if "kueue-metrics" in ports:
        jobs.append(
            {
                "job_name": "kueue",
                "scheme": "https",
                "honor_labels": True,
                # It signs a new certificate of its own at every start.
                "tls_config": {"insecure_skip_verify": True},
                "authorization": {"credentials_file": str(lab.pki / f"{READER}.token")},
                "static_configs": [{"targets": [f"{pki.LOOPBACK}:{ports['kueue-metrics']}"]}],
            }
        )
    return {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": f"{SCRAPE_SECONDS}s"},
        "rule_files": [str(rules)] if rules else [],
        "scrape_configs": jobs,
    }


def command(lab: Lab, binary: Path, ports: Mapping[str, int], rules: Mapping[str, Any]) -> list[str]:
    """The command line; file names contain digests, so that changed files restart Prometheus."""
    lab.config.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = _write(lab, "alerts", rules) if rules else None
    return [
        str(binary),
        f"--config.file={_write(lab, NAME, configuration(lab, ports, file))}",
        f"--storage.tsdb.path={storage(lab)}",
        # History that was loaded before the start stays, however old.
        "--storage.tsdb.retention.time=10y",
        f"--web.listen-address={pki.LOOPBACK}:{ports[NAME]}",
        "--log.level=warn",
    ]


def _write(lab: Lab, name: str, content: Mapping[str, Any]) -> Path:
    text = json.dumps(content, indent=2) + "\n"  # which is YAML too
    path = lab.config / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
    for stale in lab.config.glob(f"{name}-*.json"):
        if stale != path:
            stale.unlink()
    write(path, text)
    return path


def write_reader(lab: Lab, api: LabApi) -> None:
    """Write a token that may read metrics; a new one at every `up`, because the cluster may be another."""
    path = lab.pki / f"{READER}.token"
    rbac, role = "rbac.authorization.k8s.io", f"gpu-tenancy-lab:{READER}"
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    api.apply(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": READER}})
    for kind, body in (
        ("ClusterRole", {"rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}),
        (
            "ClusterRoleBinding",
            {
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": NAMESPACE}],
            },
        ),
    ):
        item = {"apiVersion": f"{rbac}/v1", "kind": kind, "metadata": {"name": role}, **body}
        api.apply(f"/apis/{rbac}/v1/{kind.lower()}s", item)
    seconds = int(pki.COMPONENT_LIFE.total_seconds())
    token_request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds},
    }
    token_answer = api.request("POST", f"{accounts}/{READER}/token", token_request, "application/json")
    write(path, token_answer["status"]["token"])


def backfill(promtool: Path, lines: Iterable[str], storage_folder: Path, work: Path) -> None:
    """Write samples of the past (OpenMetrics lines with times, without the final EOF) as blocks into Prometheus'
    storage; it must not run."""
    work.mkdir(parents=True, exist_ok=True)
    file = work / "history.om"
    with file.open("w", encoding="utf-8") as text:
        text.writelines(f"{line}\n" for line in lines)
        text.write("# EOF\n")
    storage_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    argv = [str(promtool), "tsdb", "create-blocks-from", "openmetrics", "--quiet", "--max-block-duration=24h"]
    completed = subprocess.run([*argv, str(file), str(storage_folder)], capture_output=True, text=True, check=False)
    shutil.rmtree(work)
    if completed.returncode:
        raise LabError(f"promtool cannot make blocks of the history: {completed.stderr.strip()[-500:]}")
