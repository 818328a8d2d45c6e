"""The local control plane: etcd, the API server, its controllers and scheduler, and fake kubelets."""

from __future__ import annotations

import contextlib
import fcntl
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tenancy.http_client import LocalServer
from tenancy.lab import clock as lab_clock
from tenancy.lab import kueue, metrics, pki, plugins, ports, processes, prometheus, snapshots
from tenancy.lab.api import ApiError, LabApi, client_tls
from tenancy.lab.components import CLOCK, COMPONENTS, GENERATOR, KUEUE, PROBES, PROMETHEUS, commands
from tenancy.lab.layout import (
    Lab,
    LabError,
    environ,
    link,
    write,
    write_shell_file,
)
from tenancy.lab.nodes import apply_nodes

__all__ = ["Lab", "LabError", "Status", "apply_nodes", "down", "environ", "status", "up"]

DEFAULT_PLATFORM_GROUP = "platform-admins"
SERVERS, CLIENTS = COMPONENTS[:2], COMPONENTS[2:]
MANAGER = "kube-controller-manager"
EVERYTHING = (*COMPONENTS, KUEUE, PROMETHEUS)
READY_SECONDS = 90.0
# The API server is back 2 s after etcd is.
PATIENCE_SECONDS = 10.0
SIMULATIONS = "simulations"
"""Checkpoints of `tenancy simulate`, which needs no lab: they may be in the folder before there is one."""
RBAC = "rbac.authorization.k8s.io"
BINDINGS = f"/apis/{RBAC}/v1/clusterrolebindings"
NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
READ = ["get", "list", "watch"]
KUBELETS_MAY = (
    ("", ["nodes"], READ),
    ("", ["nodes/status", "pods/status"], ["patch", "update"]),
    ("", ["pods"], [*READ, "delete", "patch"]),
    ("", ["events"], ["create", "patch"]),
    ("coordination.k8s.io", ["leases"], [*READ, "create", "patch", "update"]),
)


@dataclass(frozen=True)
class Status:
    """State of one component."""

    component: str
    pid: int | None
    alive: bool
    port: int | None
    answering: bool


def _quiet(_line: str) -> None:
    pass


def up(
    *,
    root: Path | None = None,
    platform_group: str | None = None,
    nodes: list[dict[str, Any]] | None = None,
    queues: Mapping[str, Any] | None = None,
    watched: Mapping[str, Any] | None = None,
    history: Iterable[str] | None = None,
    type_checks: bool | None = None,
    clock: str | None = None,
    say: Callable[[str], None] = _quiet,
) -> Lab:
    """Bring the lab up: start missing components, leave working ones; with `nodes`, set its fake nodes.

    `queues` are the values of Kueue's chart; empty, Kueue is removed with all queues and workloads.
    `watched` starts Prometheus: `seed` of the devices' use, and `rules` to evaluate; empty, it is removed. `history`
    are OpenMetrics lines of the past that it loads on its first start.
    `type_checks`: whether a controller writes warnings about the types of guards' expressions into their status (by
    default it does not: every change of all guards takes it 18 s of CPU time).
    `clock` is the folder of the spec files for which the clock runs; empty, it is ended.
    What is not given is kept as an earlier `up` was given it.
    """
    from tenancy.lab import tools

    lab = Lab.locate(root)
    _refuse_foreign_folder(lab)
    toolbox = tools.ensure(say)
    with _locked(lab), contextlib.ExitStack() as claims:
        group = platform_group or lab.recall().get("platform", {}).get("group") or DEFAULT_PLATFORM_GROUP
        _prepare(lab, toolbox)
        plugins.prepare(lab, say)
        if queues is not None:
            lab.remember(queues=dict(queues))
        if watched is not None:
            lab.remember(metrics=dict(watched))
        if type_checks is not None:
            lab.remember(type_checks=type_checks)
        if clock is not None:
            lab.remember(clock=clock)
        for attempt in (1, 2):
            try:
                _run(lab, toolbox, group, claims, say)
                _run_metrics(lab, history, say)
                _run_clock(lab, say)
                break
            except _PortTakenError:
                if attempt == 2:
                    raise
        if nodes is not None:
            say(f"{len(nodes)} fake nodes")
            apply_nodes(nodes, lab)
    return lab


def down(*, root: Path | None = None) -> bool:
    """End the processes and delete the cluster with the Pulumi state that describes it.

    False if there was nothing.
    """
    lab = Lab.locate(root)
    if not lab.folder.exists():
        return False
    _refuse_foreign_folder(lab)
    with _locked(lab):
        running_processes = _processes(lab)
        processes.stop([process for group in running_processes.values() for process in group], at_once=True)
        entries = [entry for entry in lab.folder.iterdir() if entry.name != "lock"]
        # The mark goes last: an interrupted removal can be repeated.
        for entry in sorted(entries, key=lambda entry: entry == lab.memory):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    return bool(running_processes or entries)


def status(*, root: Path | None = None) -> list[Status]:
    """Each component: its process, and whether it answers."""
    lab = Lab.locate(root)
    known_ports = ports.remembered(lab)
    running_processes, settings = _processes(lab), lab.recall()
    result = []
    expected = [*COMPONENTS]
    expected += [KUEUE] if settings.get("queues") else []
    expected += [PROMETHEUS, GENERATOR] if settings.get("metrics") else []
    expected += [CLOCK] if settings.get("clock") else []
    for name in expected:
        pid = running_processes[name][0].pid if name in running_processes else None
        port = known_ports.get(name)
        answering = bool(pid and port and _answers(lab, name, port))
        result.append(Status(name, pid, pid is not None, port, answering))
    return result


def status_rows(rows: list[Status]) -> list[dict[str, Any]]:
    """The rows as plain data."""
    return [asdict(row) for row in rows]


def log_file(component: str, *, root: Path | None = None) -> Path:
    """The log of a component, or the audit log."""
    return Lab.locate(root).logs / f"{component}.log"


class _PortTakenError(LabError):
    """Another process bound a port between the choice and the start."""


@contextlib.contextmanager
def _locked(lab: Lab) -> Generator[None]:
    lab.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (lab.folder / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _refuse_foreign_folder(lab: Lab) -> None:
    """`down` deletes the folder's content: it must be one that a lab made."""
    if lab.folder == lab.root / ".lab" or lab.memory.exists() or not lab.folder.exists():
        return
    if not lab.folder.is_dir() or any(entry.name not in ("lock", SIMULATIONS) for entry in lab.folder.iterdir()):
        raise LabError(
            f"GPU_TENANCY_LAB names {lab.folder}, which contains other files than a lab's; `lab down` would "
            "delete them. Name a folder that is empty or does not exist."
        )


def _prepare(lab: Lab, toolbox: Any) -> None:
    """Write all files that do not depend on ports."""
    if not lab.memory.exists():
        lab.remember(ports={})
    for folder in (lab.pki, lab.logs, lab.config, lab.state):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    pki.ensure(lab)
    _link_plugins(lab, toolbox)
    link(lab.folder / "audit.log", Path("logs") / "audit.log")
    write_shell_file(lab)


def language_host(toolbox: Any, folder: Path) -> Path:
    """The engine's host of Python programs: the release's, or a command in `folder` that starts ours."""
    wrapper = folder / "pulumi-language-python"
    wrapper.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if host := toolbox.get("pulumi-language-python"):
        wrapper.unlink(missing_ok=True)
        return host
    script = Path(__file__).with_name("language_host.py")
    # -I: Python variables of the caller's shell are for the program, not for the host.
    command = shlex.join([sys.executable, "-I", str(script), "--runner", str(toolbox["pulumi-language-python-exec"])])
    write(wrapper, f'#!/bin/sh\nexec {command} "$@"\n', mode=0o700)
    return wrapper


def _link_plugins(lab: Lab, toolbox: Any) -> None:
    """Link the engine's plugins into PULUMI_HOME, where it looks them up by kind, name and version."""
    from tenancy.lab import tools

    host = language_host(toolbox, lab.folder / "bin")
    versions = {name: version for name, version, *_ in tools.table(toolbox)}
    home = lab.folder / "pulumi" / "plugins"
    provider = "pulumi-resource-kubernetes"
    for kind, name, target, tool_name in (
        ("resource-kubernetes", provider, toolbox[provider], provider),
        ("language-python", "pulumi-language-python", host, "pulumi"),
    ):
        link(home / f"{kind}-v{versions[tool_name]}" / name, target)
    # Here the engine logs every value that passes, which takes a quarter of its time. It has no switch for that, and
    # skips the log if it cannot create the folder.
    logs = lab.folder / "pulumi" / "logs"
    if logs.is_dir():
        shutil.rmtree(logs)
    logs.touch(mode=0o600)


def _run(lab: Lab, toolbox: Any, group: str, claims: contextlib.ExitStack, say: Callable[[str], None]) -> None:
    """Start components that do not run as they should, and wait until all of them answer."""
    former_ports = ports.remembered(lab)
    queues = lab.recall().get("queues")
    running_processes = processes.running(lab, EVERYTHING)
    keep = [name for name in former_ports if ports.component(name) in running_processes]
    first = {"kueue-webhook": snapshots.webhook_ports(claims)}
    chosen_ports = ports.choose(lab, keep, [*ports.NAMES, *(ports.QUEUES if queues else ())], first)
    # Other ports are chosen afterwards, and restart none of these components.
    chosen_ports = {name: port for name, port in chosen_ports.items() if name not in (*ports.METRICS, *ports.CLOCK)}
    binaries = {name: toolbox[name] for name in COMPONENTS}
    command_lines = commands(lab, chosen_ports, binaries, type_checks=lab.recall().get("type_checks", False))
    moved_ports = {name for name, port in former_ports.items() if name in chosen_ports and chosen_ports[name] != port}
    if moved_ports:
        say("a port of the lab is taken by another process: moving to others")
    stale = [
        process
        for name, named_processes in running_processes.items()
        if name in command_lines
        for position, process in enumerate(named_processes)
        # Kubeconfigs contain the API server's port; the other ports are in arguments.
        if "kube-apiserver" in moved_ports or position or list(process.argv) != command_lines[name]
    ]
    processes.stop(stale)
    pki.ensure_platform(lab, group)
    pki.write_kubeconfigs(lab, chosen_ports["kube-apiserver"])

    alive = {
        name
        for name, named_processes in running_processes.items()
        if any(process not in stale for process in named_processes)
    }
    before_controllers = MANAGER not in alive and not lab.kueue.exists()
    chart = kueue.objects(toolbox, chosen_ports, queues) if queues and before_controllers else []
    snapshot = snapshots.name([toolbox[name] for name in SERVERS], kueue.kinds(chart))
    new = not (lab.folder / "etcd").exists()
    restored = new and snapshots.restore(lab, snapshot)

    def bring(stage: tuple[str, ...]) -> None:
        started = [name for name in stage if name not in alive]
        if started:
            say(f"{'starting' if not former_ports else 'restarting'} {', '.join(started)}")
        deadline = time.monotonic() + READY_SECONDS
        for name in started:
            _start(lab, name, command_lines[name], chosen_ports["kube-apiserver"])
        for name in stage:
            if name in alive and not _answers_soon(lab, name, chosen_ports[name]):
                say(f"restarting {name}, which is alive but does not answer")
                processes.stop(processes.running(lab, (name,)).get(name, []), at_once=True)
                _start(lab, name, command_lines[name], chosen_ports["kube-apiserver"])
            _wait(lab, name, chosen_ports[name], deadline)

    try:
        bring(SERVERS)
    except LabError as error:
        if not restored or isinstance(error, _PortTakenError):
            raise
        say("the kept snapshot of etcd does not work: starting without it")
        snapshots.discard(snapshot)
        processes.stop(
            [process for named_processes in processes.running(lab, SERVERS).values() for process in named_processes],
            at_once=True,
        )
        shutil.rmtree(lab.folder / "etcd")
        restored = False
        bring(SERVERS)
    if chart:
        say("reading Kueue's kinds" if restored else "writing Kueue's kinds")
        with LabApi(lab, chosen_ports["kube-apiserver"]) as api:
            kueue.bring_kinds(lab, api, chart, stored=restored)
    if new and not restored:
        snapshots.keep(lab, snapshot, chosen_ports)
    _bind(lab, chosen_ports["kube-apiserver"], group)
    bring(CLIENTS)
    _wait_for_service_account(lab, chosen_ports["kube-apiserver"])
    with LabApi(lab, chosen_ports["kube-apiserver"]) as api:
        if queues:
            if _run_kueue(lab, api, toolbox, chosen_ports, queues, chart, say):
                # It looks for new kinds when it starts. Later it would take minutes to count workloads, and until then
                # a namespace with a quota on them can create none.
                processes.stop(processes.running(lab, (MANAGER,)).get(MANAGER, []))
                _start(lab, MANAGER, command_lines[MANAGER], chosen_ports["kube-apiserver"])
                _wait(lab, MANAGER, chosen_ports[MANAGER], time.monotonic() + READY_SECONDS)
        else:
            processes.stop(running_processes.get(KUEUE, []), at_once=True)
            kueue.remove(lab, api)


def _processes(lab: Lab) -> dict[str, list[processes.Process]]:
    """The lab's running processes, by name."""
    programs = {GENERATOR: metrics.running(lab), CLOCK: lab_clock.running(lab)}
    return processes.running(lab, EVERYTHING) | {
        name: program_processes for name, program_processes in programs.items() if program_processes
    }


def _run_metrics(lab: Lab, history: Iterable[str] | None, say: Callable[[str], None]) -> None:
    """Run Prometheus and the metrics generator as requested, or neither."""
    from tenancy.lab import tools

    settings, running_processes = lab.recall().get("metrics"), _processes(lab)
    former_processes = {name: running_processes.get(name, []) for name in (GENERATOR, PROMETHEUS)}
    if not settings:
        processes.stop([process for group in former_processes.values() for process in group])
        return
    toolbox = tools.ensure(say, only=(PROMETHEUS, "promtool"), pins=prometheus.pins())
    chosen_ports = ports.choose(
        lab, [name for name in ports.remembered(lab) if name in running_processes], ports.METRICS
    )
    if not lab.recall().get("queues"):
        chosen_ports = {name: port for name, port in chosen_ports.items() if name not in ports.QUEUES}
    with LabApi(lab, chosen_ports["kube-apiserver"]) as api:
        prometheus.write_reader(lab, api)
    if history is not None and not prometheus.storage(lab).exists():
        say("making blocks of the history")
        prometheus.backfill(toolbox["promtool"], history, prometheus.storage(lab), lab.folder / "history")
    commands = {
        GENERATOR: metrics.command(lab, chosen_ports[GENERATOR], chosen_ports["kube-apiserver"], settings["seed"]),
        PROMETHEUS: prometheus.command(lab, toolbox[PROMETHEUS], chosen_ports, settings["rules"]),
    }
    for name, argv in commands.items():
        _ensure_process(lab, name, argv, former_processes[name], chosen_ports[name], say)


def _run_clock(lab: Lab, say: Callable[[str], None]) -> None:
    """Run the environment's clock, or none."""
    settings, running_processes = lab.recall(), lab_clock.running(lab)
    folder = settings.get("clock")
    if not folder:
        processes.stop(running_processes)
        return
    chosen_ports = ports.choose(lab, ports.CLOCK if running_processes else (), ports.CLOCK)
    kubeconfig = lab_clock.write_identity(lab, chosen_ports["kube-apiserver"])
    argv = lab_clock.command(folder, kubeconfig, chosen_ports, metrics=bool(settings.get("metrics")))
    _ensure_process(lab, CLOCK, argv, running_processes, chosen_ports[CLOCK], say)


def _ensure_process(
    lab: Lab,
    name: str,
    argv: list[str],
    running_processes: list[processes.Process],
    port: int,
    say: Callable[[str], None],
) -> None:
    """Keep a process that runs with these arguments, or start it, and wait until it answers."""
    matching = [process for process in running_processes if list(process.argv) == argv][:1]
    processes.stop([process for process in running_processes if process not in matching])
    if not matching:
        say(f"{'restarting' if running_processes else 'starting'} {name}")
        processes.start(lab, name, argv)
    _wait(lab, name, port, time.monotonic() + READY_SECONDS)


def _start(lab: Lab, name: str, argv: list[str], api_port: int) -> None:
    if name == "kwok":
        # A new kwok waits until the leases of its predecessor expire: for 40 s no pod would start or end.
        with LabApi(lab, api_port) as api, contextlib.suppress(ApiError):
            api.request("DELETE", NODE_LEASES)
    processes.start(lab, name, argv)


def _run_kueue(
    lab: Lab,
    api: LabApi,
    toolbox: Any,
    chosen_ports: Mapping[str, int],
    values: Mapping[str, Any],
    chart: list[dict[str, Any]],
    say: Callable[[str], None],
) -> bool:
    """Run Kueue with these values, and wait until its webhooks answer; return whether its kinds are new to the
    controllers. `chart` are the chart's objects, if its kinds were applied before the controllers started."""
    deadline = time.monotonic() + READY_SECONDS
    tools = {name: toolbox[name] for name in (KUEUE, "kueue-chart", "helm")}
    key = kueue.digest(tools, chosen_ports, values)
    command_line = kueue.command(lab, tools[KUEUE], key, values)
    running_processes = processes.running(lab, (KUEUE,)).get(KUEUE, [])
    matching = [process for process in running_processes if list(process.argv) == command_line][:1]
    new = False
    if not kueue.is_applied(lab, api, key):
        say(f"writing Kueue's {'' if chart else 'kinds, '}rights and webhooks")
        if not chart:
            chart = kueue.objects(tools, chosen_ports, values)
            new = kueue.bring_kinds(lab, api, chart)
        kueue.apply(lab, api, chart, chosen_ports, values, key)
        matching = []
    kueue.fetch_certificates(lab, api)
    if matching and not _answers_soon(lab, KUEUE, chosen_ports[KUEUE]):
        say("restarting kueue, which is alive but does not answer")
        matching = []
    # All of its state is in the API server.
    processes.stop([process for process in running_processes if process not in matching], at_once=True)
    if not matching:
        say(f"{'restarting' if running_processes else 'starting'} {KUEUE}")
        kueue.write_identity(lab, api, chosen_ports["kube-apiserver"])
        processes.start(lab, KUEUE, command_line)
    _wait(lab, KUEUE, chosen_ports[KUEUE], deadline, lambda: kueue.fetch_certificates(lab, api))
    while not kueue.webhooks_answer(api):
        if time.monotonic() > deadline:
            raise LabError("the API server does not reach Kueue's webhooks: see `tenancy lab logs kube-apiserver`.")
        time.sleep(0.05)
    if not matching:
        kueue.wait_for_queues(api)
    return new


def _wait(lab: Lab, name: str, port: int, deadline: float, meanwhile: Callable[[], None] = lambda: None) -> None:
    while not _answers(lab, name, port):
        meanwhile()
        alive = name in _processes(lab)
        if alive and time.monotonic() < deadline:
            time.sleep(0.05)
            continue
        log = processes.tail(lab, name)
        if not alive and "address already in use" in log:
            raise _PortTakenError(f"port {port} of {name} is taken by another process, twice: run `lab up` again.")
        failure = f"does not answer on port {port} after {READY_SECONDS:.0f} s" if alive else "ended by itself"
        raise LabError(
            f"{name} {failure}. The end of its log:\n\n{log}\n\n"
            f"All of it: `tenancy lab logs {name}`. To start afresh: `tenancy lab down`, `tenancy lab up`."
        )


def _answers_soon(lab: Lab, name: str, port: int) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (answers := _answers(lab, name, port)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return answers


def _answers(lab: Lab, name: str, port: int) -> bool:
    identity, path = PROBES[name]
    try:
        tls = client_tls(lab, identity, "etcd-ca" if name == "etcd" else "ca") if identity else None
        with contextlib.closing(LocalServer(port, 5, tls)) as server:
            return server.request("GET", path).status == 200
    except OSError:
        return False


def _bind(lab: Lab, port: int, group: str) -> None:
    """Give the platform group and the fake kubelets their rights, as the admin."""
    with LabApi(lab, port) as api:
        # On EKS an access entry names a Kubernetes group and a binding like this gives it its rights.
        api.apply(BINDINGS, _binding("platform", "cluster-admin", "Group", group))
        role = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "gpu-tenancy-lab:kubelets"},
            "rules": [
                {"apiGroups": [group], "resources": resources, "verbs": verbs}
                for group, resources, verbs in KUBELETS_MAY
            ],
        }
        api.apply(f"/apis/{RBAC}/v1/clusterroles", role)
        api.apply(BINDINGS, _binding("kubelets", "gpu-tenancy-lab:kubelets", "User", pki.KUBELETS_USER))


def _wait_for_service_account(lab: Lab, port: int) -> None:
    """Wait for the namespace's default service account, without which every pod is refused."""
    deadline = time.monotonic() + READY_SECONDS
    with LabApi(lab, port) as api:
        while time.monotonic() < deadline:
            with contextlib.suppress(ApiError):
                api.get("/api/v1/namespaces/default/serviceaccounts/default")
                return
            time.sleep(0.05)
    raise LabError(f"the controllers made no service account in namespace default: see `tenancy lab logs {MANAGER}`.")


def _binding(name: str, role: str, kind: str, subject: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"gpu-tenancy-lab:{name}"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": kind, "name": subject}],
    }
