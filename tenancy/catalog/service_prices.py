"""List prices of what a platform on AWS pays for beside its machines: for estimates, not for bills.

Region us-east-1, dollars, without taxes and discounts. None was compared with AWS' own pricing pages (EKS, VPC, EBS,
KMS, Secrets Manager, CloudWatch): NAT gateways, endpoints and addresses are those of three price guides of 2026-06-01,
and the others are as generally known. Frankfurt is about 15 % dearer.
"""

from __future__ import annotations

from decimal import Decimal

from tenancy.catalog.prices import MONTH_HOURS

DATE = "2026-06-01"
CONTROL_PLANE = Decimal("0.10") * MONTH_HOURS
"""Price of a month, in standard support."""
CONTROL_PLANE_EXTENDED = Decimal("0.60") * MONTH_HOURS
NAT_GATEWAY = Decimal("0.045") * MONTH_HOURS
"""Price of a month, without its data: 0.045 for each GB besides."""
ADDRESS = Decimal("0.005") * MONTH_HOURS
"""A public IPv4 address for a month."""
ENDPOINT = Decimal("0.01") * MONTH_HOURS
"""An interface endpoint in one zone for a month, without its data."""
KEY = Decimal(1)
"""A KMS key for a month, without its requests."""
SECRET = Decimal("0.40")
"""A secret for a month."""
VOLUME_GIB = Decimal("0.08")
"""A GiB of gp3 for a month."""
LOG_GB = Decimal("0.50")
"""A GB that CloudWatch Logs takes in."""
LOG_GB_OF_CONTROL_PLANE = 100
"""Assumed GB a month of all five kinds of a control plane's logs; the audit log grows with the requests."""
