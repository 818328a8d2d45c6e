"""Changes as sentences: for a terminal, for a comment on a pull request, and as data."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Any

from tenancy.catalog.prices import DATE, REGION
from tenancy.components.scope import Scope
from tenancy.diff import changes as of
from tenancy.diff.alarms import Alarm, alarm
from tenancy.diff.changes import Change, Side, Topic, Value
from tenancy.rules.catalogue import RULES
from tenancy.spec.crossfile import some

WIDTH = 100
FIRST = 12
"""Sentences to look at, shared out among their reasons, so that the comment's open part is one screen."""
MOST = 30
"""Sentences of a section, so that a comment stays within what GitHub takes."""
TITLES = {
    Topic.RULE: "Rules",
    Topic.REACH: "Who can reach what",
    Topic.ACCESS: "Who may do what",
    Topic.TENANT: "Tenants",
    Topic.GPUS: "GPUs",
    Topic.EXCEPTION: "Exceptions",
    Topic.WORK: "Work that is replaced or drained",
    Topic.COST: "Dollars a month",
    Topic.QUOTA: "Quotas of namespaces",
    Topic.STACK: "Stacks that have to run",
}
_LOUD = {
    Alarm.BROKEN_RULE: "newly broken",
    Alarm.WIDER_REACH: "reaches or may do more",
    Alarm.DISRUPTION: "running work is disturbed",
    Alarm.NEW_EXCEPTION: "new exception",
    Alarm.LOST_GUARANTEE: "is promised less",
    Alarm.HIGHER_COST: "costs more or nobody knows",
}
_WORST = list(_LOUD)
PLATFORM = "platform"
_ALL = "all tenants"

Sentence = tuple[str, str, Alarm | None]
"""Whose it is, what happens, and why it is one to look at."""


def marker(environment: str) -> str:
    """By what a comment is found again, to be updated in place."""
    return f"<!-- gpu-tenancy diff: {environment} -->"


def markdown(environment: str, before: Side, after: Side, found: Sequence[Change]) -> str:
    """A comment: what to look at on one screen, worst first, and everything below a fold."""
    lines = [marker(environment), f"## {environment}: what changes for its tenants", ""]
    lines += [f"From `{before.name}` to `{after.name}`. {_headline(found, before, after)}"]
    sections = list(_sections(before, after, found))
    loud = {why: [_line(who, what) for _, told in sections for who, what, one in told if one is why] for why in _LOUD}
    loud = {why: lines for why, lines in loud.items() if lines}
    each = FIRST // max(1, len(loud))
    for why, told in loud.items():
        lines += ["", f"**{_LOUD[why].capitalize()}**", "", *told[:each]]
        if more := len(told[each:]):
            lines += [f"- … and {more} more, below"]
    if sections:
        counts = ", ".join(f"{title} ({len(sentences)})" for title, sentences in sections)
        lines += ["", f"<details><summary>Everything: {counts}</summary>"]
        for title, sentences in sections:
            lines += ["", f"### {title}", "", *(_line(*one) for one in _cut(sentences))]
        lines += ["", "</details>"]
    return "\n".join(lines)


def _line(who: str, what: str, why: Alarm | None = None) -> str:
    return f"- {'**' if why else ''}{_escape(who)}{'**' if why else ''}: {_escape(what)}"


def text(environment: str, before: Side, after: Side, found: Sequence[Change]) -> str:
    head = f"{environment}, from {before.name} to {after.name}: {_headline(found, before, after)}"
    lines = textwrap.wrap(head, WIDTH, break_on_hyphens=False)
    for title, sentences in _sections(before, after, found):
        lines += ["", f"{title}:"]
        for who, what, loud in _cut(sentences):
            first = f"{'!' if loud else ' '} {who}: "
            lines += textwrap.wrap(what, WIDTH, initial_indent=first, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(lines)


def as_json(environment: str, before: Side, after: Side, found: Sequence[Change]) -> dict[str, Any]:
    return {
        "environment": environment,
        "from": before.name,
        "to": after.name,
        "alarms": sorted({a for change in found if (a := alarm(change))}),
        "stacks": in_order(found),
        "changes": [{**asdict(change), "alarm": alarm(change)} for change in found],
        "unread": [p.as_dict() for side in (before, after) for p in side.problems],
    }


def _headline(found: Sequence[Change], before: Side, after: Side) -> str:
    if not found:
        return "Nothing changes for anybody, and no stack has to run."
    who: dict[Alarm, set[str]] = {}
    for change in found:
        if one := alarm(change):
            whom = {change.of} if one is Alarm.BROKEN_RULE else _whom(change, before, after) or {PLATFORM}
            who.setdefault(one, set()).update(whom)
    tenants = {name for change in found if change.topic is not Topic.STACK for name in _whom(change, before, after)}
    if after.problems:
        touched = "The files cannot be read, so what else changes is not known"
    elif tenants:
        touched = f"{len(tenants)} tenant{'s' * (len(tenants) != 1)} touched: {some(sorted(tenants))}"
    else:
        touched = "No tenant's share, reach, rights or work changes"
    if not who:
        return f"{touched}. Nobody loses a guarantee, reaches more or is disturbed."
    told = [f"{said}: {some(sorted(who[one]))}" for one, said in _LOUD.items() if one in who]
    return f"{touched}. To look at: {'; '.join(told)}."


def _whom(change: Change, before: Side, after: Side) -> set[str]:
    """Tenants that a change is about, also where it is one of a pool or of a department."""
    if change.tenant:
        return {change.tenant}
    if change.topic is Topic.WORK and change.of:
        return {*of.users(before, change.of), *of.users(after, change.of)}
    if change.what in {of.SHARING, of.WEIGHT}:
        return {*of.members(before, change.of), *of.members(after, change.of)}
    return set()


def _sections(before: Side, after: Side, found: Sequence[Change]) -> Iterator[tuple[str, list[Sentence]]]:
    for side in (before, after):
        if side.problems:
            given = (
                f"{len(side.problems)} problem{'s' * (len(side.problems) != 1)} of the files: only rules are compared"
            )
            yield f"{side.name} cannot be read", [(PLATFORM, given, Alarm.BROKEN_RULE if side is after else None)]
    told = []
    for topic, title in TITLES.items():
        sentences = _WRITERS[topic]([change for change in found if change.topic is topic], before, after)
        sentences.sort(key=lambda sentence: not sentence[2])
        if sentences:
            told.append((title, sentences))
    yield from sorted(told, key=lambda section: not section[1][0][2])


def _cut(sentences: list[Sentence]) -> list[Sentence]:
    more = len(sentences[MOST:])
    return [*sentences[:MOST], ("…", f"and {more} more; --format json has all of them", None)] if more else sentences


def _loud(found: Sequence[Change]) -> Alarm | None:
    """The worst of them."""
    return min((a for change in found if (a := alarm(change))), key=_WORST.index, default=None)


def _grouped(found: Sequence[Change], key: Callable[[Change], Any]) -> list[list[Change]]:
    groups: dict[Any, list[Change]] = {}
    for change in found:
        groups.setdefault(key(change), []).append(change)
    return list(groups.values())


def _arrow(change: Change) -> str:
    before, after = _shown(change.before), _shown(change.after)
    return f"{change.what} {before} → {after}"


def _shown(value: Value) -> str:
    return "0" if value is None else f"{value:,}" if isinstance(value, int) else value


def _tenants(found: Sequence[Change], before: Side, after: Side) -> list[Sentence]:  # noqa: ARG001
    words = {True: "is new", False: "is no tenant any more"}
    return [
        (c.tenant, words[c.before is None] if None in (c.before, c.after) else f"is now called {c.after}", None)
        for c in found
    ]


_ORDER = (of.GUARANTEED, of.LENDS, of.BORROWS, of.BORROWABLE, of.SHARING, of.WEIGHT)


def _gpus(found: Sequence[Change], before: Side, after: Side) -> list[Sentence]:
    sentences = []
    told = [c for c in found if c.what != of.WEIGHT or None not in (c.before, c.after)]
    for group in _grouped(told, lambda change: (change.tenant, change.of)):
        group.sort(key=lambda change: _ORDER.index(change.what) if change.what in _ORDER else 0)
        said, whom = ", ".join(map(_arrow, group)), group[0].of
        if {change.what for change in group} & {of.SHARING, of.WEIGHT} and not group[0].tenant:
            who = f"department {whom}", f"{said} (tenants: {some(sorted(_whom(group[0], before, after)))})"
        else:
            who = group[0].tenant or _ALL, f"{whom}: {said}" if whom else said
        sentences.append((*who, _loud(group)))
    return sentences


def _quotas(found: Sequence[Change], before: Side, after: Side) -> list[Sentence]:  # noqa: ARG001
    """Of namespaces that stay."""
    told = [change for change in found if None not in (change.before, change.after)]
    return [
        (group[0].tenant, f"{group[0].of}: {', '.join(map(_arrow, group))}", None)
        for group in _grouped(told, lambda change: (change.tenant, change.of))
    ]


def _rights(found: Sequence[Change], before: Side, after: Side) -> list[Sentence]:  # noqa: ARG001
    """Gained, lost or changed, with all places in one sentence."""
    sentences = []
    for group in _grouped(found, lambda change: (change.tenant, change.of, change.before, change.after)):
        first = group[0]
        where = ", ".join(change.what for change in group)
        if first.before is None:
            said = f"{first.of} {_GAINS.get(str(first.after)) or f'gains «{first.after}» in'} {where}"
        elif first.after is None:
            said = f"{first.of} {_LOSES.get(str(first.before)) or f'loses «{first.before}» in'} {where}"
        else:
            said = f"{first.of}: «{first.before}» → «{first.after}» in {where}"
        sentences.append((first.tenant or PLATFORM, said, _loud(group)))
    return sentences


_GAINS = {"connect": "can now connect to", "run": "can now run on", "accept": "can now be reached from"}
_LOSES = {key: said.replace("can now", "can no longer") for key, said in _GAINS.items()}


def _costs(found: Sequence[Change], before: Side, after: Side) -> list[Sentence]:
    sentences = []
    for change in found:
        who = change.tenant or "the cluster"
        if change.what == "price":
            said = f"nobody has said the price of pool {change.of}: write costs.pools, or prices of its board"
            if change.after is not None:
                sentences.append((who, said, Alarm.HIGHER_COST))
            continue
        if change.what == of.BUDGET:
            said = " → ".join("none" if value is None else _shown(value) for value in (change.before, change.after))
            sentences.append((who, f"{change.what} {said}", None))
            continue
        old, new = change.before or 0, change.after or 0
        more = f" ({new - old:+,})" if isinstance(old, int) and isinstance(new, int) else ""
        sentences.append((who, f"{_arrow(change)}{more}", _loud([change])))
    if sentences and (pools := of.published(after) or of.published(before)):
        said = f"prices of {some(pools)} are AWS's published ones of {REGION}, {DATE}; the environment says none"
        sentences.append((PLATFORM, said, None))
    return sentences


def _exceptions(found: Sequence[Change], before: Side, after: Side) -> list[Sentence]:  # noqa: ARG001
    sentences = []
    for change in found:
        if change.after is None:
            said = f"{change.of} is waived no longer"
        elif change.before is None:
            said = f"{change.of} is waived {change.after}: {change.what}"
        else:
            said = f"{change.of} is waived {change.after}, before {change.before}: {change.what}"
        sentences.append((change.tenant, said, _loud([change])))
    return sentences


def _rules(found: Sequence[Change], before: Side, after: Side) -> list[Sentence]:  # noqa: ARG001
    changes = {of.where(problem): problem.change for problem in after.problems}
    sentences = []
    for change in found:
        rule = RULES.get(change.of)
        if change.after is None:
            sentences.append((change.of, f"is kept again: {change.what}", None))
            continue
        why = f"; rule: {rule.title}" if rule else ""
        fix = changes.get(change.what) or (rule.fix if rule else "")
        sentences.append((change.of, f"is broken: {change.what}{why}{f'; change: {fix}' * bool(fix)}", _loud([change])))
    return sentences


def _work(found: Sequence[Change], before: Side, after: Side) -> list[Sentence]:
    """What disturbs, or ends a disturbance; what is only new disturbs nobody."""
    gone = {change.of for change in found if change.what == of.NAMESPACE and change.after is None}
    pools = {(c.of, c.before, c.after) for c in found if c.what == of.NODES_MAX}
    told = [
        change
        for change in found
        if (alarm(change) or change.what == of.GATE)
        and not (change.what == of.QUEUE and change.of.partition("/")[0] in gone)
        and not (change.what == of.NODES_MIN and (change.of, change.before, change.after) in pools)
    ]
    told.sort(key=lambda change: change.what != of.NAMESPACE)
    return [(c.tenant or PLATFORM, _disturbance(c, before, after), _loud([c])) for c in told]


def _disturbance(change: Change, before: Side, after: Side) -> str:
    match change.what:
        case of.NAMESPACE:
            return f"namespace {change.of} is deleted, with everything in it"
        case of.QUEUE:
            if change.after is None:
                return f"queue {change.of} goes, and what waits in it"
            leads = f"queue {change.of} leads to {change.after}, before to {change.before}"
            return f"{leads}: it is made anew, and its work waits again"
        case of.SHARE:
            return f"ClusterQueue {change.of} goes: what runs in it is drained first"
        case of.GATE:
            words = {
                None: "is open again",
                "hold": "starts nothing new",
                "drain": "is drained: running work is evicted",
            }
            whose = f"the queue of {change.of}" if change.of else "its queue"
            return f"{whose} {words[change.after]}" if change.after in words else f"{whose} is {change.after}"  # type: ignore[index]
        case of.HELD:
            if change.after is None:
                return f"{change.of} is deleted, with what it holds"
            return f"{change.of} is {change.after}"
        case of.VERSION:
            return f"Kubernetes {change.before} → {change.after}: every node is replaced, pool by pool"
    touched = of.users(before, change.of) or of.users(after, change.of)
    whom = f" (work of {', '.join(touched[:5])}{' and others' * (len(touched) > 5)})" if touched else ""
    if change.what in {of.NODES_MIN, of.NODES_MAX}:
        return (
            f"{change.what} {change.of} {_shown(change.before)} → {_shown(change.after)}: drained where they run{whom}"
        )
    if change.after is None:
        return f"pool {change.of} goes, with its nodes{whom}"
    return f"every node of pool {change.of} is replaced{whom}: {change.before} → {change.after}"


def _stacks(found: Sequence[Change], before: Side, after: Side) -> list[Sentence]:
    """Stacks with the same objects to change in one sentence: a change of a pool is one of every tenant's stack."""
    words = {"create": "made", "delete": "removed", "update": "run"}
    same: dict[str, list[str]] = {}
    for one in in_order(found):
        parts = of.differing(before, after, one["stack"]) if one["operation"] == "update" else ""
        said = f"{words[one['operation']]} ({one['scope']}{f': {parts}' if parts else ''})"
        same.setdefault(said, []).append(one["stack"])
    return [(", ".join(names), said, None) for said, names in same.items()]


def in_order(found: Sequence[Change]) -> list[dict[str, str]]:
    """The stacks that have to run, as `tenancy up` takes them: what stands of AWS last, what goes after all."""

    def rank(change: Change) -> tuple[bool, int, str]:
        new = change.before is None
        first = {Scope.CLUSTER: 0 if new else 3, Scope.TENANT: 2}.get(Scope(change.of), 1)
        return change.after is None, first, change.what

    return [
        {
            "stack": change.what,
            "scope": change.of,
            "tenant": change.tenant,
            "operation": "create" if change.before is None else "delete" if change.after is None else "update",
        }
        for change in sorted((c for c in found if c.topic is Topic.STACK), key=rank)
    ]


class Stage(StrEnum):
    """When a stack may run: those of one stage beside each other, a stage after the one before."""

    FIRST = "first"  # what tenants stand on, and a cluster that is new
    TENANTS = "tenants"
    LAST = "last"  # a cluster that stands, and what goes


def stack_lines(environment: str, found: Sequence[Change]) -> str:
    """A line for each stack that has to run: its stage, environment, name and operation."""
    lines = []
    for one in in_order(found):
        new, gone = one["operation"] == "create", one["operation"] == "delete"
        last = gone or (one["scope"] == Scope.CLUSTER and not new)
        stage = Stage.LAST if last else Stage.TENANTS if one["scope"] == Scope.TENANT else Stage.FIRST
        lines.append(f"{stage} {environment.partition(',')[0]} {one['stack']} {one['operation']}\n")
    return "".join(lines)


_WRITERS: dict[Topic, Callable[[Sequence[Change], Side, Side], list[Sentence]]] = {
    Topic.TENANT: _tenants,
    Topic.GPUS: _gpus,
    Topic.QUOTA: _quotas,
    Topic.REACH: _rights,
    Topic.ACCESS: _rights,
    Topic.COST: _costs,
    Topic.EXCEPTION: _exceptions,
    Topic.RULE: _rules,
    Topic.WORK: _work,
    Topic.STACK: _stacks,
}


def _escape(words: str) -> str:
    """What people wrote into files is no markup of the comment's, and notifies nobody."""
    for character in "\\`*_[]<>|#":
        words = words.replace(character, "\\" + character) if character in "\\`*[]|" else words
    return words.replace("<", "&lt;").replace(">", "&gt;").replace("@", "@\u200b")
