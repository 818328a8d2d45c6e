"""A repository of one's own: the wheel in an empty folder, without the checkout, by commands alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tenancy.lab import recipes
from tests.waiting import PATIENCE

pytestmark = pytest.mark.chapters

ROOT = Path(__file__).parents[2]
LOADED = """
import sys
import tenancy.cli.up, tenancy.cli.verify, tenancy.program, tenancy.policy_pack.policies, tenancy.repository

print("\\n".join(sorted({module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "tenancy"})))
"""


PLAIN = {key: value for key, value in os.environ.items() if not key.startswith(("PULUMI_", "GPU_TENANCY_", "PYTHON"))}


@dataclass(frozen=True)
class Repository:
    folder: Path

    def environ(self) -> dict[str, str]:
        """Environment of a shell that never saw the checkout."""
        own_prefixes = ("PULUMI_", "GPU_TENANCY_", "PYTHON", "VIRTUAL_ENV", "KUBECONFIG")
        variables = {key: value for key, value in os.environ.items() if not key.startswith(own_prefixes)}
        path = [part for part in variables["PATH"].split(os.pathsep) if not Path(part).is_relative_to(sys.prefix)]
        # A step of the workflows writes into git's global configuration.
        git = {"GIT_CONFIG_GLOBAL": str(self.folder.parent / "gitconfig")}
        return {**variables, **git, "PATH": os.pathsep.join([str(self.folder / ".venv" / "bin"), *path])}

    def run(self, *command: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=folder or self.folder,
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def in_lab(self, command: str) -> subprocess.CompletedProcess[str]:
        """As README.md says: in a shell with the lab's settings."""
        return self.run("sh", "-c", f". .lab/env && {command}")


PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input")
INIT = (
    *("tenancy", "init", "clusters", "--organisation", "acme", "--group", "gpu-platform"),
    *("--region", "eu-central-1", "--account", "111122223333", "--ci", "github"),
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("wheel")
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(home), str(ROOT)]
    subprocess.run([*PIP, *build], check=True, timeout=PATIENCE)
    (wheel_file,) = home.glob("gpu_tenancy-*.whl")
    return wheel_file


@pytest.fixture(scope="module")
def repository(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    """The wheel in a fresh virtual environment, whose other packages are those of the tests."""
    home = tmp_path_factory.mktemp("own")
    folder = home / "clusters"
    venv.create(folder / ".venv", with_pip=False, symlinks=True)
    python = folder / ".venv" / "bin" / "python"
    install = ["--python", str(python), "install", "--no-deps", "--no-index", "--no-compile", str(wheel)]
    subprocess.run([*PIP, *install], check=True, timeout=PATIENCE)
    # A path file adds the packages there, and not the path files there: the checkout's editable install is one.
    purelib_command = [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]
    purelib = subprocess.run(purelib_command, capture_output=True, text=True, check=True).stdout.strip()
    Path(purelib, "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", "utf-8")
    new_repository = Repository(folder)
    result = new_repository.run(*INIT, folder=home)
    assert result.returncode == 0, result.stderr
    try:
        yield new_repository
    finally:
        new_repository.run("tenancy", "lab", "down")


@pytest.fixture(scope="module")
def deployed(repository: Repository) -> Repository:
    for command in (("tenancy", "lab", "up", "dev"), ("tenancy", "up", "dev", "--skip-preview")):
        result = repository.run(*command)
        assert result.returncode == 0, result.stdout + result.stderr
    return repository


def resolved(*requirements: str, folder: Path) -> dict[str, str]:
    """The versions that pip would install into an empty environment, from the package index of this machine."""
    dry = ("install", "--dry-run", "--ignore-installed", "--report", "-")
    result = subprocess.run(
        [*PIP, *dry, *requirements],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=PLAIN,
    )
    assert result.returncode == 0, result.stderr
    entries = json.loads(result.stdout)["install"]
    return {entry["metadata"]["name"].replace("_", "-").lower(): entry["metadata"]["version"] for entry in entries}


@pytest.mark.exhaustive(
    reason="asks the package index; that the extra pins the lab's versions is in tests/unit/cli/test_init_cli.py"
)
def test_a_users_pip_takes_the_sdks_whose_plugins_the_lab_has(wheel: Path, tmp_path: Path) -> None:
    tools = recipes.load()
    versions = resolved(f"{wheel}[lab]", folder=tmp_path)
    assert versions["pulumi-kubernetes"] == tools["pulumi-resource-kubernetes"].version
    assert versions["pulumi"] == tools["pulumi"].version


@pytest.mark.exhaustive(
    reason="installs everything from the package index; `make test` installs the wheel beside packages that are there"
)
def test_an_empty_environment_with_the_wheel_alone_comes_up_on_the_lab_and_then_with_the_tested_versions(
    wheel: Path, tmp_path: Path
) -> None:
    """As docs/own-repository.md says, with what pip chooses by itself."""
    clusters = Repository(tmp_path / "clusters")
    venv.create(clusters.folder / ".venv", with_pip=True, symlinks=True)
    steps = [
        ("pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[lab]"),
        INIT,
        ("tenancy", "validate", "dev"),
        ("tenancy", "lab", "up", "dev"),
        ("tenancy", "up", "dev"),
    ]
    try:
        for command in steps:
            result = clusters.run(*command, folder=tmp_path if command is INIT else None)
            assert result.returncode == 0, result.stdout + result.stderr
        shutil.copy(wheel, clusters.folder / "wheels")
        result = clusters.run("pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt")
        assert result.returncode == 0, result.stderr
        frozen = dict(line.split("==") for line in clusters.run("pip", "freeze").stdout.splitlines() if "==" in line)
        pins = dict(
            re.findall(r"^([\w-]+)==(\S+)", (clusters.folder / "constraints.txt").read_text("utf-8"), re.MULTILINE)
        )
        names = {name: name.replace("_", "-").lower() for name in frozen}
        assert {names[name]: version for name, version in frozen.items() if names[name] in pins}.items() <= pins.items()
        result = clusters.run("tenancy", "up", "dev", "--preview")
        assert result.returncode == 0, result.stdout + result.stderr
    finally:
        clusters.run("tenancy", "lab", "down")


def test_nothing_of_the_checkout_is_imported(repository: Repository) -> None:
    result = repository.run("python", "-c", LOADED)
    assert result.returncode == 0, result.stderr
    loaded_files = result.stdout.splitlines()
    assert len(loaded_files) > 100
    assert [path for path in loaded_files if not Path(path).is_relative_to(repository.folder)] == []
    assert not (repository.folder / "tenancy").exists()


@pytest.mark.parametrize("environment", ["dev", "prod"])
def test_what_init_writes_is_valid(repository: Repository, environment: str) -> None:
    result = repository.run("tenancy", "validate", environment)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout


def test_the_example_comes_up_on_the_lab(deployed: Repository) -> None:
    result = deployed.in_lab("kubectl get resourcequota tenant -n vision--main -o jsonpath='{.spec.hard}'")
    assert '"requests.nvidia.com/gpu"' in result.stdout, result.stderr


@pytest.mark.exhaustive(
    reason=(
        "a preview by the engine alone in an own repository; `make test` has its update by the command, and the "
        "pack in tests/engine/test_pull_requests.py"
    )
)
def test_a_preview_by_pulumi_alone_runs_the_pack_and_shows_no_change(deployed: Repository) -> None:
    result = deployed.in_lab("pulumi preview --stack dev --policy-pack policy --expect-no-changes --non-interactive")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "gpu-tenancy@v0.1.0 (local: policy)" in result.stdout
    assert "error" not in result.stdout.lower()


@pytest.mark.exhaustive(reason="an update by the engine alone in an own repository; `make test` previews there")
def test_a_change_is_made_by_pulumi_alone_and_one_that_breaks_a_rule_is_refused(deployed: Repository) -> None:
    file = deployed.folder / "stacks" / "dev" / "tenants" / "vision.yaml"
    before = file.read_text("utf-8")
    file.write_text(before.replace("guaranteed: 4", "guaranteed: 5"), "utf-8")
    up = "pulumi up --stack dev --policy-pack policy --yes --skip-preview --non-interactive"
    try:
        result = deployed.in_lab(up)
        assert result.returncode == 0, result.stdout + result.stderr
        quota = "kubectl get clusterqueue vision--batch -o jsonpath='{.spec.resourceGroups[*].flavors[*].resources}'"
        assert '"nominalQuota":"5"' in deployed.in_lab(quota).stdout
        file.write_text(before.replace("guaranteed: 4", "guaranteed: 500"), "utf-8")
        refused = deployed.in_lab(up)
        assert refused.returncode != 0
        assert "pool-03" in refused.stdout + refused.stderr
    finally:
        file.write_text(before, "utf-8")


@pytest.mark.exhaustive(
    reason=(
        "a step of the workflows in an own repository; tests/engine/test_pull_requests.py runs the steps in `make test`"
    )
)
def test_a_step_of_the_workflows_previews_a_stack(deployed: Repository) -> None:
    result = deployed.in_lab("ci/steps/connect dev && ci/steps/preview dev dev update out")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "dev: preview in" in (deployed.folder / "out" / "dev.txt").read_text("utf-8")
