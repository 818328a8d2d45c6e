"""What a safe key is, and that the refusal says why."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_tenancy_s3 import Prefix, Refused, UnsafeKey
from gpu_tenancy_s3.keys import KEY_BYTES, _unsafe, check_bucket, check_prefix, safe_folder, safe_key
from tenancy.rules.values import unsafe_prefix
from tests.conftest import nonempty

FRAUD = "teams/fraud/"


@pytest.mark.parametrize(
    "key",
    [
        "a",
        "2026/01/31.parquet",
        "a b",
        "..a",
        "a..",
        "...",
        "a/.hidden",
        "100%",
        "50%25",
        "a%2Fb",
        "%C3%A4",
        "ä/😀",
        "‥",
    ],
)
def test_a_plain_key_is_joined_to_its_prefix_and_not_changed(key: str) -> None:
    assert safe_key(FRAUD, key) == FRAUD + key


REFUSED = {
    "": "not empty",
    "..": "'..'",
    "../research/x": "'..'",
    "a/../../research/x": "'..'",
    "a/..": "'..'",
    "./a": "'.'",
    "a/./b": "'.'",
    "a//b": "empty segment",
    "a/": "empty segment",
    "/a": "relative",
    "//a": "relative",
    "/": "relative",
    "s3://bank-datasets/teams/fraud/a": "no address",
    "S3:/a": "no address",
    "https://x/a": "no address",
    "arn:aws:s3:::bank-datasets/a": "no address",
    "teams/research/a": "'teams/'",
    "teams/fraud/a": "does not repeat it",
    "teams/fraud-2/a": "'teams/'",
    "..\\research": "backslash",
    "a\\b": "backslash",
    "a\0b": "control",
    "a\nb": "control",
    "a\x7f": "control",
    "a\x85": "control",
    "a\u2028b": "control",
    "\ud800": "UTF-8",
    "%2e%2e/x": "decodes to '../x'",
    "%2E%2E%2Fx": "decodes to '../x'",
    ".%2e/x": "decodes to '../x'",
    "%252e%252e/x": "decodes to '../x'",
    "%25252e./x": "decodes to '../x'",
    "%2Fx": "decodes to '/x'",
    "a%2F%2Fb": "decodes to 'a//b'",
    "a%5Cb": "backslash",
    "a%00": "control",
    "%c0%ae%c0%ae/x": "UTF-8",
    "%ff": "UTF-8",
    "teams%2Fresearch/a": "'teams/'",
    "s3%3A/x/a": "no address",
}


@pytest.mark.parametrize("key", REFUSED, ids=ascii)
def test_a_key_that_could_mean_another_place_is_refused_by_its_own_rule(key: str) -> None:
    with pytest.raises(UnsafeKey) as refused:
        safe_key(FRAUD, key)
    assert REFUSED[key] in refused.value.rule, refused.value
    assert refused.value.given == repr(key)
    assert refused.value.change


def test_the_message_says_what_was_given_which_rule_and_what_to_change() -> None:
    with pytest.raises(UnsafeKey) as refused:
        safe_key(FRAUD, "../x")
    message = "given '../x'; rule: no segment of a key is '.' or '..'; change: write the path without them"
    assert str(refused.value) == message


def test_a_key_has_1024_bytes_with_its_prefix() -> None:
    longest = "x" * (KEY_BYTES - len(FRAUD))
    assert len(safe_key(FRAUD, longest)) == 1024
    for key in (longest + "x", longest[:-1] + "ä"):
        with pytest.raises(UnsafeKey, match="this one 1025"):
            safe_key(FRAUD, key)


def test_a_prefix_at_the_top_has_no_neighbours_to_confuse() -> None:
    assert safe_key("fraud/", "teams/a") == "fraud/teams/a"
    with pytest.raises(UnsafeKey, match="write 'a'"):
        safe_key("fraud/", "fraud/a")


def test_a_folder_is_listed_with_its_slash_so_that_a_longer_name_is_another() -> None:
    assert safe_folder(FRAUD, "") == "teams/fraud/"
    assert safe_folder(FRAUD, "2026") == safe_folder(FRAUD, "2026/") == "teams/fraud/2026/"


@pytest.mark.parametrize("folder", ["../", "..", "/", "a//", "%2e%2e/", "teams/research/", "s3://bank/x/"])
def test_a_folder_is_held_to_the_rules_of_keys(folder: str) -> None:
    with pytest.raises(UnsafeKey):
        safe_folder(FRAUD, folder)


@pytest.mark.parametrize(
    "prefix", ["", "/", "teams/fraud", "/teams/fraud/", "teams/*/", "a/../b/", "teams//x/", "%2e%2e/"]
)
def test_a_prefix_is_held_to_the_rule_of_the_tenants_file(prefix: str) -> None:
    with pytest.raises(UnsafeKey):
        check_prefix(prefix)


@pytest.mark.parametrize(
    "bucket", ["", "s3://bank", "bank/teams", "Bank", "b", "arn:aws:s3:::bank", "x--use1-az4--x-s3"]
)
def test_a_bucket_is_a_name(bucket: str) -> None:
    with pytest.raises(Refused):
        check_bucket(bucket)


def test_a_folder_of_a_prefix_may_have_the_name_that_a_key_may_not_start_with() -> None:
    inner = Prefix("bank-datasets", FRAUD).within("teams")
    assert inner.prefix == "teams/fraud/teams/"
    with pytest.raises(UnsafeKey):
        inner.within("../research")


def test_the_package_is_imported_without_boto3() -> None:
    code = "import sys, gpu_tenancy_s3; print([m for m in sys.modules if m.startswith(('boto', 'pulumi', 'pydantic'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_package_imports_nothing_of_the_rest_and_the_rest_nothing_of_it() -> None:
    root = Path(__file__).parents[3]
    imported = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)
    project = tomllib.loads((root / "s3-client" / "pyproject.toml").read_text("utf-8"))["project"]
    assert [requirement.partition(">")[0] for requirement in project["dependencies"]] == ["boto3"]
    files = sorted((root / "s3-client").rglob("*.py"))
    assert files
    for path in files:
        assert "tenancy" not in imported.findall(path.read_text("utf-8")), path
    for path in nonempty((root / "tenancy").rglob("*.py")):
        assert "gpu_tenancy_s3" not in imported.findall(path.read_text("utf-8")), f"{path} imports a tenant's library"


@given(st.text(alphabet="ab/.*?$\\{}\"' \n\x7f\u00e9%", max_size=8).map(lambda text: f"{text}/") | st.text(max_size=8))
def test_a_prefix_is_one_exactly_where_a_tenants_file_may_name_it(prefix: str) -> None:
    assert _unsafe(prefix) is (unsafe_prefix(prefix) is not None)
