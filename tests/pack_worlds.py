"""The cases of all rules as few whole programs: what is mended in each breaks no rule at all."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from check_cases import CASES as CHECK_CASES
from check_cases import PREVIEW_ONLY_CASES
from pack_cases import CASES as PACK_CASES
from pack_cases import Case, resource

from tenancy.check.adopt import adopt
from tenancy.check.judge import findings, findings_alone, stumbles
from tenancy.kube.objects import name_of
from tenancy.rules.findings import Finding
from tenancy.rules.levels import PolicyPreset, RuleLevel, level_of

Object = dict[str, Any]
CASES = (*PACK_CASES, *CHECK_CASES, *PREVIEW_ONLY_CASES)


_FINDINGS_BY_ITEM: dict[int, tuple[Object, frozenset[Finding] | None]] = {}
"""By identity, beside the object itself: while it lives, no other object gets its identity."""


def _alone(item: Object) -> frozenset[Finding] | None:
    """Findings on one object alone; None if it cannot be read."""
    if id(item) not in _FINDINGS_BY_ITEM:
        item_findings = None
        if not stumbles(item):
            item_findings = frozenset(findings_alone(item))
        _FINDINGS_BY_ITEM[id(item)] = (item, item_findings)
    return _FINDINGS_BY_ITEM[id(item)][1]


def findings_of(items: Iterable[Object], preset: PolicyPreset = PolicyPreset.RESTRICTED) -> set[Finding]:
    """Findings of the pack on a program, without the rules that the preset disables."""
    items = list(items)
    findings_by_item = [_alone(item) for item in items]
    sound = [item for item, item_findings in zip(items, findings_by_item, strict=True) if item_findings is not None]
    unreadable_findings = {
        Finding("seen-03", name_of(item), "")
        for item, item_findings in zip(items, findings_by_item, strict=True)
        if item_findings is None
    }
    alone = {f for item_findings in findings_by_item if item_findings for f in item_findings}
    all_findings = {*unreadable_findings, *alone, *findings(adopt(sound))[0]}
    return {finding for finding in all_findings if level_of(finding, preset) is not RuleLevel.DISABLED}


def together(cases: Iterable[Case], side: str) -> list[Object] | None:
    """The objects of all cases; None if two of them are one object with two contents."""
    objects: dict[str, Object] = {}
    for item in (item for case in cases for item in getattr(case, side)):
        if objects.setdefault(name_of(item), item) != item:
            return None
    return list(objects.values())


def _agree(cases: list[Case]) -> bool:
    broken, mended = together(cases, "broken"), together(cases, "mended")
    if broken is None or mended is None or findings_of(mended):
        return False
    return {(case.rule, case.finding) for case in cases} <= {(f.rule, f.object) for f in findings_of(broken)}


_NAMES = re.compile(r"\b(acme|rival|ghost|left|right|a100|board)\b")


def _elsewhere(case: Case, index: int) -> Case:
    """The same with tenants and nodes of its own."""

    def moved(value: Any) -> Any:
        return json.loads(_NAMES.sub(rf"\g<1>{index}", json.dumps(value)))

    return Case(case.rule, *map(tuple, moved([case.broken, case.mended])), moved(case.finding))


def _added(world: list[Case], cases: list[Case]) -> list[Case]:
    """Add the cases whose objects get along with the world's, many at a time; return the others."""
    if not cases:
        return []
    if _agree([*world, *cases]):
        world += cases
        return []
    half = len(cases) // 2
    return [*_added(world, cases[:half]), *_added(world, cases[half:])] if half else cases


@functools.cache
def case_of_each_rule() -> tuple[Case, ...]:
    """A case of each rule, in one program; without rules of which no case gets along with those before."""
    cases: dict[str, list[Case]] = {}
    for index, case in enumerate(CASES):
        cases.setdefault(case.rule, []).append(_elsewhere(case, index))
    world: list[Case] = []
    _added(world, [rule_cases[0] for rule_cases in cases.values()])
    for rule in sorted(cases.keys() - {case.rule for case in world}):
        _added(world, cases[rule][1:2])
    return tuple(world)


@functools.cache
def worlds() -> tuple[tuple[Case, ...], ...]:
    """Every case in the first world whose objects get along with its own; the largest first. It takes seconds, so tests
    ask for it when they run, not when they are collected."""
    worlds_of_cases: list[list[Case]] = []
    pending_cases = [_elsewhere(case, index) for index, case in enumerate(CASES)]
    while pending_cases:
        world: list[Case] = []
        pending_cases = _added(world, pending_cases)
        worlds_of_cases.append(world or [pending_cases.pop(0)])
    return tuple(sorted(map(tuple, worlds_of_cases), key=len, reverse=True))


def judged(pack: ModuleType, items: list[Object], config: Mapping[str, Any] | None = None) -> dict[str, list[str]]:
    """Messages of each level on resources with these inputs, as the SDK would call it."""
    from pulumi_policy import ResourceValidationArgs, StackValidationArgs
    from pulumi_policy.policy import PolicyResource
    from pulumi_policy.proxy import unknown_checking_proxy

    messages: dict[str, list[str]] = {policy.name: [] for policy in pack.POLICIES}

    def report(name: str) -> Callable[..., None]:
        return lambda text, _urn=None: messages[name].append(text)

    sent = [resource(item) for item in items]
    # As the engine does, first the stack itself.
    each_args = ResourceValidationArgs("pulumi:pulumi:Stack", {}, "urn", "s", None, None, dict(config or {}), {})
    next(p for p in pack.POLICIES if p.name == "isolation").validate(each_args, report("isolation"))
    resource_policy, each_rest = (p for p in pack.POLICIES if p.name in {"isolation", "isolation-advisory"})
    stack: dict[tuple[str, str, int], Any] = {}
    for index, sent_resource in enumerate(sent):
        props = unknown_checking_proxy(sent_resource.inputs)
        args = ResourceValidationArgs(
            sent_resource.type, props, "urn", sent_resource.name, None, None, dict(config or {}), {}
        )
        for policy in (resource_policy, each_rest):
            policy.validate(args, report(policy.name))
        field, *source = sent_resource.source or ("",)
        source_resources = [r for (kind, name, _), r in stack.items() if [kind, name] == source]
        stack[sent_resource.type, sent_resource.name, index] = PolicyResource(
            sent_resource.type, props, "urn", sent_resource.name, None, None, None, [], {field: source_resources}
        )
    for policy in (p for p in pack.POLICIES if p.name.startswith("isolation-stack")):
        policy.validate(StackValidationArgs(list(stack.values()), {}, {}), report(policy.name))
    return messages
