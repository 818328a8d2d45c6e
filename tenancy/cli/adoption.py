"""`tenancy report adoption`: what taking over namespaces would change, and which of their objects would be refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tenancy.output.tables import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenancy.live.adoption import Finding, Space
    from tenancy.schema.environment import GuardsMode


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
        Topic.CHANGES: "Labels and annotations that a takeover changes on namespaces",
        Topic.BESIDE: "Existing objects that stay",
        Topic.QUOTA: "Quotas below current use: running pods stay, new pods wait until use is below the quota",
        Topic.POD_SECURITY: "Pods that Pod Security would refuse",
        Topic.REFUSED: "Existing objects that would be refused",
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
        rows.append((space.name, space.tenant or None, *(of[topic] for topic in Topic), str(space.state)))
    remarks = [_stand(environment, guards)]
    if unasked := sorted({rule for space in found for rule in space.unasked}):
        remarks.append(
            f"{len(unasked)} rules depend on labels that a takeover writes, and were not checked in namespaces that "
            f"are not taken over yet: {', '.join(unasked)}; run this again after the takeover, with guards: audit"
        )
    states = {space.state for space in found}
    if State.IN_THE_WAY in states:
        remarks.append(
            "in the way: `adopt: true` in the tenant's file takes the namespace over; without it `tenancy up` refuses"
        )
    if State.STRAY in states:
        remarks.append(
            "in no file: its name has the form of the tenant's namespaces; add the part to the file, or rename it"
        )
    if State.UNDECIDED in states:
        remarks.append(
            "undecided: list it under platform.unmanaged or platform.namespaces, or adopt it by a tenant's file; "
            "until then `tenancy up` does not run with guards: enforce"
        )
    header = ("namespace", "tenant", "labels", "objects that stay", "quotas", "Pod Security", "refused", "state")
    return Table(f"Existing namespaces of {environment}", header, rows, remarks)


def _stand(environment: str, guards: GuardsMode | None) -> str:
    from tenancy.schema.environment import GuardsMode

    if guards is None:
        return (
            "the cluster has no guards (admission policies), so what they would refuse in tenants' namespaces is "
            f"unknown: write `guards: audit` into environment.yaml and run `tenancy up {environment}` first"
        )
    if guards is GuardsMode.AUDIT:
        return "guards (admission policies) only warn: all their warnings are below, and nothing is refused yet"
    return (
        "guards (admission policies) refuse: each workload shows the first rule that it breaks; with guards: audit it "
        "would show all"
    )


def _row(finding: Finding) -> tuple[str, ...]:
    from tenancy.live.adoption import Topic

    if finding.topic is Topic.REFUSED:
        return (finding.namespace, finding.what, finding.now, finding.rule, finding.then)
    if finding.topic is Topic.POD_SECURITY:
        return (finding.namespace, finding.what, finding.then, finding.now)
    return (finding.namespace, finding.what, finding.now, finding.then)
