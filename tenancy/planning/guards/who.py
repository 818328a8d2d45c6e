"""Who asks, and what is a part of what: variables of every guard on work."""

from __future__ import annotations

from collections.abc import Mapping

from tenancy.catalog import vocabulary as words
from tenancy.catalog.frameworks import FRAMEWORKS, Framework
from tenancy.planning.guards.expressions import cel, listed, noted
from tenancy.planning.guards.names import JOB_CONTROLLERS, KUEUE, WORKLOAD_CONTROLLERS
from tenancy.schema.environment import Environment


def but_by_controllers(rules: Mapping[str, str]) -> dict[str, str]:
    """What controllers make was judged as a template, and what the queue changes is its own."""
    return {rule: f"variables.byController || ({text})" for rule, text in rules.items()}


def who(environment: Environment) -> dict[str, str]:
    """CEL variables that tell who sent a request: the queue, a controller, an operator."""
    operators = sorted({framework.operator for framework in frameworks(environment)})

    def by(*names: str) -> str:
        return f"request.userInfo.username in {cel(list(names))}"

    return {
        "byQueue": by(KUEUE),
        "byRunner": by(KUEUE, *JOB_CONTROLLERS, *operators),
        "byController": by(KUEUE, *WORKLOAD_CONTROLLERS, *operators),
        "owned": f"request.operation == 'UPDATE' ? {_owned('oldObject')} : {_owned('object')}",
        "newOwners": f"""(has(object.metadata.ownerReferences) ? object.metadata.ownerReferences : []).filter(o,
    ({CONTROLS} || (request.operation == 'UPDATE' && {_owned("oldObject")}))
    && !(request.operation == 'UPDATE' && has(oldObject.metadata.ownerReferences)
        && o in oldObject.metadata.ownerReferences)
    && !(request.operation == 'CREATE' && request.resource.resource == 'jobs' && {_OF_CRONJOB}))""",
        "lostOwners": f"""(request.operation == 'UPDATE' && has(oldObject.metadata.ownerReferences)
    ? oldObject.metadata.ownerReferences : []).filter(o, {CONTROLS}
        && !(has(object.metadata.ownerReferences) && o in object.metadata.ownerReferences))""",
        "allowedQueues": listed(words.ALLOWED_QUEUES),
        "defaultLimits": listed(words.DEFAULT_LIMITS),
        "mostSeconds": noted(words.MAX_RUN_SECONDS),
    }


CONTROLS = "has(o.controller) && o.controller"
_OF_CRONJOB = "o.kind == 'CronJob' && o.apiVersion == 'batch/v1'"
"""A CronJob is no work: its Jobs are queued like any other Job, such as one of `kubectl create job --from`."""


def _owned(root: str) -> str:
    """Whether it is a part of other work."""
    references = f"{root}.metadata.ownerReferences"
    return f"(has({references}) && {references}.exists(o, {CONTROLS} && !({_OF_CRONJOB})))"


def frameworks(environment: Environment) -> tuple[Framework, ...]:
    """Kinds that the environment installs and queues."""
    return tuple(FRAMEWORKS[kind] for kind in sorted(environment.queues.kinds)) if environment.queued else ()


def controllers(queued: bool) -> dict[str, str]:
    """Work from before a rule can be stopped: scaled down by its controller, suspended by the queue.

    Whatever else they change is judged, so nothing starts that breaks a rule by now. Not everything that this is asked
    of has a template in one place, or can be suspended.
    """
    ways = [
        f"""(request.userInfo.username in {cel(list(WORKLOAD_CONTROLLERS))}
        && has(dyn(object).spec.template) && dyn(object).spec.template == dyn(oldObject).spec.template)"""
    ]
    if queued:
        suspended = " || ".join(f"dyn(object).?spec.?{at}suspend.orValue(false)" for at in ("", "runPolicy.?"))
        ways.append(f"(request.userInfo.username == {cel(KUEUE)} && ({suspended}))")
    return {"stopped": f"request.operation != 'UPDATE' || !({' || '.join(ways)})"}
