"""A lab of its own, with the objects of `stacks/local` applied by the platform's own group."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest
from attack_lab import ROOT, Cluster, wait_until_settled

from tenancy.live.api import Api
from tenancy.live.attacks import all_attacks
from tenancy.live.verify import scene_of
from tenancy.plan import Plan, make_plan
from tenancy.plan.pools import fake_nodes
from tenancy.spec import Loaded, load


@pytest.fixture(scope="session")
def loaded() -> Loaded:
    return load(ROOT / "stacks" / "local")


@pytest.fixture(scope="session")
def plan(loaded: Loaded) -> Plan:
    return make_plan(loaded.environment, loaded.tenants)


@pytest.fixture(scope="session")
def cluster(loaded: Loaded, plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    from tenancy.lab import control_plane
    from tenancy.lab.layout import environ

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPU_TENANCY_LAB", str(tmp_path_factory.mktemp("attacks") / "lab"))
        group = loaded.environment.platform.group
        chart = plan.platform.queue_chart
        lab = control_plane.up(
            root=ROOT,
            platform_group=group,
            nodes=fake_nodes(loaded.environment),
            queues=chart.values if chart else None,
        )
        try:
            patch.setenv("KUBECONFIG", str(lab.kubeconfig))
            # The NVIDIA operator brings such a class; without one no guard is asked about it.
            nvidia = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "nvidia"}
            items = [*plan.objects(), {**nvidia, "metadata": {"name": "nvidia"}}]
            subprocess.run(
                ["kubectl", "apply", "--server-side", "-f", "-"],
                input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}),
                env=environ(ROOT),
                text=True,
                capture_output=True,
                check=True,
            )
            api = Api(plan.context)
            scene = scene_of(api, loaded, plan)
            attacks = all_attacks(scene)
            wait_until_settled(api, plan, attacks)
            yield Cluster(api, plan, scene, attacks, lab.folder / "audit.log", lab.pki / "ca.crt")
        finally:
            control_plane.down(root=ROOT)
