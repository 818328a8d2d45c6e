"""Whether the API server would admit work and its pods: dry runs, and the ResourceQuotas for all pods together."""

from __future__ import annotations

import copy
import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tenancy.catalog.controllers import QUEUE, RUN_TIME, URGENCY
from tenancy.cluster import denial
from tenancy.cluster.api import CONFLICT, NOT_FOUND, Api, ApiUnreachable, Response
from tenancy.explain.fits_answers import ControlAnswer, FitVerdict
from tenancy.kube import deniers
from tenancy.kube.objects import Object
from tenancy.kube.pods import SCALE, Pods, limits_of, quantity_text, queued_metadata, requests_of
from tenancy.kube.quantities import thousandths
from tenancy.kube.requests import Impersonation, collection
from tenancy.kube.selectors import counts_classes
from tenancy.planning.common.priorities import DEFAULT_CLASS

DRY_RUN_CONTROLS = ("RBAC", "guard", "Pod Security", "LimitRange")
"""Controls that one dry run passes through."""
_EXCEEDED = re.compile(r"exceeded quota: ([^,]+), requested: (.*), used: (.*), limited: (.*)$")
_FORBIDDEN = re.compile(r"^.*? is forbidden: ")


def admitted(plane: str, item: Mapping[str, Any], asked_as: str, is_refused: bool) -> ControlAnswer:
    """The answer of a control that a dry run passed, or that it did not reach because another one refused."""
    if is_refused and plane != "RBAC":
        return ControlAnswer(plane, FitVerdict.UNKNOWN, "Not reached: another control refuses first.")
    sentences = {
        "RBAC": f"{asked_as} may create {item['kind']}s in {item['metadata']['namespace']}.",
        "guard": "It breaks no rule, and neither do its pods.",
        "Pod Security": "Its pods comply with the namespace's level.",
        "LimitRange": "Its containers are within the namespace's bounds.",
    }
    return ControlAnswer(plane, FitVerdict.FITS, sentences[plane])


def pod_from(item: Mapping[str, Any], pods: Pods) -> Object:
    """A pod of a template, as its controller would create it, with the work's labels for the queue."""
    template = copy.deepcopy(pods.template)
    metadata = template.get("metadata") or {}
    queue_labels = {
        key: value for key, value in (queued_metadata(item).get("labels") or {}).items() if key in _QUEUE_LABELS
    }
    labels = {**queue_labels, **(metadata.get("labels") or {})}
    pod_metadata = {
        "name": f"fits-{secrets.token_hex(4)}",
        "namespace": item["metadata"]["namespace"],
        "labels": labels,
    }
    notes = {"annotations": metadata["annotations"]} if metadata.get("annotations") else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**pod_metadata, **notes}, "spec": template["spec"]}


_QUEUE_LABELS = frozenset({QUEUE, URGENCY, RUN_TIME})


def _ask(api: Api, item: Object, identity: Impersonation) -> Response:
    path = collection(item["apiVersion"], item["kind"], item["metadata"]["namespace"]) + "?dryRun=All"
    answer = api.request("POST", path, item, identity)
    if answer.status == CONFLICT and item["metadata"].get("name"):
        # It exists already: ask for a copy of it.
        name = f"{item['metadata']['name'][:50].rstrip('-.')}-{secrets.token_hex(4)}"
        answer = api.request("POST", path, {**item, "metadata": {**item["metadata"], "name": name}}, identity)
    if denial.denier(answer.status, answer.message) == deniers.RBAC and _NOT_FOR_OTHERS in answer.message:
        change = "change: run it with the platform's rights"
        raise ApiUnreachable(f"given {answer.message}; rule: this asks as the tenant's developers; {change}")
    return answer


_NOT_FOR_OTHERS = "cannot impersonate resource"


def admission_answers(
    api: Api, item: Object, identity: Impersonation, asked_as: str, subject: str
) -> tuple[list[ControlAnswer], Response]:
    """The refusal of a dry run, if there is one, and the answer."""
    answer = _ask(api, item, identity)
    return ([] if answer.ok else [_refusal(answer, item, asked_as, subject)]), answer


def _refusal(answer: Response, item: Mapping[str, Any], asked_as: str, subject: str) -> ControlAnswer:
    denier = denial.denier(answer.status, answer.message)
    space, message = item["metadata"]["namespace"], _FORBIDDEN.sub("", answer.message)
    if denier.startswith(deniers.ADMISSION_POLICY):
        policy, _, rule = denier.removeprefix(deniers.ADMISSION_POLICY).partition(":")
        text = message.partition("denied request: ")[2] or message
        title, _, change = text.partition(" To change: ")
        return ControlAnswer(
            "guard", FitVerdict.NEVER, f"{policy} refuses its {subject}: {title}", change or rule, denier
        )
    if denier.startswith(deniers.QUOTA):
        return _quota_refusal(message, denier, subject)
    if denier == deniers.RBAC:
        change = "ask as a group with a role there (--as), or write one under the people of the tenant's file"
        return ControlAnswer(
            "RBAC", FitVerdict.NEVER, f"{asked_as} may not create {item['kind']}s in {space}.", change, denier
        )
    if denier == deniers.POD_SECURITY:
        change = "write the security context that `tenancy sample` prints"
        return ControlAnswer("Pod Security", FitVerdict.NEVER, f"Its {subject} {message}.", change, denier)
    if denier == deniers.LIMIT_RANGE:
        change = f"ask for what `kubectl describe limitrange -n {space}` allows"
        return ControlAnswer("LimitRange", FitVerdict.NEVER, f"Its {subject}: {message}.", change, denier)
    if answer.status == NOT_FOUND:
        missing_name = (
            f"namespace {space}" if "namespaces" in message else f"kind {item['kind']} ({item['apiVersion']})"
        )
        change = "run `tenancy up` first, or write a kind that the environment has (queues.kinds)"
        return ControlAnswer("API validation", FitVerdict.NEVER, f"The cluster has no {missing_name}.", change, denier)
    return ControlAnswer(
        "API validation", FitVerdict.NEVER, f"Its {subject}: {message}", "correct the manifest", denier
    )


def _quota_refusal(message: str, denier: str, subject: str) -> ControlAnswer:
    match = _EXCEEDED.search(message)
    if not match:
        return ControlAnswer(
            "quota", FitVerdict.NEVER, f"Its {subject}: {message}", "set the fields that the quota requires", denier
        )
    requested, used, hard = (
        {key: thousandths(amount) for key, _, amount in (pair.partition("=") for pair in match[n].split(","))}
        for n in (2, 3, 4)
    )
    return _quota_shortage(match[1], requested, used, hard, denier)


def _quota_shortage(
    name: str,
    requested: Mapping[str, int],
    used: Mapping[str, int],
    hard: Mapping[str, int],
    denier: str,
) -> ControlAnswer:
    above_limit = [key for key in requested if requested[key] > hard[key]]
    above_free = [key for key in requested if requested[key] + used[key] > hard[key]]
    key = (above_limit or above_free)[0]
    remaining = max(hard[key] - used[key], 0)
    text = (
        f"{quantity_text(requested[key])} {key} at once, of which quota {name} has {quantity_text(hard[key])} in all "
        f"and {quantity_text(remaining)} left."
    )
    if above_limit:
        return ControlAnswer("quota", FitVerdict.NEVER, text, "ask for less, or for a larger quota", denier)
    return ControlAnswer("quota", FitVerdict.WAITS, text, "delete finished work, or ask for less", denier)


def quota_answer(api: Api, space: str, sets: Sequence[Pods]) -> ControlAnswer:
    """Whether the quota has room for all the pods together; a dry run counts one only."""
    requested: Counter[str] = Counter()
    for pods in sets:
        pod_requests: Counter[str] = Counter({"pods": SCALE})
        for list_name, amounts in (("requests", requests_of), ("limits", limits_of)):
            pod_requests.update(
                {f"{list_name}.{name}": amount for name, amount in amounts(pods.template["spec"]).items()}
            )
        requested.update({key: amount * pods.count for key, amount in pod_requests.items()})
    classes = {pods.template["spec"].get("priorityClassName", DEFAULT_CLASS) for pods in sets}
    for item in api.items(collection("v1", "ResourceQuota", space)):
        if not counts_classes(item["spec"], classes):
            continue
        hard, used = (
            {key: thousandths(amount) for key, amount in ((item.get("status") or {}).get(field) or {}).items()}
            for field in ("hard", "used")
        )
        if shortage := {key: requested[key] for key in hard if requested[key] + used.get(key, 0) > hard[key]}:
            name = item["metadata"]["name"]
            return _quota_shortage(name, shortage, Counter(used), hard, deniers.quota(name))
    return ControlAnswer("quota", FitVerdict.FITS, "The quota has room for all of its pods.")
