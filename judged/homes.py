"""Folders of the judges: in the cache, a virtual environment for each lock file, and programs of Go modules."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from judged.model import SkippedJudge
from tenancy.lab import recipes, tools

ROOT = Path(__file__).parents[1]
MODULES = Path(__file__).parent / "modules"


def environment(name: str) -> Path:
    """Folder of the programs of requirements/judges-NAME.txt, installed with its hashes when first asked for.

    Raises SkippedJudge if pip cannot install them.
    """
    lock = ROOT / "requirements" / f"judges-{name}.txt"
    key = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:10]
    home = tools.cache_root() / "judges" / f"{name}-{key}"
    if not (home / "ready").exists():
        shutil.rmtree(home, ignore_errors=True)
        pip = [home / "bin" / "pip", "install", "--quiet", "--no-input", "--no-compile", "--disable-pip-version-check"]
        for command in ([sys.executable, "-m", "venv", home], [*pip, "--no-deps", "--require-hashes", "-r", lock]):
            process = subprocess.run(command, capture_output=True, text=True, check=False)
            if process.returncode:
                last = (process.stderr.strip().splitlines() or ["no output"])[-1]
                raise SkippedJudge(f"pip could not install {lock.relative_to(ROOT)}: {last}")
        (home / "ready").touch()
    return home / "bin"


def pin(name: str, package: str) -> str:
    """Version of a package in requirements/judges-NAME.txt."""
    for line in (ROOT / "requirements" / f"judges-{name}.txt").read_text("utf-8").splitlines():
        name_in_line, _, version_text = line.partition("==")
        if name_in_line == package:
            return version_text.split()[0]
    raise KeyError(package)


def built(name: str) -> Path:
    """A program of judged/modules/modules.toml. Raises SkippedJudge if it cannot be built."""
    return _tool(name, MODULES)


def test_tool(name: str) -> Path:
    """A program of tests/modules/modules.toml, which tests use too. Raises SkippedJudge if it cannot be built."""
    return _tool(name, ROOT / "tests" / "modules")


def lab_tool(name: str) -> Path:
    """A program or a folder of the lab's. Raises SkippedJudge if it cannot be had."""
    try:
        return tools.ensure(only=[name])[name]
    except tools.ToolsError as error:
        raise SkippedJudge(str(error).splitlines()[0]) from None


def promtool() -> Path:
    """Prometheus' own linter, one of the lab's tools. Raises SkippedJudge if it cannot be had."""
    from tenancy.lab import prometheus

    try:
        return tools.ensure(only=["promtool"], pins=prometheus.pins())["promtool"]
    except tools.ToolsError as error:
        raise SkippedJudge(str(error).splitlines()[0]) from None


def _tool(name: str, folder: Path) -> Path:
    try:
        return tools.ensure(only=[name], pins=recipes.load(folder / "modules.toml", folder))[name]
    except tools.ToolsError as error:
        raise SkippedJudge(str(error).splitlines()[0]) from None


def output(*command: str | Path, cwd: Path = ROOT) -> str:
    """Standard output of a judge, whose exit code says only whether it found something.

    Raises SkippedJudge if it wrote nothing on standard output and something on standard error: it did not run.
    """
    quiet_environment = {**os.environ, "LOG_LEVEL": "ERROR", "NO_COLOR": "1", "PYTHONWARNINGS": "ignore"}
    process = subprocess.run(command, cwd=cwd, env=quiet_environment, capture_output=True, text=True, check=False)
    if process.returncode and not process.stdout.strip() and process.stderr.strip():
        raise SkippedJudge(f"{Path(command[0]).name} did not run: {process.stderr.strip().splitlines()[-1]}")
    return process.stdout
