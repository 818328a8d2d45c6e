"""A function that runs while the caller does something else."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def in_background(function: Callable[_P, _R], *arguments: _P.args, **keyword_arguments: _P.kwargs) -> Future[_R]:
    """The answer of a function that a thread of its own runs, or what it raised.

    The thread does not keep a command from ending, as one of an executor would: what it asks may take seconds.
    """
    answer: Future[_R] = Future()

    def run() -> None:
        try:
            answer.set_result(function(*arguments, **keyword_arguments))
        except BaseException as error:  # raised again where the answer is read
            answer.set_exception(error)

    Thread(target=run, daemon=True).start()
    return answer
