"""`tenancy can` and `tenancy who-can`: what is printed, and how they end."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tenancy.cli import main
from tests.conftest import SpecFolder, every

ROOT = Path(__file__).parents[3]
BANK = str(ROOT / "stacks" / "bank")
DATASETS = "s3://bank-datasets"
ECR = "arn:aws:ecr:eu-central-1:111122223333:repository/bank/fraud"
CARD = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:tenancy/bank/fraud/card-network"


def run(*words: object) -> Result:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), "no traceback, whatever is typed"
    return result


def json_answer(*words: object) -> Any:
    return json.loads(run(*words, "--format", "json").stdout)


# can


def test_what_a_tenant_may_is_said_with_the_statements_that_allow_it() -> None:
    result = run("can", "fraud/train", "s3:GetObject", f"{DATASETS}/teams/fraud/x", BANK)
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "fraud/train: yes",
            "  s3:GetObject on bucket bank-datasets allowed by role bank--fraud--train, policy storage, Read0",
            "  kms:Decrypt on key alias/tenancy/bank/bucket/bank-datasets allowed by role bank--fraud--train, "
            "policy storage, UseKeys",
        ],
    )


def test_what_it_may_not_ends_with_1_and_names_the_lock() -> None:
    result = run("can", "fraud", "s3:GetObject", f"{DATASETS}/teams/nlp/x", BANK)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        *("fraud/train: no", "fraud/serve: no", "fraud/its pipeline: no")
    ]
    assert every("denied by the policy of bucket bank-datasets, Only" in line for line in lines if line.startswith(" "))


def test_one_namespace_that_may_is_enough_for_0() -> None:
    answers = {
        permission["namespace"]: permission["allowed"]
        for permission in json_answer("can", "fraud", "s3:PutObject", f"{DATASETS}/teams/fraud/x", BANK)
    }
    assert answers == {"train": True, "serve": False, "its pipeline": False}
    assert run("can", "fraud", "s3:PutObject", f"{DATASETS}/teams/fraud/x", BANK).exit_code == 0
    assert run("can", "fraud/serve", "s3:PutObject", f"{DATASETS}/teams/fraud/x", BANK).exit_code == 1


def test_a_grant_of_new_objects_alone_says_so() -> None:
    result = run("can", "fraud/train", "s3:PutObject", "s3://bank-models/fraud/x", BANK)
    assert result.stdout.startswith("fraud/train: yes, if nothing is there yet\n")
    (answer,) = json_answer("can", "fraud/train", "s3:PutObject", "s3://bank-models/fraud/x", BANK)
    assert answer["condition"] == "if nothing is there yet"


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (f"{DATASETS}/teams/fraud/", 0),
        (f"{DATASETS}/teams/fraud/2026/", 0),
        (f"{DATASETS}/teams/fraud", 1),
        (f"{DATASETS}/teams/fraud-2/", 1),
        (f"{DATASETS}/teams/", 1),
        (DATASETS, 1),
    ],
)
def test_a_list_is_asked_for_with_its_prefix(resource: str, code: int) -> None:
    assert run("can", "fraud/train", "s3:ListBucket", resource, BANK).exit_code == code


@pytest.mark.parametrize(
    ("who", "action", "resource", "code"),
    [
        ("fraud", "ecr:PutImage", f"{ECR}/scoring", 0),
        ("pricing", "ecr:PutImage", f"{ECR}/scoring", 1),
        ("fraud", "secretsmanager:GetSecretValue", CARD, 0),
        ("pricing", "secretsmanager:GetSecretValue", CARD, 1),
        ("fraud", "iam:PassRole", "arn:aws:iam::111122223333:role/gpu-platform", 1),
        ("fraud/train", "s3:GetObject", "arn:aws:s3:::bank-datasets/teams/fraud/x", 0),
    ],
)
def test_other_services_are_asked_by_arn(who: str, action: str, resource: str, code: int) -> None:
    assert run("can", who, action, resource, BANK).exit_code == code


NAME_IN_FILES, PLACE = "a name that the spec files have", "an S3 URL or an ARN"
ACTION, S3_OR_ARN = "one action of IAM, without a wildcard", "write s3://bank-models/fraud/x, or an ARN"


@pytest.mark.parametrize(
    ("who", "action", "resource", "typed_name", "rule", "change"),
    [
        ("frad", "s3:GetObject", f"{DATASETS}/x", "tenant 'frad'", NAME_IN_FILES, "did you mean 'fraud'?"),
        (
            "fraud/tran",
            "s3:GetObject",
            f"{DATASETS}/x",
            "identity of fraud 'tran'",
            NAME_IN_FILES,
            "did you mean 'train'?",
        ),
        (
            "fraud",
            "s3:GetObject",
            "s3://bank-model/x",
            "bucket 'bank-model'",
            NAME_IN_FILES,
            "did you mean 'bank-models'?",
        ),
        ("fraud", "s3:GetObject", "bank-datasets/x", "'bank-datasets/x'", PLACE, S3_OR_ARN),
        ("fraud", "s3:GetObject", "s3://", "'s3://'", PLACE, S3_OR_ARN),
        ("fraud", "s3:*", f"{DATASETS}/x", "action 's3:*'", ACTION, "write it like s3:GetObject"),
        ("fraud", "GetObject", f"{DATASETS}/x", "action 'GetObject'", ACTION, "write it like s3:GetObject"),
    ],
)
def test_what_is_typed_wrong_ends_with_2_and_the_nearest(
    who: str, action: str, resource: str, typed_name: str, rule: str, change: str
) -> None:
    result = run("can", who, action, resource, BANK)
    assert (result.exit_code, result.stderr) == (2, f"tenancy: given {typed_name}; rule: {rule}; change: {change}\n")


def test_an_environment_without_aws_ends_with_2(spec: SpecFolder) -> None:
    result = run("can", "fraud", "s3:GetObject", "s3://datasets/x", spec.path)
    assert result.exit_code == 2
    assert "aws.enabled: false" in result.stderr


def test_a_wrong_environment_ends_with_2(spec: SpecFolder) -> None:
    spec.edit("tenants/fraud.yaml", "tier: batch", "tier: bath")
    assert run("can", "fraud", "s3:GetObject", "s3://datasets/x", spec.path).exit_code == 2
    assert run("who-can", "s3://datasets/", spec.path).exit_code == 2


def test_without_an_environment_it_is_the_one_with_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copied_root = tmp_path / "one"
    shutil.copytree(ROOT / "stacks" / "bank", copied_root / "stacks" / "bank")
    monkeypatch.chdir(copied_root)
    assert run("can", "fraud/train", "s3:GetObject", f"{DATASETS}/teams/fraud/x").exit_code == 0
    monkeypatch.chdir(tmp_path)
    result = run("can", "fraud", "s3:GetObject", f"{DATASETS}/teams/fraud/x")
    assert (result.exit_code, result.stderr) == (
        2,
        "tenancy: given no ENV; rule: an environment with aws.enabled: true, here none; change: name it last\n",
    )


# who-can


def _rows(*words: object) -> set[tuple[str, str, str, tuple[str, ...]]]:
    return {
        (permission["tenant"], permission["namespace"], permission["under"], tuple(permission["may"]))
        for permission in json_answer("who-can", *words, BANK)
    }


ALL = ("list", "read", "write", "delete")
GLASS = ("platform", "break-glass")


def test_a_folder_shows_only_its_holders() -> None:
    assert _rows(f"{DATASETS}/teams/fraud/") == {
        ("fraud", "train", "teams/fraud/", ALL),
        (*GLASS, "teams/fraud/", ALL),
    }


def test_a_bucket_shows_every_granted_prefix() -> None:
    assert _rows("s3://bank-models") == {
        ("fraud", "train", "fraud/", ("list", "read", "write")),
        ("fraud", "serve", "fraud/", ("list", "read")),
        ("nlp", "train", "nlp/", ALL),
        ("performance", "train", "performance/", ALL),
        ("pricing", "train", "pricing/", ("list", "read", "write")),
        ("pricing", "serve", "pricing/", ("list", "read")),
        (*GLASS, "", ALL),
    }


def test_what_all_read_shows_all_of_them() -> None:
    tenants = {tenant for tenant, *_ in _rows(f"{DATASETS}/reference/")}
    assert tenants == {"aml", "credit-risk", "fraud", "platform"}


def test_an_object_is_asked_for_as_it_is() -> None:
    assert _rows(f"{DATASETS}/teams/fraud/x") == {
        ("fraud", "train", "teams/fraud/x", ALL),
        (*GLASS, "teams/fraud/x", ALL),
    }
    assert _rows(f"{DATASETS}/teams/fraud-2/x") == {(*GLASS, "teams/fraud-2/x", ALL)}


def test_a_secret_and_a_repository_are_asked_by_their_arn() -> None:
    assert _rows(CARD) == {("fraud", "serve", "", ("read",))}
    assert _rows(f"{ECR}/scoring") == {("fraud", "its pipeline", "", ("pull", "push"))}


def test_the_table_names_documents_and_sids() -> None:
    text = run("who-can", "s3://bank-models/fraud/", BANK).stdout
    assert "write if nothing is there yet" in text
    assert "bank--fraud--serve" in text
    assert " ".join(text.split()).count("policy storage: List1,") == 2


def test_a_prefix_without_holders_has_an_answer_too() -> None:
    """But for break-glass, which has no key to what is not a bucket's."""
    queue = "arn:aws:sqs:eu-central-1:111122223333:bank--fraud--jobs"
    assert run("who-can", queue, BANK).exit_code == 2, "no such queue in the files"
    rows = _rows("s3://bank-models/free/")
    assert rows == {(*GLASS, "free/", ALL)}


@pytest.mark.parametrize(
    ("resource", "message_part"),
    [
        ("s3://bank-dataset/", "did you mean 'bank-datasets'?"),
        ("arn:aws:iam::111122223333:role/x", "use `tenancy can` for other resources"),
        ("x", "write s3://bank-models/fraud/x, or an ARN"),
        (CARD[:-8], f"did you mean '{CARD}'?"),
        (f"{ECR}/scorin", f"did you mean '{ECR}/scoring'?"),
    ],
)
def test_a_resource_that_cannot_be_granted_ends_with_2(resource: str, message_part: str) -> None:
    result = run("who-can", resource, BANK)
    assert result.exit_code == 2
    assert message_part in result.stderr


@pytest.mark.parametrize(
    "words", [("can", "fraud", "s3:GetObject", f"{DATASETS}/x"), ("who-can", f"{DATASETS}/", "--format", "json")]
)
def test_answering_imports_no_engine_and_no_client(words: tuple[str, ...]) -> None:
    code = (
        "import sys; from tenancy.cli import main\n"
        f"try: main({[*words, BANK]!r})\n"
        "except SystemExit: pass\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'pulumi', 'kubernetes', 'boto3', 'rich'}))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
