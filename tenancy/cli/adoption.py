"""`tenancy report adoption`: what taking over namespaces would change, and what of theirs would be refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tenancy.cli.report import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenancy.live.adoption import Finding, Space
    from tenancy.spec.environment import GuardsMode


def tables(environment: str, found: Sequence[Space], guards: GuardsMode | None) -> list[Table]:
    """One table for each topic; empty ones are not shown."""
    from tenancy.live.adoption import Topic

    findings = [finding for space in found for finding in space.findings]
    headers = {
        Topic.CHANGES: ("namespace", "what", "now", "then"),
        Topic.BESIDE: ("namespace", "what", "is", "so"),
        Topic.QUOTA: ("namespace", "quota and key", "in use", "quota"),
        Topic.POD_SECURITY: ("namespace", "pods", "so", "why"),
        Topic.REFUSED: ("namespace", "what", "is", "rule", "says"),
    }
    titles = {
        Topic.CHANGES: "What a takeover writes on namespaces",
        Topic.BESIDE: "What somebody else made and a takeover leaves",
        Topic.QUOTA: "Quotas below what is in use: what runs stays, nothing new starts until it is below",
        Topic.POD_SECURITY: "What Pod Security would refuse",
        Topic.REFUSED: "What would be refused of what is there",
    }
    return [
        _summary(environment, found, guards),
        *(
            Table(titles[topic], headers[topic], [_row(one) for one in findings if one.topic is topic])
            for topic in Topic
        ),
    ]


def _summary(environment: str, found: Sequence[Space], guards: GuardsMode | None) -> Table:
    from tenancy.live.adoption import State, Topic

    rows = []
    for space in found:
        of = Counter(finding.topic for finding in space.findings)
        rows.append((space.name, space.tenant, *(of[topic] for topic in Topic), str(space.state)))
    remarks = [_stand(environment, guards)]
    if unasked := sorted({rule for space in found for rule in space.unasked}):
        remarks.append(
            f"{len(unasked)} rules rest on what a takeover writes, and were not asked where it has not been: "
            f"{', '.join(unasked)}; run this again once it is taken over, with guards: audit"
        )
    states = {space.state for space in found}
    if State.IN_THE_WAY in states:
        remarks.append("in the way: `adopt: true` in the tenant's file takes it over; without it `tenancy up` refuses")
    if State.STRAY in states:
        remarks.append("in no file: it is called as the tenant's own are; add the part to the file, or rename it")
    header = ("namespace", "tenant", "changes", "beside", "quota", "Pod Security", "refused", "is")
    return Table(f"Namespaces of {environment} that are there", header, rows, remarks)


def _stand(environment: str, guards: GuardsMode | None) -> str:
    from tenancy.spec.environment import GuardsMode

    if guards is None:
        return (
            "no guard stands, so nobody was asked what guards would refuse: write `guards: audit` into "
            f"environment.yaml and run `tenancy up {environment}` first"
        )
    if guards is GuardsMode.AUDIT:
        return "guards only warn: all that they say is below, and nothing is refused yet"
    return "guards refuse: each piece of work shows the first rule that it breaks; with guards: audit it would show all"


def _row(finding: Finding) -> tuple[str, ...]:
    from tenancy.live.adoption import Topic

    if finding.topic is Topic.REFUSED:
        return (finding.namespace, finding.what, finding.now, finding.rule, finding.then)
    if finding.topic is Topic.POD_SECURITY:
        return (finding.namespace, finding.what, finding.then, finding.now)
    return (finding.namespace, finding.what, finding.now, finding.then)
