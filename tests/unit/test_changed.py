"""What changed in a list since it was read, told by a watch that proves that it is complete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tenancy.live.api import ApiUnreachable
from tenancy.live.list_changes import changes

PATH = "/api/v1/resourcequotas"
NOW = 20


def item(version: int, name: str = "quota") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "fraud--train", "resourceVersion": str(version)}}


def bookmark(version: int) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}


class Server:
    """Is at version `NOW`, and answers a watch with these events."""

    def __init__(self, *events: Mapping[str, Any], now: str = str(NOW), refusal: str = "") -> None:
        self.told, self.now, self.refusal = events, now, refusal
        self.watched: list[str] = []

    def items_and_version(self, path: str) -> tuple[list[Any], str]:
        assert path == f"{PATH}?labelSelector=none"
        return [], self.now

    def events(self, path: str) -> Iterator[Mapping[str, Any]]:
        self.watched.append(path)
        if self.refusal:
            raise ApiUnreachable(self.refusal)
        yield from self.told


def found(server: Server, since: int = 10) -> Any:
    return changes(server, {PATH: since}, "all", "none")[PATH]  # ty: ignore[invalid-argument-type]


def test_a_watch_without_a_change_is_complete_at_the_version_of_its_bookmark() -> None:
    server = Server(bookmark(NOW))
    answer = found(server)
    assert (dict(answer.objects), answer.version) == ({}, NOW)
    (path,) = server.watched
    assert "resourceVersion=10&" in path
    assert path.endswith("&labelSelector=all")


def test_the_last_state_of_each_changed_object_counts() -> None:
    events = [
        {"type": "MODIFIED", "object": item(12)},
        {"type": "ADDED", "object": item(13, "other")},
        {"type": "MODIFIED", "object": item(14)},
        {"type": "DELETED", "object": item(15, "other")},
        bookmark(NOW),
    ]
    answer = found(Server(*events))
    assert {place: (live["metadata"]["resourceVersion"], there) for place, (live, there) in answer.objects.items()} == {
        ("fraud--train", "quota"): ("14", True),
        ("fraud--train", "other"): ("15", False),
    }


@pytest.mark.parametrize(
    "server",
    [
        pytest.param(Server(), id="ended without a bookmark"),
        pytest.param(Server({"type": "MODIFIED", "object": item(NOW - 1)}), id="ended after a change"),
        pytest.param(Server(bookmark(NOW - 1)), id="an API server that is behind"),
        pytest.param(Server({"type": "ERROR", "object": {"code": 410}}, bookmark(NOW)), id="too old a version"),
        pytest.param(Server(refusal="403"), id="may not watch"),
        pytest.param(Server(bookmark(NOW), now=""), id="a list without a version"),
        pytest.param(Server(bookmark(NOW), now="x7"), id="versions that are no numbers"),
    ],
)
def test_changes_that_may_be_incomplete_are_not_known(server: Server) -> None:
    assert found(server) is None


def test_an_api_server_that_was_behind_counts_once_it_is_not() -> None:
    answer = found(Server(bookmark(NOW - 2), {"type": "MODIFIED", "object": item(NOW - 1)}, bookmark(NOW)))
    assert {*answer.objects} == {("fraud--train", "quota")}


def test_a_change_as_late_as_the_list_ends_the_watch_as_a_bookmark_does() -> None:
    answer = found(Server({"type": "MODIFIED", "object": item(NOW)}))
    assert ({*answer.objects}, answer.version) == ({("fraud--train", "quota")}, NOW)


def test_at_the_same_version_there_is_nothing_to_wait_for() -> None:
    server = Server()
    answer = found(server, since=NOW)
    assert (dict(answer.objects), answer.version, server.watched) == ({}, NOW, [])


def test_a_list_whose_version_is_not_known_is_not_watched() -> None:
    server = Server(bookmark(NOW))
    assert found(server, since=0) is None
    assert server.watched == []
