from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_tenancy_s3 import BadName, Datasets, Models, Prefix, Refused, UnsafeKey
from gpu_tenancy_s3.keys import KEY_BYTES, safe_folder, safe_key
from tests.conftest import examples

PIECES = [
    "..",
    ".",
    "/",
    "//",
    "\\",
    "%2e",
    "%2E",
    "%2f",
    "%5c",
    "%25",
    "%00",
    "%ff",
    "teams/",
    "fraud",
    "s3:",
    "a",
    "\0",
    "ä",
]
PREFIXES = st.sampled_from(["teams/fraud/", "fraud/", "a/b/c/"])
KEYS = st.one_of(
    st.text(max_size=40),
    st.text(st.characters(codec=None), max_size=20),
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
    st.text("ä./", min_size=500, max_size=1100),
)


def _admitted(prefix: str, key: str) -> str | None:
    try:
        return safe_key(prefix, key)
    except UnsafeKey:
        return None


@settings(max_examples=examples(500))
@given(PREFIXES, KEYS)
def test_whatever_is_not_refused_stays_in_its_prefix_for_every_reader(prefix: str, key: str) -> None:
    full = _admitted(prefix, key)
    if full is None:
        return
    assert full == prefix + key
    assert len(full.encode()) <= KEY_BYTES
    for _ in range(4):
        assert full.startswith(prefix)
        assert not {"", ".", ".."} & set(full.split("/")), "each reader sees plain segments, however often it decodes"
        assert not set(full) & {"\\", "\0", "\n"}
        full = unquote(full)


@given(PREFIXES, KEYS)
def test_two_keys_are_two_objects(prefix: str, key: str) -> None:
    if _admitted(prefix, key) and _admitted(prefix, key + "x"):
        assert safe_key(prefix, key) != safe_key(prefix, key + "x")


@given(KEYS)
def test_no_key_of_one_prefix_is_in_a_neighbours(key: str) -> None:
    if full := _admitted("teams/fraud/", key):
        assert not full.startswith(("teams/fraud-2/", "teams/research/"))


@given(KEYS)
def test_a_folder_is_listed_as_exactly_what_its_keys_start_with(folder: str) -> None:
    if _admitted("teams/fraud/", folder) and _admitted("teams/fraud/", folder + "/x"):
        assert safe_key("teams/fraud/", folder + "/x").startswith(safe_folder("teams/fraud/", folder))


class Wall:
    """A client that nothing may call."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")


@settings(max_examples=examples(200))
@given(KEYS)
def test_what_is_refused_never_reaches_the_network(key: str) -> None:
    prefix = Prefix("bank-datasets", "teams/fraud/", Wall())
    if _admitted(prefix.prefix, key) is None:
        for act in (
            lambda: prefix.stat(key),
            lambda: prefix.read(key),
            lambda: prefix.get(key, "/nowhere/x"),
            lambda: prefix.put(key, b""),
            lambda: prefix.copy(key, "b"),
            lambda: prefix.copy("b", key),
            lambda: prefix.delete(key),
            lambda: prefix.presign(key),
        ):
            with pytest.raises(UnsafeKey):
                act()
    try:
        safe_folder(prefix.prefix, key)
    except UnsafeKey:
        with pytest.raises(UnsafeKey):
            prefix.list(key)


@settings(max_examples=examples(200))
@given(st.one_of(KEYS, st.text("v0123456789-", max_size=12)))
def test_a_name_or_version_that_is_none_never_reaches_the_network(text: str) -> None:
    for kind in (Datasets, Models):
        things = kind(Prefix("bank-datasets", "teams/fraud/", Wall()))
        acts = [lambda: things.versions(text), lambda: things.delete_version("x", text)]  # noqa: B023
        for act in acts:
            with pytest.raises((BadName, Refused, AssertionError)) as raised:
                act()
            if raised.type is AssertionError:
                assert set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-"), "only a slug may be asked for"
