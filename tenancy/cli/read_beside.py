"""Reads the files of a large environment in a process of its own, while this one imports the clients of engine and
cluster: a second core does half of the work before the first request."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tenancy.validation import Loaded, SpecError, load
from tenancy.validation.loader import TENANTS_FOLDER, find_folder, handed_over

MANY = 100
"""Tenants' files from which on it pays: to start the process and to hand over what it read takes 0.2 s."""


def reading(environment: str) -> Callable[[str], Loaded]:
    """A function that answers as `load` does; for a large environment the reading has begun when this returns.

    Whatever goes wrong in the other process, this one reads the files again, and has the messages.
    """
    if sys.platform != "linux" or not _is_large(environment):
        return load
    from tenancy.engine.driver import import_clients

    fork = multiprocessing.get_context("fork")
    answer, sending = fork.Pipe(duplex=False)
    process = fork.Process(target=_send, args=(sending, environment), daemon=True)
    process.start()
    sending.close()
    import_clients()

    def read(name: str) -> Loaded:
        try:
            loaded: Loaded = answer.recv()
        except EOFError:
            return load(name)
        finally:
            process.join()
        return handed_over(loaded)

    return read


def _is_large(environment: str) -> bool:
    try:
        return sum(1 for _ in (find_folder(environment) / TENANTS_FOLDER).iterdir()) > MANY
    except (SpecError, OSError):
        return False


def _send(sending: Connection[Any, Any], environment: str) -> None:
    # Ctrl-C is for the command, which ends this process with itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(SpecError):
        sending.send(load(environment))
