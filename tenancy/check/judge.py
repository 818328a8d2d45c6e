"""Findings on manifests, with the tenant, the place and the exception of each."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tenancy.catalog import days, vocabulary
from tenancy.catalog.exporters import QUEUE_NAME
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.check.adopt import Adopted, adopt, with_rule_kind
from tenancy.check.answers import ObjectAnswers
from tenancy.check.guard_rules import guard_findings
from tenancy.check.reader import FilePosition, Manifests, Unjudged, Unread
from tenancy.kube.objects import get_path, name_of
from tenancy.kube.pod_templates import BUILT_IN, not_judged, templates_of
from tenancy.rules import manifest_rules, objects, regulated
from tenancy.rules.catalogue import RULES, Rule
from tenancy.rules.cross_object import findings_together
from tenancy.rules.exceptions import FindingWaiver, waived_by
from tenancy.rules.faces import with_face
from tenancy.rules.findings import UNREADABLE, Finding, Object
from tenancy.rules.levels import PolicyPreset, RuleLevel, level_of
from tenancy.rules.model import Face, Severity

PLATFORM = "platform"
"""Owner of objects that belong to no tenant."""
JUDGED = frozenset(with_face(Face.PREVIEW))
"""Every rule for plain manifests."""
_OF_API_SERVER = frozenset(with_face(Face.API_SERVER))
_ORDER = {Severity.CRITICAL: 0, Severity.HIGH: 1, Severity.MEDIUM: 2}


@dataclass(frozen=True, slots=True)
class CheckedFinding:
    """One finding. `waiver` is the exception that covers it."""

    finding: Finding
    tenant: str
    place: FilePosition
    level: RuleLevel
    waiver: FindingWaiver | None = None

    @property
    def rule(self) -> Rule:
        """The broken rule."""
        return RULES[self.finding.rule]

    @property
    def fails(self) -> bool:
        """Whether the finding fails the check: its rule is mandatory, and no exception covers it."""
        return self.level is RuleLevel.MANDATORY and self.waiver is None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """All findings, the worst first."""

    findings: tuple[CheckedFinding, ...]
    objects: tuple[tuple[str, str, FilePosition], ...]
    """Tenant, name and place of each object that was checked."""
    unread: tuple[Unread, ...]
    ended: tuple[FindingWaiver, ...]
    """Expired exceptions: each fails until it is renewed or dropped."""
    unused: tuple[FindingWaiver, ...]
    """Exceptions that no finding needs any more."""
    unjudged: tuple[Unjudged, ...] = ()
    """Objects that were not checked, or only in part."""
    others: tuple[FilePosition, ...] = ()
    """Documents that are no objects of Kubernetes."""
    waits: tuple[str, ...] = ()
    """Rules of the API server whose answer depends on the environment; none if one was named."""
    strict: bool = False
    """Whether what was not checked fails the check."""
    answers: ObjectAnswers | None = None
    """Answers of an environment's API server; None if no environment was named."""

    @property
    def failing(self) -> tuple[CheckedFinding, ...]:
        """Findings that fail the check."""
        return tuple(finding for finding in self.findings if finding.fails)

    @property
    def passes(self) -> bool:
        """Whether no finding fails the check, no exception has expired, and strictly: all was checked."""
        answers = self.answers
        all_judged = not self.unjudged and not (answers and answers.undecided)
        return (
            not self.failing
            and not self.ended
            and (answers is None or answers.passes)
            and (all_judged or not self.strict)
        )


def judge(
    manifests: Manifests,
    preset: PolicyPreset = PolicyPreset.RESTRICTED,
    waivers: Sequence[FindingWaiver] = (),
    *,
    label: str | None = None,
    platform: Collection[str] = (),
    today: dt.date | None = None,
    strict: bool = False,
    answers: ObjectAnswers | None = None,
    tenants: Mapping[str, str] | None = None,
) -> CheckResult:
    """Apply every rule to every object, and to all of them together.

    With `answers`, what an API server decides is theirs; `tenants` has the tenant of each namespace of its cluster.
    """
    today = today or days.today()
    unread = list(manifests.unread)
    # Findings name an object by the kind that rules mean, so its place and its case are found by the same name.
    queues = answers.queues if answers else {}
    positioned_objects = [
        (_in_queue(with_rule_kind(item), queues.get(place, "")), place) for item, place in manifests.objects
    ]
    joint = together([item for item, _ in positioned_objects], label, platform, today, tenants)
    reasons = {id(item): reason for item, reason in joint.unread}
    unread += [_unreadable(item, place, reasons[id(item)]) for item, place in positioned_objects if id(item) in reasons]
    sound = [(item, place) for item, place in positioned_objects if id(item) not in reasons]
    places: dict[str, FilePosition] = {}
    for item, place in sound:
        places.setdefault(name_of(item), place)
    adopted = joint.adopted
    owners = {name_of(item): owner_of(item, adopted) for item in adopted.objects}
    checked_findings: list[CheckedFinding] = []
    decided = _decided(adopted) if answers else frozenset()
    refused = answers.refused_rules if answers else frozenset()
    for finding in joint.findings:
        is_told = (finding.object, finding.rule) in refused
        if is_told or (finding.object in decided and finding.rule in _OF_API_SERVER):
            continue
        level = level_of(finding, preset)
        if level is not RuleLevel.DISABLED:
            waiver = waived_by(finding, waivers, today)
            place = places.get(finding.object, FilePosition("", 1)).of(finding.given)
            checked_findings.append(CheckedFinding(finding, owners.get(finding.object, PLATFORM), place, level, waiver))
    for finding, waiver in joint.excepted:
        place = places.get(finding.object, FilePosition("", 1)).of(finding.given)
        owner = owners.get(finding.object, PLATFORM)
        checked_findings.append(CheckedFinding(finding, owner, place, level_of(finding, preset), waiver))
    checked_findings.sort(
        key=lambda checked: (
            not checked.fails,
            _ORDER[checked.rule.severity],
            checked.tenant,
            checked.place.file,
            checked.place.line,
        )
    )
    covered = {id(waiver) for checked in checked_findings for waiver in waivers if waiver.covers(checked.finding)}
    return CheckResult(
        findings=tuple(checked_findings),
        objects=tuple((owners.get(name_of(item), PLATFORM), name_of(item), place) for item, place in sound),
        unread=tuple(unread),
        ended=tuple(waiver for waiver in waivers if waiver.has_expired(today)),
        unused=tuple(waiver for waiver in waivers if id(waiver) not in covered and not waiver.has_expired(today)),
        answers=answers,
        unjudged=(
            *manifests.unjudged,
            *(answers.unasked if answers else ()),
            *(Unjudged(place, name_of(item), reason) for item, place in sound if (reason := not_judged(item))),
        ),
        others=tuple(manifests.others),
        waits=() if answers else tuple(sorted(joint.waits)),
        strict=strict,
    )


def _in_queue(item: Object, queue: str) -> Object:
    """A Deployment with the name of the queue in which its pods wait, where the environment writes it."""
    if not queue or item.get("kind") != "Deployment":
        return item
    metadata = item["metadata"]
    return {**item, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), QUEUE_NAME: queue}}}


def _decided(adopted: Adopted) -> frozenset[str]:
    """Objects of which an API server judges all pods when they are created: the pods of other kinds come later."""
    kinds = {*BUILT_IN, *FRAMEWORKS}
    return frozenset(name_of(item) for item in adopted.objects if item.get("kind") in kinds or not templates_of(item))


@dataclass(frozen=True, slots=True)
class JointFindings:
    """Results of every rule on objects that are checked together."""

    adopted: Adopted
    findings: tuple[Finding, ...]
    excepted: tuple[tuple[Finding, FindingWaiver], ...]
    """Findings that exceptions on the objects cover."""
    waits: frozenset[str]
    """Rules of the API server whose answer depends on the environment."""
    unread: tuple[tuple[Object, str], ...] = ()
    """Objects that rules cannot read, alone or together with others, and why; all others were checked."""


def together(
    items: Iterable[Object],
    label: str | None,
    platform: Collection[str],
    today: dt.date | None = None,
    tenants: Mapping[str, str] | None = None,
) -> JointFindings:
    """Apply every rule to objects, without those on which rules fail."""

    def ask(chosen_items: Sequence[Object]) -> JointFindings:
        adopted = adopt(chosen_items, label, platform, tenants)
        excepted = tuple(pair for item in adopted.plain for pair in objects.excepted(item, today))
        all_findings, waits = findings(adopted, _decided(adopted) if tenants is not None else ())
        return JointFindings(adopted, all_findings, excepted, waits)

    items, unread = list(items), []
    while True:
        try:
            return replace(ask(items), unread=tuple(unread))
        except UNREADABLE as error:
            # Most fail alone; a search for two that fail only together applies all rules about twenty times.
            unreadable_items = [(item, reason) for item in items if (reason := stumbles(item))]
            unreadable_items = unreadable_items or [
                _unreadable_together(items, ask, str(error) or type(error).__name__)
            ]
        unread += unreadable_items
        removed_ids = {id(item) for item, _ in unreadable_items}
        items = [item for item in items if id(item) not in removed_ids]


def _unreadable_together(
    items: Sequence[Object], ask: Callable[[Sequence[Object]], Any], reason: str
) -> tuple[Object, str]:
    """One object of a smallest set on which rules fail, and the others of the set."""
    needed_indexes: set[int] = set()
    reach = len(items)
    while not _stumble(ask, items, needed_indexes):
        low = 0
        while reach - low > 1:
            middle = (low + reach) // 2
            low, reach = (low, middle) if _stumble(ask, items, {*needed_indexes, *range(middle)}) else (middle, reach)
        reach -= 1
        needed_indexes.add(reach)
    # Without its namespace, the objects in it would have no tenant.
    first, *others = sorted(needed_indexes, key=lambda index: (items[index].get("kind") == "Namespace", -index))
    others_text = f", beside {', '.join(name_of(items[index]) for index in others)}" if others else ""
    return items[first], f"{reason}{others_text}"


def _stumble(ask: Callable[[Sequence[Object]], Any], items: Sequence[Object], indexes: Collection[int]) -> bool:
    try:
        ask([items[index] for index in sorted(indexes)])
    except UNREADABLE:
        return True
    return False


def findings(adopted: Adopted, decided: Container[str] = ()) -> tuple[tuple[Finding, ...], frozenset[str]]:
    """Findings of every rule on each object and on all of them together, and the rules that wait for an environment.

    Of the objects that are `decided`, by name, an environment's API server tells what its guards refuse.
    """
    by_guards, waits = guard_findings(adopted.plain, decided)
    all_findings = [
        *(f for item in adopted.plain for check in (objects, manifest_rules) for f in check.object_findings(item)),
        *by_guards,
        *findings_together(adopted.objects, adopted.plain),
        *regulated.findings(adopted.objects),
    ]
    return tuple(dict.fromkeys(all_findings)), waits


def findings_alone(item: Object) -> Iterator[Finding]:
    """Findings of every rule on one object by itself."""
    yield from objects.object_findings(item)
    yield from manifest_rules.object_findings(item)
    yield from guard_findings([item])[0]


def worst_first(all_findings: Iterable[Finding], adopted: Adopted) -> list[Finding]:
    """By tenant, the one with the worst findings first, and of each the worst first."""
    all_findings = list(all_findings)
    owners = {name_of(item): owner_of(item, adopted) for item in adopted.objects}
    groups: dict[str, list[Finding]] = {}
    for finding in all_findings:
        groups.setdefault(owners.get(finding.object, PLATFORM), []).append(finding)

    def badness(tenant: str) -> tuple[list[int], str]:
        return [
            -sum(RULES[finding.rule].severity is severity for finding in groups[tenant]) for severity in Severity
        ], tenant

    return [
        finding
        for tenant in sorted(groups, key=badness)
        for finding in sorted(groups[tenant], key=lambda candidate: _ORDER[RULES[candidate.rule].severity])
    ]


def _unreadable(item: Object, place: FilePosition, reason: str) -> Unread:
    change = "write it as the API accepts it; `kubectl explain` shows the form"
    unreadable_object = f"{name_of(item)}, which cannot be judged ({reason})"
    return Unread(place, unreadable_object, "an object has the form that the API accepts", change)


def stumbles(item: Object) -> str | None:
    """Why rules cannot read the object at all: a list where the API has a mapping, or the reverse."""
    try:
        metadata = item.get("metadata")
        metadata_fields = metadata if isinstance(metadata, Mapping) else {}
        owned = {**item, "metadata": {**metadata_fields, "labels": {vocabulary.TENANT: "x"}}}
        guard_findings([item])
        for whose in (item, owned):
            list(objects.object_findings(whose))
            list(manifest_rules.object_findings(whose))
            list(findings_together([whose]))
            list(regulated.findings([whose]))
    except UNREADABLE as error:
        return str(error) or type(error).__name__
    return None


def owner_of(item: Object, adopted: Adopted) -> str:
    """The tenant of an object, or the platform."""
    tenant = get_path(item, "metadata", "labels", vocabulary.TENANT)
    return str(tenant) if tenant else adopted.tenant_of.get(str(get_path(item, "metadata", "namespace")), PLATFORM)
