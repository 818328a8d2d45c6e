"""Guards on what people and tenants' service accounts write, whatever the kind: how large it is and under which name.

They judge every write, of metadata alone too, and no controller's: what controllers add to an object of this size fits
into etcd (tenancy/catalog/sizes.py has the sum), and a controller that could not write could end nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenancy.catalog import vocabulary
from tenancy.planning.guards.admission_policy import Guard
from tenancy.rules.catalogue import expressions
from tenancy.rules.expressions import annotation_list, by_people
from tenancy.rules.model import GuardFacts, GuardSubject

WORK, OBJECTS = "tenancy-work-limits", "tenancy-object-limits"

Resources = Sequence[tuple[str, str, Sequence[str]]]
_WORK: Resources = (
    ("", "v1", ["pods", "pods/ephemeralcontainers", "pods/status", "replicationcontrollers"]),
    ("apps", "v1", ["deployments", "statefulsets", "replicasets", "daemonsets"]),
    ("batch", "v1", ["jobs", "cronjobs"]),
)
_OBJECTS: Resources = (
    ("", "v1", ["configmaps", "secrets", "services", "persistentvolumeclaims", "serviceaccounts"]),
    ("autoscaling", "v2", ["horizontalpodautoscalers"]),
    ("networking.k8s.io", "v1", ["networkpolicies"]),
    ("policy", "v1", ["poddisruptionbudgets"]),
)
_CLAIMS: Resources = (("resource.k8s.io", "v1", ["resourceclaims", "resourceclaimtemplates"]),)


def limit_guards(facts: GuardFacts) -> tuple[Guard, Guard]:
    """Guards on the size of objects: of specs, metadata and data."""
    framework_kinds: Resources = [(f.group, f.version, [f.resource]) for f in facts.frameworks]
    claims = _CLAIMS if facts.devices_by_claim else ()
    people = {"people": by_people(facts)}
    return (
        Guard(WORK, [*_WORK, *framework_kinds], expressions(GuardSubject.SIZES_OF_WORK, facts), {}, people),
        Guard(
            OBJECTS,
            [*_OBJECTS, *claims],
            expressions(GuardSubject.SIZES_OF_OBJECTS, facts),
            {"allowances": annotation_list(vocabulary.ALLOWANCES)},
            people,
        ),
    )
