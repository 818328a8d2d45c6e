"""Whether work would be admitted and start now, and if not, which control refuses it. Nothing is created: the API
server is asked by dry runs, and quota of the queues and capacity of the nodes are read and computed."""

from __future__ import annotations

from dataclasses import replace

from tenancy.kube.objects import Object
from tenancy.kube.pods import pods_of, shown_name
from tenancy.kube.requests import Impersonation
from tenancy.live.api import Api
from tenancy.live.fits_admission import ASKED, admission_answers, admitted, pod_from, quota_answer
from tenancy.live.fits_answers import ControlAnswer, Fit, FitVerdict
from tenancy.live.fits_nodes import nodes_answer
from tenancy.live.fits_queue import queue_answer
from tenancy.schema.environment import Environment

UNSEEN = ("TrainJob",)
"""Kinds without a pod template of their own."""


def fit(api: Api, environment: Environment, item: Object, who: Impersonation, asked_as: str) -> Fit:
    """The answer of every control to one object, which names its namespace. NotWork if its pods cannot be read."""
    sets = pods_of(item)
    said, answer = admission_answers(api, item, who, asked_as, item["kind"])
    filled = []
    for pods in sets:
        if item["kind"] != "Pod":
            more, answer = admission_answers(api, pod_from(item, pods), who, asked_as, f"pod ({pods.name})")
            # Its controller creates the pods, not the user; and a control that refuses the work is reported once.
            said += [one for one in more if one.plane not in {"RBAC", *(before.plane for before in said)}]
        # Defaults of admission count too: requests and priority.
        spec = answer.body["spec"] if answer.ok else pods.template["spec"]
        filled.append(replace(pods, template={**pods.template, "spec": spec}))
    refused = {one.plane for one in said if one.verdict is not FitVerdict.FITS}
    yes = [admitted(plane, item, asked_as, bool(refused)) for plane in ASKED if plane not in refused]
    if filled:
        space = item["metadata"]["namespace"]
        if "quota" not in refused:
            said.append(quota_answer(api, space, filled))
        flavors: list[Object] = []
        if environment.queued:
            queued, flavors = queue_answer(api, environment, item, filled)
            said.append(queued)
        said.append(nodes_answer(api, environment, filled, flavors))
    if item["kind"] in UNSEEN:
        text = "Its pods are defined by its runtime, which is not in the manifest."
        said += [ControlAnswer(plane, FitVerdict.UNKNOWN, text) for plane in ("queue", "pool")]
    order = [*ASKED, "API validation", "quota", "queue", "pool"]
    found = sorted([*yes, *said], key=lambda one: order.index(one.plane))
    return Fit(item["kind"], shown_name(item), item["metadata"]["namespace"], asked_as, tuple(found))
