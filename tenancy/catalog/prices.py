"""On-demand prices of the instance types of the catalogue, as AWS published them: the price of a node if the
environment sets none.

Source: karpenter-provider-aws v1.14.1 `pkg/providers/pricing/zz_generated.pricing_aws.go`, which its authors generated
from the AWS Price List API on 2026-07-06 for us-east-1: Linux, shared tenancy, dollars an hour. Read 2026-11-21. Other
regions, capacity blocks and spot have other prices, which are not included and not estimated. Types
without a price there (p5e, p6e-gb200, g7) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType

DATE = "2026-07-06"
REGION = "us-east-1"
MONTH_HOURS = 730
"""Hours of a month as AWS counts it, for a GiB-month and for an estimate of the next month."""

_BY_FAMILY = {
    "p3": "2xlarge=3.06 8xlarge=12.24 16xlarge=24.48",
    "p3dn": "24xlarge=31.212",
    "p4d": "24xlarge=21.957642",
    "p4de": "24xlarge=27.44705",
    "p5": "4xlarge=6.88 48xlarge=55.04",
    "p5en": "48xlarge=63.296",
    "p6-b200": "48xlarge=113.9328",
    "p6-b300": "48xlarge=142.416",
    "g4dn": "xlarge=0.526 2xlarge=0.752 4xlarge=1.204 8xlarge=2.176 12xlarge=3.912 16xlarge=4.352 metal=7.824",
    "g5": "xlarge=1.006 2xlarge=1.212 4xlarge=1.624 8xlarge=2.448 12xlarge=5.672 16xlarge=4.096 24xlarge=8.144 "
    "48xlarge=16.288",
    "g5g": "xlarge=0.42 2xlarge=0.556 4xlarge=0.828 8xlarge=1.372 16xlarge=2.744 metal=2.744",
    "g6": "xlarge=0.8048 2xlarge=0.9776 4xlarge=1.3232 8xlarge=2.0144 12xlarge=4.6016 16xlarge=3.3968 "
    "24xlarge=6.6752 48xlarge=13.3504",
    "gr6": "4xlarge=1.5392 8xlarge=2.4464",
    "g6f": "large=0.202 xlarge=0.2375 2xlarge=0.475 4xlarge=0.95",
    "gr6f": "4xlarge=1.066",
    "g6e": "xlarge=1.861 2xlarge=2.24208 4xlarge=3.00424 8xlarge=4.52856 12xlarge=10.49264 16xlarge=7.57719 "
    "24xlarge=15.06559 48xlarge=30.13118",
    "g7e": "2xlarge=3.36312 4xlarge=3.99816 8xlarge=5.26824 12xlarge=8.28608 24xlarge=16.57216 48xlarge=33.14432",
    "m7i": "xlarge=0.2016 2xlarge=0.4032 4xlarge=0.8064 8xlarge=1.6128 12xlarge=2.4192 16xlarge=3.2256 "
    "24xlarge=4.8384 48xlarge=9.6768",
    "c7i": "xlarge=0.1785 2xlarge=0.357 4xlarge=0.714 8xlarge=1.428 12xlarge=2.142 16xlarge=2.856 24xlarge=4.284 "
    "48xlarge=8.568",
    "r7i": "xlarge=0.2646 2xlarge=0.5292 4xlarge=1.0584 8xlarge=2.1168 12xlarge=3.1752 16xlarge=4.2336 "
    "24xlarge=6.3504 48xlarge=12.7008",
    "m7g": "xlarge=0.1632 2xlarge=0.3264 4xlarge=0.6528 8xlarge=1.3056 12xlarge=1.9584 16xlarge=2.6112",
}

ON_DEMAND: Mapping[str, Decimal] = MappingProxyType(
    {
        f"{family}.{size}": Decimal(price)
        for family, text in _BY_FAMILY.items()
        for size, price in (pair.split("=") for pair in text.split())
    }
)
"""Dollars an hour of one instance, by type."""
