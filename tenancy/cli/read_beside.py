"""Reads the files of a large environment in a process of its own, while this one imports the clients of engine and
cluster, and asks them what does not depend on the tenants. Later that process shares the work of a whole check."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

from tenancy.catalog import vocabulary as words
from tenancy.validation import Environment, Loaded, SpecError, load, on_lab
from tenancy.validation.loader import ENVIRONMENT_FILE, TENANTS_FOLDER, find_folder, handed_over, read

if TYPE_CHECKING:
    from tenancy.engine.early import Early
    from tenancy.engine.whole_check import Beside

MANY = 100
"""Tenants' files from which on it pays: to start the process and to hand over what it read takes 0.2 s."""


class Reading(NamedTuple):
    """An environment that is being read."""

    load: Callable[[str], Loaded]
    """Answers as `load` does."""
    early: Early | None = None
    """What engine and cluster are asked meanwhile; None for a small environment."""
    beside: Beside | None = None
    """The other process, once it has read the files; None for a small environment."""


def reading(environment: str, *, lab: bool, whole: bool) -> Reading:
    """Begin to read an environment, if it is large, in another process.

    `lab` says that it runs on the lab, `whole` that no stack was named. Whatever goes wrong in the other process, this
    one reads the files again, and has the messages.
    """
    if sys.platform != "linux" or not _is_large(environment):
        return Reading(load)
    from tenancy.engine.driver import import_clients
    from tenancy.engine.early import ask_early
    from tenancy.engine.whole_check import Beside

    fork = multiprocessing.get_context("fork")
    answer, sending = fork.Pipe()
    fork.Process(target=_beside, args=(answer, sending, environment, lab), daemon=True).start()
    sending.close()
    import_clients()

    def loaded(name: str) -> Loaded:
        try:
            found: Loaded = answer.recv()
        except EOFError:
            return load(name)
        return handed_over(found)

    try:
        name, context = answer.recv()
    except EOFError:
        return Reading(load)
    context = words.LAB_CONTEXT if lab else context
    return Reading(loaded, ask_early(find_folder(environment), name, context, whole=whole), Beside(answer))


def _is_large(environment: str) -> bool:
    try:
        return sum(1 for _ in (find_folder(environment) / TENANTS_FOLDER).iterdir()) > MANY
    except (SpecError, OSError):
        return False


def _beside(theirs: Connection[Any, Any], own: Connection[Any, Any], environment: str, lab: bool) -> None:
    """The other process. It ends when the command closes its end of the connection, or ends."""
    theirs.close()
    # Ctrl-C is for the command, which ends this process with itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # what is read stays in use, and the process ends with it
    folder = find_folder(environment)
    try:
        spec = read(folder / ENVIRONMENT_FILE, Environment)
        own.send((spec.environment, spec.cluster.context))
        loaded = load(environment)
        own.send(loaded)
    except (SpecError, OSError):
        return  # the command reads the files by itself, or has ended
    from tenancy.engine.whole_check import answer

    answer(own, on_lab(loaded) if lab else loaded, folder)
