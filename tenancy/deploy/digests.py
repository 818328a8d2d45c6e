"""Digests of what a stack is made from: its part of the plan, its settings, and the program with its versions.

Equal digests mean that the program would register the same resources. They are compared with those of the stack's last
run that succeeded, so that a run leaves out the stacks whose resources cannot differ.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

import tenancy
from tenancy.planning.outputs import tenant_outputs
from tenancy.planning.plan_model import Plan
from tenancy.planning.scope import Stack, StackScope, names_of, select
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import Loaded

STACK_FILES = "stacks"
"""Folder of the stacks' settings, as Pulumi.yaml has it."""
_PACKAGES = ("pulumi", "pulumi-kubernetes", "pulumi-aws", "pulumi-policy")
_PARTS = ("*.py", "Pulumi.yaml", "policy/**/*")
_STANDARD = {
    "__main__.py": "from tenancy.program import run\n\nrun()",
    "policy/__main__.py": "from tenancy.policy_pack import run\n\nrun()",
}


@dataclass(frozen=True, slots=True)
class StackDigest:
    """Three digests, because the message about a difference names its cause."""

    plan: str
    """Digest of the stack's part of the plan, and of its outputs."""
    program: str
    """Digest of the program, the policy pack and the versions of engine and providers."""
    settings: str
    """Digest of the stack's config and of the backend that has its state."""


def digests(
    loaded: Loaded,
    plan: Plan,
    stacks: Iterable[Stack],
    root: Path,
    program: str,
) -> dict[str, StackDigest]:
    """Digest of each stack, by its name. `program` is that of `program_digest`."""
    backend = os.environ.get("PULUMI_BACKEND_URL", "")
    specs = {spec.tenant: spec for spec in loaded.tenants}
    return {
        stack[0]: StackDigest(
            _plan_digest(loaded.environment, specs, plan, stack), program, settings_digest(root, stack[0], backend)
        )
        for stack in stacks
    }


def program_digest(root: Path, engine: str) -> str:
    """Digest of the files and versions that decide what the program makes of a plan. `engine` is the version of
    Pulumi's command."""
    package = Path(tenancy.__file__).parent
    digest = hashlib.sha256(engine.encode())
    for name in _PACKAGES:
        digest.update(f"{name} {_version(name)}\n".encode())
    for base, files in ((root, _program_files(root)), (package, package.rglob("*"))):
        for path in sorted(path for path in files if path.is_file() and "__pycache__" not in path.parts):
            digest.update(f"{path.relative_to(base)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def settings_digest(root: Path, stack: str, backend: str) -> str:
    """Digest of the stack's config and its backend, without credentials and options in the backend's URL."""
    url = urlsplit(backend)
    place = f"{url.scheme}://{url.hostname or ''}{url.path}"
    return _digest((place, _config(root, stack)))


def has_program_config(root: Path, stack: Stack) -> bool:
    """Whether the stack's config tells the program another environment, scope or tenant than the stack's name."""
    name, scope, tenant = stack
    expected = {"environment": names_of(name)[0], "scope": scope.value, "tenant": tenant}
    configured = {
        key.removeprefix(_CONFIG_PREFIX): value
        for key, value in _config(root, name).items()
        if key.startswith(_CONFIG_PREFIX)
    }
    return any(expected.get(key) != value for key, value in configured.items())


_CONFIG_PREFIX = "gpu-tenancy:"


def _config(root: Path, stack: str) -> dict[str, Any]:
    file = root / STACK_FILES / f"Pulumi.{stack}.yaml"
    # The rest of the file is the engine's: it writes the salt of its secrets provider when it makes the stack.
    return (yaml.safe_load(file.read_text("utf-8")) or {}).get("config") or {} if file.exists() else {}


def is_standard(root: Path) -> bool:
    """Whether program and policy pack are the library's own, so that the library may run them in its own process and
    knows that the pack has no rules but those that the plan has passed."""
    return all(_text(root / name) == text for name, text in _STANDARD.items())


def _plan_digest(environment: Environment, specs: Mapping[str, Tenant], plan: Plan, stack: Stack) -> str:
    _, scope, tenant = stack
    if scope is StackScope.CLUSTER:
        return _digest((plan.context, plan.cluster, plan.account))
    platform, tenants = select(plan, scope, tenant)
    outputs = [tenant_outputs(environment, specs[tenant_plan.name], tenant_plan) for tenant_plan in tenants]
    return _digest((plan.environment, plan.context, plan.account, platform, tenants, outputs))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=_to_json).encode()).hexdigest()


def _to_json(value: Any) -> Any:
    """JSON form of values that JSON does not know: the plan's dataclasses, sets, numbers and dates."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


def _program_files(root: Path) -> Iterator[Path]:
    for part in _PARTS:
        yield from root.glob(part)


def _version(package: str, ask: Callable[[str], str] = importlib.metadata.version) -> str:
    try:
        return ask(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""
