"""The policy pack. A pack's folder holds a `PulumiPolicy.yaml`, and a `__main__.py` that calls `run`."""

from __future__ import annotations


def run() -> None:
    """Serve the pack to the engine; it returns only when the engine has ended it."""
    from pulumi_policy import EnforcementLevel, PolicyPack

    from tenancy.policy_pack.policies import served

    PolicyPack(name="gpu-tenancy", enforcement_level=EnforcementLevel.MANDATORY, policies=served())
