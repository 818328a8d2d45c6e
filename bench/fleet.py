"""A fleet of tenants' stacks: what a run costs that changes nothing, one tenant, or all of them.

Tenants beyond the first `MADE` are put on the cluster as the engine would leave them, without the engine: their objects
under a field manager of its name, a state, and a record. What a run reads of them is the same.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path

from bench.engine import edit, program
from bench.generate import generate
from tenancy.cluster.api import Api, path_of
from tenancy.deploy import records
from tenancy.deploy.digests import digests, program_digest
from tenancy.kube.objects import Object
from tenancy.lab import control_plane
from tenancy.lab.layout import environ
from tenancy.planning import make_plan
from tenancy.planning.scope import stacks
from tenancy.planning.services import queue_chart
from tenancy.spec.fields.environment import Layout
from tenancy.spec.loader import Loaded, load

NAME = "bench"
FORMER, APPLIED, LARGE = 3, 7, int(os.environ.get("BENCH_FLEET", "200"))
"""Tenants made by an engine run each for preview and update; all that an engine makes; all of the large fleet."""
EDITED, TIMES = 0, 7
"""The tenant whose file changes, and how often each run is repeated."""
MANAGER = "pulumi-kubernetes-bench"
CONTEXT = "gpu-tenancy-lab"

# Runs in a process of its own, so that CPU time and peak memory are the command's and its engines' alone.
_CHILD = """
import json, pathlib, re, resource, subprocess, sys, tempfile, time
start, driver = time.perf_counter(), 0
with tempfile.TemporaryFile("w+") as said:
    child = subprocess.Popen(sys.argv[1:], stdout=said, stderr=said)
    while child.poll() is None:
        status = pathlib.Path(f"/proc/{child.pid}/status").read_text()
        driver = max(driver, *map(int, re.findall(r"VmHWM:\\s+(\\d+)", status)), 0)
        time.sleep(0.05)
    wall, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if child.returncode:
        said.seek(0)
        sys.exit(said.read()[-4000:])
print(json.dumps([wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, driver / 1024]))
"""


@dataclass(frozen=True)
class Cost:
    """Wall time and CPU time, seconds; peak memory of any one process, and of the command itself, MiB."""

    wall: float
    cpu: float
    peak: float
    driver: float

    def __add__(self, addend: Cost) -> Cost:
        peaks = max(self.peak, addend.peak), max(self.driver, addend.driver)
        return Cost(self.wall + addend.wall, self.cpu + addend.cpu, *peaks)


@dataclass(frozen=True)
class Pair:
    """Costs of one run in a fleet of one and in the large fleet, a few seconds later, each several times."""

    small_costs: list[Cost] = field(default_factory=list)
    large_costs: list[Cost] = field(default_factory=list)

    def rows(self, what: str) -> list[str]:
        """Medians of both fleets, as rows."""
        return [_row(what, 1, _median(self.small_costs)), _row(what, LARGE, _median(self.large_costs))]

    def times(self, figure: str) -> str:
        """Ratio of the costs of the large fleet to those of one tenant, in the median of the pairs: a machine is not
        equally fast for minutes."""
        pairs = zip(self.small_costs, self.large_costs, strict=True)
        ratios = (getattr(large_cost, figure) / getattr(small_cost, figure) for small_cost, large_cost in pairs)
        return f"{statistics.median(ratios):.1f}"


def measure() -> str:
    """The rows of the section, as Markdown."""
    with project(LARGE) as root, project(1) as alone:
        return _rows(root, alone)


def _rows(root: Path, alone: Path) -> str:
    env = environ(root)

    up(alone)
    # The way of a preview and an update for each stack, one after another.
    files_of_fleet(root, APPLIED)
    up(root, "--stack", NAME)
    former_new = _former(root, env, range(FORMER), new=True)
    former_same = _former(root, env, range(FORMER), new=False)
    serial = up(root, "--parallel", "1", *_stack_options(range(FORMER, FORMER + 2)))
    side = up(root, "--parallel", "2", *_stack_options(range(FORMER + 2, FORMER + 4)))
    up(root)
    pack = root / "policy" / "PulumiPolicy.yaml"
    pack.write_text(pack.read_text("utf-8") + "# another version\n", "utf-8")
    program = up(root)
    loaded = files_of_fleet(root, LARGE)
    up(root, "--stack", NAME)
    began = time.monotonic()
    count = _as_made(root, loaded)
    apply_seconds = time.monotonic() - began
    _until_idle()
    first = up(root)
    same, one_changed, one_named = _in_turn(alone, root)
    old, fresh = former_new.cpu / FORMER, (serial.cpu + side.cpu) / 4
    return "\n".join(
        [
            f"Stacks per tenant, file backend, queues, the policy pack. Load when it ended: {os.getloadavg()[0]:.1f}.",
            "",
            "| run | tenants | wall, s | CPU, s | peak of `tenancy` itself, MiB | peak of any process, MiB |",
            "|---|---|---|---|---|---|",
            _row("nothing changed, the first run of the day: all objects are listed", LARGE, first),
            *same.rows("nothing changed"),
            *one_changed.rows("one tenant changed"),
            *one_named.rows("one tenant changed, `--stack` names it"),
            "",
            f"Nothing changed in {LARGE:,} tenants takes {same.times('wall')} times the wall time and "
            f"{same.times('cpu')} times the CPU of one tenant, one changed {one_changed.times('wall')} and "
            f"{one_changed.times('cpu')} times, and {one_named.times('wall')} and {one_named.times('cpu')} times if "
            f"its stack is named, as a job of the workflows does. These are medians of {TIMES} pairs of runs, each "
            f"pair within seconds, and each fleet with a lab of its own; the rows are medians too. {count:,} objects "
            f"of {LARGE - APPLIED} tenants were put on the cluster as an engine leaves them ({apply_seconds:.0f} s), "
            f"those of {APPLIED} tenants by the engine.",
            "",
            "| a tenant's stack | stacks | wall a stack, s | CPU a stack, s | ratio of CPU |",
            "|---|---|---|---|---|",
            _stack("from nothing: an engine run for the preview, one for the update", FORMER, former_new, old),
            _stack("from nothing: `tenancy up --parallel 1`", 2, serial, old),
            _stack("from nothing: `tenancy up --parallel 2`", 2, side, old),
            _stack("nothing to change: preview and update", FORMER, former_same, former_same.cpu / FORMER),
            _stack(
                "another version, nothing to change: `tenancy up`, with the platform's stack",
                APPLIED + 1,
                program,
                former_same.cpu / FORMER,
            ),
            "",
            f"From nothing, `tenancy up` takes {fresh / old:.2f} times the CPU of two engine runs; the platform's part "
            "of a run, reading and deciding, is in it.",
        ]
    )


def _in_turn(alone: Path, large: Path) -> list[Pair]:
    """Runs in which nothing changed, one tenant changed, and one changed that is named."""
    runs = (up, _up_changed, _up_named)
    pairs = [Pair() for _ in runs]
    for _ in range(TIMES):
        for run, pair in zip(runs, pairs, strict=True):
            pair.small_costs.append(run(alone))
            pair.large_costs.append(run(large))
    return pairs


def _up_changed(root: Path) -> Cost:
    edit(root, EDITED)
    return up(root)


def _up_named(root: Path) -> Cost:
    edit(root, EDITED)
    return up(root, *_stack_options([EDITED]))


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(*(statistics.median(getattr(cost, figure.name) for cost in costs) for figure in fields(Cost)))


def up(root: Path, *more: str) -> Cost:
    """A run of `tenancy up`."""
    return run(root, environ(root), sys.executable, "-m", "tenancy", "up", NAME, *more)


def _row(what: str, tenants: int, cost: Cost) -> str:
    return f"| {what} | {tenants:,} | {cost.wall:.1f} | {cost.cpu:.1f} | {cost.driver:.0f} | {cost.peak:.0f} |"


def _stack(what: str, number: int, cost: Cost, base: float) -> str:
    return (
        f"| {what} | {number} | {cost.wall / number:.1f} | {cost.cpu / number:.1f} | {cost.cpu / number / base:.2f} |"
    )


def _stack_options(numbers: Sequence[int]) -> list[str]:
    return [word for number in numbers for word in ("--stack", f"{NAME}--team-{number:04d}")]


def _former(root: Path, env: Mapping[str, str], numbers: Sequence[int], *, new: bool) -> Cost:
    cost = Cost(0, 0, 0, 0)
    for number in numbers:
        stack = f"{NAME}--team-{number:04d}"
        if new:
            cost += run(root, env, "pulumi", "stack", "select", "--create", stack)
        common = ("--stack", stack, "--policy-pack", "policy")
        by_command = {**env, "GPU_TENANCY_UP": "true"}
        cost += run(root, by_command, "pulumi", "preview", *common)
        cost += run(root, by_command, "pulumi", "up", "--yes", "--skip-preview", *common)
    return cost


def run(root: Path, env: Mapping[str, str], *command: str) -> Cost:
    child = (sys.executable, "-c", _CHILD, *command)
    process = subprocess.run(child, cwd=root, env=dict(env), capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: {process.stderr}")
    return Cost(*json.loads(process.stdout))


@contextmanager
def project(tenants: int) -> Generator[Path]:
    """A copy of the program beside a lab of its own, whose Kueue has the configuration for so many tenants."""
    with program() as root, tempfile.TemporaryDirectory() as large_folder:
        large = load(generate(Path(large_folder) / NAME, tenants))
        chart = queue_chart(large.environment, large.tenants)
        loaded = files_of_fleet(root, 1)
        control_plane.up(
            root=root,
            platform_group=loaded.environment.platform.group,
            nodes=[],
            queues=chart.values if chart else None,
        )
        try:
            yield root
        finally:
            control_plane.down(root=root)


def files_of_fleet(root: Path, tenants: int) -> Loaded:
    """The files of so many tenants."""
    folder = generate(root / "stacks" / NAME, tenants)
    path = folder / "environment.yaml"
    text = path.read_text("utf-8").replace(
        f"environment: {NAME}\n", f"environment: {NAME}\nstacks: {Layout.PER_TENANT}\n"
    )
    path.write_text(text, "utf-8")
    return load(folder)


def _until_idle(patience: float = 600) -> None:
    """Wait until the controllers have worked off what was put on the cluster: they share the cores with what is
    measured, as they do on no cluster of EKS. After `patience` seconds the measurement begins anyway."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        before = _cpu_times()
        time.sleep(3)
        passed = [after - earlier for after, earlier in zip(_cpu_times(), before, strict=True)]
        if passed[3] > 0.7 * sum(passed):
            return


def _cpu_times() -> list[int]:
    """User, nice, system, idle and further times of all cores, in clock ticks."""
    return [int(word) for word in Path("/proc/stat").read_text("utf-8").splitlines()[0].split()[1:9]]


def _as_made(root: Path, loaded: Loaded) -> int:
    """Put the tenants that no engine made on the cluster; the number of their objects."""
    plan = make_plan(loaded, loaded.day)
    os.environ.update(
        {key: value for key, value in environ(root).items() if key in {"KUBECONFIG", "PULUMI_BACKEND_URL"}}
    )
    api = Api(CONTEXT)
    engine = subprocess.run(["pulumi", "version"], env=environ(root), capture_output=True, text=True, check=True).stdout
    digests_by_stack = digests(
        loaded, plan, stacks(plan, Layout.PER_TENANT), root, program_digest(root, engine.strip().removeprefix("v"))
    )
    folder = root / ".lab" / "state" / ".pulumi" / "stacks" / "gpu-tenancy"
    model = folder / f"{NAME}--team-0001.json"
    further_plans = plan.tenants[APPLIED:]

    def put(item: Object) -> None:
        path = f"{path_of(item)}?fieldManager={MANAGER}&force=true"
        answer = api.request("PATCH", path, item, content_type="application/apply-patch+yaml")
        if not answer.ok:
            raise SystemExit(f"{path}: {answer.status} {answer.message}")

    def make(index: int) -> int:
        tenant = further_plans[index]
        items = list(tenant.objects())
        for item in items:
            put(item)
        stack = f"{NAME}--{tenant.name}"
        shutil.copy(model, folder / f"{stack}.json")
        records.write(api, stack, digests_by_stack[stack])
        return len(items)

    with ThreadPoolExecutor(4) as pool:
        return sum(pool.map(make, range(len(further_plans))))
