"""`tenancy init`: what it writes passes our own checks, and it replaces nothing."""

from __future__ import annotations

import json
import os
import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from packaging.requirements import Requirement

from tenancy import __version__
from tenancy.cli import main
from tenancy.lab import recipes
from tenancy.planning.queueing.capacity import supply
from tenancy.repository import wheel_folder
from tenancy.spec.json_schema import MODELS, schema
from tenancy.spec.loader import load, spec_notes
from tests.conftest import every, nonempty

ROOT = Path(__file__).parents[3]
OPTIONS = {"organisation": "acme", "group": "gpu-platform", "region": "eu-central-1", "account": "111122223333"}


def init(folder: Path, *more: str, answers: str | None = None, **changed_options: str | None) -> Result:
    option_words = [
        word for key, value in {**OPTIONS, **changed_options}.items() if value for word in (f"--{key}", value)
    ]
    return CliRunner().invoke(main, ["init", str(folder), *option_words, *more], input=answers)


@pytest.fixture(scope="module", params=["github", "gitlab", "none"])
def new_repository(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("init") / "clusters"
    result = init(folder, "--ci", request.param)
    assert result.exit_code == 0, result.output
    return request.param, folder


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("environment", ["dev", "prod"])
def test_its_environments_are_valid_without_a_note(new_repository: tuple[str, Path], environment: str) -> None:
    loaded = load(new_repository[1] / "stacks" / environment)
    assert list(spec_notes(loaded)) == []
    assert loaded.environment.aws.enabled is (environment == "prod")
    assert len(loaded.tenants) == (2 if environment == "prod" else 1)


def test_its_tenants_lend_what_they_say(new_repository: tuple[str, Path]) -> None:
    loaded = load(new_repository[1] / "stacks" / "prod")
    lent = {
        share.tenant: share.lends for flavor in supply(loaded.environment, loaded.tenants) for share in flavor.tenants
    }
    assert lent == {tenant.tenant: tenant.gpus["l4"].guaranteed for tenant in loaded.tenants}
    assert every(tenant.gpus["l4"].sharing.lends for tenant in loaded.tenants)


def test_the_program_and_the_pack_are_a_few_lines_and_those_of_the_checkout(new_repository: tuple[str, Path]) -> None:
    for name in ("__main__.py", "policy/__main__.py", "policy/PulumiPolicy.yaml"):
        assert (new_repository[1] / name).read_text("utf-8") == (ROOT / name).read_text("utf-8")
        assert len((new_repository[1] / name).read_text("utf-8").splitlines()) < 8
    project = yaml.safe_load((new_repository[1] / "Pulumi.yaml").read_text("utf-8"))
    assert project == {
        **yaml.safe_load((ROOT / "Pulumi.yaml").read_text("utf-8")),
        "description": project["description"],
    }
    assert f"gpu-tenancy[lab]=={__version__}\n" in (new_repository[1] / "requirements.txt").read_text("utf-8")


def _pins(text: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE))


def test_its_constraints_are_the_versions_that_were_tested_of_every_package_that_it_needs(
    new_repository: tuple[str, Path],
) -> None:
    text = (new_repository[1] / "constraints.txt").read_text("utf-8")
    pins, locked = _pins(text), _pins((ROOT / "requirements" / "lock.txt").read_text("utf-8"))
    assert pins.items() <= locked.items()
    pin = r"[\w.-]+==[\w.]+( ; [^/]+)?"
    assert every(re.fullmatch(pin, line) for line in text.splitlines()[1:]), "pins alone, and no address of an index"
    needed, unvisited = set[str](), [("gpu-tenancy", ("lab", "cost", "evidence"))]
    while unvisited:
        name, extras = unvisited.pop()
        for text in distribution(name).requires or ():
            need = Requirement(text)
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                key = re.sub(r"[-_.]+", "-", need.name).lower()
                unvisited += [] if key in needed else [(need.name, tuple(need.extras))]
                needed.add(key)
    assert len(needed) > 50
    assert needed <= pins.keys()
    requirements = (new_repository[1] / "requirements.txt").read_text("utf-8").splitlines()
    assert "-c constraints.txt" in requirements


def test_the_extra_of_the_lab_takes_the_sdks_of_its_engine_and_its_provider() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]["lab"]
    tools = recipes.load()
    assert {need for need in extra if need.startswith("pulumi")} == {
        f"pulumi=={tools['pulumi'].version}",
        f"pulumi-kubernetes=={tools['pulumi-resource-kubernetes'].version}",
    }


def test_its_workflows_are_those_that_are_tested_here_and_so_is_each_step(new_repository: tuple[str, Path]) -> None:
    forge, folder = new_repository
    assert (folder / "ci").is_dir() is (forge != "none")
    workflows = [path for path in files(folder) if path.startswith((".github/", ".gitlab-ci", "ci/gitlab/"))]
    assert len(workflows) == {"github": 3, "gitlab": 2, "none": 0}[forge]
    for name in sorted(files(folder)):
        text = (folder / name).read_text("utf-8")
        own_path = name.replace(".github/workflows/", "ci/github/")
        if own_path.startswith("ci/") and name != "ci/Containerfile":
            assert text == (ROOT / own_path).read_text("utf-8"), name
        if own_path.startswith("ci/") or name == ".gitlab-ci.yml":
            for step in re.findall(r"ci/(?:steps|gitlab)/[\w.-]+", text):
                assert (folder / step).is_file(), f"{name} runs {step}"
        assert os.access(folder / name, os.X_OK) is (own_path.startswith("ci/steps/") and text.startswith("#!")), name


def test_the_image_installs_the_requirements_with_the_digests_of_our_own(new_repository: tuple[str, Path]) -> None:
    if new_repository[0] == "none":
        return
    lines = (new_repository[1] / "ci" / "Containerfile").read_text("utf-8").splitlines()
    own_lines = (ROOT / "ci" / "Containerfile").read_text("utf-8").splitlines()
    assert [line for line in lines if line.startswith("ARG ")] == [
        line for line in own_lines if line.startswith("ARG ")
    ]
    copied = [
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    ]
    assert {"requirements.txt", "constraints.txt", "wheels"} <= set(copied)
    assert every((new_repository[1] / name).exists() for name in copied)


def test_each_tenants_file_is_owned_by_its_owner_and_all_else_by_the_platform(new_repository: tuple[str, Path]) -> None:
    lines = (new_repository[1] / "CODEOWNERS").read_text("utf-8").splitlines()
    owned = {line.split()[0]: line.split()[1:] for line in lines if not line.startswith("#")}
    tenants = {f"/{name}" for name in files(new_repository[1]) if "/tenants/" in name}
    assert set(owned) == {"*", *tenants}
    assert owned["*"] == ["@acme/gpu-platform"]
    for path in tenants:
        owner = yaml.safe_load((new_repository[1] / path[1:]).read_text("utf-8"))["owner"]["name"]
        assert owned[path] == [f"@acme/{owner}", "@acme/gpu-platform"]


def test_editors_find_the_schema_of_each_file(new_repository: tuple[str, Path]) -> None:
    for kind in MODELS:
        assert json.loads((new_repository[1] / "schemas" / f"{kind}.json").read_text("utf-8")) == schema(kind)
    for name in nonempty(files(new_repository[1])):
        if name.startswith("stacks/"):
            schema_path = (new_repository[1] / name).read_text("utf-8").splitlines()[0].partition("$schema=")[2]
            assert ((new_repository[1] / name).parent / schema_path).is_file(), name


@pytest.mark.parametrize(("existing_names", "code"), [([".git", ".venv"], 0), ([".git", "README.md"], 2)])
def test_a_folder_with_files_is_refused(existing_names: list[str], code: int, tmp_path: Path) -> None:
    for name in existing_names:
        (tmp_path / name).mkdir()
    result = init(tmp_path)
    assert result.exit_code == code, result.output
    assert ("which contains README.md; rule: no file is replaced" in result.output) is (code == 2)
    assert (tmp_path / "Pulumi.yaml").exists() is (code == 0)


def test_a_missing_option_is_named_where_there_is_no_terminal(tmp_path: Path) -> None:
    result = init(tmp_path / "r", account=None, region=None)
    assert (result.exit_code, (tmp_path / "r").exists()) == (2, False)
    assert "given no --region --account; rule: required" in result.output


def test_a_terminal_is_asked_for_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenancy.cli.init._on_terminal", lambda: True)
    missing_options = dict.fromkeys(OPTIONS)
    result = init(tmp_path / "r", answers="Acme!\nacme\nteam\neu-west-1\n12\n111122223333\ngitlab\n", **missing_options)
    assert result.exit_code == 0, result.output
    assert "given 'Acme!'" in result.output
    assert "given '12'; rule: an account id of 12 digits" in result.output
    environment = load(tmp_path / "r" / "stacks" / "prod").environment
    assert (environment.aws.account, environment.aws.region) == ("111122223333", "eu-west-1")
    assert (tmp_path / "r" / ".gitlab-ci.yml").is_file()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("organisation", "Acme"),
        ("organisation", "a: {b"),
        ("group", "a\nb"),
        ("account", "1111"),
        ("region", "eu-nowhere-1"),
        ("registry", "no slash at its end"),
    ],
)
def test_a_wrong_option_ends_it_with_nothing_written(option: str, value: str, tmp_path: Path) -> None:
    result = init(tmp_path / "r", **{option: value})
    assert (result.exit_code, (tmp_path / "r").exists()) == (2, False)


def test_what_would_break_a_rule_is_not_written(tmp_path: Path) -> None:
    result = init(tmp_path / "r", group="vision-engineers")
    assert (result.exit_code, (tmp_path / "r").exists()) == (2, False)
    assert "stacks/dev/tenants/vision.yaml:" in result.output
    assert "nothing was written" in result.output


def test_a_group_that_yaml_would_read_as_a_number_stays_a_name(tmp_path: Path) -> None:
    assert init(tmp_path / "r", group="007").exit_code == 0
    assert load(tmp_path / "r" / "stacks" / "dev").environment.platform.group == "007"


def test_a_region_of_another_partition_has_its_own_arns_and_registry(tmp_path: Path) -> None:
    assert init(tmp_path / "r", region="cn-north-1").exit_code == 0
    environment = load(tmp_path / "r" / "stacks" / "prod").environment
    assert environment.aws.platform_role.startswith("arn:aws-cn:iam::")
    assert environment.images.registries[0] == "111122223333.dkr.ecr.cn-north-1.amazonaws.com.cn/shared/"


def test_what_the_wheel_carries_is_found_in_a_checkout() -> None:
    assert wheel_folder("ci") == ROOT / "ci"
