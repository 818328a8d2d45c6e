"""`tenancy report adoption`: what taking over namespaces would change, and which of their objects would be refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tenancy.output.tables import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenancy.lifecycle.adoption import AdoptionFinding, ExistingNamespace
    from tenancy.spec.fields.environment import GuardsMode


def tables(
    environment: str,
    namespaces: Sequence[ExistingNamespace],
    guards: GuardsMode | None,
    kueue: Sequence[str] = (),
    *,
    lab: bool = False,
) -> list[Table]:
    """One table for each topic; empty ones are not shown. `kueue` are sentences about Kueue's configuration."""
    from tenancy.lifecycle.adoption import AdoptionTopic

    findings = [finding for space in namespaces for finding in space.findings]
    headers = {
        AdoptionTopic.CHANGES: ("namespace", "what", "now", "then"),
        AdoptionTopic.FOREIGN_OBJECT: ("namespace", "what", "is", "so"),
        AdoptionTopic.QUOTA: ("namespace", "quota and key", "in use", "quota"),
        AdoptionTopic.POD_SECURITY: ("namespace", "pods", "so", "why"),
        AdoptionTopic.REFUSED: ("namespace", "what", "is", "rule", "says"),
    }
    titles = {
        AdoptionTopic.CHANGES: "Labels and annotations that a takeover changes on namespaces",
        AdoptionTopic.FOREIGN_OBJECT: "Existing objects that stay",
        AdoptionTopic.QUOTA: "Quotas below current use: running pods stay, new pods wait until use is below the quota",
        AdoptionTopic.POD_SECURITY: "Pods that Pod Security would refuse",
        AdoptionTopic.REFUSED: "Existing objects that would be refused",
    }
    return [
        _summary(environment, namespaces, guards, kueue, lab),
        *(
            Table(titles[topic], headers[topic], [_row(finding) for finding in findings if finding.topic is topic])
            for topic in AdoptionTopic
        ),
    ]


def _summary(
    environment: str,
    namespaces: Sequence[ExistingNamespace],
    guards: GuardsMode | None,
    kueue: Sequence[str],
    lab: bool,
) -> Table:
    from tenancy.lifecycle.adoption import AdoptionTopic, State

    rows = []
    for space in namespaces:
        counts = Counter(finding.topic for finding in space.findings)
        rows.append((space.name, space.tenant or None, *(counts[topic] for topic in AdoptionTopic), str(space.state)))
    remarks = [_guards_remark(environment, guards, lab), *kueue]
    if unchecked_rules := sorted({rule for space in namespaces for rule in space.unasked}):
        remarks.append(
            f"{len(unchecked_rules)} rules depend on labels that a takeover writes, and were not checked in "
            "namespaces that "
            f"are not taken over yet: {', '.join(unchecked_rules)}; run this again after the takeover, with "
            "guards: audit"
        )
    states = {space.state for space in namespaces}
    if State.CONFLICTING in states:
        remarks.append(
            "in the way: `adopt: true` in the tenant's file takes the namespace over; without it `tenancy up` refuses"
        )
    if State.STRAY in states:
        remarks.append(
            "in no file: its name has the form of the tenant's namespaces; add the namespace to the file, or rename it"
        )
    if State.UNDECIDED in states:
        remarks.append(
            "undecided: list it under platform.unmanaged-namespaces or platform.namespaces, or adopt it by a "
            "tenant's file; "
            "until then `tenancy up` does not run with guards: enforce"
        )
    header = ("namespace", "tenant", "labels", "objects that stay", "quotas", "Pod Security", "refused", "state")
    return Table(f"Existing namespaces of {environment}", header, rows, remarks)


def _guards_remark(environment: str, guards: GuardsMode | None, lab: bool) -> str:
    from tenancy.spec.fields.environment import GuardsMode

    if guards is None:
        command = f"tenancy up {environment}{' --lab' * lab}"
        return (
            "the cluster has no guards (admission policies), so what they would refuse in tenants' namespaces is "
            f"unknown: write `guards: audit` into environment.yaml and run `{command}` first"
        )
    if guards is GuardsMode.AUDIT:
        return "guards (admission policies) only warn: all their warnings are below, and nothing is refused yet"
    return (
        "guards (admission policies) refuse: each workload shows the first rule that it breaks; with guards: audit it "
        "would show all"
    )


def _row(finding: AdoptionFinding) -> tuple[str, ...]:
    from tenancy.lifecycle.adoption import AdoptionTopic

    if finding.topic is AdoptionTopic.REFUSED:
        return (finding.namespace, finding.what, finding.now, finding.rule, finding.then)
    if finding.topic is AdoptionTopic.POD_SECURITY:
        return (finding.namespace, finding.what, finding.then, finding.now)
    return (finding.namespace, finding.what, finding.now, finding.then)
