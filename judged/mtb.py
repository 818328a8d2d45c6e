"""The behaviours of the Kubernetes multi-tenancy benchmark on a running cluster: checklists/kubectl-mtb.yaml.

A behaviour is shown by attacks of `tenancy verify` that were refused while their twins were admitted, or by what its
row says under `live`: `quota`, resources that every tenant's namespace limits; `may`, what an owner may do;
`refuses`, fields of a container with which a developer's pod must be refused.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from judged.checklists import FOLDER
from judged.model import Finding, Verdict
from tenancy.kube.requests import Impersonation
from tenancy.spec.fields.people import Role
from tenancy.spec.loader import Loaded
from tenancy.verify.attacks.scene import AttackedNamespace, Scene

JUDGE = "kubectl-mtb"
Ask = Callable[..., "subprocess.CompletedProcess[str]"]


def verdict(results: Sequence[Mapping[str, Any]], loaded: Loaded, ask: Ask) -> Verdict:
    """One check for each behaviour. `results` is the answer of `tenancy verify --format json`; `ask` runs kubectl."""
    table = yaml.safe_load((FOLDER / "kubectl-mtb.yaml").read_text("utf-8"))
    home = Scene(loaded.environment, loaded.tenants).home
    if home is None:
        raise ValueError("the environment has no namespace with a developer")
    findings = []
    for row in table["items"]:
        problems = [*broken_attacks(results, row), *_broken_live(row.get("live", {}), home, loaded, ask)]
        if problems:
            findings.append(Finding(JUDGE, row["id"], home.name, "; ".join(problems)))
    return Verdict(JUDGE, table["version"], "a lab, as a tenant", len(table["items"]), tuple(findings))


def broken_attacks(results: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> Iterator[str]:
    """Problems of a behaviour's attacks: one that was admitted, a twin that was refused, none that was sent."""
    for attack_id in row.get("shown-by", ()):
        if attack_id.startswith("tests/"):
            continue
        results_of_attack = [
            result for result in results if result["id"].partition("@")[0] == attack_id and "skipped" not in result
        ]
        if not results_of_attack:
            yield f"{attack_id} was not sent"
        for result in results_of_attack:
            if not result["refused"]:
                yield f"{result['id']} was answered with {result['status']} by {result['denier']}"
            if not result["twin_admitted"]:
                yield f"the twin of {result['id']} was refused"


def _broken_live(live: Mapping[str, Any], home: AttackedNamespace, loaded: Loaded, ask: Ask) -> Iterator[str]:
    if "quota" in live:
        quotas = json.loads(ask("get", "resourcequotas", "--all-namespaces", "--output", "json").stdout)["items"]
        for tenant in loaded.tenants:
            for namespace in map(tenant.namespace_name, tenant.namespaces):
                yield from unlimited(quotas, namespace, live["quota"])
    for action in live.get("may", ()):
        who = home.person(Role.OWNER)
        if who and ask("auth", "can-i", *action.split(), "--namespace", home.name, *_as(who)).returncode:
            yield f"an owner may not {action}"
    if "refuses" in live and home.developer:
        pod = home.pod()
        pod["spec"]["containers"][0] |= live["refuses"]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(pod, file)
            file.flush()
            words = ("create", "--dry-run=server", "--namespace", home.name, "--filename", Path(file.name))
            if not ask(*words, *_as(home.developer)).returncode:
                yield f"a pod with {json.dumps(live['refuses'])} was admitted"


def unlimited(quotas: Sequence[Mapping[str, Any]], namespace: str, required_resources: Sequence[str]) -> Iterator[str]:
    """Resources that no quota of a namespace limits. A resource with `|` is limited by one of several names."""
    limited = {
        name
        for quota in quotas
        if quota["metadata"]["namespace"] == namespace
        for name in quota["spec"].get("hard", {})
    }
    for resource in required_resources:
        if not limited & set(resource.split("|")):
            yield f"{namespace} has no quota of {resource}"


def _as(who: Impersonation) -> list[str]:
    return ["--as", who.user, *(word for group in who.groups for word in ("--as-group", group))]
