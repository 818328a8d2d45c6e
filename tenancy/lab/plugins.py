"""Plugins of the engine that the project's program needs on the lab: those of the versions of its SDKs.

The lab has the provider for Kubernetes in the version that it pins. An SDK of another version and any further provider
are found here before the engine starts, which would say only that a plugin is missing.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tenancy.lab import tools
from tenancy.lab.layout import Lab, LabError, environ, link

KUBERNETES_SDK = "pulumi_kubernetes"
"""The SDK that every program of ours uses. Its versions are tested together with the lab's provider."""
LOCK = "constraints.txt"
"""File of a repository that `tenancy init` wrote: the versions with which the package was tested."""
PATIENCE = 300
"""Seconds for one download."""


class MissingPluginError(LabError):
    """A plugin that is neither in the lab nor to be had."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """The plugin that belongs to an SDK."""

    name: str
    version: str
    server: str
    """Address from which it is downloaded; empty for Pulumi's own."""
    importer: str
    """File of the project that imports the SDK; empty for the one that every program of ours uses."""

    @property
    def file(self) -> str:
        """Name of its program."""
        return f"pulumi-resource-{self.name}"

    @property
    def folder(self) -> str:
        """Name of its folder in PULUMI_HOME."""
        return f"resource-{self.name}-v{self.version}"


def needed(root: Path) -> Iterator[Plugin]:
    """The plugins of the SDKs that the program of the project uses, as installed."""
    try:
        project = yaml.safe_load((root / "Pulumi.yaml").read_text("utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        project = {}
    project = project if isinstance(project, dict) else {}
    main = root / str(project.get("main") or ".")
    start = main if main.suffix == ".py" else main / "__main__.py"
    importers = {KUBERNETES_SDK: ""} | {
        name: str(path.relative_to(root)) for name, path in _imported_sdks(start) if name != KUBERNETES_SDK
    }
    for name, importer in sorted(importers.items()):
        if plugin := _of_sdk(name, importer, _packages(root, project)):
            yield plugin


def expect(root: Path, say: Callable[[str], None]) -> None:
    """MissingPluginError for the first plugin of the program that the lab has not and that cannot be had."""
    lab = Lab.locate(root)
    if not lab.memory.exists():
        return  # the run says that there is no lab
    for plugin in needed(lab.root):
        if reason := _obtain(lab, plugin, say):
            raise MissingPluginError(_missing_message(lab, plugin, reason))


def prepare(lab: Lab, say: Callable[[str], None]) -> None:
    """As `expect`, when a lab starts: what is missing besides the provider for Kubernetes is only said, because not
    every use of the lab needs it."""
    for plugin in needed(lab.root):
        if not (reason := _obtain(lab, plugin, say)):
            continue
        if not plugin.importer:
            raise MissingPluginError(_missing_message(lab, plugin, reason))
        say(f"note: {_missing_message(lab, plugin, reason)}")


def _obtain(lab: Lab, plugin: Plugin, say: Callable[[str], None]) -> str:
    """Put the plugin into the lab's PULUMI_HOME; why that is impossible, or nothing."""
    home = lab.folder / "pulumi" / "plugins"
    if (home / plugin.folder / plugin.file).exists():
        return ""
    user_file = Path.home() / ".pulumi" / "plugins" / plugin.folder / plugin.file
    if user_file.is_file():
        link(home / plugin.folder / plugin.file, user_file)
        return ""
    say(f"{plugin.file} v{plugin.version}: downloading, for the installed SDK")
    command = [tools.bin_dir() / "pulumi", "plugin", "install", "resource", plugin.name, plugin.version]
    command += ["--server", plugin.server] if plugin.server else []
    try:
        completed = subprocess.run(
            command,
            env=environ(lab.root),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if (home / plugin.folder / plugin.file).exists():
        return ""
    lines = [line.strip() for line in (completed.stderr or completed.stdout).splitlines() if line.strip()]
    return lines[-1] if lines else f"exit code {completed.returncode}"


def _missing_message(lab: Lab, plugin: Plugin, reason: str) -> str:
    package, prefix = f"pulumi-{plugin.name}", f"resource-{plugin.name}-v"
    home = lab.folder / "pulumi" / "plugins"
    available_versions = sorted(
        path.name.removeprefix(prefix) for path in home.glob(f"{prefix}*") if (path / plugin.file).exists()
    )
    subject = f"{package} {plugin.version}{f', imported by {plugin.importer},' if plugin.importer else ''}"
    available = (
        f"the lab has {', '.join(f'v{version}' for version in available_versions)}"
        if available_versions
        else "the lab has none"
    )
    rule = (
        f"the engine runs the plugin {plugin.file} of the SDK's own version, and {available}; its download "
        f"failed: {reason}"
    )
    if available_versions and not plugin.importer and (lab.root / LOCK).is_file():
        change = "pip install -r requirements.txt, whose versions were tested together"
    elif available_versions:
        change = f"pip install {package}=={available_versions[-1]}"
    else:
        install = f"pulumi plugin install resource {plugin.name} {plugin.version}"
        change = f"`{install}` where downloads are possible, which puts it into ~/.pulumi/plugins, and run this again"
    return f"given {subject} without its plugin; rule: {rule}; change: {change}"


def _packages(root: Path, project: dict[str, Any]) -> list[Path]:
    """Folders of installed packages of the virtual environment that runs the program."""
    runtime = project.get("runtime")
    options = runtime.get("options") if isinstance(runtime, dict) else None
    virtualenv = options.get("virtualenv") if isinstance(options, dict) else None
    return sorted((root / str(virtualenv)).glob("lib/python3*/site-packages")) if virtualenv else []


def _of_sdk(name: str, importer: str, packages: list[Path]) -> Plugin | None:
    folders = [folder_of_sdk for path in packages if (folder_of_sdk := path / name).is_dir()]
    if not folders:
        # A path file may add packages of another environment: this process has the same.
        folder_of_sdk = importlib.util.find_spec(name)
        folders = [Path(path) for path in folder_of_sdk.submodule_search_locations or ()] if folder_of_sdk else []
    for folder in folders:
        try:
            facts = json.loads((folder / "pulumi-plugin.json").read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(facts, dict) and facts.get("resource") and facts.get("version"):
            version = str(facts["version"]).removeprefix("v")
            return Plugin(
                str(facts.get("name") or name.removeprefix("pulumi_")),
                version,
                str(facts.get("server") or ""),
                importer,
            )
    return None


def _imported_sdks(start: Path) -> Iterator[tuple[str, Path]]:
    """Providers' SDKs that the program and its own modules beside it import, each with the file."""
    home, read_files, pending = start.parent, set[Path](), [start]
    while pending:
        path = pending.pop()
        if path in read_files or not path.is_file():
            continue
        read_files.add(path)
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue  # Python says it when it runs the program
        for module in _modules(tree):
            parts = module.split(".")
            if parts[0].startswith("pulumi_"):
                yield parts[0], path
            # Ours is a package beside the program in a checkout alone; its provider for AWS has no use on the lab.
            elif parts[0] != "tenancy":
                for count in range(1, len(parts) + 1):
                    place = home.joinpath(*parts[:count])
                    pending += [place.with_suffix(".py"), place / "__init__.py"]


def _modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
