"""`python -m bench [section …]`: measure and write each section into docs/benchmarks.md.

A section is a module of this folder with a function `measure() -> str` that answers in Markdown.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
from pathlib import Path

from tenancy.catalog.days import today

SECTIONS = {
    "spec": "Reading and planning",
    "engine": "The engine",
    "state": "State in a bucket",
    "library": "Previews through the library",
    "fleet": "A fleet",
    "whole_fleet": "A whole fleet from nothing",
    "pack": "The policy pack",
    "check": "Manifests",
    "queues": "The queues",
    "day": "A day of the bank",
    "ended_pods": "GPUs of pods that have ended",
    "chargeback": "Chargeback",
    "clock": "The clock",
    "guards": "The guards",
    "flood": "A flood",
}
BY_NAME = frozenset({"ended_pods", "state", "whole_fleet"})
"""Sections that take half an hour or more, and are measured only if they are named."""
PAGE = Path("docs/benchmarks.md")
_TITLE = "# Benchmarks\n\nHow fast is it, and at which size? Measured by `python -m bench`; never part of a test.\n"


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        sys.exit(f"given section {unknown[0]!r}; rule: a section of the benchmarks; change: use {', '.join(SECTIONS)}")
    for name in names or [name for name in SECTIONS if name not in BY_NAME]:
        print(f"{name}: measuring", file=sys.stderr, flush=True)
        body = importlib.import_module(f"bench.{name}").measure()
        text = (PAGE.read_text("utf-8") if PAGE.exists() else "").strip() or _TITLE
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(_with_section(text, name, f"{_circumstances(name)}\n\n{body}").rstrip() + "\n", "utf-8")


def _with_section(text: str, name: str, body: str) -> str:
    """The page with a section's text between its markers, which are added if they are missing."""
    begin, end = f"<!-- bench:{name}:begin -->", f"<!-- bench:{name}:end -->"
    if begin not in text:
        text = f"{text.rstrip()}\n\n## {SECTIONS[name]}\n\n{begin}\n{end}\n"
    head, _, tail = text.partition(begin)
    return f"{head}{begin}\n{body}\n{end}{tail.partition(end)[2]}"


def _circumstances(name: str) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    machine = f"{os.cpu_count()} cores, {memory:.0f} GiB, {_processor()}, Python {platform.python_version()}"
    return f"{today()}, {machine}. `python -m bench {name}`"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


if __name__ == "__main__":
    main(sys.argv[1:])
