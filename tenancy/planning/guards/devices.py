"""Claims of devices and their templates, where GPUs are claimed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tenancy.catalog import vocabulary as words
from tenancy.planning.guards.expressions import Guard, cel, changed, listed
from tenancy.planning.guards.names import CLAIM_CONTROLLERS, CLAIM_OF_POD
from tenancy.planning.guards.who import CONTROLS
from tenancy.rules.devices import MOST_DEVICES

# Over `variables.requests` and `.config`, the same of a claim and of a template of one.
CLAIM_RULES: Mapping[str, str] = {
    # A request without `exactly` is a list of alternatives, or a form that no rule covers.
    "gpu-08": f"""size(variables.config) == 0 && size(variables.requests) > 0
        && variables.requests.all(r, has(r.exactly)
            && r.exactly.deviceClassName in variables.allowedClasses
            && has(r.exactly.allocationMode) && r.exactly.allocationMode == 'ExactCount'
            && has(r.exactly.count) && r.exactly.count <= {MOST_DEVICES}
            && (!has(r.exactly.adminAccess) || !r.exactly.adminAccess)
            && (!has(r.exactly.tolerations) || size(r.exactly.tolerations) == 0)
            && !has(r.exactly.capacity))"""
}


def claim_guards() -> Iterator[Guard]:
    """Claims of devices and their templates. What a pod's template makes is a claim, and is judged once more then."""
    counted = """variables.requests.map(r, r.exactly.deviceClassName + '-' + string(r.exactly.count)).join('-')"""
    made = f"""(has(object.metadata.annotations) && {cel(CLAIM_OF_POD)} in object.metadata.annotations)
        || (has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, {CONTROLS}))"""
    named = f"(object.metadata.name == {counted} || object.metadata.name.startsWith({counted} + '.'))"
    rules = {
        # The cluster takes a claim for a pod's own by these two, whatever it asks for.
        "resourceclaims": {
            **CLAIM_RULES,
            "gpu-11": f"request.userInfo.username in {cel(list(CLAIM_CONTROLLERS))} || !({made})",
        },
        # The queue counts a template when work comes, and claims are made from what has that name by then.
        "resourceclaimtemplates": {rule: f"({text}) && {named}" for rule, text in CLAIM_RULES.items()},
    }
    for what, spec in {"resourceclaims": "object.spec", "resourceclaimtemplates": "object.spec.spec"}.items():
        lists = {field: f"{spec}.devices.{field}" for field in ("requests", "config")}
        yield Guard(
            f"tenancy-{what}",
            [("resource.k8s.io", "v1", [what])],
            rules[what],
            {
                # The API server passes an unset list as null.
                **{name: f"has({at}) && {at} != null ? {at} : []" for name, at in lists.items()},
                "allowedClasses": listed(words.ALLOWED_DEVICE_CLASSES),
            },
            changed("spec", "metadata.annotations", "metadata.ownerReferences"),
        )
