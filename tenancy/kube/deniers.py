"""Names of the controls that deny a request."""

from __future__ import annotations

RBAC = "RBAC"
POD_SECURITY = "PodSecurity"
LIMIT_RANGE = "LimitRange"
API_VALIDATION = "API validation"
KUEUE = "Kueue"
SERVICE_ACCOUNT = "ServiceAccount"
PRIORITY = "Priority"
NOT_FOUND = "not found"
CONFLICT = "already exists"
NONE = "none"
UNKNOWN = "unknown"
ADMISSION_POLICY = "ValidatingAdmissionPolicy/"
QUOTA = "ResourceQuota/"


def guard(policy: str, rule: str) -> str:
    """Name of a rule of an admission policy as a denier."""
    return f"{ADMISSION_POLICY}{policy}:{rule}"


def quota(name: str) -> str:
    """Name of a ResourceQuota as a denier."""
    return f"{QUOTA}{name}"
