"""Runs in a separate process, with wall time, CPU time and peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import NamedTuple

# A process in between, so that the peak is the command's alone. Its first argument is the expected exit code.
_COMMAND = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
done = subprocess.run([sys.executable, "-m", "tenancy", *sys.argv[2:]], capture_output=True, text=True)
wall, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
if done.returncode != int(sys.argv[1]):
    sys.exit(f"exit code {done.returncode}: {done.stderr}")
print(json.dumps([wall, used.ru_utime + used.ru_stime, used.ru_maxrss]))
"""


class Run(NamedTuple):
    """Wall time and CPU time in seconds, peak memory in kilobytes."""

    wall: float
    cpu: float
    peak: int


def tenancy(*arguments: str, code: int = 0) -> Run:
    """One run of the command line, which must exit with `code`."""
    return python(_COMMAND, str(code), *arguments)


def python(code: str, *arguments: str) -> Run:
    """One run of Python code that prints wall time, CPU time and peak memory."""
    process = subprocess.run([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return Run(*json.loads(process.stdout))
