"""What people write: one file per environment and one per tenant."""

from tenancy.spec.environment import Environment
from tenancy.spec.loader import ON_LAB, Loaded, Problem, SpecError, load, on_lab, told
from tenancy.spec.tenant import Tenant

SPEC_RULES = tuple(
    "ami-01 aws-01 aws-02 aws-03 aws-04 aws-05 aws-06 aws-07 dra-01 eks-01 exc-01 img-01 img-02 img-03 iso-01 iso-02 "
    "iso-03 mig-01 mig-02 mig-03 name-01 name-02 net-05 net-06 net-09 ns-03 pool-01 pool-02 pool-03 pool-04 pool-05 "
    "pool-06 pool-07 pool-08 pool-09 price-01 queue-01 queue-02 quota-01 quota-02 rbac-05 ref-01 share-01 share-03 "
    "share-04 stor-01 stor-02 stor-05 stor-06 stor-07 ver-01".split()
)
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
]
