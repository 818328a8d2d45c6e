"""Objects of a Helm release: its chart, rendered by helm on the PATH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenancy.check.reader import read_text
from tenancy.kube.kinds import placed
from tenancy.kube.objects import UNKNOWN, get_path, name_of
from tenancy.rules import manifest_rules
from tenancy.rules.findings import Object

_PATIENCE = 60
"""Timeout of helm, seconds; it may fetch the chart."""
_READ = ("chart", "metadata", "repositoryOpts", "values", "version")
_MORE = ("valueYamlFiles", "postrender", "keyring", "verify")
"""Fields of a release that need no argument of helm."""


class NotRenderedError(Exception):
    """Why the objects of a release are unknown."""


def rendered(release: Object, folder: str | None) -> list[Object]:
    """The objects of a release; raises NotRenderedError if it cannot be rendered. A local chart's path is relative to
    `folder`, by default to the folder in which the engine was started."""
    helm = shutil.which("helm")
    if not helm:
        raise NotRenderedError("no helm is on the path")
    values = release.get("values") or {}
    if unknown := [*manifest_rules.unknown_fields({key: release.get(key) for key in (*_READ, *_MORE)})]:
        raise NotRenderedError(f"{', '.join(unknown)}: {UNKNOWN}")
    if more := [key for key in _MORE if release.get(key)]:
        raise NotRenderedError(f"{', '.join(more)} cannot be read here")
    namespace = get_path(release, "metadata", "namespace") or "default"
    command = [helm, *_arguments(release, namespace, folder or os.environ.get("PWD", "")), "--values", "-"]
    try:
        process = subprocess.run(
            command, input=json.dumps(values), capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotRenderedError(f"helm took more than {_PATIENCE} s") from None
    if process.returncode:
        raise NotRenderedError(" ".join(process.stderr.split())[:200])
    read = read_text(name_of(release), process.stdout)
    if read.unread:
        raise NotRenderedError(str(read.unread[0]))
    return [_at_home(item, namespace) for item, _ in read.objects]


def _arguments(release: Object, namespace: str, folder: str) -> list[str]:
    chart, options = str(release["chart"]), release.get("repositoryOpts") or {}
    if secret := [key for key in options if key != "repo" and options[key]]:
        raise NotRenderedError(f"a repository with {', '.join(secret)} is not contacted")
    if not options.get("repo") and "://" not in chart:
        if not (Path(folder) / chart).exists():
            where = folder or "the folder in which the engine was started"
            raise NotRenderedError(f"there is none in {where}: set `charts` to the folder of the paths of charts")
        chart = str(Path(folder) / chart)
    flags: Mapping[str, Any] = {
        "--namespace": namespace,
        "--repo": options.get("repo"),
        "--version": release.get("version"),
    }
    flag_arguments = [part for flag, value in flags.items() if value for part in (flag, str(value))]
    return ["template", str(get_path(release, "metadata", "name")), chart, *flag_arguments]


def _at_home(item: Object, namespace: str) -> Object:
    """The object as helm installs it: without a namespace it is in that of the release."""
    metadata = item.get("metadata") or {}
    return placed({**item, "metadata": {"namespace": namespace, **metadata}})
