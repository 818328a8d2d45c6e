"""What people write: one file per environment and one per tenant."""

from tenancy.spec.environment import Environment
from tenancy.spec.loader import Loaded, Problem, SpecError, load
from tenancy.spec.tenant import Tenant

SPEC_RULES = tuple(
    "build-01 exc-01 img-01 mig-01 name-01 name-02 net-05 net-06 ns-03 pool-01 pool-02 pool-03 "
    "quota-01 quota-02 rbac-05 ref-01 share-01 stor-01 stor-02".split()
)
"""Every rule that reading the files enforces."""

__all__ = ["SPEC_RULES", "Environment", "Loaded", "Problem", "SpecError", "Tenant", "load"]
