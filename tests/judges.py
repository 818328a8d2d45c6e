"""Schemas, charts and tables of others, by which tests judge what we make; copied out of pinned Go modules once."""

from __future__ import annotations

import gzip
import json
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from tenancy.lab import recipes, tools

MODULES = Path(__file__).parent / "modules"


@cache
def folder(name: str) -> Path:
    """A folder that modules.toml names; ToolsError says what was tried where it cannot be had."""
    return tools.ensure(only=[name], pins=recipes.load(MODULES / "modules.toml", MODULES))[name]


@cache
def ec2_types() -> dict[str, Any]:
    """EC2's DescribeInstanceTypes by instance type, as moto keeps it; read as a file, importing moto takes seconds."""
    path = Path(str(distribution("moto").locate_file("moto/ec2/resources/instance_types.json.gz")))
    return json.loads(gzip.decompress(path.read_bytes()))
