"""Reading an environment: load its files, and judge them one by one and together."""

from tenancy.rules.catalogue import Face, with_face
from tenancy.schema.environment import Environment
from tenancy.schema.problems import Problem, SpecError
from tenancy.schema.tenant import Tenant
from tenancy.validation.inputs import validate
from tenancy.validation.loader import ON_LAB, Loaded, load, load_deployed, on_lab, spec_notes

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
    "load_deployed",
    "on_lab",
    "spec_notes",
    "validate",
]
