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
from tenancy.prove.attacks.scene import AttackedNamespace, Scene
from tenancy.schema.people import Role
from tenancy.validation import Loaded

JUDGE = "kubectl-mtb"
Ask = Callable[..., "subprocess.CompletedProcess[str]"]


def verdict(results: Sequence[Mapping[str, Any]], loaded: Loaded, ask: Ask) -> Verdict:
    """One check for each behaviour. `results` is the answer of `tenancy verify --format json`; `ask` runs kubectl."""
    table = yaml.safe_load((FOLDER / "kubectl-mtb.yaml").read_text("utf-8"))
    home = Scene(loaded.environment, loaded.tenants).home
    if home is None:
        raise ValueError("the environment has no namespace with a developer")
    found = []
    for row in table["items"]:
        given = [*broken_attacks(results, row), *_broken_live(row.get("live", {}), home, loaded, ask)]
        if given:
            found.append(Finding(JUDGE, row["id"], home.name, "; ".join(given)))
    return Verdict(JUDGE, table["version"], "a lab, as a tenant", len(table["items"]), tuple(found))


def broken_attacks(results: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a behaviour's attacks: one that was admitted, a twin that was refused, none that was sent."""
    for wanted in row.get("shown-by", ()):
        if wanted.startswith("tests/"):
            continue
        sent = [one for one in results if one["id"].partition("@")[0] == wanted and "skipped" not in one]
        if not sent:
            yield f"{wanted} was not sent"
        for one in sent:
            if not one["refused"]:
                yield f"{one['id']} was answered with {one['status']} by {one['denier']}"
            if not one["twin_admitted"]:
                yield f"the twin of {one['id']} was refused"


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


def unlimited(quotas: Sequence[Mapping[str, Any]], namespace: str, wanted: Sequence[str]) -> Iterator[str]:
    """Resources that no quota of a namespace limits. A resource with `|` is limited by one of several names."""
    limited = {
        name
        for quota in quotas
        if quota["metadata"]["namespace"] == namespace
        for name in quota["spec"].get("hard", {})
    }
    for resource in wanted:
        if not limited & set(resource.split("|")):
            yield f"{namespace} has no quota of {resource}"


def _as(who: Impersonation) -> list[str]:
    return ["--as", who.user, *(word for group in who.groups for word in ("--as-group", group))]
