"""The client's reading of answers that are no objects yet."""

from __future__ import annotations

from typing import Any

import pytest

from tenancy.cluster import api as live
from tenancy.cluster.api import Api, ApiUnreachable, Response

NOT_YET = Response(429, {"message": "storage is (re)initializing"})
SERVED = Response(200, {"items": [{"kind": "CiliumNetworkPolicy"}]})


class Answering(Api):
    """Gives these answers one after the other, the last again and again."""

    def __init__(self, *answers: Response) -> None:
        self.answers = list(answers)

    def request(self, *_: Any, **__: Any) -> Response:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live.time, "sleep", lambda _: None)


def test_a_kind_that_the_server_has_just_learned_is_asked_for_again() -> None:
    assert Answering(NOT_YET, NOT_YET, SERVED).items("/apis/cilium.io/v2/ciliumnetworkpolicies") == SERVED.body["items"]


def test_a_server_that_never_has_it_is_named_with_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "RETRY_SECONDS", 0.05)
    with pytest.raises(ApiUnreachable, match="429 storage is"):
        Answering(NOT_YET).items("/apis/cilium.io/v2/ciliumnetworkpolicies")


def test_a_refusal_is_not_asked_for_again() -> None:
    with pytest.raises(ApiUnreachable, match="403"):
        Answering(Response(403, {"message": "forbidden"}), SERVED).items("/api/v1/pods")
