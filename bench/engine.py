"""The engine: creation of a whole environment and a second run, against kubectl; our program against a bare one."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
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
from tenancy.spec.loader import load, on_lab

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
        plan = make_plan(loaded, loaded.day)
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
    own_times, bare_times, packed = [], [], []
    for _ in range(ROUNDS):
        bare_times.append(timed(bare, env, "pulumi", "preview", "--stack", NAME))
        own_times.append(timed(root, env, "pulumi", "preview", "--stack", NAME))
        packed.append(timed(root, env, "pulumi", "preview", "--stack", NAME, "--policy-pack", "policy"))
    rows = [
        f"{TENANTS} tenants, {count} objects, file backend.",
        "",
        f"| preview from nothing, median of {ROUNDS} | seconds | ratio |",
        "|---|---|---|",
        _row("bare program with the same resources", bare_times, bare_times),
        _row("our program", own_times, bare_times),
        _row("our program with the policy pack", packed, bare_times),
    ]
    apply = ("kubectl", "apply", "--server-side", "-R", "-f", str(rendered))
    kubectl = [timed(root, env, *apply), timed(root, env, *apply)]
    table = [
        "| update, one run | from nothing, s | times kubectl | unchanged, s | times kubectl | state written, MiB | "
        "times the final state |",
        "|---|---|---|---|---|---|---|",
        f"| `kubectl apply --server-side` of the rendered objects | {kubectl[0]:.1f} | 1.0 | {kubectl[1]:.1f} | 1.0 | "
        "– | – |",
    ]
    plain = ("pulumi", "up", "--yes", "--skip-preview", "--stack", NAME)
    command = (sys.executable, "-m", "tenancy", "up", NAME, "--skip-preview")
    changed_seconds = 0.0
    for what, arguments, more in (
        ("`pulumi up`, one stack", plain, {}),
        ("`tenancy up`, one stack, the state written once", command, {}),
        ("the same with `PULUMI_PARALLEL_DIFF=true`", command, {"PULUMI_PARALLEL_DIFF": "true"}),
        ("the same with up to 200 requests a second by the provider", command, QPS),
    ):
        # A cluster of its own: to delete all objects takes longer than to make them.
        with project() as (own_project, _):
            own_env = {**environ(own_project), **more}
            timed(own_project, own_env, "pulumi", "stack", "init", NAME)
            with _StateWrites(own_project / ".lab" / "state") as state_writes:
                new = timed(own_project, own_env, *arguments)
            same = timed(own_project, own_env, *arguments)
            edit(own_project, 5)
            changed_seconds = timed(own_project, own_env, *arguments)
        table.append(
            f"| {what} | {new:.1f} | {new / kubectl[0]:.1f} | {same:.1f} | {same / kubectl[1]:.1f} | "
            f"{state_writes.bytes / 2**20:.1f} | {state_writes.bytes / state_writes.last:.1f} |"
        )
    last_line = f"One tenant of {TENANTS} in one stack changed, in the last of these: {changed_seconds:.1f} s."
    return "\n".join([*rows, "", *table, "", last_line])


QPS = {"PULUMI_K8S_CLIENT_QPS": "200", "PULUMI_K8S_CLIENT_BURST": "400"}
"""Without them the provider sends 50 requests a second after a burst of 120 (pulumi-kubernetes 4.25 `provider.go`)."""


class _StateWrites(threading.Thread):
    """Bytes of states and of their copies in the history, as a file backend writes them: looked at every 5 ms, so it
    may miss one of two writes that follow at once."""

    def __init__(self, backend: Path) -> None:
        super().__init__(daemon=True)
        self._folder = backend / ".pulumi"
        self._seen = {path: self._version_of(path) for path in self._files()}
        self._ended = threading.Event()
        self.bytes = 0
        self.last = 1
        """Bytes of the state at the end."""

    def _files(self) -> list[Path]:
        return [*self._folder.glob(f"stacks/*/{NAME}.json"), *self._folder.glob(f"history/*/{NAME}/*.checkpoint.json")]

    @staticmethod
    def _version_of(path: Path) -> tuple[int, int, int]:
        try:
            status = path.stat()
        except OSError:
            return 0, 0, 0
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _look(self) -> None:
        for path in self._files():
            now = self._version_of(path)
            if now != self._seen.get(path):
                self._seen[path] = now
                self.bytes += now[2]
                if path.parent.parent.name == "stacks":
                    self.last = now[2] or self.last

    def run(self) -> None:
        while not self._ended.wait(0.005):
            self._look()

    def __enter__(self) -> _StateWrites:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()
        self._look()


def edit(root: Path, number: int) -> None:
    """Change one line of a tenant's file."""
    path = root / "stacks" / NAME / "tenants" / f"team-{number:04d}.yaml"
    text = path.read_text("utf-8")
    old, new = ("198.51.100.", "203.0.113.") if "198.51.100." in text else ("203.0.113.", "198.51.100.")
    path.write_text(text.replace(old, new), "utf-8")


def _row(what: str, seconds: list[float], base: list[float]) -> str:
    median = statistics.median(seconds)
    return f"| {what} | {median:.2f} | {median / statistics.median(base):.2f} |"


def timed(where: Path, env: Mapping[str, str], *command: str) -> float:
    """Seconds that a command takes; SystemExit with its output if it fails."""
    began = time.monotonic()
    process = subprocess.run(command, cwd=where, env=dict(env), capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: {process.stdout[-2000:]}{process.stderr[-2000:]}")
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
    platform_component = component("GpuPlatform", "platform")
    guards = component("AdmissionGuards", "platform-guards", platform_component)
    before = [add(guards, item, []) for item in (platform.namespace, *platform.guards)]
    for item in (*platform.priorities, *platform.roles):
        add(guards, item, [])
    gate = [add(guards, platform.marker, before)]
    queues = component("ClusterQueues", "platform-queues", platform_component)
    gate += [add(queues, item, []) for item in platform.queues]
    for tenant in plan.tenants:
        tenant_component = component("GpuTenant", tenant.name)
        depends_on = [*gate, *(add(tenant_component, item, gate) for item in tenant.queues)]
        for space in tenant.namespaces:
            inside = component("TenantNamespace", space.name, tenant_component)
            namespace = add(inside, space.namespace, depends_on, space.name)
            isolation_resources = [add(inside, wall, [namespace]) for wall in space.isolation]
            for binding in space.access:
                add(inside, binding, isolation_resources)
    return rows
