"""Plugins that a program needs on the lab: found, fetched or named before the engine starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tenancy.cli import main
from tenancy.lab import plugins
from tenancy.lab.layout import Lab
from tenancy.lab.plugins import MissingPluginError

PROJECT = "name: own\nruntime: {name: python, options: {virtualenv: .venv}}\n"
FETCHED = '#!/bin/sh\ncase "$5" in 4.34.2|4.16.0) ;; *) exit 9;; esac\nhome=$PULUMI_HOME/plugins/resource-$4-v$5\n'
FETCHED += 'mkdir -p "$home" && : > "$home/pulumi-resource-$4"\n'
REFUSED = "#!/bin/sh\necho 'Downloading' >&2\necho 'error: no route to host' >&2\nexit 1\n"


class Project:
    """A program in a folder with a virtual environment and a lab that has the provider 4.25.0."""

    def __init__(self, home: Path) -> None:
        self.root = home / "own"
        self.lab = Lab(self.root, self.root / ".lab")
        self.bin = home / "bin"
        self.bin.mkdir()
        (self.root / "policy").mkdir(parents=True)
        (self.root / "Pulumi.yaml").write_text(PROJECT)
        self.write("__main__.py", "from tenancy.program import run\n\nrun()\n")
        self.installed("kubernetes", "4.25.0")
        self.lab.remember(ports={})
        self.provider("kubernetes", "4.25.0", self.lab.folder / "pulumi")

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def installed(self, name: str, version: str, **more: str) -> None:
        plugin_json = {"resource": True, "name": name, "version": version, **more}
        self.write(f".venv/lib/python3.11/site-packages/pulumi_{name}/pulumi-plugin.json", json.dumps(plugin_json))

    def provider(self, name: str, version: str, home: Path) -> None:
        place = home / "plugins" / f"resource-{name}-v{version}"
        place.mkdir(parents=True)
        (place / f"pulumi-resource-{name}").touch()

    def engine(self, script: str) -> None:
        (self.bin / "pulumi").write_text(script)
        (self.bin / "pulumi").chmod(0o755)

    def expect(self) -> list[str]:
        messages: list[str] = []
        plugins.expect(self.root, messages.append)
        return messages


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = Project(tmp_path)
    monkeypatch.setattr(plugins.tools, "bin_dir", lambda: project.bin)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GPU_TENANCY_LAB", raising=False)
    project.engine(REFUSED)
    return project


def test_the_sdk_of_the_labs_own_version_needs_nothing(project: Project) -> None:
    project.installed("aws", "7.51.1")
    assert project.expect() == [], "a provider that the program does not import is not asked for"


def test_an_sdk_of_another_version_gets_its_plugin_where_it_can_be_downloaded(project: Project) -> None:
    project.installed("kubernetes", "4.34.2")
    project.engine(FETCHED)
    assert project.expect() == ["pulumi-resource-kubernetes v4.34.2: downloading, for the installed SDK"]
    project.engine(REFUSED)
    assert project.expect() == [], "it is kept"


@pytest.mark.parametrize(
    ("locked", "change"),
    [
        (False, "pip install pulumi-kubernetes==4.25.0"),
        (True, "pip install -r requirements.txt, whose versions were tested together"),
    ],
)
def test_without_a_download_the_message_names_the_plugin_and_the_version_to_install(
    locked: bool, change: str, project: Project
) -> None:
    project.installed("kubernetes", "4.34.2")
    if locked:
        project.write("constraints.txt", "pulumi-kubernetes==4.25.0\n")
    with pytest.raises(MissingPluginError) as refused:
        project.expect()
    rule = "the engine runs the plugin pulumi-resource-kubernetes of the SDK's own version, and the lab has v4.25.0"
    reason = "its download failed: error: no route to host"
    assert str(refused.value) == (
        f"given pulumi-kubernetes 4.34.2 without its plugin; rule: {rule}; {reason}; change: {change}"
    )


@pytest.mark.parametrize(
    ("files", "importer"),
    [
        ({"__main__.py": "import pulumi_random as random\n"}, "__main__.py"),
        ({"__main__.py": "from pulumi_random import RandomId\n"}, "__main__.py"),
        ({"__main__.py": "import names\n", "names.py": "import pulumi_random.random_id\n"}, "names.py"),
        ({"__main__.py": "from parts import names\n", "parts/names.py": "import pulumi_random\n"}, "parts/names.py"),
        (
            {"program/__main__.py": "import pulumi_random\n", "Pulumi.yaml": f"main: program\n{PROJECT}"},
            "program/__main__.py",
        ),
    ],
)
def test_a_further_provider_of_the_projects_own_program_is_named_with_the_file(
    files: dict[str, str], importer: str, project: Project
) -> None:
    project.installed("random", "4.16.0")
    assert project.expect() == [], "an SDK that is only installed"
    for name, text in files.items():
        project.write(name, text)
    with pytest.raises(MissingPluginError) as refused:
        project.expect()
    assert f"given pulumi-random 4.16.0, imported by {importer}, without its plugin" in str(refused.value)
    assert "the lab has none" in str(refused.value)
    assert "change: `pulumi plugin install resource random 4.16.0` where downloads are possible" in str(refused.value)
    project.engine(FETCHED)
    assert project.expect() == ["pulumi-resource-random v4.16.0: downloading, for the installed SDK"]


def test_a_plugin_of_the_users_own_pulumi_is_taken(project: Project, tmp_path: Path) -> None:
    project.installed("random", "4.16.0")
    project.write("__main__.py", "import pulumi_random\n")
    project.provider("random", "4.16.0", tmp_path / "home" / ".pulumi")
    assert project.expect() == []
    assert (project.lab.folder / "pulumi/plugins/resource-random-v4.16.0/pulumi-resource-random").exists()


def test_a_lab_starts_without_a_further_provider_and_says_so_and_not_without_that_of_kubernetes(
    project: Project,
) -> None:
    project.installed("random", "4.16.0")
    project.write("__main__.py", "import pulumi_random\n")
    messages: list[str] = []
    plugins.prepare(project.lab, messages.append)
    assert messages[-1].startswith("note: given pulumi-random 4.16.0, imported by __main__.py, without its plugin")
    project.installed("kubernetes", "4.34.2")
    with pytest.raises(MissingPluginError, match=r"pulumi-kubernetes 4\.34\.2 without its plugin"):
        plugins.prepare(project.lab, messages.append)


def test_the_command_ends_with_exit_code_2(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.installed("kubernetes", "4.34.2")
    monkeypatch.chdir(project.root)
    monkeypatch.setattr(plugins.tools, "ensure", lambda _: {})
    monkeypatch.setattr("tenancy.lab.control_plane._prepare", lambda *_: None)
    result = CliRunner().invoke(main, ["lab", "up"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "tenancy: given pulumi-kubernetes 4.34.2 without its plugin" in result.stderr


@pytest.mark.parametrize("broken", ["", "[", "- a\n", "runtime: python\n", "main: 7\n"])
def test_a_project_that_cannot_be_read_is_left_to_the_engine(broken: str, project: Project) -> None:
    project.write("Pulumi.yaml", broken)
    project.write("__main__.py", "this is not python")
    assert project.expect() == []
