"""A tenant's own prefix of a shared bucket, for the tenant's own code.

A convenience that keeps code in its prefix and data whole. Isolation is IAM's: nothing here is a security boundary.
"""

from gpu_tenancy_s3.client import Entry, Prefix, Source, Stored
from gpu_tenancy_s3.errors import (
    BadName,
    Corrupt,
    Denied,
    Exists,
    NoClient,
    NotFound,
    Refused,
    S3Error,
    Throttled,
    TooLarge,
    Unreachable,
    UnsafeKey,
    WriteConflict,
)
from gpu_tenancy_s3.named import Datasets, File, Models, VersionRecord

__all__ = [
    "BadName",
    "Corrupt",
    "Datasets",
    "Denied",
    "Entry",
    "Exists",
    "File",
    "Models",
    "NoClient",
    "NotFound",
    "Prefix",
    "Refused",
    "S3Error",
    "Source",
    "Stored",
    "Throttled",
    "TooLarge",
    "Unreachable",
    "UnsafeKey",
    "VersionRecord",
    "WriteConflict",
]
