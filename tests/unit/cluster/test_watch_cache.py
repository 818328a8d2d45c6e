"""A list that is followed by its changes is at every time the list that would be read whole."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.cluster.api import ApiUnreachable
from tenancy.cluster.watch_cache import WatchCache
from tenancy.kube.objects import Object

INTERRUPTED = -1


class Server:
    """Objects of one kind, which all are changed by `put` and `delete`."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.happened: list[tuple[int, str, Object]] = []
        self.version = self.oldest = 1
        self.asked: list[str] = []
        self.answer: int | None = None
        """Answer to the next watch: a refusal, or one event and then an interruption."""

    def put(self, name: str, value: int) -> None:
        self.version += 1
        what = "MODIFIED" if name in self.objects else "ADDED"
        metadata = {"name": name, "namespace": "a", "resourceVersion": str(self.version)}
        self.objects[name] = {"metadata": metadata, "value": value, "noise": self.version}
        self.happened.append((self.version, what, copy.deepcopy(self.objects[name])))

    def delete(self, name: str) -> None:
        if item := self.objects.pop(name, None):
            self.version += 1
            item["metadata"]["resourceVersion"] = str(self.version)
            self.happened.append((self.version, "DELETED", item))

    def pages(self, path: str) -> Iterator[Object]:
        self.asked.append(f"list {path}")
        items = list(self.objects.values())
        for start in range(0, len(items) or 1, 2):
            yield {"metadata": {"resourceVersion": str(self.version)}, "items": items[start : start + 2]}

    def events(self, path: str) -> Iterator[Object]:
        self.asked.append("watch")
        answer, self.answer = self.answer, None
        if answer:
            if answer == INTERRUPTED:
                yield {"type": "MODIFIED", "object": self.objects["a"]}
            raise ApiUnreachable("refused or cut", None if answer == INTERRUPTED else answer)
        since = int(path.rpartition("=")[2])
        if since < self.oldest:
            yield {"type": "ERROR", "object": {"kind": "Status", "code": 410}}
            return
        yield from ({"type": what, "object": item} for version, what, item in self.happened if version > since)


def even(item: Any) -> int | None:
    """Value of an item where it is even."""
    return item["value"] if item["value"] % 2 == 0 else None


def listed_values(server: Server) -> dict[tuple[str, str], int]:
    return {("a", name): item["value"] for name, item in server.objects.items() if item["value"] % 2 == 0}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcd"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["delete", "read", "compact", "forget"]), st.sampled_from("abcd"), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS)
def test_it_has_at_every_look_what_a_whole_list_has_and_says_what_differs(
    steps: list[tuple[str, str, int]],
) -> None:
    server, followed = Server(), WatchCache("/things", even)
    api: Any = server
    for step, name, value in [*steps, ("read", "", 0)]:
        if step == "put":
            server.put(name, value)
        elif step == "delete":
            server.delete(name)
        elif step == "compact":
            server.oldest = server.version
        elif step == "forget":
            followed.forget()
        else:
            before = dict(followed.values)
            changed_places = followed.read(api)
            differs = {place for place in before | followed.values if before.get(place) != followed.values.get(place)}
            assert followed.values == listed_values(server)
            # What changed and changed back may be named.
            assert differs <= changed_places


def test_it_is_listed_once_and_then_watched() -> None:
    server, followed = Server(), WatchCache("/things", even)
    api: Any = server
    server.put("a", 2)
    followed.read(api)
    server.put("a", 4)
    assert followed.read(api) == {("a", "a")}
    server.put("a", 4)
    assert followed.read(api) == set(), "what is not kept makes no difference"
    assert server.asked == ["list /things", "watch", "watch"]


@pytest.mark.parametrize("refused", [True, False], ids=["by its status", "by an event"])
def test_changes_that_are_no_longer_known_are_read_by_a_list(*, refused: bool) -> None:
    server, followed = Server(), WatchCache("/things", even)
    api: Any = server
    followed.read(api)
    server.put("a", 2)
    if refused:
        server.answer = 410
    else:
        server.oldest = server.version
    assert followed.read(api) == {("a", "a")}
    assert server.asked == ["list /things", "watch", "list /things"]
    server.put("a", 4)
    assert followed.read(api) == {("a", "a")}
    assert server.asked[-1] == "watch"


@pytest.mark.parametrize("answer", [403, INTERRUPTED])
def test_a_watch_that_is_refused_or_cut_is_asked_again(answer: int) -> None:
    server, followed = Server(), WatchCache("/things", even)
    api: Any = server
    followed.read(api)
    server.put("a", 2)
    server.answer = answer
    with pytest.raises(ApiUnreachable):
        followed.read(api)
    assert followed.values == {}
    assert followed.read(api) == {("a", "a")}
    assert server.asked == ["list /things", "watch", "watch"]
