"""Kinds of others, defined on a lab of tests."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from tenancy.lab.api import ApiError, LabApi
from tests.waiting import until

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NOT_YET = (404, 429)
"""Statuses of the API server before it serves a new kind; 429 while it prepares the storage."""


def define(api: LabApi, crds: Iterable[dict[str, Any]]) -> None:
    """Make the definitions, and wait until their kinds are served."""
    definitions = list(crds)
    for crd in definitions:
        api.request("POST", CRDS, crd, "application/json")
    for crd in definitions:
        until(partial(_is_served, api, crd["spec"]), f"{crd['metadata']['name']} is served")


def _is_served(api: LabApi, spec: dict[str, Any]) -> bool:
    version = next(version_entry["name"] for version_entry in spec["versions"] if version_entry["storage"])
    try:
        api.get(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}", limit="1")
    except ApiError as error:
        if error.status not in NOT_YET:
            raise
        return False
    return True
