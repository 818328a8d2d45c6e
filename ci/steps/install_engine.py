#!/usr/bin/env python
"""install_engine.py FOLDER: link the pinned engine into FOLDER, and install its plugins for the installed SDKs."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from tenancy.lab.tools import ToolsError, ensure

ENGINE = ["pulumi", "pulumi-language-python", "pulumi-language-python-exec"]
PLUGINS = ("kubernetes", "aws")


def main(folder: Path) -> int:
    try:
        tools = ensure(only=ENGINE)
    except ToolsError as error:
        print(error, file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    for name in ENGINE:
        # A release contains the language host, a build does not: then ours is used.
        if not (path := tools.get(name)):
            continue
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(path)
    for plugin in PLUGINS:
        command = [folder / "pulumi", "plugin", "install", "resource", plugin, version(f"pulumi-{plugin}")]
        if code := subprocess.run(command, check=False).returncode:
            return code
    return 0


sys.exit(main(Path(sys.argv[1])))
