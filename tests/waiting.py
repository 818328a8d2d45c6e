"""Waiting for what takes its time: one patience for all tests.

A wait that succeeds costs no more than it takes, so the patience is that of a machine with much else to do. Tests whose
subject is that something does not happen, or how long it takes, have times of their own.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tenancy.cluster.api import ApiUnreachable

PATIENCE = 300.0
"""Of a wait, and of a command that is run, in seconds."""
PAUSE = 0.05

Answer = TypeVar("Answer")


def until(
    fact: Callable[[], Answer],
    what: str | Callable[[], object],
    *,
    seconds: float = PATIENCE,
    process: subprocess.Popen[Any] | None = None,
) -> Answer:
    """The answer of `fact` once it is true; `what` describes the state that is waited for.

    The wait is over when the `process` that leads there has ended. A busy API server may leave a question without an
    answer: it is asked again.
    """
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        # Asked first: what a process does last counts.
        ended = process is not None and process.poll() is not None
        try:
            if answer := fact():
                return answer
        except ApiUnreachable as error:
            if error.status:
                raise
        now = time.monotonic()
        if ended or now - began >= seconds:
            description = what() if callable(what) else what
            if ended and process is not None:
                raise AssertionError(f"{_result(process)}, and still not: {description}")
            raise AssertionError(f"after {seconds:.0f} s still not: {description}")
        # Who asks all the time keeps a busy API server from what is waited for.
        time.sleep(max(PAUSE, now - asked))


def until_clear(obstacles: Callable[[], object], what: str, **more: Any) -> None:
    """Wait until nothing stands in the way; what still does at the end is in the message."""
    reasons: object = None

    def is_clear() -> bool:
        nonlocal reasons
        reasons = obstacles()
        return not reasons

    until(is_clear, lambda: f"{what}; in the way: {reasons}", **more)


def _result(process: subprocess.Popen[Any]) -> str:
    output = "".join(
        text if isinstance(text, str) else text.decode(errors="replace")
        for text in process.communicate(timeout=PATIENCE)
        if text
    )
    return f"the command has ended with exit code {process.returncode}:\n{output}\n"
