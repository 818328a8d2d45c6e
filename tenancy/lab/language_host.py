"""A Python language host for the Pulumi engine, for machines that have no release archive of it.

The engine starts `pulumi-language-python` from PATH, reads a port from its first line and speaks
`pulumirpc.LanguageRuntime` to it. This file is run as a script (`lab up` writes the executable that
does so) and imports no more than it needs, because every preview pays for it.
The official host is preferred wherever there is one.
"""

# The names of the calls and of their parameters come from the generated servicer.
# ruff: noqa: ARG002, N802

from __future__ import annotations

import sys

if __name__ == "__main__":
    import importlib.util
    import types

    # The stubs need grpc and protobuf only, while `pulumi/__init__.py` imports the whole SDK (0.2 s
    # of every preview). Bare packages with the right search path let the stubs in and nothing else.
    _sdk = importlib.util.find_spec("pulumi")
    if _sdk is None or not _sdk.submodule_search_locations:
        sys.exit("the Python of this checkout has no `pulumi` package: install the project into it")
    _folder = _sdk.submodule_search_locations[0]
    for _name in ("pulumi", "pulumi.runtime", "pulumi.runtime.proto"):
        _package = types.ModuleType(_name)
        _package.__path__ = ["/".join([_folder, *_name.split(".")[1:]])]
        sys.modules[_name] = _package

import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import grpc
from google.protobuf import empty_pb2
from google.protobuf.json_format import MessageToDict
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

# Exit code of the SDK's runner after it has shown the error itself.
EXIT_ALREADY_REPORTED = 32
# Seconds for a program to clean up when it is ended. The engine itself waits 5 s, then kills.
GRACE_SECONDS = 1.0
# Seconds between two checks whether the engine still runs.
ENGINE_POLL_SECONDS = 0.25

_DISTRIBUTIONS = """
import importlib.metadata, json, re
found, needed = {}, set()
for dist in importlib.metadata.distributions():
    name = dist.metadata["Name"]
    if name:
        found[re.sub(r"[-_.]+", "-", name).lower()] = (name, dist.version)
        for line in dist.requires or []:
            if "extra ==" not in line:
                needed.add(re.sub(r"[-_.]+", "-", re.match(r"[\\w.-]+", line)[0]).lower())
print(json.dumps([[*entry, key in needed] for key, entry in sorted(found.items())]))
"""


class OptionError(Exception):
    """A runtime option in Pulumi.yaml or PulumiPolicy.yaml that cannot be followed."""


class Children:
    """The processes this host started and that must not outlive their call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: set[subprocess.Popen[bytes]] = set()
        self.ended_by_host: set[int] = set()

    def start(
        self, argv: list[str], folder: str, env: dict[str, str], output: int | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process in the host's own process group, so that the engine's kill reaches it."""
        child = subprocess.Popen(
            argv, cwd=folder or None, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        with self._lock:
            self._live.add(child)
        return child

    def forget(self, child: subprocess.Popen[bytes]) -> None:
        """Stop tracking a process that has ended."""
        with self._lock:
            self._live.discard(child)

    def end(self, child: subprocess.Popen[bytes]) -> None:
        """Terminate the process, and kill it if it does not end."""
        if child.poll() is not None:
            return
        self.ended_by_host.add(child.pid)
        child.terminate()
        try:
            child.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()

    def end_all(self) -> None:
        """End every process that still runs, and wait for it."""
        with self._lock:
            live = list(self._live)
        threads = [threading.Thread(target=self.end, args=(child,), daemon=True) for child in live]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * GRACE_SECONDS)


def runtime_options(info: language_pb2.ProgramInfo) -> dict[str, Any]:
    """The `runtime.options` of the project or policy pack."""
    return MessageToDict(info.options) if info.HasField("options") else {}


def virtualenv(info: language_pb2.ProgramInfo) -> Path | None:
    """The virtual environment the options name, relative to the project root or the pack's folder."""
    options = runtime_options(info)
    toolchain = options.get("toolchain", "pip")
    if toolchain not in ("pip", "uv"):
        raise OptionError(
            f"runtime option `toolchain: {toolchain}` is not known to this language host: "
            "use pip or uv, or install the release of Pulumi, whose host knows the others"
        )
    name = options.get("virtualenv") or (".venv" if toolchain == "uv" else None)
    return Path(info.root_directory, name) if name else None


def interpreter(info: language_pb2.ProgramInfo) -> tuple[str, dict[str, str]]:
    """The Python that runs the program, and the environment it runs in."""
    env = dict(os.environ)
    env.pop("PYTHONHOME", None)
    folder = virtualenv(info)
    if folder is None:
        return os.environ.get("PULUMI_PYTHON_CMD") or sys.executable, env
    python = folder / "bin" / "python"
    if not python.exists():
        raise OptionError(
            f"the virtual environment {folder}, named by runtime option `virtualenv`, has no bin/python: "
            "run `pulumi install`, or create it and install the requirements"
        )
    env["VIRTUAL_ENV"] = str(folder)
    env["PATH"] = f"{folder / 'bin'}{os.pathsep}{env.get('PATH', os.defpath)}"
    return str(python), env


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """The calls of the engine."""

    def __init__(self, engine: str, runner: str, tracing: str) -> None:
        self.engine = engine
        self.runner = runner
        self.tracing = tracing
        self.children = Children()

    def Handshake(self, request: Any, context: Any) -> Any:
        """Take the address of the engine."""
        self.engine = request.engine_address or self.engine
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        """Answer with no version of a plugin."""
        return plugin_pb2.PluginInfo(version="")

    def GetRequiredPackages(self, request: Any, context: Any) -> Any:
        """Answer that no package has to be fetched in advance."""
        # Nothing to fetch ahead: the engine loads each provider when its first resource comes.
        return language_pb2.GetRequiredPackagesResponse()

    def GetRequiredPlugins(self, request: Any, context: Any) -> Any:
        """Answer that no plugin has to be fetched in advance."""
        return language_pb2.GetRequiredPluginsResponse()

    def Run(self, request: Any, context: Any) -> Any:
        """Run the Pulumi program, and answer with its error, if any."""
        try:
            python, env = interpreter(request.info)
        except OptionError as problem:
            return language_pb2.RunResponse(error=str(problem))
        env["PULUMI_CONFIG"] = json.dumps(dict(request.config))
        env["PULUMI_CONFIG_SECRET_KEYS"] = json.dumps(list(request.configSecretKeys))
        flags = {
            "monitor": request.monitor_address,
            "engine": self.engine,
            "project": request.project,
            "root_directory": request.info.root_directory,
            "stack": request.stack,
            "pwd": request.pwd,
            "dry_run": "true" if request.dryRun else "false",
            "parallel": str(request.parallel),
            "organization": request.organization,
            "tracing": self.tracing,
        }
        argv = [python, "-u", self.runner]
        for flag, value in flags.items():
            if value:
                argv += [f"--{flag}", value]
        entry = request.info.entry_point or request.program or "."
        argv += [entry, *request.args]
        try:
            # The program writes straight to the host's own streams, which the engine shows.
            child = self.children.start(argv, request.pwd, env)
        except OSError as problem:
            return language_pb2.RunResponse(error=f"cannot start {python}: {problem.strerror}")
        context.add_callback(lambda: self.children.end(child))
        code = child.wait()
        self.children.forget(child)
        if code == 0:
            return language_pb2.RunResponse()
        if code == EXIT_ALREADY_REPORTED or child.pid in self.children.ended_by_host:
            return language_pb2.RunResponse(bail=True)
        ending = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        return language_pb2.RunResponse(error=f"the program {ending}")

    def RunPlugin(self, request: Any, context: Any) -> Iterator[Any]:
        """Run a plugin that is written in Python, such as a policy pack, and pass on its output."""
        try:
            python, env = interpreter(request.info)
        except OptionError as problem:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(problem))
            return
        program = request.info.program_directory or request.program
        if request.env:
            path = env["PATH"] if "VIRTUAL_ENV" in env else None
            venv = env.get("VIRTUAL_ENV")
            env = dict(pair.partition("=")[::2] for pair in request.env)
            if path and venv:
                env |= {"PATH": path, "VIRTUAL_ENV": venv}
        if request.kind == "analyzer":
            argv, folder = [python, "-u", "-m", "pulumi.policy", *request.args, program], program
        else:
            argv, folder = [python, "-u", program, *request.args], request.pwd
        try:
            child = self.children.start(argv, folder, env, subprocess.PIPE)
        except OSError as problem:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"cannot start {python}: {problem.strerror}")
            return
        context.add_callback(lambda: self.children.end(child))
        response = language_pb2.RunPluginResponse
        for stream, data in self._output(child):
            yield response(stdout=data) if stream == "stdout" else response(stderr=data)
        yield response(exitcode=child.wait())

    def InstallDependencies(self, request: Any, context: Any) -> Iterator[Any]:
        """Install the program's dependencies, and pass on the output."""
        folder = request.info.program_directory or request.directory
        response = language_pb2.InstallDependenciesResponse
        try:
            steps = install_steps(request.info, Path(folder))
        except OptionError as problem:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(problem))
            return
        for argv in steps:
            child = self.children.start(argv, folder, dict(os.environ), subprocess.PIPE)
            context.add_callback(lambda child=child: self.children.end(child))
            for stream, data in self._output(child):
                yield response(stdout=data) if stream == "stdout" else response(stderr=data)
            if code := child.wait():
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"`{' '.join(argv)}` ended with exit code {code}")

    def About(self, request: Any, context: Any) -> Any:
        """Answer with the path and the version of the interpreter."""
        try:
            python, env = interpreter(request.info)
        except OptionError:
            python, env = sys.executable, None
        version_output = subprocess.run([python, "--version"], capture_output=True, text=True, env=env, check=False)
        return language_pb2.AboutResponse(
            executable=shutil.which(python) or python, version=version_output.stdout.removeprefix("Python ").strip()
        )

    def GetProgramDependencies(self, request: Any, context: Any) -> Any:
        """Answer with the installed distributions and their versions."""
        try:
            python, env = interpreter(request.info)
        except OptionError as problem:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(problem))
            raise
        distributions = subprocess.run(
            [python, "-c", _DISTRIBUTIONS], capture_output=True, text=True, env=env, check=False
        )
        if distributions.returncode:
            context.abort(grpc.StatusCode.INTERNAL, f"{python} cannot list its packages: {distributions.stderr}")
        return language_pb2.GetProgramDependenciesResponse(
            dependencies=[
                language_pb2.DependencyInfo(name=name, version=version)
                for name, version, needed in json.loads(distributions.stdout)
                if request.transitiveDependencies or not needed
            ]
        )

    def Cancel(self, request: Any, context: Any) -> Any:
        """End every process that this host started."""
        self.children.end_all()
        return empty_pb2.Empty()  # ty: ignore[missing-attribute]

    def _output(self, child: subprocess.Popen[bytes]) -> Iterator[tuple[str, bytes]]:
        """The output of the process, streamed until it has ended."""
        chunks: queue.Queue[tuple[str, bytes]] = queue.Queue()

        def copy(name: str, pipe: IO[bytes]) -> None:
            while data := os.read(pipe.fileno(), 65536):
                chunks.put((name, data))
            chunks.put((name, b""))

        pipes = {"stdout": child.stdout, "stderr": child.stderr}
        for name, pipe in pipes.items():
            if pipe is not None:
                threading.Thread(target=copy, args=(name, pipe), daemon=True).start()
        open_pipes = set(pipes)
        try:
            while open_pipes:
                name, data = chunks.get()
                if data:
                    yield name, data
                else:
                    open_pipes.discard(name)
        finally:
            self.children.forget(child)


def install_steps(info: language_pb2.ProgramInfo, folder: Path) -> list[list[str]]:
    """The commands that make the virtual environment and fill it from the requirements."""
    venv = virtualenv(info)
    if runtime_options(info).get("toolchain") == "uv":
        return [["uv", "sync"]]
    steps = []
    python = os.environ.get("PULUMI_PYTHON_CMD") or sys.executable
    if venv is not None:
        if not (venv / "bin" / "python").exists():
            steps.append([python, "-m", "venv", str(venv)])
        python = str(venv / "bin" / "python")
    if (folder / "requirements.txt").exists():
        steps.append([python, "-m", "pip", "install", "-r", "requirements.txt"])
    elif (folder / "pyproject.toml").exists():
        steps.append([python, "-m", "pip", "install", "-e", "."])
    return steps


def serve(host: LanguageHost) -> None:
    """Serve until the engine asks the host to end, or is gone."""
    engine_process = os.getppid()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    server = grpc.server(
        ThreadPoolExecutor(max_workers=16),
        options=[
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ],
    )
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)

    while not stop.wait(ENGINE_POLL_SECONDS) and os.getppid() == engine_process:
        pass
    if not stop.is_set() and os.getpgrp() == os.getpid():
        # The engine was killed. The process group is this host and other processes that the program started.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
    host.children.end_all()
    # Threads of abandoned calls must not keep the process alive.
    os._exit(0)


def main() -> None:
    """Read the engine's arguments and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runner", required=True, help="the SDK's pulumi-language-python-exec")
    parser.add_argument("--tracing", default="")
    parser.add_argument("engine", nargs="?", default="", help="the address of the engine")
    # The engine adds logging flags as it sees fit.
    arguments, _ = parser.parse_known_args()
    serve(LanguageHost(arguments.engine, arguments.runner, arguments.tracing))


if __name__ == "__main__":
    main()
