"""Benchmarks are run by hand: here only that each of them can be."""

from __future__ import annotations

import importlib

import pytest

from bench.__main__ import SECTIONS


@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_can_be_measured(name: str) -> None:
    assert callable(importlib.import_module(f"bench.{name}").measure)
