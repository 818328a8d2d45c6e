"""Secrets in Secrets Manager, made without a value: people put it there."""

from __future__ import annotations

from tenancy.catalog import service_prices
from tenancy.planning.aws.kinds.kind import AwsKind, PolicyType, ResourceGrant, only_its_own
from tenancy.planning.common import names

READ = "secretsmanager:GetSecretValue"
RECOVERY_DAYS = 30
"""Days for which a deleted one can be taken back."""

SECRETS = AwsKind(
    field="secrets",
    noun="secret",
    type="secretsmanager/secret:Secret",
    service="secretsmanager",
    path="secret:{name}",
    name=names.tenant_secret,
    boundary=("Secrets", lambda environment: f"tenancy/{environment.environment}/*"),
    requests={"read": READ},
    # Secrets Manager adds a dash and six characters to the name; that many and no more.
    pods=ResourceGrant("ReadSecrets", ["secretsmanager:DescribeSecret", READ], "reads the secret", suffix="-??????"),
    policy=PolicyType(
        "secretsmanager/secretPolicy:SecretPolicy",
        "secretArn",
        lambda _, allowed: [only_its_own([READ], "*", allowed)],
        {"blockPublicPolicy": True},
    ),
    properties=lambda _: {"recoveryWindowInDays": RECOVERY_DAYS},
    monthly_price=service_prices.SECRET,
)
