"""Pod Security on templates: work whose pods would be refused is refused itself, before the queue reserves GPUs for it.

Made from the table that `tenancy check` judges by. Pods themselves are left to the API server's own admission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from tenancy.catalog import vocabulary
from tenancy.rules.catalogue import RULES
from tenancy.rules.expressions import cel
from tenancy.rules.pod_security import (
    APPARMOR,
    APPARMOR_OF_NODE,
    APPARMOR_PROFILES,
    CHECKS,
    LATEST,
    Check,
    FieldOwner,
    PodSecurityLevel,
    Requirement,
    checked,
)

RULE = "pod-04"
_ASKING = (PodSecurityLevel.BASELINE, PodSecurityLevel.RESTRICTED)
OLDEST = 30
"""Kubernetes 1.x: the oldest that an environment may have."""


def _label(key: str) -> str:
    return f"namespaceObject.metadata.?labels[?{cel(key)}].orValue('')"


def security_variables(
    of_each_pod: Callable[[str], str] = lambda text: text, *, is_whole: bool = True
) -> dict[str, str]:
    """`unfit`: Pod Security's requirements on the namespace's pods that these do not meet, in words.

    `of_each_pod` makes an expression on one pod one on all. A level or a version that is absent or cannot be read is
    the strictest, as it is to Pod Security. Of pods that are not whole, such as patches of others, an absent field is
    allowed.
    """

    def checks_of_levels(*levels: PodSecurityLevel) -> str:
        """Checks of these levels that no other level has."""
        level_checks = [check for check in CHECKS if {level for level in _ASKING if checked(check, level)} == {*levels}]
        groups = [[*checks] for _, checks in groupby(level_checks, key=lambda check: check.group or check)]
        requirements = [
            (checks[0].requirement, _holds(checks, is_whole)) for checks in groups if checks[0].until > OLDEST
        ]
        if len(levels) > 1:
            requirements.append(
                (f"annotations {APPARMOR}* name the runtime's default or a profile of the node", _PROFILES)
            )
        return (
            "["
            + ", ".join(f"{of_each_pod(holds)} ? '' : {cel(requirement)}" for requirement, holds in requirements)
            + "]"
        )

    version = _label(vocabulary.PSA_VERSION)
    level = _label(vocabulary.PSA_ENFORCE)
    baseline, restricted = checks_of_levels(PodSecurityLevel.BASELINE), checks_of_levels(PodSecurityLevel.RESTRICTED)
    return {
        "minor": f"{version}.matches('^v1[.][0-9]{{1,3}}$') ? int({version}.substring(3)) : {LATEST}",
        "securityChecks": f"""{level} == {cel(PodSecurityLevel.PRIVILEGED)} ? [] : {checks_of_levels(*_ASKING)}
            + ({level} == {cel(PodSecurityLevel.BASELINE)} ? {baseline} : {restricted})""",
        "unfit": "variables.securityChecks.filter(x, x != '')",
    }


def security_message(docs: str, advice: str = "") -> dict[str, str]:
    """Which fields to change, as an expression; `advice` is one that yields what stands before them."""
    ends = cel(f"{RULE}: {RULES[RULE].title}. To change: "), cel(f". Read {docs}#{RULE}")
    parts = [ends[0], *([advice] if advice else []), "variables.unfit.join('; ')", ends[1]]
    return {RULE: " + ".join(parts)}


_PROFILES = f"""variables.podAnnotations.all(k, !k.startsWith({cel(APPARMOR)})
    || variables.podAnnotations[k] in {cel(list(APPARMOR_PROFILES))}
    || variables.podAnnotations[k].startsWith({cel(APPARMOR_OF_NODE)}))"""


def _holds(checks: Sequence[Check], is_whole: bool) -> str:
    """Whether a pod passes checks that differ in their field alone."""
    if not is_whole:
        checks = [replace(check, needed=Requirement.NO) for check in checks]
    check, steps = checks[0], checks[0].field.split(".")
    if check.must_contain and not is_whole:
        holds = _unless_absent("c", steps, f"{cel(check.must_contain)} in {_at('c', steps)}")
        text = f"variables.containers.all(c, {holds})"
    elif check.needed is Requirement.INHERITED:
        of_pod, of_container = _optional("variables.spec", steps), _optional("c", steps)
        text = f"""{_allows(check, f"{of_pod}.orValue({cel(check.allowed[0])})")}
            && variables.containers.all(c, {_allows(check, f"{of_container}.orValue({of_pod}.orValue(''))")})"""
    else:
        parts = [] if check.owner is FieldOwner.CONTAINERS else [_field(check, "variables.spec", steps)]
        if check.owner is not FieldOwner.POD:
            fields = " && ".join(_field(field_check, "c", field_check.field.split(".")) for field_check in checks)
            parts.append(f"variables.containers.all(c, {fields})")
        text = " && ".join(parts)
    return " || ".join([*_exemptions(check), f"({text})"])


def _exemptions(check: Check) -> Iterable[str]:
    """Pods and versions that a check leaves out."""
    if check.since > OLDEST:
        yield f"variables.minor < {check.since}"
    if check.until <= LATEST:
        yield f"variables.minor >= {check.until}"
    if not check.windows:
        yield "variables.spec.?os.?name.orValue('') == 'windows'"
    if not check.user_namespace:
        yield "!variables.spec.?hostUsers.orValue(true)"


def _optional(root: str, steps: Iterable[str]) -> str:
    return "".join([root, *(f".?{step}" for step in steps)])


def _field(check: Check, root: str, steps: list[str]) -> str:
    """Whether the value at a path below `root` is allowed."""
    for number, step in enumerate(steps):
        if step.endswith("[]"):
            path = [*steps[:number], step.removesuffix("[]")]
            entry = "y" if root == "c" else "v"
            element_check = _field(check, entry, steps[number + 1 :])
            return _unless_absent(root, path, f"{_at(root, path)}.all({entry}, {element_check})")
    if check.must_contain:
        return f"{cel(check.must_contain)} in {_optional(root, steps)}.orValue([])"
    if not steps:
        if check.one_of:
            return " || ".join([f"size({root}) == 1", *(f"has({root}.{name})" for name in check.one_of)])
        return _allows(check, root)
    if check.refused:
        allowed = " && ".join(f"{_at(root, steps)} != {cel(value)}" for value in check.refused)
        return _unless_absent(root, steps, allowed)
    if not check.allowed:
        return _unless_absent(root, steps, "false")
    if check.needed is Requirement.YES:
        return _allows(check, f"{_optional(root, steps)}.orValue('')")
    return _unless_absent(root, steps, _allows(check, _at(root, steps)))


def _at(root: str, steps: Sequence[str]) -> str:
    return ".".join([root, *steps])


def _unless_absent(root: str, steps: Sequence[str], text: str) -> str:
    """A condition on a field, if it is present. `has` ends at the first absent step: an optional chain takes longer."""
    absent = (f"!has({_at(root, steps[: number + 1])})" for number in range(len(steps)))
    return f"({' || '.join([*absent, text])})"


def _allows(check: Check, value: str) -> str:
    if len(check.allowed) == 1:
        return f"{value} == {cel(check.allowed[0])}"
    return f"{value} in {cel(list(check.allowed))}"
