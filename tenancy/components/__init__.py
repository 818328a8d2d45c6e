"""The plan as Pulumi components. No decision is taken here."""

from tenancy.components.platform import Platform
from tenancy.components.tenant import Tenant

__all__ = ["Platform", "Tenant"]
