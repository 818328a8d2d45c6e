"""A small environment of one tenant as plain data, for tests that change a field of its files."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

_ENVIRONMENT: dict[str, Any] = {
    "environment": "demo",
    "organisation": {"name": "acme", "departments": {"science": {"title": "Science", "sharing": "lend-and-borrow"}}},
    "platform": {"group": "ml-platform", "namespaces": ["gpu-operator", "kueue-system"]},
    "cluster": {"name": "demo", "context": "demo", "kubernetes": "1.36"},
    "images": {"registries": ["registry.acme.example/"], "sample": "registry.acme.example/cuda-sample:13.1"},
    "tiers": {"steady": {"priority": 1000}, "burst": {"priority": 100, "interruptible": True}},
    "flavors": {"h100": {"gpu": "h100-80gb"}},
    "pools": {
        "train": {
            "instance-type": "p5.48xlarge",
            "nodes": 4,
            "efa": True,
            "tenants": ["vision"],
            "zones": ["eu-central-1a"],
        },
        "general": {"instance-type": "m7i.2xlarge", "nodes": 2},
    },
}
_TENANT: dict[str, Any] = {
    "tenant": "vision",
    "team": "vision",
    "owner": {"name": "vision-leads", "mail": "vision@acme.example"},
    "department": "science",
    "cost-center": "CC-1",
    "tier": "steady",
    "people": [{"group": "vision-engineers", "role": "developer"}],
    "gpus": {"h100": {"guaranteed": 16}},
}


class Demo(dict[str, Any]):
    """The content of `environment` and of each tenant's file."""

    def write(self, folder: Path) -> Path:
        """Write the files of the environment into a folder of its name, and return that."""
        folder = folder / "demo"
        (folder / "tenants").mkdir(parents=True, exist_ok=True)
        for name, content in self.items():
            place = folder / "environment.yaml" if name == "environment" else folder / "tenants" / f"{name}.yaml"
            place.write_text(yaml.safe_dump(content, sort_keys=False))
        return folder


def demo() -> Demo:
    """A copy of the environment, which a test may change."""
    return Demo(environment=copy.deepcopy(_ENVIRONMENT), vision=copy.deepcopy(_TENANT))
