"""The small environment, its GPUs handed out by claim."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import SpecFolder


def by_claim(path: Path) -> SpecFolder:
    """Without what DRA has not: pools that scale, and shared GPUs."""
    folder = SpecFolder(path)
    folder.edit("environment.yaml", "  cni: vpc-cni\n", "  cni: vpc-cni\n  devices: dra\n")
    folder.edit("environment.yaml", "l4-shared: {gpu: l4, gpu-sharing: time-slicing}", "l4: {gpu: l4}")
    folder.edit("environment.yaml", "nodes: {min: 1, max: 3}", "nodes: 2")
    folder.edit("environment.yaml", "    gpu-sharing: {time-slicing: 4}\n", "")
    folder.edit("tenants/research.yaml", "l4-shared: {guaranteed: 16}", "l4: {guaranteed: 4}")
    return folder
