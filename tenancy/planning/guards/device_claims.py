"""Claims of devices and their templates, where GPUs are claimed."""

from __future__ import annotations

from collections.abc import Iterator

from tenancy.catalog import vocabulary
from tenancy.planning.guards.admission_policy import Guard, change_condition
from tenancy.rules.catalogue import expressions
from tenancy.rules.expressions import annotation_list
from tenancy.rules.model import GuardFacts, GuardSubject


def claim_guards(facts: GuardFacts) -> Iterator[Guard]:
    """Claims of devices and their templates. What a pod's template makes is a claim, and is judged once more then."""
    for resource, subject, spec in (
        ("resourceclaims", GuardSubject.DEVICE_CLAIMS, "object.spec"),
        ("resourceclaimtemplates", GuardSubject.DEVICE_CLAIM_TEMPLATES, "object.spec.spec"),
    ):
        lists = {field: f"{spec}.devices.{field}" for field in ("requests", "config")}
        yield Guard(
            f"tenancy-{resource}",
            [("resource.k8s.io", "v1", [resource])],
            expressions(subject, facts),
            {
                # The API server passes an unset list as null.
                **{name: f"has({path}) && {path} != null ? {path} : []" for name, path in lists.items()},
                "allowedClasses": annotation_list(vocabulary.ALLOWED_DEVICE_CLASSES),
            },
            change_condition("spec", "metadata.annotations", "metadata.ownerReferences"),
        )
