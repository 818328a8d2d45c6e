"""A process of its own, with a clock and the peak of its memory around it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import NamedTuple

# A child between, so that the peak is the command's alone. Its first argument is the exit code that it must have.
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
    """Seconds, seconds and kilobytes."""

    wall: float
    cpu: float
    peak: int


def tenancy(*arguments: str, code: int = 0) -> Run:
    """One run of the command line, which must end with `code`."""
    return python(_COMMAND, str(code), *arguments)


def python(code: str, *arguments: str) -> Run:
    """Python text that prints such a triple."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return Run(*json.loads(done.stdout))
