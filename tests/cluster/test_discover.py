"""`tenancy discover` on a real API server whose nodes are fake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tenancy.catalog import vocabulary
from tenancy.cli import main
from tenancy.lab import control_plane
from tenancy.planning.common.pools import fake_nodes
from tenancy.spec.fields.environment import Environment

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def kubeconfig(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("discover") / "lab"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPU_TENANCY_LAB", str(home))
        patch.setenv("KUBECONFIG", str(home / "kubeconfig"))
        try:
            control_plane.up(root=ROOT, nodes=fake_nodes(environment))
            yield home / "kubeconfig"
        finally:
            control_plane.down(root=ROOT)


@pytest.mark.usefixtures("kubeconfig")
def test_the_nodes_of_a_cluster_are_written_as_pools_and_flavors(environment: Environment, tmp_path: Path) -> None:
    out = tmp_path / "pools.yaml"
    result = CliRunner().invoke(main, ["discover", "--context", vocabulary.LAB_CONTEXT, "--out", str(out)])
    assert result.exit_code == 0, result.output
    discovered = yaml.safe_load(out.read_text("utf-8"))
    assert {*discovered["pools"]} == {*environment.pools}
    assert discovered["pools"]["serve"]["mig"] == {"layout": {"1g.5gb": 7}}
    assert discovered["services"] == dict.fromkeys(
        ("gpu-operator", "device-plugin", "dcgm-exporter", "dra-driver", "efa-device-plugin", "kueue"), "none"
    )
    assert result.output.startswith(f"{out}: 3 pools, 3 flavors")
    printed = CliRunner().invoke(main, ["discover"])
    assert printed.output == out.read_text("utf-8"), "the current context is the lab's"


@pytest.mark.usefixtures("kubeconfig")
def test_an_unknown_context_is_named() -> None:
    result = CliRunner().invoke(main, ["discover", "--context", "none"])
    assert result.exit_code != 0
    assert "'none'" in result.output
