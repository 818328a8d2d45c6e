"""What people write: one file per environment and one per tenant."""

from tenancy.spec.environment import Environment
from tenancy.spec.loader import Loaded, Problem, SpecError, load
from tenancy.spec.tenant import Tenant

__all__ = ["Environment", "Loaded", "Problem", "SpecError", "Tenant", "load"]
