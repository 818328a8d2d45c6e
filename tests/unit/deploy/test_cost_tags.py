"""Cost-allocation tags: activated once AWS knows them, never deactivated, and no run fails for them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenancy import planning, program
from tenancy.deploy import cost_tags
from tenancy.deploy.cost_tags import TOKEN, CostTagsUnavailable, known_keys
from tenancy.deploy.driver import Driver
from tenancy.planning import Plan
from tenancy.planning.aws.platform_models import KNOWN_COST_TAGS
from tenancy.planning.aws.platform_plan import COST_TAGS
from tenancy.planning.scope import StackScope
from tenancy.spec.loader import load
from tests.conftest import every
from tests.registered import register
from tests.registered_aws import inputs, inputs_of_kinds

ROOT = Path(__file__).parents[3]
DAY_TWO = [key for key in COST_TAGS if key != "team"]


def aws(folder: Path, code: str) -> None:
    """An `aws` command that runs this, alone on the PATH."""
    script = folder / "aws"
    script.write_text(f"#!{sys.executable}\nimport json, sys\n{code}\n", "utf-8")
    script.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def answering(folder: Path, keys: list[str]) -> None:
    tags = [{"TagKey": key, "Type": "UserDefined", "Status": "Inactive"} for key in [*keys, "aws:createdBy"]]
    aws(folder, f"print(json.dumps({{'CostAllocationTags': {tags!r}}}))")


def test_what_is_asked_is_what_aws_own_model_has(path: Path) -> None:
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    aws(
        path, "open(sys.argv[0] + '.asked', 'w').write(json.dumps(sys.argv[1:])); print('{\"CostAllocationTags\": []}')"
    )
    assert known_keys(COST_TAGS, "eu-central-1") == frozenset()
    service, operation, *options = json.loads((path / "aws.asked").read_text("utf-8"))
    assert options[:4] == ["--region", "eu-central-1", "--output", "json"]
    model = ServiceModel(Loader().load_service_model(service, "service-2"))
    operation_model = model.operation_model("".join(word.capitalize() for word in operation.split("-")))
    assert options[4:] == ["--tag-keys", *COST_TAGS]
    assert operation_model.input_shape.members["TagKeys"].metadata["max"] >= len(COST_TAGS)
    answer = operation_model.output_shape.members["CostAllocationTags"].member
    assert "TagKey" in answer.required_members


def test_the_keys_that_aws_knows_are_those_of_its_list(path: Path) -> None:
    answering(path, DAY_TWO)
    assert known_keys(COST_TAGS, "eu-central-1") == set(DAY_TWO)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("sys.exit('An error occurred (AccessDeniedException): no right')", "AccessDeniedException"),
        ("print('no JSON')", "answered no list of tags"),
        ("print('[]')", "answered no list of tags"),
        ("print('{}')", "answered no list of tags"),
        ("import time; time.sleep(30)", "took more than"),
        ("", "answered no list of tags"),
    ],
)
def test_an_answer_that_says_nothing_is_told_as_one(
    path: Path, code: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sleep" in code:
        monkeypatch.setattr(cost_tags, "TIMEOUT", 0.2)
    aws(path, code)
    with pytest.raises(CostTagsUnavailable, match=why):
        known_keys(COST_TAGS, "eu-central-1")


def test_without_the_command_nothing_is_known(path: Path) -> None:
    assert list(path.iterdir()) == []
    with pytest.raises(CostTagsUnavailable, match="no `aws` command"):
        known_keys(COST_TAGS, "eu-central-1")


class TaggedStack:
    """A stack whose state has activated these keys, and what its program is told."""

    def __init__(self, *activated_keys: str) -> None:
        self.name = "bank"
        self.workspace = SimpleNamespace(env_vars={"A": "b"})
        resources = [{"type": TOKEN, "urn": f"x::{key}", "inputs": {"tagKey": key}} for key in activated_keys]
        deployment = {"resources": resources}
        self.export_stack = lambda: SimpleNamespace(deployment=deployment)

    @property
    def keys(self) -> set[str]:
        assert self.workspace.env_vars["A"] == "b"
        return {key for key in self.workspace.env_vars[KNOWN_COST_TAGS].split(",") if key}


def known_tags_run(*activated_keys: str) -> tuple[TaggedStack, str]:
    messages: list[str] = []
    stack = TaggedStack(*activated_keys)
    Driver(ROOT, "bank", messages.append, None).set_known_cost_tags(stack, COST_TAGS, "eu-central-1")
    return stack, " ".join(messages)


def test_on_the_first_day_nothing_is_activated_and_the_run_says_when_it_will_be(path: Path) -> None:
    answering(path, [])
    stack, output = known_tags_run()
    assert stack.keys == set()
    assert "does not know the tag keys tenancy:tenant," in output
    assert "a later run activates them" in output


def test_a_later_run_activates_what_aws_knows_by_then_and_names_the_rest(path: Path) -> None:
    answering(path, DAY_TWO)
    stack, output = known_tags_run()
    assert stack.keys == set(DAY_TWO)
    assert "the tag keys team yet" in output


def test_when_all_are_known_nothing_is_said(path: Path) -> None:
    answering(path, list(COST_TAGS))
    stack, output = known_tags_run()
    assert (stack.keys, output) == (set(COST_TAGS), "")


def test_a_look_up_that_fails_leaves_what_is_activated(path: Path) -> None:
    aws(path, "sys.exit('AccessDenied')")
    stack, output = known_tags_run("team", "owner")
    assert stack.keys == {"team", "owner"}, "what is in the state stays there"
    assert "cost-allocation tags stay as they are: `aws ce list-cost-allocation-tags` failed: AccessDenied" in output


@pytest.fixture(scope="module")
def payer() -> Plan:
    loaded = load(ROOT / "stacks" / "bank")
    aws = loaded.environment.aws.model_copy(update={"management_account": True})
    return planning.plan(loaded.environment.model_copy(update={"aws": aws}), loaded.tenants)


class AwsAsked(Exception):
    """The driver was asked which keys AWS knows."""


class NotAsked(Exception):
    """The run went on without."""


@pytest.mark.parametrize(
    ("stack", "pays"), [("bank", True), ("bank", False), ("bank--fraud", True), ("bank.cluster", True)]
)
def test_aws_is_asked_before_the_platforms_stack_of_who_pays(payer: Plan, stack: str, pays: bool) -> None:
    from tenancy.cli.up_report import Report
    from tenancy.cli.up_settings import EnvironmentRun, RemovableTenants, StackSelection
    from tenancy.cli.up_stack import preview_and_update

    def ask(_: object, keys: Any, region: str) -> None:
        assert (keys, region) == (COST_TAGS, "eu-central-1")
        raise AwsAsked

    def go_on(*_: object, **__: object) -> None:
        raise NotAsked

    def nothing(*_: object) -> list[Any]:
        return []

    driver: Any = SimpleNamespace(
        set_known_cost_tags=ask, unprotected=go_on, tenant_resources=nothing, resources=nothing
    )
    plan = (
        payer
        if pays
        else replace(payer, platform=replace(payer.platform, data=replace(payer.platform.data, cost_tags=())))
    )
    leavers, loaded = RemovableTenants(frozenset(), frozenset(), 1), cast("Any", None)
    run = EnvironmentRun(
        loaded, plan, leavers, driver, Report("table"), StackSelection((), None), only_preview=True, refresh=False
    )
    opened = TaggedStack()
    opened.name = stack
    with pytest.raises(AwsAsked if pays and stack == "bank" else NotAsked):
        preview_and_update(run, opened)


def test_a_key_that_is_activated_stays_so_when_the_stack_goes(payer: Plan) -> None:
    tags = inputs_of_kinds(register(payer, StackScope.PLATFORM), "CostAllocationTag").values()
    assert {inputs(request)["tagKey"] for request in tags} == set(COST_TAGS)
    assert {inputs(request)["status"] for request in tags} == {"Active"}
    assert every(request.retainOnDelete for request in tags), "deleted, it is deactivated for the whole organisation"


@pytest.mark.parametrize(
    ("variable", "known_keys", "keys"),
    [
        (None, None, set(COST_TAGS)),
        (None, {"team"}, {"team"}),
        ("", None, set()),
        ("team,env,else", {"product"}, {"team", "env"}),
    ],
)
def test_the_program_activates_the_keys_that_it_is_told(
    payer: Plan, variable: str | None, known_keys: set[str] | None, keys: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told of none in particular, as by the engine alone, it asks AWS; without an answer it takes all for known."""
    built: list[Any] = []

    def answer(*_: object) -> frozenset[str]:
        if known_keys is None:
            raise CostTagsUnavailable("there is no `aws` command on the PATH")
        return frozenset(known_keys)

    monkeypatch.delenv(KNOWN_COST_TAGS, raising=False)
    if variable is not None:
        monkeypatch.setenv(KNOWN_COST_TAGS, variable)
    monkeypatch.setattr("pulumi.get_stack", lambda: "bank")
    monkeypatch.setattr("pulumi.Config", lambda _: SimpleNamespace(get=lambda _: None))
    monkeypatch.setattr("tenancy.program.load", lambda _: load(ROOT / "stacks" / "bank"))
    monkeypatch.setattr("tenancy.program.make_plan", lambda *_: payer)
    monkeypatch.setattr("tenancy.program.Api", lambda _: None)
    monkeypatch.setattr("tenancy.program.check", lambda *_: [])
    monkeypatch.setattr("tenancy.program.is_plain", lambda: False)
    monkeypatch.setattr("tenancy.program.known_keys", answer)
    monkeypatch.setattr("tenancy.program.build", lambda *arguments, **_: built.append(arguments))
    program.run()
    ((_, _, platform, *_),) = built
    assert set(platform.data.cost_tags) == keys
    assert replace(platform.data, cost_tags=COST_TAGS) == payer.platform.data, "nothing else changes"
