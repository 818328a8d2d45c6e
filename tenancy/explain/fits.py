"""Whether work would be admitted now, and if not, which control refuses it. Nothing is created: the API server is
asked by dry runs, and free quota of the queues is read."""

from __future__ import annotations

from dataclasses import replace

from tenancy.cluster.api import Api
from tenancy.explain.fits_admission import DRY_RUN_CONTROLS, admission_answers, admitted, pod_from, quota_answer
from tenancy.explain.fits_answers import ControlAnswer, Fit, FitVerdict
from tenancy.explain.fits_queue import queue_answer
from tenancy.kube.objects import Object
from tenancy.kube.pods import pods_of, shown_name
from tenancy.kube.requests import Impersonation
from tenancy.spec.fields.environment import Environment

UNSEEN = ("TrainJob",)
"""Kinds without a pod template of their own."""


def fit(api: Api, environment: Environment, item: Object, identity: Impersonation, asked_as: str) -> Fit:
    """The answer of every control to one object, which names its namespace. NotWork if its pods cannot be read."""
    sets = pods_of(item)
    answers, answer = admission_answers(api, item, identity, asked_as, item["kind"])
    defaulted_pods = []
    for pods in sets:
        if item["kind"] != "Pod":
            pod_answers, answer = admission_answers(api, pod_from(item, pods), identity, asked_as, f"pod ({pods.name})")
            # Its controller creates the pods, not the user; and a control that refuses the work is reported once.
            answers += [
                answer_of_control
                for answer_of_control in pod_answers
                if answer_of_control.plane not in {"RBAC", *(earlier.plane for earlier in answers)}
            ]
        # Defaults of admission count too: requests and priority.
        spec = answer.body["spec"] if answer.ok else pods.template["spec"]
        defaulted_pods.append(replace(pods, template={**pods.template, "spec": spec}))
    refused_planes = {
        answer_of_control.plane for answer_of_control in answers if answer_of_control.verdict is not FitVerdict.FITS
    }
    admitted_answers = [
        admitted(plane, item, asked_as, bool(refused_planes))
        for plane in DRY_RUN_CONTROLS
        if plane not in refused_planes
    ]
    if defaulted_pods:
        space = item["metadata"]["namespace"]
        if "quota" not in refused_planes:
            answers.append(quota_answer(api, space, defaulted_pods))
        if environment.has_queues:
            answers.append(queue_answer(api, environment, item, defaulted_pods))
    if item["kind"] in UNSEEN:
        text = "Its pods are defined by its runtime, which is not in the manifest."
        answers.append(ControlAnswer("queue", FitVerdict.UNKNOWN, text))
    order = [*DRY_RUN_CONTROLS, "API validation", "quota", "queue"]
    ordered_answers = sorted(
        [*admitted_answers, *answers], key=lambda answer_of_control: order.index(answer_of_control.plane)
    )
    return Fit(item["kind"], shown_name(item), item["metadata"]["namespace"], asked_as, tuple(ordered_answers))
