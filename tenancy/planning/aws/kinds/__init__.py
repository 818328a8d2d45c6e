"""Kinds of AWS resources that a tenant has for itself, one file each. Plan, grants, boundary, components, reports and
`tenancy can` iterate over them."""

from __future__ import annotations

from tenancy.planning.aws.kinds.kind import AwsKind
from tenancy.planning.aws.kinds.logs import LOGS
from tenancy.planning.aws.kinds.repositories import REPOSITORIES
from tenancy.planning.aws.kinds.secrets import SECRETS
from tenancy.planning.aws.kinds.sqs_queues import QUEUES

KINDS: tuple[AwsKind, ...] = (REPOSITORIES, SECRETS, LOGS, QUEUES)
"""In the order in which their resources are made."""
