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
from tenancy.diff import changes as change_facts
from tenancy.diff.alarms import ReviewReason, alarm
from tenancy.diff.changes import Change, ChangeTopic, SpecState, Value
from tenancy.planning.aws.creation import wave_text
from tenancy.planning.scope import StackScope
from tenancy.rules.catalogue import RULES
from tenancy.spec.checks.crossfile import list_names

WIDTH = 100
MAX_ALARM_SENTENCES = 12
"""Max sentences with an alarm, divided among the alarms, so that the comment's unfolded part is one screen."""
MAX_SENTENCES = 30
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
_ALARM_TITLES = {
    ReviewReason.BROKEN_RULE: "newly broken",
    ReviewReason.WIDER_ACCESS: "wider reach or more rights",
    ReviewReason.DISRUPTION: "running work is disrupted",
    ReviewReason.NEW_EXCEPTION: "new exception",
    ReviewReason.LOST_GUARANTEE: "smaller guarantee",
    ReviewReason.HIGHER_COST: "higher or unknown cost",
}
_ALARM_ORDER = list(_ALARM_TITLES)
PLATFORM = "platform"
_ALL = "all tenants"

Sentence = tuple[str, str, ReviewReason | None]
"""Tenant, what changes, and the alarm that it raises."""


def marker(environment: str) -> str:
    """Marker by which the comment is found again, to update it in place."""
    return f"<!-- gpu-tenancy diff: {environment} -->"


def markdown(environment: str, before: SpecState, after: SpecState, changes: Sequence[Change]) -> str:
    """A comment: changes with an alarm on one screen, worst first, and all changes in a folded section."""
    lines = [marker(environment), f"## {environment}: what changes for its tenants", ""]
    lines += [f"From `{before.name}` to `{after.name}`. {_headline(changes, before, after)}"]
    sections = list(_sections(before, after, changes))
    lines_by_alarm = {
        reason: [
            _line(subject, description)
            for _, sentences in sections
            for subject, description, sentence_alarm in sentences
            if sentence_alarm is reason
        ]
        for reason in _ALARM_TITLES
    }
    lines_by_alarm = {reason: lines for reason, lines in lines_by_alarm.items() if lines}
    max_lines = MAX_ALARM_SENTENCES // max(1, len(lines_by_alarm))
    for reason, reason_lines in lines_by_alarm.items():
        lines += ["", f"**{_ALARM_TITLES[reason].capitalize()}**", "", *reason_lines[:max_lines]]
        if more := len(reason_lines[max_lines:]):
            lines += [f"- … and {more} more, below"]
    if sections:
        counts = ", ".join(f"{title} ({len(sentences)})" for title, sentences in sections)
        lines += ["", f"<details><summary>Everything: {counts}</summary>"]
        for title, sentences in sections:
            lines += ["", f"### {title}", "", *(_line(*sentence) for sentence in _truncate(sentences))]
        lines += ["", "</details>"]
    return "\n".join(lines)


def _line(subject: str, description: str, alarm_reason: ReviewReason | None = None) -> str:
    return (
        f"- {'**' if alarm_reason else ''}{in_markdown(subject)}{'**' if alarm_reason else ''}: "
        f"{in_markdown(description)}"
    )


def text(environment: str, before: SpecState, after: SpecState, changes: Sequence[Change]) -> str:
    """The changes as text, wrapped to lines of one width."""
    head = f"{environment}, from {before.name} to {after.name}: {_headline(changes, before, after)}"
    lines = textwrap.wrap(head, WIDTH, break_on_hyphens=False)
    for title, sentences in _sections(before, after, changes):
        lines += ["", f"{title}:"]
        for subject, description, alarm_reason in _truncate(sentences):
            first = f"{'!' if alarm_reason else ' '} {subject}: "
            lines += textwrap.wrap(
                description, WIDTH, initial_indent=first, subsequent_indent="    ", break_on_hyphens=False
            )
    return "\n".join(lines)


def as_json(environment: str, before: SpecState, after: SpecState, changes: Sequence[Change]) -> dict[str, Any]:
    """The changes as plain values, for JSON."""
    return {
        "environment": environment,
        "from": before.name,
        "to": after.name,
        "alarms": sorted({a for change in changes if (a := alarm(change))}),
        "stacks": stack_order(changes),
        "changes": [{**asdict(change), "alarm": alarm(change)} for change in changes],
        "unread": [p.as_dict() for side in (before, after) for p in side.problems],
    }


def _headline(changes: Sequence[Change], before: SpecState, after: SpecState) -> str:
    if not changes:
        return "Nothing changes for any tenant, and no stack has to run."
    tenants_by_alarm: dict[ReviewReason, set[str]] = {}
    for change in changes:
        if reason := alarm(change):
            affected = (
                {change.of}
                if reason is ReviewReason.BROKEN_RULE
                else _affected_tenants(change, before, after) or {PLATFORM}
            )
            tenants_by_alarm.setdefault(reason, set()).update(affected)
    tenants = {
        name
        for change in changes
        if change.topic is not ChangeTopic.STACK
        for name in _affected_tenants(change, before, after)
    }
    if after.problems:
        effect = "The files cannot be read, so other changes are unknown"
    elif tenants:
        effect = f"{len(tenants)} tenant{'s' * (len(tenants) != 1)} affected: {list_names(sorted(tenants))}"
    else:
        effect = "No tenant's share, reach, rights or work changes"
    if not tenants_by_alarm:
        return f"{effect}. No guarantee is lost, no reach or right is gained, and no work is disrupted."
    headlines = [
        f"{title}: {list_names(sorted(tenants_by_alarm[reason]))}"
        for reason, title in _ALARM_TITLES.items()
        if reason in tenants_by_alarm
    ]
    return f"{effect}. To review: {'; '.join(headlines)}."


def _affected_tenants(change: Change, before: SpecState, after: SpecState) -> set[str]:
    """Tenants that a change affects, also through a pool or a department."""
    if change.tenant:
        return {change.tenant}
    if change.topic is ChangeTopic.WORK and change.of:
        return {*change_facts.users(before, change.of), *change_facts.users(after, change.of)}
    if change.what in {change_facts.SHARING, change_facts.WEIGHT}:
        return {*change_facts.members(before, change.of), *change_facts.members(after, change.of)}
    return set()


def _sections(before: SpecState, after: SpecState, changes: Sequence[Change]) -> Iterator[tuple[str, list[Sentence]]]:
    for side in (before, after):
        if side.problems:
            message = (
                f"{len(side.problems)} problem{'s' * (len(side.problems) != 1)} in the files: only rules are compared"
            )
            yield (
                f"{side.name} cannot be read",
                [(PLATFORM, message, ReviewReason.BROKEN_RULE if side is after else None)],
            )
    sections = []
    for topic, title in TITLES.items():
        sentences = _WRITERS[topic]([change for change in changes if change.topic is topic], before, after)
        sentences.sort(key=lambda sentence: not sentence[2])
        if sentences:
            sections.append((title, sentences))
    yield from sorted(sections, key=lambda section: not section[1][0][2])


def _truncate(sentences: list[Sentence]) -> list[Sentence]:
    more = len(sentences[MAX_SENTENCES:])
    return (
        [*sentences[:MAX_SENTENCES], ("…", f"and {more} more; --format json has all of them", None)]
        if more
        else sentences
    )


def _worst_alarm(changes: Sequence[Change]) -> ReviewReason | None:
    """The worst of them."""
    return min((a for change in changes if (a := alarm(change))), key=_ALARM_ORDER.index, default=None)


def _grouped(changes: Sequence[Change], key: Callable[[Change], Any]) -> list[list[Change]]:
    groups: dict[Any, list[Change]] = {}
    for change in changes:
        groups.setdefault(key(change), []).append(change)
    return list(groups.values())


def _arrow(change: Change) -> str:
    before, after = _format_value(change.before), _format_value(change.after)
    return f"{change.what} {before} → {after}"


def _format_value(value: Value) -> str:
    return "0" if value is None else f"{value:,}" if isinstance(value, int) else value


def _tenants(changes: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:  # noqa: ARG001
    words = {True: "is new", False: "is removed"}
    return [
        (c.tenant, words[c.before is None] if None in (c.before, c.after) else f"has the new title {c.after}", None)
        for c in changes
    ]


_ORDER = (
    change_facts.GUARANTEED,
    change_facts.LENDS,
    change_facts.BORROWS,
    change_facts.BORROWABLE,
    change_facts.SHARING,
    change_facts.WEIGHT,
)


def _gpus(changes: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:
    sentences = []
    relevant = [c for c in changes if c.what != change_facts.WEIGHT or None not in (c.before, c.after)]
    for group in _grouped(relevant, lambda change: (change.tenant, change.of)):
        group.sort(key=lambda change: _ORDER.index(change.what) if change.what in _ORDER else 0)
        text, flavor = ", ".join(map(_arrow, group)), group[0].of
        if {change.what for change in group} & {change_facts.SHARING, change_facts.WEIGHT} and not group[0].tenant:
            subject_and_text = (
                f"department {flavor}",
                f"{text} (tenants: {list_names(sorted(_affected_tenants(group[0], before, after)))})",
            )
        else:
            subject_and_text = group[0].tenant or _ALL, f"{flavor}: {text}" if flavor else text
        sentences.append((*subject_and_text, _worst_alarm(group)))
    return sentences


def _quotas(changes: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:  # noqa: ARG001
    """Quotas of namespaces that exist on both sides."""
    relevant = [change for change in changes if None not in (change.before, change.after)]
    return [
        (group[0].tenant, f"{group[0].of}: {', '.join(map(_arrow, group))}", None)
        for group in _grouped(relevant, lambda change: (change.tenant, change.of))
    ]


def _rights(changes: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:  # noqa: ARG001
    """Rights gained, lost or changed; all places of the same right are in one sentence."""
    sentences = []
    for group in _grouped(changes, lambda change: (change.tenant, change.of, change.before, change.after)):
        first = group[0]
        places = ", ".join(change.what for change in group)
        if first.before is None:
            sentence = f"{first.of} {_GAINS.get(str(first.after)) or f'gains «{first.after}» in'} {places}"
        elif first.after is None:
            sentence = f"{first.of} {_LOSES.get(str(first.before)) or f'loses «{first.before}» in'} {places}"
        else:
            sentence = f"{first.of}: «{first.before}» → «{first.after}» in {places}"
        sentences.append((first.tenant or PLATFORM, sentence, _worst_alarm(group)))
    return sentences


_GAINS = {"connect": "can now connect to", "run": "can now run on", "accept": "can now be reached from"}
_LOSES = {key: said.replace("can now", "can no longer") for key, said in _GAINS.items()}


def _costs(changes: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:
    sentences = []
    for change in changes:
        subject = change.tenant or "the cluster"
        if change.what == "price":
            sentence = f"pool {change.of} has no price: write costs.pools, or prices of its board"
            if change.after is not None:
                sentences.append((subject, sentence, ReviewReason.HIGHER_COST))
            continue
        if change.what == change_facts.BUDGET:
            sentence = " → ".join(
                "none" if value is None else _format_value(value) for value in (change.before, change.after)
            )
            sentences.append((subject, f"{change.what} {sentence}", None))
            continue
        old, new = change.before or 0, change.after or 0
        more = f" ({new - old:+,})" if isinstance(old, int) and isinstance(new, int) else ""
        sentences.append((subject, f"{_arrow(change)}{more}", _worst_alarm([change])))
    if sentences and (pools := change_facts.published_price_pools(after) or change_facts.published_price_pools(before)):
        sentence = (
            f"prices of {list_names(pools)} are AWS's published ones of {REGION}, {DATE}; the environment has none"
        )
        sentences.append((PLATFORM, sentence, None))
    return sentences


def _exceptions(changes: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:  # noqa: ARG001
    sentences = []
    for change in changes:
        if change.after is None:
            sentence = f"{change.of} is no longer waived"
        elif change.before is None:
            sentence = f"{change.of} is waived {change.after}: {change.what}"
        else:
            sentence = f"{change.of} is waived {change.after}, before {change.before}: {change.what}"
        sentences.append((change.tenant, sentence, _worst_alarm([change])))
    return sentences


def _rules(changes: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:  # noqa: ARG001
    fixes = {change_facts.problem_text(problem): problem.change for problem in after.problems}
    sentences = []
    for change in changes:
        rule = RULES.get(change.of)
        if change.after is None:
            sentences.append((change.of, f"is no longer broken: {change.what}", None))
            continue
        rule_text = f"; rule: {rule.title}" if rule else ""
        fix = fixes.get(change.what) or (rule.fix if rule else "")
        sentences.append(
            (change.of, f"is broken: {change.what}{rule_text}{f'; change: {fix}' * bool(fix)}", _worst_alarm([change]))
        )
    return sentences


def _work(changes: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:
    """Changes that disrupt running work, or end a disruption; additions are left out."""
    deleted_namespaces = {
        change.of for change in changes if change.what == change_facts.NAMESPACE and change.after is None
    }
    pools = {(c.of, c.before, c.after) for c in changes if c.what == change_facts.NODES_MAX}
    is_version_refused = any(change.what == change_facts.REFUSED_MINOR for change in changes)
    relevant = [
        change
        for change in changes
        if (alarm(change) or change.what == change_facts.GATE)
        and not (change.what == change_facts.QUEUE and change.of.partition("/")[0] in deleted_namespaces)
        and not (change.what == change_facts.NODES_MIN and (change.of, change.before, change.after) in pools)
        and not (change.what == change_facts.VERSION and is_version_refused)
    ]
    relevant.sort(key=lambda change: change.what != change_facts.NAMESPACE)
    sentences = [
        (change.tenant or PLATFORM, _disturbance(change, before, after), _worst_alarm([change]))
        for change in relevant
        if change.what not in _NODE_REPLACEMENTS
    ]
    replaced = [change for change in relevant if change.what in _NODE_REPLACEMENTS]
    return sentences + [
        (PLATFORM, text, ReviewReason.DISRUPTION) for text in _node_replacements(replaced, before, after)
    ]


_NODE_REPLACEMENTS = (change_facts.REPLACED_NODES, change_facts.KARPENTER_NODES)


def _node_replacements(changes: Sequence[Change], before: SpecState, after: SpecState) -> Iterator[str]:
    """Sentences on replaced nodes, wave by wave; on Karpenter's, which follow no wave, last."""
    cluster = after.plan.cluster if after.plan else None
    wave_of = {group.name: group.wave for group in cluster.groups} if cluster else {}
    names_of_step: dict[tuple[int, int, Value], list[str]] = {}
    for change in changes:
        step = (_NODE_REPLACEMENTS.index(change.what), wave_of.get(change.of, 0), change.after)
        names_of_step.setdefault(step, []).append(change.of)
    for (by_karpenter, wave, settings), names in sorted(names_of_step.items(), key=lambda item: item[0][:2]):
        text = f"Karpenter replaces its nodes of {', '.join(names)}" if by_karpenter else wave_text(wave, names)
        yield f"{text}{_affected_note(names, before, after)}: {settings}"


def _affected_note(pools: Sequence[str], before: SpecState, after: SpecState) -> str:
    """Tenants whose work runs in one of some pools."""
    affected = sorted(
        {name for pool in pools for name in change_facts.users(before, pool) or change_facts.users(after, pool)}
    )
    return f" (work of {', '.join(affected[:5])}{' and others' * (len(affected) > 5)})" if affected else ""


def _disturbance(change: Change, before: SpecState, after: SpecState) -> str:
    match change.what:
        case change_facts.NAMESPACE:
            return f"namespace {change.of} is deleted, with everything in it"
        case change_facts.QUEUE:
            if change.after is None:
                return f"LocalQueue {change.of} is deleted, with the work that waits in it"
            leads = f"LocalQueue {change.of} points to {change.after}, before to {change.before}"
            return f"{leads}: it is replaced, and its work waits again"
        case change_facts.SHARE:
            return f"ClusterQueue {change.of} is deleted: its running work is drained first"
        case change_facts.GATE:
            words = {
                None: "is open again",
                "hold": "starts no new work",
                "hold-and-drain": "is drained: running work is evicted",
            }
            queue_owner = f"the queue of {change.of}" if change.of else "its queue"
            return (
                f"{queue_owner} {words[change.after]}" if change.after in words else f"{queue_owner} is {change.after}"
            )  # type: ignore[index]
        case change_facts.CONTENTS:
            if change.after is None:
                return f"{change.of} is deleted, with what it contains"
            return f"{change.of} is {change.after}"
        case change_facts.FIXED:
            value = f"{change.of} {change.before} → {change.after}"
            return f"{value}: AWS fixes it when a cluster is made, and `tenancy up` refuses another value"
        case change_facts.CLUSTER:
            return f"cluster {change.of} is no longer built here: `tenancy up` refuses it while the cluster exists"
        case change_facts.ZONE:
            return f"zone {change.of} is left: `tenancy up` refuses it, unless `--replace {change.of}` names it"
        case change_facts.GROUP:
            why = f"{change.after}: EKS deletes it with its nodes and makes another"
            return f"node group {change.of}: {why}; `tenancy up` refuses it without `--replace {change.of}`"
        case change_facts.REFUSED_MINOR:
            current, target_version = str(change.before), str(change.after)
            step = minor_step(current, target_version)
            return f"Kubernetes {current} → {target_version}: {MINOR_RULE}, and `tenancy up` refuses it; write {step}"
        case change_facts.VERSION:
            return f"Kubernetes {change.before} → {change.after}: every node is replaced, pool by pool"
    affected_note = _affected_note([change.of], before, after)
    if change.what in {change_facts.NODES_MIN, change_facts.NODES_MAX}:
        return (
            f"{change.what} {change.of} {_format_value(change.before)} → {_format_value(change.after)}: "
            f"nodes are drained{affected_note}"
        )
    if change.after is None:
        return f"pool {change.of} is deleted, with its nodes{affected_note}"
    return f"every node of pool {change.of} is replaced{affected_note}: {change.before} → {change.after}"


def _stacks(changes: Sequence[Change], before: SpecState, after: SpecState) -> list[Sentence]:
    """Stacks with the same changes in one sentence, because a change of a pool changes every tenant's stack."""
    words = {"create": "created", "delete": "removed", "update": "updated"}
    stacks_by_sentence: dict[str, list[str]] = {}
    for stack in stack_order(changes):
        parts = change_facts.object_counts(before, after, stack["stack"]) if stack["operation"] == "update" else ""
        sentence = f"{words[stack['operation']]} ({stack['scope']}{f': {parts}' if parts else ''})"
        stacks_by_sentence.setdefault(sentence, []).append(stack["stack"])
    return [(", ".join(names), sentence, None) for sentence, names in stacks_by_sentence.items()]


def stack_order(changes: Sequence[Change]) -> list[dict[str, str]]:
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
        for change in sorted((c for c in changes if c.topic is ChangeTopic.STACK), key=rank)
    ]


class Stage(StrEnum):
    """When a stack may run: stacks of one stage in parallel, the stages one after another."""

    FIRST = "first"  # the platform, and a new cluster
    TENANTS = "tenants"
    LAST = "last"  # an existing cluster, and stacks to remove


def stack_lines(environment: str, changes: Sequence[Change]) -> str:
    """One line for each stack to run: its stage, environment, name and operation."""
    lines = []
    for stack in stack_order(changes):
        is_created, is_deleted = stack["operation"] == "create", stack["operation"] == "delete"
        last = is_deleted or (stack["scope"] == StackScope.CLUSTER and not is_created)
        stage = Stage.LAST if last else Stage.TENANTS if stack["scope"] == StackScope.TENANT else Stage.FIRST
        lines.append(f"{stage} {environment.partition(',')[0]} {stack['stack']} {stack['operation']}\n")
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
