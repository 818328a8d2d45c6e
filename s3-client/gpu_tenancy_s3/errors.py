"""Error types of gpu_tenancy_s3. Every message says what was given or asked, why it failed and what to change."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

THROTTLED = frozenset("SlowDown Throttling ThrottlingException TooManyRequests RequestLimitExceeded 503".split())
CONFLICT = frozenset("ConditionalRequestConflict OperationAborted".split())
"""Another write to the same key was under way: try again, since the code does not tell which write won."""
_ABSENT = frozenset("NoSuchKey NoSuchBucket NoSuchUpload NotFound 404".split())
_CREDENTIALS = frozenset(
    "ExpiredToken InvalidAccessKeyId InvalidToken SignatureDoesNotMatch TokenRefreshRequired".split()
)


class S3Error(Exception):
    """Anything this package raises."""

    code = ""
    """S3's own error code, where S3 answered."""
    retried = False
    """Whether the client sent the request more than once: an earlier try may have had its effect."""


class NoClient(S3Error):
    """boto3 is not installed, or finds no region."""


class Refused(S3Error):
    """Refused by this package: no request was sent."""

    def __init__(self, given: str, rule: str, change: str) -> None:
        super().__init__(f"given {given}; rule: {rule}; change: {change}")
        self.given, self.rule, self.change = given, rule, change


class UnsafeKey(Refused):
    """A key or prefix that other software could resolve to another place."""


class BadName(Refused):
    """An invalid name of a dataset, a model, a version or an alias."""


class NotFound(S3Error):
    """No such object, version, alias or bucket."""


class Denied(S3Error):
    """AWS refused. `action` is the IAM action, `where` the object's s3:// address."""

    def __init__(self, action: str, where: str, answer: str) -> None:
        hint = "storage in the tenant's file names the bucket, the prefix and read-only or read-write"
        if action == "s3:GetObject":
            hint += "; where listing is not granted, a key that does not exist is answered like this too"
        if "kms:" in answer:
            hint = "the role needs this use of the KMS key as well, in its own policy and in the key's"
        super().__init__(f"{action} on {where} was denied ({answer}); change: {hint}")
        self.action, self.where = action, where


class Exists(S3Error):
    """A write-once key, version or folder is taken."""


class WriteConflict(S3Error):
    """Another client wrote in between. Read again, then decide."""


class Throttled(S3Error):
    """S3 still asked to slow down after the last retry."""


class TooLarge(S3Error):
    """An object is larger than the given limit."""


class Corrupt(S3Error):
    """The received bytes differ from the stored object, or the stored object differs from its manifest."""


class Unreachable(S3Error):
    """No answer, or a body that kept breaking, after the last retry."""


@contextmanager
def translated(action: str, where: str, arguments: Mapping[str, Any]) -> Generator[None]:
    """Translate botocore's errors. `asked` are the request's parameters, which tell the kind of a failed condition."""
    from botocore import exceptions as aws

    try:
        yield
    except aws.ClientError as error:
        raise _answered(error.response, action, where, arguments) from error
    except (aws.NoCredentialsError, aws.PartialCredentialsError, aws.CredentialRetrievalError) as error:
        raise Denied(action, where, f"no credentials: {error}") from error
    except aws.BotoCoreError as error:
        raise Unreachable(f"{action} on {where}: {error}; change: look at the network, the endpoint, region") from error


def _answered(response: Mapping[str, Any], action: str, where: str, arguments: Mapping[str, Any]) -> S3Error:
    code = str(response.get("Error", {}).get("Code", ""))
    answer = f"{code}: {response.get('Error', {}).get('Message', '')}"
    about = response.get("ResponseMetadata", {})
    status = about.get("HTTPStatusCode")
    error: S3Error
    if code in THROTTLED:
        error = Throttled(f"{action} on {where}: {answer}; change: fewer workers, or more attempts")
    elif code in {"PreconditionFailed", "412"} and "IfNoneMatch" in arguments:
        error = Exists(f"{where} exists already and was not changed; change: choose another key")
    elif code in {"PreconditionFailed", "412"} | CONFLICT or (code in _ABSENT and "IfMatch" in arguments):
        error = WriteConflict(
            f"{where} was written or removed by another client ({answer}); change: read it again, then decide"
        )
    elif code in _ABSENT:
        error = NotFound(f"{where} does not exist ({answer})")
    elif status == 403 or code in _CREDENTIALS:
        error = Denied(action, where, answer)
    else:
        error = S3Error(f"{action} on {where}: {answer}")
    error.code, error.retried = code, about.get("RetryAttempts", 0) > 0
    return error
