"""Folders of the lab, and the environment in which its tools work."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tenancy.catalog import vocabulary

CONTEXT = vocabulary.LAB_CONTEXT


class LabError(Exception):
    """Something in the lab does not work; the message says what, why and what to do."""


@dataclass(frozen=True)
class Lab:
    """The lab of one checkout: `.lab/` in it, or the folder `GPU_TENANCY_LAB` names."""

    root: Path
    folder: Path

    @classmethod
    def locate(cls, root: Path | None = None) -> Lab:
        """The lab of `root`, or of the project the current folder is in."""
        root = (root or find_root()).resolve()
        lab_folder = os.environ.get("GPU_TENANCY_LAB")
        return cls(root, (Path(lab_folder) if lab_folder else root / ".lab").resolve())

    @cached_property
    def pki(self) -> Path:
        """Folder of the certificates and keys."""
        return self.folder / "pki"

    @cached_property
    def logs(self) -> Path:
        """Folder of the components' logs."""
        return self.folder / "logs"

    @cached_property
    def config(self) -> Path:
        """Folder of the components' configuration files."""
        return self.folder / "config"

    @cached_property
    def kueue(self) -> Path:
        """Files of Kueue, while the lab has queues."""
        return self.folder / "kueue"

    @cached_property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the deployer."""
        return self.folder / "kubeconfig"

    @cached_property
    def admin_kubeconfig(self) -> Path:
        """Kubeconfig with all rights."""
        return self.folder / "admin.kubeconfig"

    @cached_property
    def state(self) -> Path:
        """Folder of the Pulumi state."""
        return self.folder / "state"

    @cached_property
    def memory(self) -> Path:
        """Facts of earlier runs; the file marks the folder as a lab."""
        return self.folder / "lab.json"

    def recall(self) -> dict[str, Any]:
        """Facts of earlier runs."""
        try:
            return json.loads(self.memory.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}

    def remember(self, **facts: Any) -> None:
        """Keep facts for later runs."""
        stored_facts = self.recall()
        if stored_facts | facts != stored_facts:
            write(self.memory, json.dumps(stored_facts | facts, indent=2) + "\n")


def find_root(start: Path | None = None) -> Path:
    """The folder at or above `start` that holds `Pulumi.yaml`."""
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / "Pulumi.yaml").is_file():
            return folder
    raise LabError(
        f"{start} is not inside a project: neither it nor a folder above it has a Pulumi.yaml. "
        "Change into the folder of your repository that has one, and run the command again."
    )


def write(path: Path, content: str | bytes, mode: int = 0o600) -> bool:
    """Write `content` to `path` atomically; False if the file has it already."""
    data = content.encode() if isinstance(content, str) else content
    if path.is_file() and path.read_bytes() == data:
        path.chmod(mode)
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
    fresh.chmod(mode)
    fresh.replace(path)
    return True


def link(path: Path, target: Path) -> None:
    """Make `path` a symbolic link to `target`."""
    if path.is_symlink() and path.readlink() == target:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(path)


def search_path(lab: Lab) -> list[Path]:
    """The folders a lab shell looks into first."""
    from tenancy.lab import tools

    venv = lab.root / ".venv" / "bin"
    return [lab.folder / "bin", tools.bin_dir(), venv if venv.is_dir() else Path(sys.executable).parent]


def variables(lab: Lab) -> dict[str, str]:
    """The environment variables of a lab shell, except PATH."""
    return {
        "KUBECONFIG": str(lab.kubeconfig),
        "PULUMI_BACKEND_URL": lab.state.as_uri(),
        "PULUMI_HOME": str(lab.folder / "pulumi"),
        # Not a secret: the state of a lab contains nothing to protect.
        "PULUMI_CONFIG_PASSPHRASE": "lab",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        # Plugins come from PULUMI_HOME alone; the engine warns about every one it finds on PATH.
        "PULUMI_IGNORE_AMBIENT_PLUGINS": "true",
        "PULUMI_SUPPRESS_NEO_LINK": "true",
    }


def environ(root: Path | None = None, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a lab shell: `base` (the process's own by default) and what the lab sets."""
    lab = Lab.locate(root)
    env = dict(os.environ if base is None else base)
    lab_folders = [str(folder) for folder in search_path(lab)]
    other_folders = [folder for folder in env.get("PATH", os.defpath).split(os.pathsep) if folder not in lab_folders]
    return env | variables(lab) | {"PATH": os.pathsep.join([*lab_folders, *other_folders])}


def enter_lab(context: str, root: Path | None = None) -> None:
    """Set the environment of the project's lab if `context` is the lab's, whatever the shell has set.

    Only the lab has that context, and the shell's own backend must not get the state of a lab.
    """
    if context != CONTEXT:
        return
    try:
        lab = Lab.locate(root)
    except LabError:
        return  # outside of a project the shell's environment is used
    if lab.kubeconfig.exists():
        os.environ.update(environ(lab.root))


def write_shell_file(lab: Lab) -> Path:
    """Write `.lab/env`, to be sourced by any POSIX shell from any folder."""
    path = os.pathsep.join(str(folder) for folder in search_path(lab))
    lines = [
        "# Source this file: tools, kubeconfig and Pulumi backend of the lab.",
        f"gpu_tenancy_path={shlex.quote(path)}",
        'case ":$PATH:" in',
        '  *":$gpu_tenancy_path:"*) ;;',
        '  *) PATH="$gpu_tenancy_path:$PATH" ;;',
        "esac",
        "unset gpu_tenancy_path",
        "export PATH",
        *(f"export {name}={shlex.quote(value)}" for name, value in variables(lab).items()),
    ]
    file = lab.folder / "env"
    write(file, "\n".join(lines) + "\n")
    return file
