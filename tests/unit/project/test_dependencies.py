"""Each direct dependency has a reason, and the page of dependencies is that of today's files."""

from __future__ import annotations

import re
import tomllib

import pytest

from judged import ages, dependencies
from judged.dependencies import NoReason, direct, release_date, versions
from judged.homes import ROOT

TEXT = (ROOT / "pyproject.toml").read_text("utf-8")


def test_every_direct_dependency_has_a_reason_and_a_locked_version() -> None:
    read = tomllib.loads(TEXT)
    count = len(read["build-system"]["requires"]) + len(read["project"]["dependencies"])
    count += sum(map(len, read["project"]["optional-dependencies"].values()))
    direct_dependencies = direct(TEXT)
    assert len(direct_dependencies) == count
    locked = versions((ROOT / "requirements" / "lock.txt").read_text("utf-8"))
    assert [dependency.name for dependency in direct_dependencies if dependency.name not in locked] == []
    assert {dependency.purpose for dependency in direct_dependencies} == set(dependencies.PURPOSES)


@pytest.mark.parametrize("dependency", direct(TEXT), ids=lambda dependency: dependency.name)
def test_a_dependency_without_a_reason_is_named(dependency: dependencies.Dependency) -> None:
    (line,) = [line for line in TEXT.splitlines() if f'"{dependency.needs}"' in line]
    with pytest.raises(NoReason, match=rf"given pyproject.toml: {re.escape(dependency.name)} without a reason"):
        direct(TEXT.replace(line, line.partition("#")[0].rstrip()))


def test_the_page_in_the_docs_is_todays() -> None:
    assert dependencies.PAGE.read_text("utf-8") == dependencies.page(), "make docs"


@pytest.mark.parametrize(
    ("version", "date"),
    [
        ("2026.9.1", "2026-09"),
        ("2025.12", "2025-12"),
        ("1769699379!11.6.0", "2026-01-29"),
        ("2026.13", ""),
        ("3.259.0", ""),
        ("26.2", ""),
    ],
)
def test_of_a_version_that_the_index_was_not_asked_about_only_a_date_in_it_is_told(version: str, date: str) -> None:
    assert release_date("not-a-package", version) == date


def test_the_day_of_every_locked_package_is_known() -> None:
    locked = versions((ROOT / "requirements" / "lock.txt").read_text("utf-8"))
    assert [f"{name} {version}" for name, version in locked.items() if not ages.release_date(name, version)] == []


def test_a_day_is_that_of_the_first_file_and_of_the_version_that_was_asked_about() -> None:
    files = [{"upload-time": "2026-02-03T04:05:06Z"}, {"upload-time": "2026-01-02T03:04:05Z"}, {"url": "no time"}]
    lock = {"package": [{"name": "A_b", "version": "1", "wheels": files}, {"name": "pins", "version": "0"}]}
    assert ages.days(lock) == {"a-b": {"version": "1", "released": "2026-01-02"}}
    assert ages.release_date("pulumi", "0.0.1") == ""
