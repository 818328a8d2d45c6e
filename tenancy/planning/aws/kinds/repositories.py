"""ECR repositories: the tenant's pipeline pushes to them, nodes pull from them."""

from __future__ import annotations

from collections.abc import Sequence

from tenancy.planning.aws.documents import Document
from tenancy.planning.aws.kinds.kind import AwsKind, PolicyType, ResourceGrant, only_its_own
from tenancy.planning.common import names

PULL = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
PUSH = ["ecr:CompleteLayerUpload", "ecr:InitiateLayerUpload", "ecr:PutImage", "ecr:UploadLayerPart"]


def _policy(_arn: str, allowed: Sequence[str]) -> list[Document]:
    statement = only_its_own([*PUSH, "ecr:BatchDeleteImage"], "*", allowed)
    # A repository's policy is about the repository: ECR refuses a statement that names a resource.
    return [{key: value for key, value in statement.items() if key != "Resource"}]


REPOSITORIES = AwsKind(
    field="repositories",
    noun="repository",
    type="ecr/repository:Repository",
    service="ecr",
    path="repository/{name}",
    name=names.tenant_repository,
    boundary=("Images", lambda environment: f"{environment.environment}/*"),
    requests={"pull": "ecr:BatchGetImage", "push": "ecr:PutImage"},
    pipeline=ResourceGrant(
        "PushOwn", [*PULL, *PUSH], "pushes and pulls images", words_without_writes="pulls images", title="ECR "
    ),
    policy=PolicyType("ecr/repositoryPolicy:RepositoryPolicy", "repository", _policy),
    properties=lambda _: {"imageTagMutability": "IMMUTABLE", "imageScanningConfiguration": {"scanOnPush": True}},
)
