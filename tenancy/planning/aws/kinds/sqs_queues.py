"""SQS queues, encrypted by SQS itself, that pods send to and receive from."""

from __future__ import annotations

from collections.abc import Sequence

from tenancy.catalog import vocabulary
from tenancy.planning.aws.documents import Document, deny
from tenancy.planning.aws.kinds.kind import AwsKind, PolicyType, ResourceGrant, only_its_own
from tenancy.planning.common import names

USE = [
    *("sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes"),
    *("sqs:GetQueueUrl", "sqs:ReceiveMessage", "sqs:SendMessage"),
]


def _policy(arn: str, allowed: Sequence[str]) -> list[Document]:
    actions = [*USE, "sqs:PurgeQueue"]
    plain_text = {"Bool": {"aws:SecureTransport": "false"}}
    return [deny("NothingUnencrypted", actions, arn, plain_text, principal="*"), only_its_own(actions, arn, allowed)]


SQS_QUEUES = AwsKind(
    field="sqs_queues",
    noun="queue",
    type="sqs/queue:Queue",
    service="sqs",
    path="{name}",
    name=names.tenant_queue,
    boundary=("Queues", lambda environment: f"{environment.cluster.name}{vocabulary.SEPARATOR}*"),
    requests={"send": "sqs:SendMessage", "receive": "sqs:ReceiveMessage"},
    pods=ResourceGrant("UseQueues", USE, "sends and receives"),
    policy=PolicyType("sqs/queuePolicy:QueuePolicy", "queueUrl", _policy),
    properties=lambda _: {"sqsManagedSseEnabled": True},
    is_kept=False,
    is_protected=False,
)
