"""The same attacks on four ways to share a cluster, one after another on one lab: who refuses, and what is admitted.

    python -m scripts.side_by_side             write the table into docs/side-by-side.md
    python -m scripts.side_by_side --only gpu- print the attacks whose ids start with gpu-

All columns have in common the nodes, Kueue with the environment's queues, its priority classes and a runtime class of
NVIDIA's. They differ in a tenant's isolation resources and policies. Every request is a dry run.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.columns import COLUMNS, ROOT, Column, apply, common, namespaces_of, until
from tenancy.catalog import vocabulary
from tenancy.cluster import denial
from tenancy.cluster.api import Api
from tenancy.kube import deniers
from tenancy.lab import control_plane
from tenancy.lab.layout import Lab
from tenancy.planning import Plan, make_plan
from tenancy.planning.common.pools import fake_nodes
from tenancy.rules.workloads import CLUSTER_ADMIN
from tenancy.spec.loader import Loaded, load
from tenancy.verify.attacks import Attack, Request, Scene, all_attacks
from tenancy.verify.verification import AT_ONCE, ask

PAGE = ROOT / "docs" / "side-by-side.md"


ENVIRONMENT_RULES = {
    "kueue-10": "the maximum run time is a limit of the environment's tiers",
    "cost-01": "labels that a pod is charged by are the environment's vocabulary",
}
"""Rules on a limit that exists only in our environment files, and so have no meaning in the other columns."""


@dataclass(frozen=True)
class Verdict:
    """Outcome of an attack in a column. `by` is the control that refused it; empty if it was admitted."""

    by: str
    twin: bool
    """Whether the twin was admitted; if not, the refusal proves nothing about the attack."""


# Asking


def has_meaning(attack: Attack) -> str:
    """Empty if the attack is comparable where none of our objects exist; else the reason why not."""
    if attack.skipped:
        return "does not apply to this environment"
    if attack.rule in ENVIRONMENT_RULES:
        return ENVIRONMENT_RULES[attack.rule]
    if attack.request.who in (None, CLUSTER_ADMIN):
        return "sent by an administrator, whom only our guards refuse"
    if "/tenancy-" in attack.request.path or vocabulary.PLATFORM_NAMESPACE in attack.request.path:
        return "concerns an object that only gpu-tenancy creates"
    return ""


def judge(api: Api, attack: Attack, column: Column, loaded: Loaded) -> Verdict:
    def in_column(request: Request) -> Request:
        return replace(request, path=column.path_in_column(request.path, loaded))

    answer = ask(api, in_column(attack.request))
    twin = ask(api, in_column(attack.twin))
    admitted = twin.ok or (attack.twin_missing and twin.status == 404)
    if answer.ok or (attack.twin_missing and answer.status == 404):
        return Verdict("", admitted)
    return Verdict(_who(answer.status, answer.message), admitted)


_WEBHOOK = re.compile(r'admission webhook "([^"]+)" denied')


def _who(status: int, message: str) -> str:
    if webhook_match := _WEBHOOK.search(message):
        return (
            "Kueue"
            if webhook_match[1].endswith("kb.io")
            else "Capsule"
            if "capsule" in webhook_match[1]
            else webhook_match[1]
        )
    kind = denial.denier(status, message).partition("/")[0]
    return {deniers.UNKNOWN: f"HTTP {status}", "ValidatingAdmissionPolicy": "guard"}.get(kind, kind)


@contextmanager
def prepared_lab(loaded: Loaded, plan: Plan) -> Generator[tuple[Api, Lab]]:
    """A fresh lab with tenants' namespaces and the objects common to all columns."""
    chart = plan.platform.queue_chart
    previous_variables = {name: os.environ.get(name) for name in ("GPU_TENANCY_LAB", "KUBECONFIG")}
    with tempfile.TemporaryDirectory(prefix="side-by-side-") as lab_folder:
        os.environ["GPU_TENANCY_LAB"] = str(Path(lab_folder) / "lab")
        try:
            lab = control_plane.up(
                root=ROOT,
                platform_group=loaded.environment.platform.group,
                nodes=fake_nodes(loaded.environment),
                queues=chart.values if chart else None,
            )
            os.environ["KUBECONFIG"] = str(lab.kubeconfig)
            apply([*namespaces_of(plan, security=True), *common(plan)])
            yield Api(plan.context), lab
        finally:
            control_plane.down(root=ROOT)
            for name, value in previous_variables.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _wait_until_ready(api: Api, plan: Plan) -> None:
    names = [part.name for tenant in plan.tenants for part in tenant.namespaces]
    initial_objects = ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
    paths = [f"/api/v1/namespaces/{name}/{what}" for name in names for what in initial_objects]
    until(
        lambda: [path for path in paths if not api.request("GET", path).ok], "controllers have handled every namespace"
    )

    def uncounted() -> list[str]:
        return [
            name
            for name in names
            for quota in api.items(f"/api/v1/namespaces/{name}/resourcequotas")
            if (quota["spec"].get("hard") or {}).keys() - ((quota.get("status") or {}).get("used") or {}).keys()
        ]

    until(uncounted, "quotas are counted")


def verdicts_of_column(
    api: Api, lab: Lab, column: Column, loaded: Loaded, attacks: Sequence[Attack]
) -> dict[str, Verdict]:
    """The verdict of a column on each attack; the column exists as long as that takes."""
    plan = make_plan(loaded, loaded.day)
    with column.build(api, loaded, plan, lab), ThreadPoolExecutor(AT_ONCE) as pool:
        _wait_until_ready(api, plan)
        verdicts = pool.map(lambda attack: judge(api, attack, column, loaded), attacks)
        return dict(zip([attack.id for attack in attacks], verdicts, strict=True))


def attacks_of(loaded: Loaded, only: str = "") -> list[Attack]:
    candidates = all_attacks(Scene(loaded.environment, loaded.tenants, ["nvidia"]))
    return [attack for attack in candidates if attack.id.startswith(only)]


# The page


FAMILIES = {
    "gpu": "GPUs and devices",
    "sched": "scheduling, priority",
    "kueue": "the queue",
    "quota": "quota",
    "limits": "size of containers and volumes",
    "img": "images",
    "dns": "DNS",
    "net": "services, networks",
    "stor": "volumes",
    "id": "identity",
    "pod": "from a pod to its node",
    "avail": "availability",
    "rbac": "RBAC",
    "ns": "namespaces",
    "api": "refused by the API server itself",
}


def family(rule: str) -> str:
    return FAMILIES.get(rule.partition("-")[0], rule)


def comparable_attacks(
    attacks: Sequence[Attack], verdicts: Mapping[str, Mapping[str, Verdict]]
) -> tuple[list[Attack], Counter[str]]:
    """Attacks that are comparable in every column, and the reasons why the others were left out."""
    left_out: Counter[str] = Counter()
    comparable = []
    for attack in attacks:
        reason = has_meaning(attack)
        if not reason and not all(column[attack.id].twin for column in verdicts.values()):
            reason = "in one of the columns the twin is refused too, or the attacked object does not exist"
        if reason:
            left_out[reason] += 1
        else:
            comparable.append(attack)
    return comparable, left_out


def page(columns: Sequence[Column], verdicts: Mapping[str, Mapping[str, Verdict]], attacks: Sequence[Attack]) -> str:
    comparable, left_out = comparable_attacks(attacks, verdicts)
    through = {
        column.key: [attack for attack in comparable if not verdicts[column.key][attack.id].by] for column in columns
    }
    lines = [
        "# Side by side",
        "",
        f"The same attacks on {len(columns)} ways to share one cluster. Made by `make side-by-side`: one column after",
        "another on one lab (API server, controllers, scheduler and Kueue are real, nodes are simulated), with the",
        "files of `stacks/local`, sent as dry runs by the same users. An attack counts where its twin, which differs",
        "in one field, is admitted: a control that refuses everything proves nothing.",
        "",
        f"| | {' | '.join(column.title for column in columns)} |",
        f"|---|{'---:|' * len(columns)}",
        f"| attacks | {' | '.join(str(len(comparable)) for _ in columns)} |",
        f"| refused | {' | '.join(str(len(comparable) - len(through[column.key])) for column in columns)} |",
        f"| **got through** | {' | '.join(f'**{len(through[column.key])}**' for column in columns)} |",
        "",
        "## What the columns are",
        "",
        "All columns have the same nodes, Kueue with the same queues, priority classes, and labels of namespaces.",
        "",
        *(f"- **{column.title}**: {column.about}." for column in columns),
        "",
        "## What got through, by family",
        "",
        f"| family | attacks | {' | '.join(column.title for column in columns)} |",
        f"|---|---:|{'---:|' * len(columns)}",
    ]
    for name in dict.fromkeys(family(attack.rule) for attack in comparable):
        family_attacks = [attack for attack in comparable if family(attack.rule) == name]
        counts = [sum(not verdicts[column.key][attack.id].by for attack in family_attacks) for column in columns]
        lines.append(f"| {name} | {len(family_attacks)} | {' | '.join(map(str, counts))} |")
    lines += [
        "",
        "## Who refused",
        "",
        f"| | {' | '.join(column.title for column in columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    refusals = {
        column.key: Counter(
            verdicts[column.key][attack.id].by for attack in comparable if verdicts[column.key][attack.id].by
        )
        for column in columns
    }
    for name in sorted({name for counter in refusals.values() for name in counter}):
        lines.append(f"| {name} | {' | '.join(str(refusals[column.key][name]) for column in columns)} |")
    lines += ["", "## One attack of each rule that got through", "", "| attack | got through |", "|---|---|"]
    seen_rules: set[tuple[str, tuple[str, ...]]] = set()
    for attack in comparable:
        open_in = tuple(column.title for column in columns if attack in through[column.key])
        if open_in and (attack.rule, open_in) not in seen_rules:
            seen_rules.add((attack.rule, open_in))
            lines.append(f"| `{attack.id}`: {attack.attack.replace('|', '/')} | {', '.join(open_in)} |")
    lines += ["", "## What was left out", "", "| attacks | why |", "|---:|---|"]
    lines += [f"| {count} | {reason} |" for reason, count in left_out.most_common()]
    lines += [
        "",
        "An attack that gets through is not always a fault of the tool: neither namespaces nor Capsule are made to",
        "know about GPUs, device variables or queues. The table shows what has to be added beside them.",
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> None:
    only = arguments[1] if len(arguments) == 2 and arguments[0] == "--only" else ""
    if arguments and not only:
        print("usage: python -m scripts.side_by_side [--only START]", file=sys.stderr)
        raise SystemExit(2)
    loaded = load(ROOT / "stacks" / "local")
    attacks = attacks_of(loaded, only)
    meaningful_attacks = [attack for attack in attacks if not has_meaning(attack)]
    verdicts = {}
    with prepared_lab(loaded, make_plan(loaded, loaded.day)) as (api, lab):
        for column in COLUMNS:
            since = time.monotonic()
            verdicts[column.key] = verdicts_of_column(api, lab, column, loaded, meaningful_attacks)
            print(
                f"{column.title}: {len(meaningful_attacks)} attacks in {time.monotonic() - since:.0f} s",
                file=sys.stderr,
            )
    text = page(sorted(COLUMNS, key=lambda column: column.key != "ours"), verdicts, attacks)
    if only:
        print(text, end="")
    else:
        PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
