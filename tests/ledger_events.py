"""Random work of two tenants and what befalls it, as a list of events that a seed decides: what a list says depends on
no cluster, so that any part of it can be played again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

TENANTS = ("fraud", "fraud", "performance")
"""Tenants of the events; the first borrows twice as often as the second."""
ENDING = ("job", "group", "pod", "jobset", "trainjob", "mpijob", "rayjob")
"""Kinds whose pods end by themselves; those of the others run until they are told to end."""
SCALED = ("deployment", "statefulset", "leaderworkerset", "raycluster")
PARENTS = ("jobset", "trainjob", "rayjob", "leaderworkerset")
"""Kinds whose children are work of another kind, which may be deleted alone."""
BUILT_IN = ("job", "pod", "group", "deployment", "statefulset")
KINDS = (*BUILT_IN, "jobset", "leaderworkerset", "raycluster", "rayjob", "trainjob", "mpijob")
WEIGHTS = {"job": 3, "jobset": 5}
"""Weights of kinds that are made more often than others."""
REST_EVERY = 30
LIVE = 18
"""Pieces of work at a time, beyond which more is deleted than made."""


@dataclass(frozen=True)
class Event:
    """Something that is done, by whom it is done and to which work; `facts` are plain values."""

    verb: str
    tenant: str = ""
    kind: str = ""
    name: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        """As it is written in Python, so that a printed list can be played."""
        values = (self.verb, self.tenant, self.kind, self.name, dict(self.facts))
        while values and not values[-1]:
            values = values[:-1]
        return f"Event{values!r}" if len(values) > 1 else f"Event({values[0]!r})"


REST_EVENT = Event("rest")


class Story:
    """The events of a seed, and of what work they speak."""

    def __init__(self, seed: int, kinds: Sequence[str] = KINDS, programs: Sequence[str] = ("kueue",)) -> None:
        self._random = random.Random(seed)
        self._kinds, self._programs = kinds, programs
        self._live: list[Event] = []
        self._half_done: list[Event] = []
        self._held: set[str] = set()
        self._count = 0

    def events(self, count: int) -> list[Event]:
        """So many events; every thirty a rest, and one at the end."""
        story: list[Event] = []
        while len(story) < count - 1:
            for event in self._next():
                story.append(event)
                if len(story) % REST_EVERY == REST_EVERY - 1:
                    story.append(REST_EVENT)
        return [*story[: count - 1], REST_EVENT]

    def _next(self) -> Iterator[Event]:
        choices: list[tuple[Callable[[], Iterable[Event]], float]] = [
            (self._make, 14 if len(self._live) < LIVE else 4),
            (self._burst, 1.2),
            (self._finish, 11),
            (self._befall_half_done, 7),
            (lambda: self._on("fail", ENDING + SCALED, at=self._part()), 6),
            (self._delete, 3 if len(self._live) < LIVE else 10),
            (lambda: self._on("delete-child", PARENTS, at=self._part()), 3),
            (lambda: self._on("delete-pod", KINDS, at=self._part()), 2),
            (lambda: self._on("scale", SCALED, replicas=self._random.choice((0, 0, 1, 2, 3, 4))), 5),
            (lambda: self._on("roll", ("deployment", "statefulset"), gpus=self._random.choice((1, 2, 4, 8))), 2),
            (lambda: self._on("patch", ("job",), **self._patch()), 3),
            (lambda: self._on("evict", KINDS, at=self._part()), 2),
            (lambda: [Event("drain", facts={"node": self._random.randrange(8)})], 1.5),
            (self._queue, 3 if self._held else 1.5),
            (lambda: [Event("restart", name=self._random.choice(self._programs))], 0.7),
            (lambda: [Event("pause", facts={"seconds": self._random.choice((0.2, 0.5, 1))})], 4),
        ]
        actions, weights = zip(*choices, strict=True)
        yield from self._random.choices(actions, weights)[0]()

    def _part(self) -> float:
        """Which of several pods, in an order of their names."""
        return round(self._random.random(), 2)

    def _on(self, verb: str, kinds: Sequence[str], **facts: Any) -> Iterator[Event]:
        """Something that befalls work of these kinds; the youngest is chosen more often."""
        fitting = [work for work in self._live if work.kind in kinds]
        if fitting:
            work = fitting[-1 - min(int(self._random.expovariate(0.35)), len(fitting) - 1)]
            yield Event(verb, work.tenant, work.kind, work.name, facts)

    def _new(self, kind: str, tenant: str = "", **facts: Any) -> Event:
        self._count += 1
        event = Event("make", tenant or self._random.choice(TENANTS), kind, f"w{self._count}", facts)
        self._live.append(event)
        return event

    def _make(self) -> Iterator[Event]:
        kind = self._random.choices(self._kinds, [WEIGHTS.get(name, 1) for name in self._kinds])[0]
        draw = self._random
        gpus = draw.choice((1, 2, 4, 8))
        match kind:
            case "job":
                yield self._new(kind, **self._job(gpus, draw.choice((1, 2, 2, 3, 4))))
            case "pod":
                yield self._new(kind, gpus=gpus, restart=draw.choice(("Always", "Never", "OnFailure")))
            case "group":
                yield self._new(kind, gpus=gpus, pods=draw.choice((2, 3)))
            case "deployment":
                yield self._new(kind, gpus=gpus, pods=draw.choice((1, 2, 3)))
            case "statefulset":
                policy = draw.choice(("Parallel", "OrderedReady"))
                yield self._new(kind, gpus=gpus, pods=draw.choice((1, 2, 3)), policy=policy)
            case "jobset":
                yield self._new(
                    kind,
                    gpus=gpus,
                    jobs=draw.choice((1, 2, 3, 4, 4)),
                    pods=draw.choice((1, 1, 2)),
                    restarts=draw.choice((0, 1, 1, 3)),
                    **({"ttl": 1} if draw.random() < 0.2 else {}),
                    **({"second": True} if draw.random() < 0.3 else {}),
                )
            case "leaderworkerset":
                yield self._new(kind, gpus=min(gpus, 4), groups=draw.choice((1, 2)), pods=draw.choice((1, 2, 3)))
            case "raycluster" | "rayjob":
                yield self._new(kind, gpus=gpus, pods=draw.choice((1, 2, 3)), hosts=draw.choice((1, 1, 2)))
            case "trainjob" | "mpijob":
                yield self._new(kind, gpus=gpus, pods=draw.choice((1, 2, 3)))

    def _job(self, gpus: int, parallelism: int) -> dict[str, Any]:
        draw = self._random
        facts: dict[str, Any] = {"gpus": gpus, "pods": parallelism}
        more = draw.random()
        if parallelism > 1 and more < 0.4:
            # One end, and a pod that Kueue does not count follows; a guard refuses it.
            facts["completions"] = parallelism - 1
        elif more < 0.5:
            facts["completions"] = parallelism + draw.choice((1, 3))
        elif more < 0.6:
            facts["completions"] = None
        mode = draw.random()
        if mode < 0.3 and facts.get("completions", parallelism):
            facts["mode"] = "Indexed"
            if mode < 0.15:
                facts["per_index"] = draw.choice((0, 1))
        if draw.random() < 0.15:
            facts["ttl"] = 1
        if draw.random() < 0.3 and parallelism > 1:
            facts["least"] = 1
        if draw.random() < 0.3:
            facts["priority"] = "batch"
        if draw.random() < 0.1:
            facts["replacement"] = "Failed"
        return facts

    def _burst(self) -> Iterator[Event]:
        """More than there is, of different priorities, some of which may start with fewer pods."""
        draw = self._random
        for _ in range(draw.randint(6, 9)):
            facts: dict[str, Any] = {"gpus": draw.choice((1, 2, 8, 8)), "pods": draw.choice((1, 2, 3, 4, 5))}
            if draw.random() < 0.4 and facts["pods"] > 1:
                facts["least"] = 1
            if draw.random() < 0.5:
                facts["priority"] = "batch"
            yield self._new("job", **facts)
            yield Event("pause", facts={"seconds": 0.3})

    def _finish(self) -> Iterator[Event]:
        """The pods of a piece of work end well, all, or all but one or two."""
        for event in self._on("finish", ENDING, left=self._random.choice((1, 1, 1, 2, 0, 0)), at=self._part()):
            if event.facts["left"]:
                self._half_done.append(event)
            else:
                self._forget(event.name)
            yield event

    def _befall_half_done(self) -> Iterator[Event]:
        """Work of which some pods have ended well: another fails, goes or is told to go, or what ended is deleted."""
        if self._half_done:
            last = self._half_done[-5:]
            (work,) = self._random.choices(last, [4 if work.kind == "jobset" else 1 for work in last])
            verb = self._random.choice(("fail", "delete-child", "delete-pod", "evict"))
            if verb != "delete-child" or work.kind in {"jobset", "trainjob"}:
                yield Event(verb, work.tenant, work.kind, work.name, {"at": self._part()})

    def _forget(self, name: str) -> None:
        self._live = [work for work in self._live if work.name != name]
        self._half_done = [work for work in self._half_done if work.name != name]

    def _delete(self) -> Iterator[Event]:
        how = self._random.choice(("Background", "Background", "Foreground", "Orphan"))
        for event in self._on("delete", self._kinds, how=how):
            self._forget(event.name)
            yield event

    def _patch(self) -> dict[str, Any]:
        number = self._random.choice((0, 1, 2, 3, 5))
        patches: tuple[dict[str, Any], ...] = (
            {"suspend": True},
            {"suspend": False},
            {"parallelism": number},
            {"suspend": True, "parallelism": number + 1},
            {"parallelism": number + 1, "completions": number + 1},
            {"activeDeadlineSeconds": 5},
        )
        return {"spec": self._random.choice(patches)}

    def _queue(self) -> Iterator[Event]:
        """A queue is held or emptied, and opened again later."""
        if self._held:
            tenant = self._random.choice(sorted(self._held))
            self._held.discard(tenant)
            yield Event("resume", tenant)
        else:
            tenant = self._random.choice(TENANTS)
            self._held.add(tenant)
            yield Event("hold", tenant, facts={"drain": self._random.random() < 0.5})


def smallest(
    events: Sequence[Event], fails: Callable[[Sequence[Event]], bool], attempts: int
) -> tuple[list[Event], int]:
    """A part of the events that fails and from which nothing can be left out, as far as so many attempts go; and how
    many were made. Delta debugging: ever smaller pieces are left out."""
    part, attempt, pieces = list(events), 0, 2
    while len(part) > 1 and attempt < attempts:
        size = max(1, len(part) // pieces)
        for start in range(0, len(part), size):
            shorter = [*part[:start], *part[start + size :]]
            if not shorter or attempt >= attempts:
                break
            attempt += 1
            if fails(shorter):
                part, pieces = shorter, max(pieces - 1, 2)
                break
        else:
            if size == 1:
                break
            pieces = min(pieces * 2, len(part))
    return part, attempt


def about(events: Sequence[Event], names: Iterable[str]) -> list[Event]:
    """Those of the events that concern some work, or a queue, a node, a program, or no one's work."""
    works = {*names}
    return [event for event in events if not event.name or event.name in works or event.verb == "restart"]


# What was found in queues once, by what happened.

SWEEP = {"gpus": 8, "jobs": 8, "pods": 1, "restarts": 1}
WAIT = Event("pause", facts={"seconds": 4})
SHORT_WAIT = Event("pause", facts={"seconds": 2})


def _sweep(*after: Event, **facts: Any) -> list[Event]:
    start = Event("make", "fraud", "jobset", "sweep", {**SWEEP, **facts})
    return [start, Event("until", "fraud", "jobset", "sweep", {"pods": 8}), *after]


def _of_sweep(verb: str, **facts: Any) -> Event:
    return Event(verb, "fraud", "jobset", "sweep", facts)


SETTINGS_REGRESSIONS: Mapping[str, list[Event]] = {
    "a JobSet whose children have succeeded is restarted": _sweep(
        _of_sweep("finish", left=1, at=0.0), WAIT, _of_sweep("fail", at=0.0), WAIT, REST_EVENT
    ),
    "finished children of a JobSet are deleted": _sweep(
        _of_sweep("finish", left=1, at=0.0),
        WAIT,
        *[_of_sweep("delete-child", at=part) for part in (0.0, 0.3, 0.6)],
        WAIT,
        REST_EVENT,
        restarts=0,
    ),
    "finished children of a JobSet have a time to live": _sweep(
        _of_sweep("finish", left=1, at=0.0), WAIT, WAIT, REST_EVENT, ttl=1
    ),
    "a node is drained under a JobSet that is half done": [
        Event("make", "fraud", "jobset", "sweep", {"gpus": 8, "jobs": 2, "pods": 1, "restarts": 1}),
        Event("until", "fraud", "jobset", "sweep", {"pods": 2}),
        _of_sweep("finish", left=1, at=0.0),
        WAIT,
        *[Event("drain", facts={"node": node}) for node in range(8)],
        WAIT,
        REST_EVENT,
    ],
    "six jobs of which two may start with fewer pods": [
        Event("make", "performance", "job", "a", {"gpus": 8, "pods": 4, "least": 1}),
        Event("pause", facts={"seconds": 0.3}),
        Event("make", "performance", "job", "b", {"gpus": 8, "pods": 5, "least": 1, "priority": "batch"}),
        Event("pause", facts={"seconds": 0.3}),
        Event("make", "performance", "job", "c", {"gpus": 8, "pods": 2, "priority": "batch"}),
        Event("pause", facts={"seconds": 0.3}),
        Event("make", "fraud", "job", "d", {"gpus": 2, "pods": 1}),
        Event("pause", facts={"seconds": 0.3}),
        Event("make", "fraud", "job", "e", {"gpus": 8, "pods": 5, "priority": "batch"}),
        Event("pause", facts={"seconds": 0.3}),
        Event("make", "performance", "job", "f", {"gpus": 1, "pods": 3, "priority": "batch"}),
        REST_EVENT,
    ],
}
"""Stories that Kueue's own defaults allow."""
WITHOUT_PODS = "the pods of a StatefulSet are refused by the quota that pods fill which wait"
REGRESSIONS: Mapping[str, list[Event]] = {
    **SETTINGS_REGRESSIONS,
    "a StatefulSet that waits is scaled to 0": [
        Event("make", "fraud", "job", "fill", {"gpus": 8, "pods": 8}),
        Event("until", "fraud", "job", "fill", {"pods": 8}),
        Event("make", "fraud", "statefulset", "set", {"gpus": 8, "pods": 8, "policy": "Parallel"}),
        SHORT_WAIT,
        Event("scale", "fraud", "statefulset", "set", {"replicas": 0}),
        Event("delete", "fraud", "job", "fill", {"how": "Background"}),
        SHORT_WAIT,
        Event("make", "performance", "job", "own", {"gpus": 8, "pods": 3}),
        REST_EVENT,
    ],
    WITHOUT_PODS: [
        Event("make", "fraud", "deployment", "idle", {"gpus": 8, "pods": 8, "pool": "elsewhere"}),
        WAIT,
        Event("make", "fraud", "statefulset", "set", {"gpus": 8, "pods": 8, "policy": "Parallel"}),
        WAIT,
        Event("make", "performance", "job", "own", {"gpus": 8, "pods": 3}),
        REST_EVENT,
    ],
    "pods are added while the queue admits the work": [
        event
        for name in (f"grows{number}" for number in range(8))
        for event in (
            Event("make", "fraud", "job", name, {"gpus": 1, "pods": 1, "completions": 6}),
            *(Event("patch", "fraud", "job", name, {"spec": {"parallelism": pods}}) for pods in range(2, 7)),
        )
    ]
    + [REST_EVENT],
    "an MPIJob of many workers is evicted while they start": [
        Event("make", "fraud", "mpijob", "ranks", {"gpus": 1, "pods": 40}),
        *(
            event
            for _ in range(2)
            for event in (
                Event("until", "fraud", "mpijob", "ranks", {"pods": 6}),
                Event("hold", "fraud", facts={"drain": True}),
                Event("pause", facts={"seconds": 1}),
                Event("resume", "fraud"),
            )
        ),
        Event("until", "fraud", "mpijob", "ranks", {"pods": 20}),
        Event("hold", "fraud", facts={"drain": True}),
        REST_EVENT,
        Event("resume", "fraud"),
        REST_EVENT,
    ],
    "a pod is deleted without what belongs to it": [
        Event("make", "fraud", "pod", "alone", {"gpus": 8, "restart": "Never"}),
        Event("until", "fraud", "pod", "alone", {"pods": 1}),
        Event("delete", "fraud", "pod", "alone", {"how": "Orphan"}),
        REST_EVENT,
    ],
}
