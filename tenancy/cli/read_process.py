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
from tenancy.validation.loader import ENVIRONMENT_FILE, TENANTS_FOLDER, find_folder, read, trust_loaded

if TYPE_CHECKING:
    from tenancy.engine.fleet_comparison import HelperProcess
    from tenancy.engine.prefetch import Prefetch

MIN_TENANT_FILES = 100
"""Tenants' files from which on it pays: to start the process and to hand over what it read takes 0.2 s."""


class SpecReading(NamedTuple):
    """An environment that is being read."""

    load: Callable[[str], Loaded]
    """Answers as `load` does."""
    prefetch: Prefetch | None = None
    """What engine and cluster are asked meanwhile; None for a small environment."""
    helper_process: HelperProcess | None = None
    """The other process, once it has read the files; None for a small environment."""


def start_reading(environment: str, *, lab: bool, all_stacks: bool) -> SpecReading:
    """Begin to read an environment, if it is large, in another process.

    `lab` says that it runs on the lab, `whole` that no stack was named. Whatever goes wrong in the other process, this
    one reads the files again, and has the messages.
    """
    if sys.platform != "linux" or not _is_large(environment):
        return SpecReading(load)
    from tenancy.engine.driver import import_clients
    from tenancy.engine.fleet_comparison import HelperProcess
    from tenancy.engine.prefetch import start_prefetch

    fork = multiprocessing.get_context("fork")
    answers, sending = fork.Pipe()
    fork.Process(target=_run_helper_process, args=(answers, sending, environment, lab), daemon=True).start()
    sending.close()
    import_clients()

    def load_from_helper(name: str) -> Loaded:
        try:
            loaded_spec: Loaded = answers.recv()
        except EOFError:
            return load(name)
        return trust_loaded(loaded_spec)

    try:
        name, context = answers.recv()
    except EOFError:
        return SpecReading(load)
    context = words.LAB_CONTEXT if lab else context
    return SpecReading(
        load_from_helper,
        start_prefetch(find_folder(environment), name, context, is_whole_run=all_stacks),
        HelperProcess(answers),
    )


def _is_large(environment: str) -> bool:
    try:
        return sum(1 for _ in (find_folder(environment) / TENANTS_FOLDER).iterdir()) > MIN_TENANT_FILES
    except (SpecError, OSError):
        return False


def _run_helper_process(
    command_end: Connection[Any, Any], helper_end: Connection[Any, Any], environment: str, lab: bool
) -> None:
    """The other process. It ends when the command closes its end of the connection, or ends."""
    command_end.close()
    # Ctrl-C is for the command, which ends this process with itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # what is read stays in use, and the process ends with it
    folder = find_folder(environment)
    try:
        spec = read(folder / ENVIRONMENT_FILE, Environment)
        helper_end.send((spec.environment, spec.cluster.context))
        loaded = load(environment)
        helper_end.send(loaded)
    except (SpecError, OSError):
        return  # the command reads the files by itself, or has ended
    from tenancy.engine.fleet_comparison import serve_comparisons

    serve_comparisons(helper_end, on_lab(loaded) if lab else loaded, folder)
