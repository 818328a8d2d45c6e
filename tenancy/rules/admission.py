"""Admission policies, and what a check or a preview cannot see."""

from __future__ import annotations

from tenancy.rules.model import Rule, Severity

RULES: tuple[Rule, ...] = (
    Rule(
        id="guard-01",
        title="an admission policy fails closed and its binding denies",
        why="with failurePolicy Ignore or only Audit, a typo admits everything",
        fix="set failurePolicy to Fail and validationActions to [Deny]",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="guard-02",
        title="an admission policy has a binding, and a binding names a policy that exists",
        why="a policy without a binding is not enforced, although it looks as if it were",
        fix="make a ValidatingAdmissionPolicyBinding with policyName and validationActions [Deny]",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="guard-03",
        title="guards only warn as long as a cluster is being adopted",
        why="until guards enforce, violations are admitted and tenants are not isolated",
        fix="correct what `tenancy report adoption` finds, then set guards to enforce in environment.yaml",
        severity=Severity.CRITICAL,
        advises=True,
    ),
    Rule(
        id="seen-01",
        title="the objects of a chart are checked before the chart is installed for a tenant",
        why="a release does not show its objects to the policy pack: no rule has checked them",
        fix="put helm on the path, check the rendered chart in the same pipeline, or install it with a Chart",
        severity=Severity.MEDIUM,
        advises=True,
    ),
    Rule(
        id="seen-02",
        title="values that rules read are known in a preview",
        why="a value that is not known yet has not been checked; it is checked in the update, once it is known",
        fix="write the value itself where possible; an Output of another resource is not known in a preview",
        severity=Severity.MEDIUM,
        advises=True,
    ),
    Rule(
        id="seen-03",
        title="an object has the form that the API accepts",
        why="rules cannot check what they cannot read",
        fix="write it as the API accepts it; `kubectl explain` shows the form",
        severity=Severity.MEDIUM,
    ),
)
