"""The small environment, with a tenant whose people work in virtual clusters."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import SpecFolder

ENV, FRAUD = "environment.yaml", "tenants/fraud.yaml"
SHARED_REGISTRY = "registry.bank.example/shared"
DIGEST = f"sha256:{'0' * 64}"
SETTINGS = f"""\
virtual-clusters:
  syncer: {SHARED_REGISTRY}/vcluster-oss:0.34.0@{DIGEST}
  kubernetes: {SHARED_REGISTRY}/kubernetes:v1.35.0@{DIGEST}
  dns: {SHARED_REGISTRY}/coredns:1.12.4@{DIGEST}
  resolver: 172.20.0.10
  storage-class: gp3
"""


def virtual(path: Path) -> SpecFolder:
    folder = SpecFolder(path)
    folder.edit(ENV, "  cni: vpc-cni\n", "  cni: cilium\n")
    folder.add(ENV, SETTINGS)
    folder.edit(FRAUD, "tier: batch\n", "tier: batch\nisolation: virtual-cluster\n")
    return folder
