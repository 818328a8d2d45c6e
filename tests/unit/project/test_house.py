"""The product's own house: licences of what it installs, reasons of what it needs, lock files with hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from judged import licences
from tests.conftest import nonempty

ROOT = Path(__file__).parents[3]


def test_every_package_that_users_install_has_a_compatible_licence() -> None:
    assert {"pulumi", "kubernetes", "polars", "securesystemslib"} <= set(licences.shipped())
    assert list(licences.incompatible()) == []


def test_another_licence_would_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(licences, "licence", lambda _: "GPL-3.0-only")
    assert len(list(licences.incompatible())) == len(licences.shipped())


def test_packages_of_tests_are_not_shipped() -> None:
    assert set(licences.shipped()) & {"pytest", "hypothesis", "moto", "ruff"} == set()


def test_every_package_in_a_judges_lock_has_a_hash_and_no_registrys_address() -> None:
    locks = sorted((ROOT / "requirements").glob("judges-*.txt"))
    assert len(locks) == 7
    for lock in locks:
        text = lock.read_text("utf-8")
        packages = re.findall(r"^[a-z0-9._\[\],-]+==\S+", text, re.MULTILINE)
        assert packages
        assert text.count("==") >= len(packages)
        for part in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]:
            assert "--hash=sha256:" in part, part[:60]
        assert "://" not in text


def test_a_judges_pin_is_the_version_that_its_lock_installs() -> None:
    for pins in nonempty((ROOT / "requirements").glob("judges-*.in")):
        lock = pins.with_suffix(".txt").read_text("utf-8")
        for pin in re.findall(r"^\S+==\S+$", pins.read_text("utf-8"), re.MULTILINE):
            assert f"\n{pin} " in f"\n{lock}", pin


def test_every_judge_that_is_built_is_pinned_by_its_module() -> None:
    folder = ROOT / "judged" / "modules"
    for family, row in nonempty(tomllib.loads((folder / "modules.toml").read_text("utf-8")).items()):
        assert f" v{row['version']} " in (folder / family / "go.mod").read_text("utf-8").replace("\n", " "), family
