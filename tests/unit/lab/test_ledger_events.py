"""Stories of the ledger: the same of a seed, with every kind of event, and with what broke queues before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.conftest import every
from tests.ledger_events import KINDS, REGRESSIONS, REST_EVENT, REST_EVERY, Event, Story, about, smallest

PROGRAMS = ("kueue", "jobset")
SEEDS = range(40)
EVENTS = 300


def story(seed: int) -> list[Event]:
    return Story(seed, KINDS, PROGRAMS).events(EVENTS)


def test_a_story_is_the_same_of_a_seed_and_another_of_another() -> None:
    assert story(1) == story(1)
    assert story(1) != story(2)
    assert len(story(1)) == EVENTS


def test_a_printed_story_is_one_that_can_be_played() -> None:
    assert eval(repr(story(3)), {"Event": Event}) == story(3)


def test_a_story_rests_at_its_end_and_every_thirty_events() -> None:
    for seed in SEEDS:
        events = story(seed)
        assert events[-1] == REST_EVENT
        assert events.count(REST_EVENT) >= EVENTS // REST_EVERY


def test_every_kind_of_work_and_of_event_is_in_two_of_three_stories() -> None:
    kinds, verbs = Counter[str](), Counter[str]()
    for seed in SEEDS:
        events = story(seed)
        kinds.update({event.kind for event in events if event.verb == "make"})
        verbs.update({event.verb for event in events})
    assert {kind for kind in KINDS if kinds[kind] < 2 / 3 * len(SEEDS)} == set()
    assert {verb for verb, count in verbs.items() if count < 2 / 3 * len(SEEDS)} == set()
    assert {*verbs} == {
        *("make", "finish", "fail", "delete", "delete-child", "delete-pod", "scale", "roll", "patch", "evict", "drain"),
        *("hold", "resume", "restart", "pause", "rest"),
    }


def test_events_befall_work_that_was_made_and_not_deleted() -> None:
    for seed in SEEDS:
        live: set[str] = set()
        for event in story(seed):
            if event.verb == "make":
                live.add(event.name)
            elif event.name and event.verb != "restart":
                assert event.name in live, event
            if event.verb == "delete":
                live.discard(event.name)


def restarts_half_done(events: Sequence[Event]) -> bool:
    """Some pods of a JobSet end well after a rest, and then it is restarted or its children are made anew."""
    jobsets = {event.name: event for event in events if event.verb == "make" and event.kind == "jobset"}
    ended: set[str] = set()
    for number, event in enumerate(events):
        if event.name not in jobsets:
            continue
        facts = jobsets[event.name].facts
        several = facts["jobs"] + bool(facts.get("second")) > 1
        if event.verb == "finish" and event.facts["left"] and several and REST_EVENT in events[:number]:
            ended.add(event.name)
            if "ttl" in facts:
                return True
        again = {"fail", "evict", "delete-pod"} if facts["restarts"] else set()
        if event.name in ended and event.verb in again | {"delete-child"}:
            return True
    return False


def runs_more_than_it_completes(events: Sequence[Event]) -> bool:
    return any(
        event.verb == "make" and event.kind == "job" and (event.facts.get("completions") or 99) < event.facts["pods"]
        for event in events
    )


def asks_for_more_than_there_is(events: Sequence[Event]) -> bool:
    """Between two rests, of both tenants, more than 64 GPUs, some of which may start with fewer pods."""
    start = 0
    for number, event in enumerate(events):
        if event == REST_EVENT:
            jobs = [e for e in events[start:number] if e.verb == "make" and e.kind == "job"]
            if (
                sum(job.facts["gpus"] * job.facts["pods"] for job in jobs) > 64
                and len({job.tenant for job in jobs}) == 2
                and sum("least" in job.facts for job in jobs) >= 2
            ):
                return True
            start = number
    return False


@pytest.mark.parametrize("broke", [restarts_half_done, runs_more_than_it_completes, asks_for_more_than_there_is])
def test_what_broke_queues_before_is_in_four_of_five_stories(broke: object) -> None:
    assert callable(broke)
    assert sum(map(bool, map(broke, map(story, SEEDS)))) >= 0.8 * len(SEEDS)


def test_the_smallest_part_that_fails_is_found() -> None:
    events = story(5)
    guilty = {events[20], events[120], events[250]}
    lengths = []

    def fails(part: Sequence[Event]) -> bool:
        lengths.append(len(part))
        return guilty <= {*part}

    least, attempts = smallest(events, fails, 500)
    assert {*least} == guilty
    assert attempts == len(lengths) < 200


def test_a_search_that_may_not_go_on_keeps_a_part_that_fails() -> None:
    events = story(5)
    least, attempts = smallest(events, lambda part: events[7] in part, 3)
    assert attempts == 3
    assert events[7] in least


def test_what_is_about_some_work_leaves_out_that_of_others() -> None:
    works = [Event("make", "fraud", "job", name, {"gpus": 1}) for name in ("w1", "w2")]
    others = [Event("restart", name="kueue"), Event("drain", facts={"node": 1}), Event("hold", "fraud"), REST_EVENT]
    assert about([*works, *others], {"w2"}) == [works[1], *others]


def test_each_sequence_that_was_found_ends_in_a_rest() -> None:
    assert every(events[-1] == REST_EVENT for events in REGRESSIONS.values())
