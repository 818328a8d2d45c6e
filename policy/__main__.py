"""Starts the pack. The rules are in other modules, because `PolicyPack` serves and never returns."""

from pack import served
from pulumi_policy import EnforcementLevel, PolicyPack

PolicyPack(name="gpu-tenancy", enforcement_level=EnforcementLevel.MANDATORY, policies=served())
