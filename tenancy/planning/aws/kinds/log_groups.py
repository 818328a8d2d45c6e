"""CloudWatch log groups that pods write to and do not read. Each ends by its own retention, after its tenant."""

from __future__ import annotations

from typing import Any

from tenancy.planning.aws.kinds.kind import AwsKind, ResourceGrant
from tenancy.planning.common import names
from tenancy.spec.fields.environment import Environment


def _properties(environment: Environment) -> dict[str, Any]:
    # Without a key of the environment the service encrypts by its own.
    key = {"kmsKeyId": environment.aws.tenant_log_kms_key_arn} if environment.aws.tenant_log_kms_key_arn else {}
    return {"retentionInDays": environment.aws.log_retention_days, **key}


LOG_GROUPS = AwsKind(
    field="log_groups",
    noun="log group",
    type="cloudwatch/logGroup:LogGroup",
    service="logs",
    path="log-group:{name}",
    name=names.tenant_log_group,
    boundary=("Logs", lambda environment: f"/tenancy/{environment.environment}/*"),
    requests={"write": "logs:PutLogEvents"},
    pods=ResourceGrant(
        "WriteLogs", ["logs:CreateLogStream", "logs:PutLogEvents"], "writes logs", suffix=":log-stream:*"
    ),
    properties=_properties,
    is_protected=False,
)
