"""Schemas, charts and tables of others, by which tests judge what we make; copied out of pinned Go modules once."""

from __future__ import annotations

import atexit
import gzip
import json
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple

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
def _judge(name: str) -> subprocess.Popen[str]:
    """A judge as a process that answers line by line; starting it takes longer than a hundred answers."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([folder(name)], stdin=pipe, stdout=pipe, text=True)
    atexit.register(process.kill)
    return process


def _ask(name: str, question: Any) -> Any:
    process = _judge(name)
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(question) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def kueue(item: dict[str, Any]) -> list[str]:
    """Errors of Kueue v0.19.2 on one of its objects, or against its configuration: unknown fields, and what its
    webhooks and its start refuse. What the schemas in its definitions refuse, only an API server says."""
    return _ask("judge-kueue", item)


def quantity(text: str) -> dict[str, str]:
    """A quantity as apimachinery v0.36.3 reads it: the number and its canonical spelling, or the error."""
    return _ask("judge-quantity", text)


class Unjudged(Exception):
    """Policies that an engine does not take, with what it says against them."""


def verdicts(
    engine: str, policies: Sequence[dict[str, Any]], peers: Mapping[str, dict[str, Any]], flows: Sequence[Flow]
) -> list[str]:
    """Verdicts of others' engines on connections under policies: "allowed", "proxied" (through the DNS proxy), or which
    end says no. `engine` is cyclonus (v0.5.6, NetworkPolicies alone) or cilium (v1.18.0); peers are as its main.go
    says."""
    queries = [{"from": flow.source, "to": flow.target, "port": flow.port, "protocol": flow.protocol} for flow in flows]
    answer = _ask(f"judge-{engine}", {"objects": list(policies), "peers": dict(peers), "flows": queries})
    if answer["errors"]:
        raise Unjudged("; ".join(answer["errors"]))
    return answer["verdicts"]


class Flow(NamedTuple):
    """A connection between two peers, by their names."""

    source: str
    target: str
    port: int
    protocol: str = "TCP"
