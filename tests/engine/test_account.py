"""Changes of an environment in its AWS account and in its cluster for more than its tenants: the activation of
cost-allocation tags, the provider of a forge's pipelines, and the class of volumes. In the real engine, against a
double of AWS; `aws` is a stand-in that answers the one command that `tenancy` runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from engine_aws import OnAws, on_aws
from engine_project import CommandResult, Project

from tenancy.catalog import vocabulary
from tenancy.planning.aws.platform_plan import COST_TAGS
from tests.tenant_aws_files import ENVIRONMENT, TENANT

pytestmark = [
    pytest.mark.chapters,
    pytest.mark.exhaustive(
        reason=(
            "changes of an account in the real engine; the plan of each and "
            "what it names are in tests/unit/planning/aws and tests/unit/deploy"
        )
    ),
]

STACK = "two"
DAY_TWO = [key for key in COST_TAGS if key != "team"]
TAG, PROVIDER = "CostAllocationTag", "OpenIdConnectProvider"
FORMER = '"encrypted": "true", **key, **_WHOSE}', '"encrypted": "true", **key}'
"""The parameters of the class, as they are and as they were before volumes had tags."""
CLASS = f"/apis/storage.k8s.io/v1/storageclasses/{vocabulary.STORAGE_CLASS}"
VOLUME, CLAIM = "/api/v1/persistentvolumes/kept", "/api/v1/namespaces/kube-system/persistentvolumeclaims/kept"
COMMAND = """\
#!{python}
import json, pathlib, sys

here = pathlib.Path(sys.argv[0]).parent
asked = "ce list-cost-allocation-tags --region eu-central-1 --output json --tag-keys".split()
assert sys.argv[1:8] == asked, sys.argv
known = json.loads((here / "known.json").read_text("utf-8"))
if known is None:
    sys.exit("An error occurred (AccessDeniedException) when calling the ListCostAllocationTags operation")
tags = [{{"TagKey": key, "Type": "UserDefined", "Status": "Inactive"}} for key in sys.argv[8:] if key in known]
print(json.dumps({{"CostAllocationTags": tags}}))
"""


class Account:
    """An environment whose account pays, with a tenant whose pipeline comes in by a forge."""

    def __init__(self, on: OnAws, commands: Path) -> None:
        self.on, self.aws, self.commands = on, on.aws, commands
        tenants = on.folder / "tenants"
        tenants.mkdir(parents=True)
        text = ENVIRONMENT.format(charts=on.charts).replace("stacks: per-tenant\n", "") + "  management-account: true\n"
        (on.folder / "environment.yaml").write_text(text, "utf-8")
        fraud = TENANT.format(name="fraud") + "ci: {github: bank/fraud, branch: main}\n"
        (tenants / "fraud.yaml").write_text(fraud, "utf-8")
        command = commands / "aws"
        command.write_text(COMMAND.format(python=sys.executable), "utf-8")
        command.chmod(0o755)

    def knows(self, keys: Sequence[str] | None) -> None:
        """Let AWS know these keys from now on and refuse the others as it does; None: the list is not to be had."""
        (self.commands / "known.json").write_text(json.dumps(keys), "utf-8")
        self.aws.mend()
        for key in COST_TAGS:
            if key not in (keys or ()):
                self.aws.fail_on(f"::data-tag-{key}", "create", "empty result", times=None)

    def tenancy(self, *arguments: str) -> CommandResult:
        self.aws.calls.clear()
        path = f"{self.commands}:{self.on.project.environ()['PATH']}"
        command = (sys.executable, "-m", "tenancy", *arguments)
        return self.on.project.run(*command, env={**self.on.environ(), "PATH": path})

    def up(self) -> CommandResult:
        result = self.tenancy("up", STACK, "--stack", STACK)
        assert result.code == 0, result.text
        return result

    def live(self, kind: str) -> list[dict[str, Any]]:
        return [entry.inputs for entry in self.aws.live.values() if entry.type.endswith(f":{kind}")]

    @property
    def active(self) -> set[str]:
        return {tag["tagKey"] for tag in self.live(TAG) if tag["status"] == "Active"}

    def get(self, path: str) -> dict[str, Any]:
        with self.on.project.api() as api:
            return api.get(path)


@pytest.fixture(scope="module")
def account(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """The tests build on one another, in their order: AWS knows no key, some, all; the class changes; all goes."""
    commands = tmp_path_factory.mktemp("commands")
    with on_aws("two", project, tmp_path_factory.mktemp("two")) as on:
        yield Account(on, commands)


# ── cost-allocation tags ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def first_run(account: Account) -> CommandResult:
    """The first run, before AWS has seen any of the keys on a resource."""
    account.knows([])
    return account.up()


def test_a_first_run_succeeds_where_aws_knows_no_key_yet_and_says_when_it_will(
    account: Account, first_run: CommandResult
) -> None:
    sentence = (
        f"{STACK}: AWS does not know the tag keys {', '.join(COST_TAGS)} yet; it does about a day after their first "
        "use, and a later run activates them"
    )
    assert sentence in first_run.out
    assert not [call for call in account.aws.calls if call.type.endswith(f":{TAG}")], (
        "AWS refuses a key it does not know"
    )
    assert account.live(PROVIDER), "the rest is made"
    assert account.on.project.exists("/api/v1/namespaces/fraud--main")


@pytest.mark.usefixtures("first_run")
def test_a_later_run_activates_the_keys_that_aws_knows_by_then_and_names_the_rest(account: Account) -> None:
    account.knows(DAY_TWO)
    result = account.up()
    assert account.active == set(DAY_TWO)
    assert "AWS does not know the tag keys team yet" in result.out
    assert sorted(account.aws.order("create", "update", "delete")) == sorted(
        f"create data-tag-{key}" for key in DAY_TWO
    )


@pytest.mark.usefixtures("first_run")
def test_the_last_key_is_activated_once_aws_knows_it_and_a_further_run_changes_nothing(account: Account) -> None:
    account.knows(COST_TAGS)
    result = account.up()
    assert account.active == set(COST_TAGS)
    assert account.aws.order("create", "update", "delete") == ["create data-tag-team"]
    assert "AWS does not know" not in result.out
    account.up()
    assert account.aws.order("create", "update", "delete") == []


@pytest.mark.usefixtures("first_run")
def test_without_the_list_of_keys_those_that_are_active_stay_so(account: Account) -> None:
    account.knows(None)
    result = account.up()
    assert "cost-allocation tags stay as they are: `aws ce list-cost-allocation-tags` failed:" in result.out
    assert "AccessDeniedException" in result.out
    assert account.active == set(COST_TAGS)
    assert account.aws.order("create", "update", "delete") == []
    account.knows(COST_TAGS)


# ── the class of volumes ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def former(account: Account, first_run: CommandResult) -> dict[str, Any]:
    """The class as a former version made it, with a volume and its claim."""
    assert first_run.code == 0
    account.knows(COST_TAGS)
    source = account.on.project.folder / "tenancy" / "planning" / "kubernetes" / "storage.py"
    now = source.read_text("utf-8")
    assert now.count(FORMER[0]) == 1
    source.write_text(now.replace(*FORMER), "utf-8")
    try:
        account.up()
    finally:
        source.write_text(now, "utf-8")
    claim = {
        "metadata": {"name": "kept"},
        "spec": {
            "storageClassName": vocabulary.STORAGE_CLASS,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": "kept",
        },
    }
    with account.on.project.api("admin") as api:
        made_claim = api.request("POST", CLAIM.rpartition("/")[0], claim, "application/json")
        volume = {
            "metadata": {"name": "kept"},
            "spec": {
                "storageClassName": vocabulary.STORAGE_CLASS,
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "persistentVolumeReclaimPolicy": "Delete",
                "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-0123456789abcdef0"},
                "claimRef": {"namespace": "kube-system", "name": "kept", "uid": made_claim["metadata"]["uid"]},
            },
        }
        api.request("POST", VOLUME.rpartition("/")[0], volume, "application/json")
    return account.get(CLASS)


def identity(item: dict[str, Any]) -> tuple[str, Any, Any]:
    """Identity of an object, the same as long as it is neither replaced nor being deleted nor changed."""
    return item["metadata"]["uid"], item["metadata"].get("deletionTimestamp"), item["spec"]


def storage_writes(project: Project, since: int) -> list[tuple[str, str]]:
    """Writes of the platform's identity to the class, its volume and its claim."""
    kinds = {"storageclasses", "persistentvolumes", "persistentvolumeclaims"}
    writes = [a for a in project.audit(since) if a.resource in kinds and not a.dry_run and a.code < 300]
    return [(write.verb, write.resource) for write in writes]


def test_an_update_from_the_former_class_replaces_it_once_and_keeps_volumes_and_claims(
    account: Account, former: dict[str, Any]
) -> None:
    assert not [key for key in former["parameters"] if key.startswith("tagSpecification")]
    identities, since = [identity(account.get(path)) for path in (VOLUME, CLAIM)], account.on.project.audit_size()
    account.up()
    after = account.get(CLASS)
    assert [key for key in after["parameters"] if key.startswith("tagSpecification")]
    assert after["metadata"]["uid"] != former["metadata"]["uid"], "its parameters cannot be changed"
    assert [identity(account.get(path)) for path in (VOLUME, CLAIM)] == identities
    writes = storage_writes(account.on.project, since)
    assert writes.count(("delete", "storageclasses")) == 1
    assert {resource for _, resource in writes} == {"storageclasses"}
    assert account.aws.order("create", "update", "delete") == []


@pytest.mark.usefixtures("former")
def test_a_second_run_leaves_the_new_class_alone(account: Account) -> None:
    before, since = account.get(CLASS)["metadata"], account.on.project.audit_size()
    account.up()
    after = account.get(CLASS)["metadata"]
    assert (after["uid"], after["resourceVersion"]) == (before["uid"], before["resourceVersion"])
    assert storage_writes(account.on.project, since) == []


# ── all goes ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("former")
def test_down_leaves_the_tags_active_and_the_forges_provider_in_place(account: Account) -> None:
    """Both are shared: a deleted tag is deactivated for the organisation, and pipelines of other environments come in
    by the provider."""
    before = account.live(PROVIDER)
    result = account.tenancy("down", STACK, "--yes")
    assert result.code == 0, result.text
    assert account.active == set(COST_TAGS)
    assert account.live(PROVIDER) == before
    assert before
    deleted = {call.type.rpartition(":")[2] for call in account.aws.calls if call.kind == "delete"}
    assert "Role" in deleted, "the rest is removed"
    assert deleted.isdisjoint({TAG, PROVIDER})
    assert not account.on.project.exists(CLASS)
    with account.on.project.api("admin") as api:
        assert api.get(VOLUME)["metadata"].get("deletionTimestamp") is None
