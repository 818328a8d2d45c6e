"""A controller's write in between is no refusal: the request is sent again."""

from __future__ import annotations

from typing import Any

import pytest

from tenancy.cluster.api import Response
from tenancy.kube.requests import Impersonation
from tenancy.rules.attacks import Request
from tenancy.verify.verification import CONFLICTS, ask

WRITTEN_MEANWHILE = Response(409, {"reason": "Conflict", "message": "the object has been modified"})
REQUEST = Request(
    "PATCH", "/apis/apps/v1/namespaces/a/deployments/b/scale", {"spec": {"replicas": 4}}, Impersonation("jane")
)


class Server:
    """An API server that gives these answers, one after another."""

    def __init__(self, *answers: Response) -> None:
        self.answers = list(answers)

    def request(self, *_: Any) -> Response:
        return self.answers.pop(0)


def retried_answer(*answers: Response) -> tuple[int, int]:
    """The status that counts, and how many answers were left unread."""
    server = Server(*answers)
    answer = ask(server, REQUEST)  # ty: ignore[invalid-argument-type]
    return answer.status, len(server.answers)


def test_a_request_that_met_another_write_is_sent_again() -> None:
    assert retried_answer(WRITTEN_MEANWHILE, Response(200, {})) == (200, 0)


def test_a_conflict_that_stays_is_the_answer() -> None:
    assert retried_answer(*[WRITTEN_MEANWHILE] * (CONFLICTS + 1)) == (409, 0)


@pytest.mark.parametrize("answer", [Response(403, {"reason": "Forbidden"}), Response(409, {"reason": "AlreadyExists"})])
def test_a_refusal_is_not_asked_about_again(answer: Response) -> None:
    assert retried_answer(answer, Response(200, {})) == (answer.status, 1)
