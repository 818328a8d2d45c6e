"""Schemas, charts and tables of others, by which tests judge what we make; copied out of pinned Go modules once."""

from __future__ import annotations

import atexit
import gzip
import json
import subprocess
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


@cache
def _kueue() -> subprocess.Popen[str]:
    """Kueue's checks as a process that answers line by line; starting it takes longer than a hundred answers."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([folder("judge-kueue")], stdin=pipe, stdout=pipe, text=True)
    atexit.register(process.kill)
    return process


def kueue(item: dict[str, Any]) -> list[str]:
    """What Kueue v0.19.2 says against one of its objects, or against its configuration: unknown fields, and what its
    webhooks and its start refuse. What the schemas in its definitions refuse, only an API server says."""
    process = _kueue()
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(item) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())
