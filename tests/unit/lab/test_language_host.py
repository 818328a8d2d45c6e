"""The stand-in language host, spoken to as the engine does, with a stand-in for the SDK's runner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf import empty_pb2
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import language_pb2, language_pb2_grpc

from tenancy.lab import language_host
from tests.waiting import PATIENCE, until

SCRIPT = Path(language_host.__file__)

# Writes down how it was started, then does what its program file says.
RUNNER = """
import argparse, json, os, sys
parser = argparse.ArgumentParser()
for name in "monitor engine project root_directory stack pwd dry_run parallel organization tracing".split():
    parser.add_argument(f"--{name}")
parser.add_argument("program")
parser.add_argument("args", nargs="*")
known = vars(parser.parse_args())
known["config"] = json.loads(os.environ["PULUMI_CONFIG"])
known["secrets"] = json.loads(os.environ["PULUMI_CONFIG_SECRET_KEYS"])
known["python"] = sys.argv[0] and sys.executable
known["venv"] = os.environ.get("VIRTUAL_ENV")
with open("started.json.part", "w") as file:
    json.dump(known | {"pid": os.getpid()}, file)
os.rename("started.json.part", "started.json")
exec(open(known["program"]).read())
"""


class Host:
    """A running host and the engine's end of the line."""

    def __init__(self, folder: Path, **env: str) -> None:
        runner = folder / "runner.py"
        runner.write_text(RUNNER)
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(SCRIPT), "--runner", str(runner), "--logtostderr", "127.0.0.1:1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | env,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.calls = language_pb2_grpc.LanguageRuntimeStub(self.channel)

    def info(self, **options: str) -> language_pb2.ProgramInfo:
        options_struct = Struct()
        options_struct.update(options)
        return language_pb2.ProgramInfo(
            root_directory=str(self.folder),
            program_directory=str(self.folder),
            entry_point="program.py",
            options=options_struct,
        )

    def run(self, program: str, **options: str) -> language_pb2.RunResponse:
        (self.folder / "program.py").write_text(textwrap.dedent(program))
        return self.calls.Run(
            language_pb2.RunRequest(
                info=self.info(**options),
                pwd=str(self.folder),
                project="shop",
                stack="dev",
                organization="bank",
                monitor_address="127.0.0.1:2",
                dryRun=True,
                parallel=7,
                config={"shop:size": "3"},
                configSecretKeys=["shop:key"],
            ),
            timeout=PATIENCE,
        )

    def started(self) -> dict:
        path = self.folder / "started.json"
        until(path.exists, "the program has started")
        return json.loads(path.read_text())

    def close(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.communicate()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return Path("/proc/self/stat").exists()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    running = Host(tmp_path)
    yield running
    running.close()


def test_the_host_asks_for_no_plugin_so_that_the_engine_downloads_none(host: Host) -> None:
    host.calls.Handshake(language_pb2.LanguageHandshakeRequest(engine_address="127.0.0.1:9"))
    assert host.calls.GetPluginInfo(empty_pb2.Empty()).version == ""
    answer = host.calls.GetRequiredPackages(language_pb2.GetRequiredPackagesRequest(info=host.info()))
    assert list(answer.packages) == []


def test_a_program_gets_what_the_engine_told_about_the_run(host: Host) -> None:
    assert host.run("pass") == language_pb2.RunResponse()
    run_info = host.started()
    assert run_info["config"] == {"shop:size": "3"}
    assert run_info["secrets"] == ["shop:key"]
    expected = {
        "project": "shop",
        "stack": "dev",
        "organization": "bank",
        "monitor": "127.0.0.1:2",
        "engine": "127.0.0.1:1",
        "dry_run": "true",
        "parallel": "7",
        "pwd": str(host.folder),
        "root_directory": str(host.folder),
    }
    assert {name: run_info[name] for name in expected} == expected


def test_an_error_that_was_shown_already_is_not_reported_again(host: Host) -> None:
    answer = host.run("sys.exit(32)")
    assert answer.bail
    assert answer.error == ""


def test_another_exit_code_is_reported_with_its_number(host: Host) -> None:
    answer = host.run("sys.exit(3)")
    assert not answer.bail
    assert "3" in answer.error


def test_a_killed_program_is_reported_with_the_signal(host: Host) -> None:
    assert "SIGKILL" in host.run("os.kill(os.getpid(), 9)").error


def test_cancel_ends_the_program(host: Host) -> None:
    answers: list[language_pb2.RunResponse] = []
    thread = threading.Thread(target=lambda: answers.append(host.run("import time; time.sleep(3600)")))
    thread.start()
    pid = host.started()["pid"]
    host.calls.Cancel(empty_pb2.Empty(), timeout=PATIENCE)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert is_gone(pid)
    assert answers[0].bail, "the user cancelled: there is no error to show"


def test_a_program_that_ignores_the_request_to_end_is_killed(host: Host) -> None:
    program = """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("deaf", "w").close()
        time.sleep(3600)
    """
    thread = threading.Thread(target=host.run, args=(program,))
    thread.start()
    until((host.folder / "deaf").exists, "the program is deaf")
    host.calls.Cancel(empty_pb2.Empty(), timeout=PATIENCE)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert is_gone(host.started()["pid"])


def test_the_virtual_environment_is_found_from_the_project_root(host: Host) -> None:
    python = host.folder / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o700)
    host.run("pass", virtualenv="env")
    assert host.started()["venv"] == str(host.folder / "env")


def test_a_virtual_environment_that_is_not_there_is_named(host: Host) -> None:
    answer = host.run("pass", virtualenv="nowhere")
    assert str(host.folder / "nowhere") in answer.error
    assert "pulumi install" in answer.error


def test_a_toolchain_the_host_does_not_know_is_refused(host: Host) -> None:
    answer = host.run("pass", toolchain="poetry")
    assert "toolchain: poetry" in answer.error


def test_a_policy_pack_is_run_in_its_folder_and_its_output_streamed(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$PWD $GREETING $*"\necho trouble >&2\nexit 4\n')
    python.chmod(0o700)
    host = Host(tmp_path, PULUMI_PYTHON_CMD=str(python))
    try:
        pack = tmp_path / "pack"
        pack.mkdir()
        info = language_pb2.ProgramInfo(root_directory=str(pack), program_directory=str(pack))
        request = language_pb2.RunPluginRequest(
            info=info, kind="analyzer", args=["127.0.0.1:5"], env=["GREETING=hello=you"], pwd=str(tmp_path)
        )
        messages = list(host.calls.RunPlugin(request, timeout=PATIENCE))
    finally:
        host.close()
    out = b"".join(message.stdout for message in messages).decode()
    assert out == f"{pack} hello=you -u -m pulumi.policy 127.0.0.1:5 {pack}\n"
    assert b"".join(message.stderr for message in messages) == b"trouble\n"
    assert messages[-1].exitcode == 4


def test_a_policy_pack_ends_when_the_engine_lets_go_of_it(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho $$\nexec sleep 3600\n")
    python.chmod(0o700)
    host = Host(tmp_path, PULUMI_PYTHON_CMD=str(python))
    try:
        info = language_pb2.ProgramInfo(root_directory=str(tmp_path), program_directory=str(tmp_path))
        stream = host.calls.RunPlugin(language_pb2.RunPluginRequest(info=info, kind="analyzer"))
        pid = int(next(stream).stdout)
        stream.cancel()
        until(lambda: is_gone(pid), "the pack has ended")
    finally:
        host.close()


def test_the_packages_of_the_program_are_listed(host: Host) -> None:
    request = language_pb2.GetProgramDependenciesRequest(info=host.info(), transitiveDependencies=True)
    names = {
        dependency.name for dependency in host.calls.GetProgramDependencies(request, timeout=PATIENCE).dependencies
    }
    assert {"pulumi", "grpcio"} <= names


def test_about_names_the_python_that_runs_the_program(host: Host) -> None:
    answer = host.calls.About(language_pb2.AboutRequest(info=host.info()), timeout=PATIENCE)
    assert answer.version == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_host_ends_quietly_when_it_is_asked_to(host: Host, number: signal.Signals) -> None:
    host.process.send_signal(number)
    output, errors = host.process.communicate(timeout=PATIENCE)
    assert (host.process.returncode, output, errors) == (0, "", "")


def test_neither_host_nor_program_outlive_a_killed_engine(tmp_path: Path) -> None:
    (tmp_path / "runner.py").write_text(RUNNER)
    (tmp_path / "program.py").write_text("import time; time.sleep(3600)")
    command = [sys.executable, "-I", str(SCRIPT), "--runner", str(tmp_path / "runner.py")]
    # Plays the engine: starts the host in a group of its own and waits.
    code = f"""
import subprocess, sys
host = subprocess.Popen({command!r}, process_group=0)
print(host.pid, file=sys.stderr, flush=True)
host.wait()
"""
    engine = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert engine.stdout is not None
    assert engine.stderr is not None
    port = int(engine.stdout.readline())
    host_pid = int(engine.stderr.readline())
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        calls = language_pb2_grpc.LanguageRuntimeStub(channel)
        info = language_pb2.ProgramInfo(root_directory=str(tmp_path), entry_point="program.py")
        pending = calls.Run.future(language_pb2.RunRequest(info=info, pwd=str(tmp_path)))
        until((tmp_path / "started.json").exists, "the program has started")
        program = json.loads((tmp_path / "started.json").read_text())["pid"]
        engine.kill()
        engine.communicate()
        until(lambda: is_gone(host_pid) and is_gone(program), "host and program have ended")
        pending.cancel()


def test_the_host_starts_without_the_rest_of_the_sdk(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-I", str(SCRIPT), "--runner", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    int(process.stdout.readline())
    process.terminate()
    imported = process.communicate(timeout=PATIENCE)[1]
    assert "pulumi.runtime.proto.language_pb2" in imported
    assert "pulumi.resource" not in imported, "the SDK costs every preview 0.2 s"
