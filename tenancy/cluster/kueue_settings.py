"""Configuration of a Kueue that the environment does not install, compared with what guarantees need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Api, Response
from tenancy.kube.objects import as_list, get_path
from tenancy.kube.requests import collection
from tenancy.planning.plan_model import Plan
from tenancy.planning.queueing.queue_names import API
from tenancy.rules.catalogue import RULES
from tenancy.rules.queues import CONFIGURATION, GATES, PREEMPTION, TEXT, of_configuration

MANAGER = "kueue-controller-manager"
"""Name of the Deployment that Kueue's chart and manifests make."""
_GATES_ARGUMENT = "--feature-gates="


@dataclass(frozen=True, slots=True)
class KueueSettings:
    """`problems` contradict a rule; `remarks` name what could not be read."""

    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def kueue_settings(api: Api, plan: Plan) -> KueueSettings:
    """Read Kueue's ConfigMap and the arguments of its Deployment; nothing where the environment has no queue, installs
    Kueue itself, or the cluster has no Kueue yet."""
    services = plan.platform.services
    if not plan.platform.queues or (services and services.queue) or not api.request("GET", f"/apis/{API}").ok:
        return KueueSettings()
    location = f"ConfigMap {CONFIGURATION} in {vocabulary.QUEUE_NAMESPACE}"
    answer = api.request("GET", f"{collection('v1', 'ConfigMap', vocabulary.QUEUE_NAMESPACE)}/{CONFIGURATION}")
    text = get_path(answer.body, "data", TEXT) if answer.ok else None
    if text is None:
        return KueueSettings(remarks=(_unread(location, answer),))
    manager = api.request("GET", f"{collection('apps/v1', 'Deployment', vocabulary.QUEUE_NAMESPACE)}/{MANAGER}")
    arguments = dict(_arguments(manager.body)) if manager.ok else {}
    violations = of_configuration(text, arguments)
    return KueueSettings(tuple(_problem(plan, location, rule, value) for rule, value in violations))


def _arguments(manager: Any) -> Iterator[tuple[str, bool]]:
    """Feature gates of the command line."""
    for container in as_list(get_path(manager, "spec", "template", "spec", "containers")):
        for argument in (*as_list(get_path(container, "command")), *as_list(get_path(container, "args"))):
            if str(argument).startswith(_GATES_ARGUMENT):
                for gate in str(argument).removeprefix(_GATES_ARGUMENT).split(","):
                    name, _, value = gate.partition("=")
                    yield name.strip(), value.strip().lower() == "true"


def _problem(plan: Plan, location: str, rule: str, value: str) -> str:
    restart = f"restart Kueue: `kubectl -n {vocabulary.QUEUE_NAMESPACE} rollout restart deployment/{MANAGER}`"
    if plan.context == vocabulary.LAB_CONTEXT:
        restart = f"restart the lab's Kueue: `tenancy lab up {plan.environment}`"
    return (
        f"given Kueue's {location} with {value}; rule {rule}: {RULES[rule].title}; change: {RULES[rule].fix}, and "
        f"{restart}; `tenancy render {plan.environment} --out rendered` writes the whole configuration into "
        "rendered/charts/values-kueue.yaml"
    )


def _unread(location: str, answer: Response) -> str:
    reason = f"{answer.status} {answer.message}" if not answer.ok else f"it has no {TEXT}"
    gates = ", ".join(f"featureGates.{name}: {str(value).lower()}" for name, value in GATES.items())
    return (
        f"Kueue's {location} cannot be read ({reason}): check that its configuration has manageJobsWithoutQueueName: "
        f"true, {gates} and fairSharing.preemptionStrategies: [{', '.join(PREEMPTION)}]; with Kueue's defaults jobs "
        "may run on GPUs that are not counted"
    )
