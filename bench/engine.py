"""The engine: creation of a whole environment and a second run, against kubectl; our program against a bare one."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.generate import generate
from tenancy.kube.objects import Object
from tenancy.lab import control_plane
from tenancy.lab.layout import environ
from tenancy.planning import Plan, make_plan
from tenancy.planning.render import write
from tenancy.validation import load, on_lab

TENANTS = 15
ROUNDS = 5
NAME = "bench"

# Registers resources from a file: without a spec, a plan or checks of the cluster.
_BARE = """
import json, pulumi, pulumi_kubernetes
provider = pulumi_kubernetes.Provider("kubernetes", context="gpu-tenancy-lab")
made = []
for kind, name, props, parent, after in json.load(open("resources.json")):
    options = pulumi.ResourceOptions(
        parent=None if parent is None else made[parent],
        depends_on=[made[a] for a in after],
        providers=[provider] if parent is None else None,
    )
    if props is None:
        made.append(pulumi.ComponentResource(kind, name, None, options))
    else:
        made.append(pulumi.CustomResource(kind, name, props, options))
"""


def measure() -> str:
    """The rows of the section, as Markdown."""
    with project() as (root, plan):
        return _rows(root, plan, environ(root))


@contextmanager
def program() -> Generator[Path]:
    """A copy of the program and the policy pack."""
    source = Path(__file__).parent.parent
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name in ("Pulumi.yaml", "__main__.py"):
            shutil.copy(source / name, root)
        (root / ".venv").symlink_to(source / ".venv")
        shutil.copytree(source / "policy", root / "policy", ignore=shutil.ignore_patterns("__pycache__"))
        yield root


@contextmanager
def project() -> Generator[tuple[Path, Plan]]:
    """A copy of the program with an environment of `TENANTS` tenants, beside a lab of its own."""
    with program() as root:
        loaded = load(generate(root / "stacks" / NAME, TENANTS))
        loaded = on_lab(loaded)
        plan = make_plan(loaded.environment, loaded.tenants)
        chart = plan.platform.queue_chart
        control_plane.up(
            root=root,
            platform_group=loaded.environment.platform.group,
            nodes=[],
            queues=chart.values if chart else None,
        )
        try:
            yield root, plan
        finally:
            control_plane.down(root=root)


def _rows(root: Path, plan: Plan, env: Mapping[str, str]) -> str:
    rendered = root / "rendered"
    count = write(plan, rendered)
    shutil.rmtree(rendered / "charts")  # no objects: the values of charts
    bare = _bare_project(root / "bare", root / ".venv", plan)
    for where in (root, bare):
        timed(where, env, "pulumi", "stack", "init", NAME)
    ours, theirs, packed = [], [], []
    for _ in range(ROUNDS):
        theirs.append(timed(bare, env, "pulumi", "preview", "--stack", NAME))
        ours.append(timed(root, env, "pulumi", "preview", "--stack", NAME))
        packed.append(timed(root, env, "pulumi", "preview", "--stack", NAME, "--policy-pack", "policy"))
    rows = [
        f"{TENANTS} tenants, {count} objects, file backend.",
        "",
        f"| preview from nothing, median of {ROUNDS} | seconds | ratio |",
        "|---|---|---|",
        _row("bare program with the same resources", theirs, theirs),
        _row("our program", ours, theirs),
        _row("our program with the policy pack", packed, theirs),
    ]
    apply = ("kubectl", "apply", "--server-side", "-R", "-f", str(rendered))
    kubectl = [timed(root, env, *apply), timed(root, env, *apply)]
    timed(root, env, "kubectl", "delete", "-R", "-f", str(rendered), "--wait")
    up = ("pulumi", "up", "--yes", "--skip-preview", "--stack", NAME)
    pulumi = [timed(root, env, *up), timed(root, env, *up)]
    timed(root, env, "pulumi", "destroy", "--yes", "--skip-preview", "--stack", NAME)
    ours_up = (sys.executable, "-m", "tenancy", "up", NAME)
    command = [timed(root, env, *ours_up, "--skip-preview"), timed(root, env, *ours_up)]
    return "\n".join(
        [
            *rows,
            "",
            "| update, one run | from nothing, s | unchanged, s |",
            "|---|---|---|",
            f"| `kubectl apply --server-side` of the rendered objects | {kubectl[0]:.1f} | {kubectl[1]:.1f} |",
            f"| `pulumi up`, one stack | {pulumi[0]:.1f} | {pulumi[1]:.1f} |",
            f"| ratio | {pulumi[0] / kubectl[0]:.1f} | {pulumi[1] / kubectl[1]:.1f} |",
            f"| `tenancy up`, one stack, the state written once | {command[0]:.1f} | {command[1]:.1f} |",
            f"| ratio | {command[0] / kubectl[0]:.1f} | {command[1] / kubectl[1]:.1f} |",
        ]
    )


def _row(what: str, seconds: list[float], base: list[float]) -> str:
    median = statistics.median(seconds)
    return f"| {what} | {median:.2f} | {median / statistics.median(base):.2f} |"


def timed(where: Path, env: Mapping[str, str], *command: str) -> float:
    """Seconds that a command takes; SystemExit with its output if it fails."""
    began = time.monotonic()
    done = subprocess.run(command, cwd=where, env=dict(env), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.monotonic() - began


def _bare_project(folder: Path, venv: Path, plan: Plan) -> Path:
    folder.mkdir()
    (folder / ".venv").symlink_to(venv)
    (folder / "Pulumi.yaml").write_text("name: bare\nruntime: {name: python, options: {virtualenv: .venv}}\n", "utf-8")
    (folder / "__main__.py").write_text(_BARE, "utf-8")
    (folder / "resources.json").write_text(json.dumps(_resources(plan)), "utf-8")
    return folder


def _resources(plan: Plan) -> list[tuple[str, str, Object | None, int | None, list[int]]]:
    """Type, name, inputs (None for a component), rows of parent and dependencies, as our program registers them."""
    from tenancy.components.kubernetes.manifest import child_name, resource_type

    rows: list[tuple[str, str, Object | None, int | None, list[int]]] = []

    def component(kind: str, name: str, parent: int | None = None) -> int:
        rows.append((f"gpu-tenancy:index:{kind}", name, None, parent, []))
        return len(rows) - 1

    def add(parent: int, item: Object, after: list[int], name: str = "") -> int:
        rows.append((resource_type(item), name or child_name(rows[parent][1], item), item, parent, after))
        return len(rows) - 1

    platform = plan.platform
    whole = component("GpuPlatform", "platform")
    guards = component("AdmissionGuards", "platform-guards", whole)
    before = [add(guards, item, []) for item in (platform.namespace, *platform.guards)]
    for item in (*platform.priorities, *platform.roles):
        add(guards, item, [])
    gate = [add(guards, platform.marker, before)]
    queues = component("ClusterQueues", "platform-queues", whole)
    gate += [add(queues, item, []) for item in platform.queues]
    for tenant in plan.tenants:
        own = component("GpuTenant", tenant.name)
        behind = [*gate, *(add(own, item, gate) for item in tenant.queues)]
        for space in tenant.namespaces:
            inside = component("TenantNamespace", space.name, own)
            namespace = add(inside, space.namespace, behind, space.name)
            isolation_resources = [add(inside, wall, [namespace]) for wall in space.isolation]
            for binding in space.access:
                add(inside, binding, isolation_resources)
    return rows
