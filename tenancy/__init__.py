"""GPU tenancy: one YAML file per tenant and one per environment become a shared GPU cluster."""

__version__ = "0.1.0"
