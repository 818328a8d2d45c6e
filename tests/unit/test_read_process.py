"""The files of a large environment, read in a process beside the one that imports clients."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.generate import generate
from tenancy.catalog import vocabulary as words
from tenancy.cli import read_process
from tenancy.cli.read_process import MIN_TENANT_FILES, start_reading
from tenancy.engine import driver, prefetch
from tenancy.planning import make_plan
from tenancy.planning.scope import StackScope
from tenancy.validation import SpecError, load

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere files are read in the same process")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate(tmp_path_factory.mktemp("large") / "bench", MIN_TENANT_FILES + 1)


@pytest.fixture(autouse=True)
def no_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "import_clients", lambda: None)


def test_what_is_read_beside_is_what_load_reads_and_is_not_judged_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = start_reading(str(folder), lab=False, all_stacks=True)
    with monkeypatch.context() as patch:
        patch.setattr(read_process, "load", lambda name: pytest.fail(f"{name} was read twice"))
        patch.setattr("tenancy.validation.validator.validate", lambda *_: pytest.fail("judged twice"))
        result = begun.load(str(folder))
        assert len(make_plan(result.environment, result.tenants).tenants) == MIN_TENANT_FILES + 1
    assert result == load(folder)


def test_a_mistake_is_told_as_without_the_other_process(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = generate(tmp_path / "bench", MIN_TENANT_FILES + 1)
    file = folder / "tenants" / "team-0007.yaml"
    file.write_text(file.read_text("utf-8").replace("tier: batch", "tier: bathc"), "utf-8")
    with pytest.raises(SpecError) as in_process_error:
        load(folder)
    with pytest.raises(SpecError) as helper_error:
        start_reading(str(folder), lab=False, all_stacks=True).load(str(folder))
    assert helper_error.value.problems == in_process_error.value.problems
    assert helper_error.value.problems
    assert capfd.readouterr().err == "", "the other process says nothing"


def test_files_are_read_here_if_the_other_process_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(read_process, "load", lambda _: os.kill(os.getpid(), signal.SIGKILL))
        begun = start_reading(str(folder), lab=False, all_stacks=True)
    assert begun.load(str(folder)) == load(folder)
    assert begun.prefetch is None


def test_a_small_environment_and_one_that_does_not_exist_are_left_to_load() -> None:
    for name in (str(Path(__file__).parents[2] / "stacks" / "bank"), "no-such-environment"):
        assert start_reading(name, lab=False, all_stacks=True) == (load, None, None)


def test_a_process_that_has_no_api_server_leaves_its_part_and_says_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("GPU_TENANCY_LAB", str(tmp_path / "no-lab"))
    begun = start_reading(str(folder), lab=False, all_stacks=True)
    begun.load(str(folder))
    assert begun.helper_process
    assert begun.helper_process.ask([("bench--team-0001", StackScope.TENANT, "team-0001")]) is None
    assert begun.helper_process.ask([("bench--team-0002", StackScope.TENANT, "team-0002")]) is None, "it has ended"
    assert capfd.readouterr().err == ""


def test_the_other_process_ends_when_it_is_not_needed_any_more(folder: Path) -> None:
    begun = start_reading(str(folder), lab=False, all_stacks=True)
    begun.load(str(folder))
    (process,) = multiprocessing.active_children()
    assert begun.helper_process
    begun.helper_process.end()
    process.join(30)
    assert process.exitcode == 0


KILLED = """
import multiprocessing, sys, time

from tenancy.cli.read_process import start_reading

begun = start_reading(sys.argv[1], lab=False, all_stacks=True)
begun.load(sys.argv[1])
print(multiprocessing.active_children()[0].pid, flush=True)
time.sleep(600)
"""


def test_the_other_process_ends_with_a_command_that_is_killed(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout
        process = int(command.stdout.readline())
        assert runs(process)
        command.kill()
    deadline = time.monotonic() + 30
    while runs(process):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def runs(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/status").read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return "State:\tZ" not in status


@pytest.mark.parametrize(("lab", "context"), [(False, "production"), (True, words.LAB_CONTEXT)])
def test_what_depends_on_no_tenant_is_asked_while_their_files_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, lab: bool, context: str
) -> None:
    file = folder / "environment.yaml"
    text = file.read_text("utf-8")
    monkeypatch.setattr(prefetch, "start_prefetch", lambda *arguments, is_whole_run: (*arguments, is_whole_run))
    try:
        file.write_text(text.replace(f"context: {words.LAB_CONTEXT}", "context: production"), "utf-8")
        begun = start_reading(str(folder), lab=lab, all_stacks=True)
        assert begun.prefetch == (folder, "bench", context, True)
        assert begun.load(str(folder)).environment.cluster.context == "production"
    finally:
        file.write_text(text, "utf-8")


def test_nothing_is_asked_for_an_environment_that_has_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = generate(tmp_path / "bench", MIN_TENANT_FILES + 1)
    file = folder / "environment.yaml"
    file.write_text(file.read_text("utf-8").replace("environment: bench", "environment: A B"), "utf-8")
    prefetches: list[object] = []
    monkeypatch.setattr(prefetch, "start_prefetch", lambda *arguments, **_: prefetches.append(arguments))
    with pytest.raises(SpecError, match="name-01"):
        start_reading(str(folder), lab=False, all_stacks=True).load(str(folder))
    assert prefetches == []
