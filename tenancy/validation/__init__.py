"""Reading an environment: load its files, and judge them one by one and together."""

from tenancy.rules.catalogue import Face, with_face
from tenancy.schema.environment import Environment
from tenancy.schema.tenant import Tenant
from tenancy.validation.loader import ON_LAB, Loaded, load, on_lab, told
from tenancy.validation.problems import Problem, SpecError
from tenancy.validation.validator import validate

SPEC_RULES = with_face(Face.SPEC)
"""Every rule that reading the files enforces."""

__all__ = [
    "ON_LAB",
    "SPEC_RULES",
    "Environment",
    "Loaded",
    "Problem",
    "SpecError",
    "Tenant",
    "load",
    "on_lab",
    "told",
    "validate",
]
