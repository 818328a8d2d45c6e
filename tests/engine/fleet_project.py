"""A small fleet: a stack for each tenant, and the comparison of the cluster with the spec files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from doors import key, planned
from engine_project import NEW_TENANT, Project


def make_fleet(project: Project, names: Iterable[str], more: str = "") -> None:
    """The files of these tenants, and of no other; `more` is added to the environment's."""
    for path in (project.environment / "tenants").iterdir():
        path.unlink()
    for name in names:
        project.write(f"tenants/{name}.yaml", NEW_TENANT.format(name=name))
    project.edit(
        "environment.yaml", "    gpu-sharing: {time-slicing: 4}\n    tenants: [research]", "    tiers: [research]"
    )
    project.edit("environment.yaml", "{gpu: l4, gpu-sharing: time-slicing}", "{gpu: l4}")
    project.edit("environment.yaml", "environment: local", f"environment: local\n{more}stacks: per-tenant")
    settings = project.folder / "stacks" / "Pulumi.local.yaml"
    settings.write_text(settings.read_text().replace("scope: all", "scope: platform"))


def assert_as_rendered(project: Project) -> None:
    """Each object of the files is on the cluster and in one state, there is no other, and no run is due: none differs
    from the plan."""
    plan, live = planned(project), project.objects()
    planned_items = {key(item): item for item in plan.objects()}
    assert set(live) == set(planned_items)
    stacks = ["local", *(f"local--{tenant.name}" for tenant in plan.tenants)]
    state_counts = Counter(key_in_state for stack in stacks for key_in_state in project.keys_in_state(stack))
    assert state_counts == Counter(dict.fromkeys(planned_items, 1)), "each object is in one state"
    again = project.tenancy("up", "local")
    assert f"local: 0 of {len(stacks)} stacks to run" in again.out, again.text
