"""The processes of a lab, found in the process table by the lab's folder in their arguments.

There are no pid files: the table is never out of date, and a pid that another process got is never
taken for the lab's.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tenancy.lab.layout import Lab, LabError

GOGC = "300"
"""GOGC: percent by which the heap grows before Go collects garbage (its default is 100). It saves a fifth of the CPU
time and costs half a gigabyte."""
LOG_KEPT_BYTES = 10 * 1024 * 1024
STOP_SECONDS = 5.0


@dataclass(frozen=True)
class Process:
    """A live process of a lab."""

    pid: int
    argv: tuple[str, ...]


def running(lab: Lab, names: tuple[str, ...]) -> dict[str, list[Process]]:
    """The live processes of the lab, by the name of their program."""
    mark = f"{lab.folder}/"
    processes: dict[str, list[Process]] = {}
    for process in _table():
        name = Path(process.argv[0]).name
        if name in names and any(mark in argument for argument in process.argv[1:]):
            processes.setdefault(name, []).append(process)
    return processes


def start(lab: Lab, name: str, argv: list[str]) -> None:
    """Start a program of the lab in a session of its own, with its output in its log."""
    log = lab.logs / f"{name}.log"
    lab.logs.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_KEPT_BYTES:
        log.replace(log.with_suffix(".log.1"))
    # A small environment: proxy and cluster settings of the caller's shell are not for components. GOGC, which trades
    # memory for time, is.
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG", "GOGC") if name in os.environ}
    env = {"GOGC": GOGC, **inherited}
    with log.open("ab") as output:
        log.chmod(0o600)
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd=lab.folder,
            env=env,
        )
    # For a moment the kernel shows the new process without arguments.
    while child.poll() is None and not any(_table(child.pid)):
        time.sleep(0.005)
    # The process outlives this object; without a return code Python would warn about that.
    child.returncode = 0


def stop(processes: list[Process], *, at_once: bool = False) -> None:
    """End processes: with SIGTERM first, or `at_once` with SIGKILL if their data is deleted anyway."""
    for number in (signal.SIGKILL,) if at_once else (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
        deadline = time.monotonic() + STOP_SECONDS
        while remaining := [process for process in processes if _is_alive(process)]:
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        if not remaining:
            return
        processes = remaining
    raise LabError(f"processes {', '.join(str(process.pid) for process in processes)} do not end: kill them.")


def tail(lab: Lab, name: str, lines: int = 15) -> str:
    """The last lines of a component's log."""
    log = lab.logs / f"{name}.log"
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 256 * 1024))
        return b"\n".join(file.read().splitlines()[-lines:]).decode(errors="replace")


def _is_alive(process: Process) -> bool:
    # A child of this very process stays in the table until it is waited for.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    return any(process == entry for entry in _table(process.pid))


def _table(pid: int | None = None) -> Iterator[Process]:
    """The live processes with their arguments; only `pid`, if one is named."""
    proc = Path("/proc")
    if not (proc / "self" / "cmdline").exists():
        yield from _table_of_ps(pid)
        return
    for entry in [str(pid)] if pid else os.listdir(proc):  # noqa: PTH208 (names, not 500 Path objects)
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:  # noqa: PTH123
                    argv = file.read().split(b"\0")
            except OSError:
                continue
            # A process that has ended and waits for its parent has no arguments.
            if argv[0]:
                yield Process(int(entry), tuple(part.decode(errors="replace") for part in argv[:-1]))


def _table_of_ps(pid: int | None) -> Iterator[Process]:
    selection = ["-p", str(pid)] if pid else ["-ax"]
    output = subprocess.run(
        ["ps", *selection, "-ww", "-o", "pid=,stat=,command="], capture_output=True, text=True, check=False
    )
    for line in output.stdout.splitlines():
        number, state, command = line.split(None, 2)
        if not state.startswith("Z"):
            with contextlib.suppress(ValueError):
                yield Process(int(number), tuple(shlex.split(command)))
