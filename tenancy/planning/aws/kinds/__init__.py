"""Kinds of AWS resources that a tenant has for itself, one file each. Plan, grants, boundary, components, reports and
`tenancy can` iterate over them."""

from __future__ import annotations

from tenancy.planning.aws.kinds.kind import AwsKind
from tenancy.planning.aws.kinds.log_groups import LOG_GROUPS
from tenancy.planning.aws.kinds.repositories import REPOSITORIES
from tenancy.planning.aws.kinds.secrets import SECRETS
from tenancy.planning.aws.kinds.sqs_queues import SQS_QUEUES

KINDS: tuple[AwsKind, ...] = (REPOSITORIES, SECRETS, LOG_GROUPS, SQS_QUEUES)
"""In the order in which their resources are made."""
