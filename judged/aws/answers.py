"""Answers of the services on loopback that are no values."""

from __future__ import annotations

import time

ACCOUNT = "111122223333"
"""AWS' own example account, that of the example environments."""


class RefusedRequest(Exception):
    """An answer with an error, as the service's API names it."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message


def unknown(what: str) -> RefusedRequest:
    """The answer to an operation that is not played here."""
    return RefusedRequest(400, "InvalidRequestException", f"not played on loopback: {what}")


def now() -> float:
    """Seconds since 1970, as AWS' JSON protocols write a time."""
    return round(time.time(), 3)
