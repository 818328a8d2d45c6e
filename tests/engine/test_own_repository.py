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
        """Of a shell that never saw the checkout."""
        ours = ("PULUMI_", "GPU_TENANCY_", "PYTHON", "VIRTUAL_ENV", "KUBECONFIG")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        path = [part for part in kept["PATH"].split(os.pathsep) if not Path(part).is_relative_to(sys.prefix)]
        # A step of the workflows writes into git's global configuration.
        git = {"GIT_CONFIG_GLOBAL": str(self.folder.parent / "gitconfig")}
        return {**kept, **git, "PATH": os.pathsep.join([str(self.folder / ".venv" / "bin"), *path])}

    def run(self, *command: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=folder or self.folder,
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
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
    subprocess.run([*PIP, *build], check=True, timeout=300)
    (made,) = home.glob("gpu_tenancy-*.whl")
    return made


@pytest.fixture(scope="module")
def repository(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    """The wheel in a fresh virtual environment, whose other packages are those of the tests."""
    home = tmp_path_factory.mktemp("own")
    folder = home / "clusters"
    venv.create(folder / ".venv", with_pip=False, symlinks=True)
    python = folder / ".venv" / "bin" / "python"
    install = ["--python", str(python), "install", "--no-deps", "--no-index", "--no-compile", str(wheel)]
    subprocess.run([*PIP, *install], check=True, timeout=300)
    # A path file adds the packages there, and not the path files there: the checkout's editable install is one.
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]
    own = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    Path(own, "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", "utf-8")
    made = Repository(folder)
    done = made.run(*INIT, folder=home)
    assert done.returncode == 0, done.stderr
    try:
        yield made
    finally:
        made.run("tenancy", "lab", "down")


@pytest.fixture(scope="module")
def deployed(repository: Repository) -> Repository:
    for command in (("tenancy", "lab", "up", "dev"), ("tenancy", "up", "dev")):
        done = repository.run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
    return repository


def resolved(*asked: str, folder: Path) -> dict[str, str]:
    """The versions that pip would install into an empty environment, from the package index of this machine."""
    dry = ("install", "--dry-run", "--ignore-installed", "--report", "-")
    done = subprocess.run(
        [*PIP, *dry, *asked], cwd=folder, capture_output=True, text=True, timeout=600, check=False, env=PLAIN
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["install"]
    return {each["metadata"]["name"].replace("_", "-").lower(): each["metadata"]["version"] for each in found}


def test_a_users_pip_takes_the_sdks_whose_plugins_the_lab_has(wheel: Path, tmp_path: Path) -> None:
    tools = recipes.load()
    found = resolved(f"{wheel}[lab]", folder=tmp_path)
    assert found["pulumi-kubernetes"] == tools["pulumi-resource-kubernetes"].version
    assert found["pulumi"] == tools["pulumi"].version


@pytest.mark.exhaustive
def test_an_empty_environment_with_the_wheel_alone_comes_up_on_the_lab_and_then_with_the_tested_versions(
    wheel: Path, tmp_path: Path
) -> None:
    """As docs/own-repository.md says, with what pip chooses by itself."""
    made = Repository(tmp_path / "clusters")
    venv.create(made.folder / ".venv", with_pip=True, symlinks=True)
    steps = [
        ("pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[lab]"),
        INIT,
        ("tenancy", "validate", "dev"),
        ("tenancy", "lab", "up", "dev"),
        ("tenancy", "up", "dev"),
    ]
    try:
        for command in steps:
            done = made.run(*command, folder=tmp_path if command is INIT else None)
            assert done.returncode == 0, done.stdout + done.stderr
        shutil.copy(wheel, made.folder / "wheels")
        done = made.run("pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt")
        assert done.returncode == 0, done.stderr
        frozen = dict(line.split("==") for line in made.run("pip", "freeze").stdout.splitlines() if "==" in line)
        pins = dict(re.findall(r"^([\w-]+)==(\S+)", (made.folder / "constraints.txt").read_text("utf-8"), re.MULTILINE))
        names = {name: name.replace("_", "-").lower() for name in frozen}
        assert {names[name]: version for name, version in frozen.items() if names[name] in pins}.items() <= pins.items()
        done = made.run("tenancy", "up", "dev", "--preview")
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        made.run("tenancy", "lab", "down")


def test_nothing_of_the_checkout_is_imported(repository: Repository) -> None:
    done = repository.run("python", "-c", LOADED)
    assert done.returncode == 0, done.stderr
    found = done.stdout.splitlines()
    assert len(found) > 100
    assert [path for path in found if not Path(path).is_relative_to(repository.folder)] == []
    assert not (repository.folder / "tenancy").exists()


@pytest.mark.parametrize("environment", ["dev", "prod"])
def test_what_init_writes_is_valid(repository: Repository, environment: str) -> None:
    done = repository.run("tenancy", "validate", environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_the_example_comes_up_on_the_lab(deployed: Repository) -> None:
    done = deployed.in_lab("kubectl get resourcequota tenant -n vision--main -o jsonpath='{.spec.hard}'")
    assert '"requests.nvidia.com/gpu"' in done.stdout, done.stderr


def test_a_preview_by_pulumi_alone_runs_the_pack_and_shows_no_change(deployed: Repository) -> None:
    done = deployed.in_lab("pulumi preview --stack dev --policy-pack policy --expect-no-changes --non-interactive")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gpu-tenancy@v0.1.0 (local: policy)" in done.stdout
    assert "error" not in done.stdout.lower()


@pytest.mark.exhaustive
def test_a_change_is_made_by_pulumi_alone_and_one_that_breaks_a_rule_is_refused(deployed: Repository) -> None:
    file = deployed.folder / "stacks" / "dev" / "tenants" / "vision.yaml"
    before = file.read_text("utf-8")
    file.write_text(before.replace("guaranteed: 4", "guaranteed: 5"), "utf-8")
    up = "pulumi up --stack dev --policy-pack policy --yes --skip-preview --non-interactive"
    try:
        done = deployed.in_lab(up)
        assert done.returncode == 0, done.stdout + done.stderr
        quota = "kubectl get clusterqueue vision--batch -o jsonpath='{.spec.resourceGroups[*].flavors[*].resources}'"
        assert '"nominalQuota":"5"' in deployed.in_lab(quota).stdout
        file.write_text(before.replace("guaranteed: 4", "guaranteed: 500"), "utf-8")
        refused = deployed.in_lab(up)
        assert refused.returncode != 0
        assert "pool-03" in refused.stdout + refused.stderr
    finally:
        file.write_text(before, "utf-8")


@pytest.mark.exhaustive
def test_a_step_of_the_workflows_previews_a_stack(deployed: Repository) -> None:
    done = deployed.in_lab("ci/steps/connect dev && ci/steps/preview dev dev update out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "dev: preview in" in (deployed.folder / "out" / "dev.txt").read_text("utf-8")
