"""A repository of one's own: the wheel in an empty folder, without the checkout, by commands alone."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.chapters

ROOT = Path(__file__).parents[2]
LOADED = """
import sys
import tenancy.cli.up, tenancy.cli.verify, tenancy.program, tenancy.policy_pack.policies, tenancy.repository

print("\\n".join(sorted({module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "tenancy"})))
"""


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


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    """The wheel in a fresh virtual environment, whose other packages are those of the tests."""
    home = tmp_path_factory.mktemp("own")
    folder = home / "clusters"
    venv.create(folder / ".venv", with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(home), str(ROOT)]
    subprocess.run([*pip, *build], check=True, timeout=300)
    (wheel,) = home.glob("gpu_tenancy-*.whl")
    python = folder / ".venv" / "bin" / "python"
    install = ["--python", str(python), "install", "--no-deps", "--no-index", "--no-compile", str(wheel)]
    subprocess.run([*pip, *install], check=True, timeout=300)
    # A path file adds the packages there, and not the path files there: the checkout's editable install is one.
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]
    own = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    Path(own, "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", "utf-8")
    made = Repository(folder)
    options = ("--organisation", "acme", "--group", "gpu-platform", "--region", "eu-central-1")
    done = made.run("tenancy", "init", "clusters", *options, "--account", "111122223333", "--ci", "github", folder=home)
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
