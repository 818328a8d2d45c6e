"""Changes as sentences: for a terminal, for a comment on a pull request, and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Any

from tenancy.catalog.prices import DATE, REGION
from tenancy.catalog.text import in_markdown
from tenancy.catalog.versions import MINOR_RULE, minor_step
from tenancy.diff import changes as of
from tenancy.diff.alarms import ReviewReason, alarm
from tenancy.diff.changes import Change, ChangeTopic, SpecState, Value
from tenancy.planning.scope import StackScope
from tenancy.rules.catalogue import RULES
from tenancy.validation.crossfile import some

WIDTH = 100
FIRST = 12
"""Max sentences with an alarm, divided among the alarms, so that the comment's unfolded part is one screen."""
MOST = 30
"""Max sentences of a section, so that a comment stays within GitHub's limit."""
TITLES = {
    ChangeTopic.RULE: "Rules",
    ChangeTopic.NETWORK: "Network reach and placement",
    ChangeTopic.ACCESS: "Access",
    ChangeTopic.TENANT: "Tenants",
    ChangeTopic.GPUS: "GPUs",
    ChangeTopic.EXCEPTION: "Exceptions",
    ChangeTopic.WORK: "Work that is replaced or drained",
    ChangeTopic.COST: "Dollars a month",
    ChangeTopic.QUOTA: "Quotas of namespaces",
    ChangeTopic.STACK: "Stacks to run",
}
_LOUD = {
    ReviewReason.BROKEN_RULE: "newly broken",
    ReviewReason.WIDER_ACCESS: "wider reach or more rights",
    ReviewReason.DISRUPTION: "running work is disrupted",
    ReviewReason.NEW_EXCEPTION: "new exception",
    ReviewReason.LOST_GUARANTEE: "smaller guarantee",
    ReviewReason.HIGHER_COST: "higher or unknown cost",
}
_WORST = list(_LOUD)
PLATFORM = "platform"
_ALL = "all tenants"

Sentence = tuple[str, str, ReviewReason | None]
"""Tenant, what changes, and the alarm that it raises."""


def marker(environment: str) -> str:
    """Marker by which the comment is found again, to update it in place."""
    return f"<!-- gpu-tenancy diff: {environment} -->"


def markdown(environment: str, before: SpecState, after: SpecState, found: Sequence[Change]) -> str:
    """A comment: changes with an alarm on one screen, worst first, and all changes in a folded section."""
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


def _line(who: str, what: str, why: ReviewReason | None = None) -> str:
    return f"- {'**' if why else ''}{in_markdown(who)}{'**' if why else ''}: {in_markdown(what)}"


def text(environment: str, before: SpecState, after: SpecState, found: Sequence[Change]) -> str:
    """The changes as text, wrapped to lines of one width."""
    head = f"{environment}, from {before.name} to {after.name}: {_headline(found, before, after)}"
    lines = textwrap.wrap(head, WIDTH, break_on_hyphens=False)
    for title, sentences in _sections(before, after, found):
        lines += ["", f"{title}:"]
        for who, what, loud in _cut(sentences):
            first = f"{'!' if loud else ' '} {who}: "
            lines += textwrap.wrap(what, WIDTH, initial_indent=first, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(lines)


def as_json(environment: str, before: SpecState, after: SpecState, found: Sequence[Change]) -> dict[str, Any]:
    """The changes as plain values, for JSON."""
    return {
        "environment": environment,
        "from": before.name,
        "to": after.name,
        "alarms": sorted({a for change in found if (a := alarm(change))}),
        "stacks": in_order(found),
        "changes": [{**asdict(change), "alarm": alarm(change)} for change in found],
        "unread": [p.as_dict() for side in (before, after) for p in side.problems],
    }


def _headline(found: Sequence[Change], before: SpecState, after: SpecState) -> str:
    if not found:
        return "Nothing changes for any tenant, and no stack has to run."
    who: dict[ReviewReason, set[str]] = {}
    for change in found:
        if one := alarm(change):
            whom = {change.of} if one is ReviewReason.BROKEN_RULE else _whom(change, before, after) or {PLATFORM}
            who.setdefault(one, set()).update(whom)
    tenants = {
        name for change in found if change.topic is not ChangeTopic.STACK for name in _whom(change, before, after)
    }
    if after.problems:
        touched = "The files cannot be read, so other changes are unknown"
    elif tenants:
        touched = f"{len(tenants)} tenant{'s' * (len(tenants) != 1)} affected: {some(sorted(tenants))}"
    else:
        touched = "No tenant's share, reach, rights or work changes"
    if not who:
        return f"{touched}. No guarantee is lost, no reach or right is gained, and no work is disrupted."
    told = [f"{said}: {some(sorted(who[one]))}" for one, said in _LOUD.items() if one in who]
    return f"{touched}. To review: {'; '.join(told)}."


def _whom(change: Change, before: SpecState, after: SpecState) -> set[str]:
    """Tenants that a change affects, also through a pool or a department."""
    if change.tenant:
        return {change.tenant}
    if change.topic is ChangeTopic.WORK and change.of:
        return {*of.users(before, change.of), *of.users(after, change.of)}
    if change.what in {of.SHARING, of.WEIGHT}:
        return {*of.members(before, change.of), *of.members(after, change.of)}
    return set()


def _sections(before: SpecState, after: SpecState, found: Sequence[Change]) -> Iterator[tuple[str, list[Sentence]]]:
    for side in (before, after):
        if side.problems:
            given = (
                f"{len(side.problems)} problem{'s' * (len(side.problems) != 1)} in the files: only rules are compared"
            )
            yield (
                f"{side.name} cannot be read",
                [(PLATFORM, given, ReviewReason.BROKEN_RULE if side is after else None)],
            )
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


def _loud(found: Sequence[Change]) -> ReviewReason | None:
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


def _tenants(found: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:  # noqa: ARG001
    words = {True: "is new", False: "is removed"}
    return [
        (c.tenant, words[c.before is None] if None in (c.before, c.after) else f"has the new title {c.after}", None)
        for c in found
    ]


_ORDER = (of.GUARANTEED, of.LENDS, of.BORROWS, of.BORROWABLE, of.SHARING, of.WEIGHT)


def _gpus(found: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:
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


def _quotas(found: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:  # noqa: ARG001
    """Quotas of namespaces that exist on both sides."""
    told = [change for change in found if None not in (change.before, change.after)]
    return [
        (group[0].tenant, f"{group[0].of}: {', '.join(map(_arrow, group))}", None)
        for group in _grouped(told, lambda change: (change.tenant, change.of))
    ]


def _rights(found: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:  # noqa: ARG001
    """Rights gained, lost or changed; all places of the same right are in one sentence."""
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


def _costs(found: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:
    sentences = []
    for change in found:
        who = change.tenant or "the cluster"
        if change.what == "price":
            said = f"pool {change.of} has no price: write costs.pools, or prices of its board"
            if change.after is not None:
                sentences.append((who, said, ReviewReason.HIGHER_COST))
            continue
        if change.what == of.BUDGET:
            said = " → ".join("none" if value is None else _shown(value) for value in (change.before, change.after))
            sentences.append((who, f"{change.what} {said}", None))
            continue
        old, new = change.before or 0, change.after or 0
        more = f" ({new - old:+,})" if isinstance(old, int) and isinstance(new, int) else ""
        sentences.append((who, f"{_arrow(change)}{more}", _loud([change])))
    if sentences and (pools := of.published(after) or of.published(before)):
        said = f"prices of {some(pools)} are AWS's published ones of {REGION}, {DATE}; the environment has none"
        sentences.append((PLATFORM, said, None))
    return sentences


def _exceptions(found: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:  # noqa: ARG001
    sentences = []
    for change in found:
        if change.after is None:
            said = f"{change.of} is no longer waived"
        elif change.before is None:
            said = f"{change.of} is waived {change.after}: {change.what}"
        else:
            said = f"{change.of} is waived {change.after}, before {change.before}: {change.what}"
        sentences.append((change.tenant, said, _loud([change])))
    return sentences


def _rules(found: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:  # noqa: ARG001
    changes = {of.where(problem): problem.change for problem in after.problems}
    sentences = []
    for change in found:
        rule = RULES.get(change.of)
        if change.after is None:
            sentences.append((change.of, f"is no longer broken: {change.what}", None))
            continue
        why = f"; rule: {rule.title}" if rule else ""
        fix = changes.get(change.what) or (rule.fix if rule else "")
        sentences.append((change.of, f"is broken: {change.what}{why}{f'; change: {fix}' * bool(fix)}", _loud([change])))
    return sentences


def _work(found: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:
    """Changes that disrupt running work, or end a disruption; additions are left out."""
    gone = {change.of for change in found if change.what == of.NAMESPACE and change.after is None}
    pools = {(c.of, c.before, c.after) for c in found if c.what == of.NODES_MAX}
    refused = any(change.what == of.REFUSED_MINOR for change in found)
    told = [
        change
        for change in found
        if (alarm(change) or change.what == of.GATE)
        and not (change.what == of.QUEUE and change.of.partition("/")[0] in gone)
        and not (change.what == of.NODES_MIN and (change.of, change.before, change.after) in pools)
        and not (change.what == of.VERSION and refused)
    ]
    told.sort(key=lambda change: change.what != of.NAMESPACE)
    return [(c.tenant or PLATFORM, _disturbance(c, before, after), _loud([c])) for c in told]


def _disturbance(change: Change, before: SpecState, after: SpecState) -> str:
    match change.what:
        case of.NAMESPACE:
            return f"namespace {change.of} is deleted, with everything in it"
        case of.QUEUE:
            if change.after is None:
                return f"LocalQueue {change.of} is deleted, with the work that waits in it"
            leads = f"LocalQueue {change.of} points to {change.after}, before to {change.before}"
            return f"{leads}: it is replaced, and its work waits again"
        case of.SHARE:
            return f"ClusterQueue {change.of} is deleted: its running work is drained first"
        case of.GATE:
            words = {
                None: "is open again",
                "hold": "starts no new work",
                "drain": "is drained: running work is evicted",
            }
            whose = f"the queue of {change.of}" if change.of else "its queue"
            return f"{whose} {words[change.after]}" if change.after in words else f"{whose} is {change.after}"  # type: ignore[index]
        case of.HELD:
            if change.after is None:
                return f"{change.of} is deleted, with what it contains"
            return f"{change.of} is {change.after}"
        case of.FIXED:
            value = f"{change.of} {change.before} → {change.after}"
            return f"{value}: AWS fixes it when a cluster is made, and `tenancy up` refuses another value"
        case of.CLUSTER:
            return f"cluster {change.of} is no longer built here: `tenancy up` refuses it while the cluster exists"
        case of.ZONE:
            return f"zone {change.of} is left: `tenancy up` refuses it, unless `--replace {change.of}` names it"
        case of.GROUP:
            why = f"{change.after}: EKS deletes it with its nodes and makes another"
            return f"node group {change.of}: {why}; `tenancy up` refuses it without `--replace {change.of}`"
        case of.TEMPLATE:
            return f"nodes of {change.of} are replaced in their wave, because their launch template changes"
        case of.REFUSED_MINOR:
            current, wanted = str(change.before), str(change.after)
            step = minor_step(current, wanted)
            return f"Kubernetes {current} → {wanted}: {MINOR_RULE}, and `tenancy up` refuses it; write {step}"
        case of.VERSION:
            return f"Kubernetes {change.before} → {change.after}: every node is replaced, pool by pool"
    touched = of.users(before, change.of) or of.users(after, change.of)
    whom = f" (work of {', '.join(touched[:5])}{' and others' * (len(touched) > 5)})" if touched else ""
    if change.what in {of.NODES_MIN, of.NODES_MAX}:
        return f"{change.what} {change.of} {_shown(change.before)} → {_shown(change.after)}: nodes are drained{whom}"
    if change.after is None:
        return f"pool {change.of} is deleted, with its nodes{whom}"
    return f"every node of pool {change.of} is replaced{whom}: {change.before} → {change.after}"


def _stacks(found: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:
    """Stacks with the same changes in one sentence, because a change of a pool changes every tenant's stack."""
    words = {"create": "created", "delete": "removed", "update": "updated"}
    same: dict[str, list[str]] = {}
    for one in in_order(found):
        parts = of.differing(before, after, one["stack"]) if one["operation"] == "update" else ""
        said = f"{words[one['operation']]} ({one['scope']}{f': {parts}' if parts else ''})"
        same.setdefault(said, []).append(one["stack"])
    return [(", ".join(names), said, None) for said, names in same.items()]


def in_order(found: Sequence[Change]) -> list[dict[str, str]]:
    """The stacks to run, in the order of `tenancy up`: an existing cluster stack last, then stacks to remove."""

    def rank(change: Change) -> tuple[bool, int, str]:
        new = change.before is None
        first = {StackScope.CLUSTER: 0 if new else 3, StackScope.TENANT: 2}.get(StackScope(change.of), 1)
        return change.after is None, first, change.what

    return [
        {
            "stack": change.what,
            "scope": change.of,
            "tenant": change.tenant,
            "operation": "create" if change.before is None else "delete" if change.after is None else "update",
        }
        for change in sorted((c for c in found if c.topic is ChangeTopic.STACK), key=rank)
    ]


class Stage(StrEnum):
    """When a stack may run: stacks of one stage in parallel, the stages one after another."""

    FIRST = "first"  # the platform, and a new cluster
    TENANTS = "tenants"
    LAST = "last"  # an existing cluster, and stacks to remove


def stack_lines(environment: str, found: Sequence[Change]) -> str:
    """One line for each stack to run: its stage, environment, name and operation."""
    lines = []
    for one in in_order(found):
        new, gone = one["operation"] == "create", one["operation"] == "delete"
        last = gone or (one["scope"] == StackScope.CLUSTER and not new)
        stage = Stage.LAST if last else Stage.TENANTS if one["scope"] == StackScope.TENANT else Stage.FIRST
        lines.append(f"{stage} {environment.partition(',')[0]} {one['stack']} {one['operation']}\n")
    return "".join(lines)


_WRITERS: dict[ChangeTopic, Callable[[Sequence[Change], SpecState, SpecState], list[Sentence]]] = {
    ChangeTopic.TENANT: _tenants,
    ChangeTopic.GPUS: _gpus,
    ChangeTopic.QUOTA: _quotas,
    ChangeTopic.NETWORK: _rights,
    ChangeTopic.ACCESS: _rights,
    ChangeTopic.COST: _costs,
    ChangeTopic.EXCEPTION: _exceptions,
    ChangeTopic.RULE: _rules,
    ChangeTopic.WORK: _work,
    ChangeTopic.STACK: _stacks,
}
