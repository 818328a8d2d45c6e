"""Schemas, charts and tables of others, by which tests judge what we make; copied out of pinned Go modules once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tenancy.lab import recipes, tools

MODULES = Path(__file__).parent / "modules"


@cache
def folder(name: str) -> Path:
    """A folder that modules.toml names; ToolsError says what was tried where it cannot be had."""
    return tools.ensure(only=[name], pins=recipes.load(MODULES / "modules.toml", MODULES))[name]
