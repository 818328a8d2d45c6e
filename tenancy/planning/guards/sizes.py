"""Guards on what people and tenants' service accounts write, whatever the kind: how large it is and under which name.

They judge every write, of metadata alone too, and no controller's: what controllers add to an object of this size fits
into etcd (tenancy/catalog/sizes.py has the sum), and a controller that could not write could end nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenancy.catalog import sizes
from tenancy.catalog import vocabulary as words
from tenancy.catalog.vocabulary import Allowance
from tenancy.planning.guards.expressions import HAS_TENANT, OWN_FINALIZERS, Guard, cel, charged, listed, may
from tenancy.planning.guards.keys import own_keys, template_keys
from tenancy.planning.guards.names import SYSTEM_USERS
from tenancy.planning.guards.who import but_by_controllers, frameworks
from tenancy.schema.environment import Environment

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

OF_SERVER = ("kubernetes.io/pvc-protection",)
"""Finalizers that the API server itself puts on what is new (`StorageObjectInUseProtection`)."""
ENGINE = "pulumi-kubernetes"
"""How the field managers of the platform's engine begin (pulumi-kubernetes, provider/pkg/ssa)."""


def few_marks(environment: Environment) -> dict[str, str]:
    """Of a template: what its pods will carry, beside what controllers add."""
    few = f"size(variables.podLabels) <= {sizes.KEYS} && size(variables.podAnnotations) <= {sizes.KEYS}"
    platform = f"{cel(environment.platform.group)} in request.userInfo.groups"
    rules = {"avail-05": few, "meta-01": template_keys(environment)}
    return but_by_controllers({rule: f"{platform} || ({text})" for rule, text in rules.items()})


def people(environment: Environment) -> dict[str, str]:
    """Match condition: the request is no controller's, no kubelet's and not the platform's."""
    groups = [environment.platform.group, "system:nodes"]
    groups += [f"system:serviceaccounts:{name}" for name in environment.system_namespaces]
    return {
        "people": f"""!request.userInfo.groups.exists(g, g in {cel(groups)})
    && !(request.userInfo.username in {cel(list(SYSTEM_USERS))}) && !request.userInfo.username.startsWith('eks:')"""
    }


def of_tenants(rules: Mapping[str, str]) -> dict[str, str]:
    """Rules that are asked in tenants' namespaces alone: they judge nothing that others run on the same cluster."""
    return {rule: f"!({HAS_TENANT['ns-02']}) || ({text})" for rule, text in rules.items()}


def limit_guards(environment: Environment) -> tuple[Guard, Guard]:
    """Guards on the size of objects: of specs, metadata and data."""
    others: Resources = [(f.group, f.version, [f.resource]) for f in frameworks(environment)]
    claims = _CLAIMS if environment.devices_by_claim else ()
    spec = "dyn({0}).?spec.orValue({{}})"
    data = "[dyn({0}).?data.orValue({{}}), dyn({0}).?binaryData.orValue({{}})]"
    body = f"""(request.resource.resource in ['configmaps', 'secrets']
        ? ({may(Allowance.LARGE_CONFIG)} ? dyn([]) : dyn({data}))
        : request.resource.resource == 'serviceaccounts' ? dyn([dyn({{0}}).?secrets.orValue([]),
            dyn({{0}}).?imagePullSecrets.orValue([])]) : {spec})"""
    most = f"(request.resource.resource in ['configmaps', 'secrets'] ? {sizes.DATA} : {sizes.SPEC})"
    return (
        Guard(
            WORK,
            [*_WORK, *others],
            of_tenants({"avail-05": _size(spec, str(sizes.SPEC)), "meta-01": own_keys(environment)}),
            {},
            people(environment),
        ),
        Guard(
            OBJECTS,
            [*_OBJECTS, *claims],
            of_tenants(
                {
                    "avail-05": _size(body, most),
                    "avail-03": f"size({OWN_FINALIZERS}.filter(f, !(f in {cel(list(OF_SERVER))}))) == 0",
                    "cost-01": f"!has(object.metadata.labels) || {charged('object.metadata.labels')}",
                    "id-10": _UNDER_OWN_NAME,
                    # Of a service and an account, annotations are judged by net-01 and id-01; of a policy, by net-10.
                    "meta-01": f"""request.resource.resource == 'networkpolicies'
        || ({own_keys(environment, ["services", "serviceaccounts"])})""",
                    "obs-01": f"""!(request.resource.resource in ['configmaps', 'secrets'])
        || !has(object.metadata.labels) || {cel(list(words.LOADED_LABELS))}.all(k, !(k in object.metadata.labels))""",
                }
            ),
            {"allowances": listed(words.ALLOWANCES)},
            people(environment),
        ),
    )


def _bytes(at: str) -> str:
    """Bytes of a value's text. A string's own size is in characters."""
    return f"size(bytes('%s'.format([{at}])))"


def _size(body: str, most: str) -> str:
    """Whether an object is small; one that is not may be made no larger, so that it can be made small."""

    def counted(root: str) -> list[str]:
        return [f"size(dyn({root}).metadata.?{field}.orValue({empty}))" for field, empty in _COUNTED.items()]

    def total(root: str) -> str:
        return f"{_bytes(f'dyn({root}.metadata)')} + {_bytes(body.format(root))}"

    counts = zip(counted("object"), (sizes.KEYS, sizes.KEYS, sizes.MANAGERS), strict=True)
    small = " && ".join(
        [
            # First: without these the requester would decide how long the rest takes.
            *(f"{count} <= {limit}" for count, limit in counts),
            f"{_bytes('dyn(object.metadata)')} <= {sizes.METADATA}",
            f"{_bytes(body.format('object'))} <= {most}",
        ]
    )
    return f"({small}) || (request.operation == 'UPDATE' && {total('object')} <= {total('oldObject')})"


_COUNTED: Mapping[str, str] = {"labels": "{}", "annotations": "{}", "managedFields": "[]"}

# An entry says when its manager last wrote: one of the engine's that was not there, or is of another time, is a write
# under its name. A tenant may run the same engine for its own objects, so the platform's alone are judged.
_OURS = f"{{0}}.metadata.?labels[?{cel(words.ENVIRONMENT)}].hasValue()"
_ENTRIES = "dyn({0}).metadata.?managedFields.orValue([])"
_UNDER_OWN_NAME = f"""!({_OURS.format("object")} || (oldObject != null && {_OURS.format("oldObject")}))
    || ({_ENTRIES.format("object")}).all(m, !m.manager.startsWith({cel(ENGINE)})
        || (oldObject != null && ({_ENTRIES.format("oldObject")}).exists(o, o.manager == m.manager
            && o.operation == m.operation && o.time == m.time)))"""
