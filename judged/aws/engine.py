"""The real engine with the judge's program over a real AWS provider: one project, one account on loopback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from judged import homes
from judged.aws import tokens
from judged.aws.project import FAULTS
from judged.model import SkippedJudge
from judged.program import Resource
from tenancy.lab import control_plane, recipes, tools

VARIABLE = "JUDGED_AWS_PROVIDER"
PLUGIN = "pulumi-resource-aws"
PROVIDER = "terraform-provider-aws"
HOME = "JUDGED_AWS_HOME"
"""Variable that marks the processes of a run."""
NO_CHANGE = ("same", "refresh", "read")
"""Operations of the engine that change nothing."""
READS = ("Describe", "Get", "Head", "List", "BatchGet")
"""Beginnings of the names of AWS' operations that change nothing."""
PATIENCE = 10.0
"""Seconds that a provider has to end in."""


@dataclass(frozen=True, slots=True)
class Provider:
    """The program that speaks to AWS. Under `bridge` it is Terraform's, otherwise it is Pulumi's own plugin."""

    program: Path
    bridge: Path | None = None

    @property
    def version(self) -> str:
        """As the file's path says it."""
        number = recipes.VERSION.search(str(self.program).replace("_", " "))
        return (number[1] if number else "unknown") + (" bridged" if self.bridge else "")


def provider(environ: Mapping[str, str]) -> Provider:
    """Pulumi's plugin or Terraform's provider, as the variable names it, or the plugin on PATH. Raises SkippedJudge."""
    setting = environ.get(VARIABLE, "")
    program = setting or shutil.which(PLUGIN, path=environ.get("PATH"))
    if not program:
        raise SkippedJudge(
            f"no provider of AWS here: {VARIABLE}=PATH of `{PLUGIN}` (`pulumi plugin install resource aws "
            f"{version(tokens.PACKAGE)}`) or of Terraform's `{PROVIDER}` (`terraform init` with hashicorp/aws)"
        )
    path = Path(program).resolve()
    if not path.is_file() or not path.name.startswith((PLUGIN, PROVIDER)):
        raise SkippedJudge(f"{VARIABLE} is {setting}: no file `{PLUGIN}` or `{PROVIDER}_…`")
    return Provider(path, homes.built(PLUGIN) if path.name.startswith(PROVIDER) else None)


@dataclass(frozen=True, slots=True)
class Run:
    """Exit code and output of a command of the engine."""

    code: int
    events: Sequence[Mapping[str, Any]]
    output: str

    @property
    def steps(self) -> Iterator[tuple[str, str]]:
        """Operation and URN of every step."""
        for event in self.events:
            for key in ("resourcePreEvent", "resOutputsEvent"):
                if step := event.get(key, {}).get("metadata"):
                    yield step["op"], step["urn"]

    @property
    def changes(self) -> list[tuple[str, str]]:
        """Operation and `type name` of every step that changes something."""
        steps = {(op, urn) for op, urn in self.steps if op not in NO_CHANGE and "pulumi:pulumi:Stack::" not in urn}
        return sorted((op, f"{urn.split('::')[2].rpartition('$')[2]} {urn.rpartition('::')[2]}") for op, urn in steps)

    @property
    def deletions(self) -> tuple[int, int]:
        """Number of resources that the state lost, and of these the number that the provider keeps."""
        steps = [event["resourcePreEvent"]["metadata"] for event in self.events if "resourcePreEvent" in event]
        losses = [step["old"] for step in steps if step["op"] == "delete" and step["type"].startswith("aws:")]
        return len(losses), sum(bool(old.get("retainOnDelete")) for old in losses)

    @property
    def problem(self) -> str:
        """The first error that the engine tells, or the last line of its output."""
        diagnostics = (event["diagnosticEvent"] for event in self.events if "diagnosticEvent" in event)
        errors = [diagnostic["message"] for diagnostic in diagnostics if diagnostic["severity"] == "error"]
        text = errors[0] if errors else (self.output.strip().splitlines() or ["no output"])[-1]
        return " ".join(text.replace("<{%reset%}>", "").split())


@dataclass(frozen=True, slots=True)
class AwsRequest:
    """A request as judged/aws/server.py logs it."""

    service: str
    operation: str
    status: int
    wrong: Sequence[tuple[str, str]]
    refusal: str = ""
    unread: str = ""

    @property
    def name(self) -> str:
        """As IAM names it."""
        return f"{self.service}:{self.operation}"

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return not self.operation.startswith(READS)


def requests(lines: Iterable[str]) -> list[AwsRequest]:
    """The requests of the server's log."""
    values = [json.loads(line) for line in lines]
    fields = ("service", "operation", "status", "refusal", "unread")
    return [
        AwsRequest(
            **{key: value[key] for key in fields if key in value},
            wrong=[(path, message) for path, message in value["wrong"]],
        )
        for value in values
    ]


class EngineOverAws:
    """A Pulumi project in `folder` whose AWS is on loopback, with clusters that another tool made."""

    def __init__(
        self, folder: Path, source: Provider, resources: Iterable[Resource], clusters: Iterable[str] = ()
    ) -> None:
        self.folder = folder
        self._source = source
        self._resources = resources
        self._clusters = clusters
        self._read = 0
        self._attached: dict[str, str] = {}

    def __enter__(self) -> EngineOverAws:
        for name in ("bin", "home", "state", "project"):
            (self.folder / name).mkdir(parents=True)
        self._link_programs()
        (self.folder / "tokens.json").write_text(json.dumps(tokens.table(self._resources)), "utf-8")
        self._write_project()
        program = homes.environment("aws") / "python"
        self._server = subprocess.Popen(
            [program, "-m", "judged.aws.server", self._log, *self._clusters],
            cwd=homes.ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "server.log").open("w"),
            text=True,
        )
        assert self._server.stdout
        self._port = self._server.stdout.readline().strip()
        if not self._port:
            text = (self.folder / "server.log").read_text("utf-8").strip().splitlines()
            raise ValueError(f"AWS on loopback did not start: {text[-1] if text else 'no output'}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.kill()
        self._server.communicate()
        for process in self._processes():
            os.kill(process, signal.SIGKILL)

    @property
    def _log(self) -> Path:
        return self.folder / "requests.jsonl"

    def environment(self, name: str) -> Path:
        """The folder of an environment's files."""
        return self.folder / "project" / "stacks" / name

    def stack(self, *words: str | Path, faults: Path | None = None) -> Run:
        """A command of the engine."""
        events = self.folder / "events.jsonl"
        events.unlink(missing_ok=True)
        environ = {**self._environ, **self._attached, **({FAULTS: str(faults)} if faults else {})}
        process = subprocess.run(
            [tools.bin_dir() / "pulumi", *words, "--non-interactive"],
            cwd=self.folder / "project",
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        lines = events.read_text("utf-8").splitlines() if events.exists() else []
        return Run(process.returncode, [json.loads(line) for line in lines], process.stdout + process.stderr)

    @contextmanager
    def one_provider(self) -> Generator[None]:
        """One process of the provider for all commands inside: its start takes longer than a preview."""
        with (self.folder / "provider.log").open("w") as log:
            command = [self.folder / "bin" / PLUGIN]
            process = subprocess.Popen(command, env=self._environ, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout
        try:
            # Without the address of an engine it waits for one.
            self._attached = {"PULUMI_DEBUG_PROVIDERS": f"aws:{process.stdout.readline().strip()}"}
            yield
        finally:
            self._attached = {}
            process.kill()
            process.communicate()

    def operate(self, operation: str, stack: str, *words: str, faults: Path | None = None) -> Run:
        """preview, up, refresh or destroy of a stack."""
        print(f"  {operation} {stack} …", file=sys.stderr, flush=True)
        common = ("--event-log", self.folder / "events.jsonl", "--suppress-outputs")
        agreed = () if operation == "preview" else ("--yes", "--skip-preview")
        return self.stack(operation, "--stack", stack, *common, *agreed, *words, faults=faults)

    def resources(self, stack: str) -> Counter[str]:
        """Number of resources of each type that the state of a stack has."""
        state = json.loads(self.stack("stack", "export", "--stack", stack).output)
        return Counter(resource["type"] for resource in state["deployment"].get("resources", ()))

    def requests(self) -> list[AwsRequest]:
        """The requests since the last call."""
        lines = self._log.read_text("utf-8").splitlines() if self._log.exists() else []
        since, self._read = self._read, len(lines)
        return requests(lines[since:])

    def remaining_processes(self) -> list[int]:
        """Processes of plugins and providers that outlive the engine; none where there is no /proc."""
        deadline = time.monotonic() + PATIENCE
        while (processes := self._processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return processes

    def _processes(self) -> list[int]:
        mark = f"{HOME}={self.folder}".encode()
        processes = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                marked = mark in path.read_bytes().split(b"\0")
            except OSError:  # another user's, or it has just ended
                continue
            processes += [int(path.parent.name)] if marked else []
        return processes

    def _link_programs(self) -> None:
        names = ("pulumi", "pulumi-language-python", "pulumi-language-python-exec")
        try:
            toolbox = tools.ensure(only=names)
        except tools.ToolsError as error:
            raise SkippedJudge(str(error).splitlines()[0]) from None
        control_plane.language_host(toolbox, self.folder / "bin")
        (self.folder / "bin" / PLUGIN).symlink_to(self._source.bridge or self._source.program)
        if self._source.bridge:
            (self.folder / "bin" / PROVIDER).symlink_to(self._source.bridge)

    def _write_project(self) -> None:
        project = self.folder / "project"
        runtime = {"name": "python", "options": {"virtualenv": sys.prefix}}
        (project / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "gpu-tenancy", "runtime": runtime}), "utf-8")
        (project / "__main__.py").write_text("from judged.aws.project import run\n\nrun()\n", "utf-8")

    @cached_property
    def _environ(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "PULUMI_"))}
        address = f"http://127.0.0.1:{self._port}"
        return {
            **inherited,
            "PATH": os.pathsep.join(
                [str(self.folder / "bin"), str(tools.bin_dir()), inherited.get("PATH", os.defpath)]
            ),
            "PYTHONPATH": os.pathsep.join([str(homes.ROOT), str(homes.ROOT / "s3-client")]),
            HOME: str(self.folder),
            VARIABLE: str(self._source.program),
            "JUDGED_AWS_TOKENS": str(self.folder / "tokens.json"),
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_BACKEND_URL": (self.folder / "state").as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "judged",
            "PULUMI_DEBUG_COMMANDS": "true",  # --event-log is one of its options
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_EXPERIMENTAL": "true",
            "PULUMI_SKIP_CHECKPOINTS": "true",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "AWS_ACCESS_KEY_ID": "judged",
            "AWS_SECRET_ACCESS_KEY": "judged",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL": address,
            # S3 has its buckets in the names of hosts: they reach the server as those of a proxy.
            "AWS_ENDPOINT_URL_S3": "http://s3.amazonaws.com",
            "HTTP_PROXY": address,
            "NO_PROXY": "localhost,127.0.0.1",
        }
