"""Keys that sign and verify a bundle: a key file, or a key of AWS KMS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tenancy.catalog.files import SETTINGS, read_file
from tenancy.verify.evidence.bundle import Unusable

if TYPE_CHECKING:
    from securesystemslib.signer import Key, Signer

_PRIVATE = "a private key in PEM without a passphrase: Ed25519, ECDSA on P-256 or P-384, or RSA"
_PUBLIC = "a public key in PEM: Ed25519, ECDSA on P-256 or P-384, or RSA"


def signer_of_file(path: Path) -> Signer:
    """Signs with the private key in a file. Raises Unusable."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.exceptions import UnsupportedLibraryError
    from securesystemslib.signer import CryptoSigner

    try:
        return CryptoSigner(load_pem_private_key(read_file(path, SETTINGS), None))
    except OSError as error:
        raise Unusable(f"given --key {path} ({error.strerror}); rule: {_PRIVATE}; change: name such a file") from None
    except (ValueError, TypeError, UnsupportedLibraryError):
        raise Unusable(
            f"given --key {path}; rule: {_PRIVATE}; change: `openssl genpkey -algorithm ed25519 -out FILE`"
        ) from None


def signer_of_kms(key: str) -> Signer:
    """Signs with an asymmetric key of AWS KMS, by id, ARN or alias, whose public key KMS tells. Raises Unusable."""
    from securesystemslib.exceptions import UnsupportedLibraryError
    from securesystemslib.signer import AWSSigner

    try:
        _, public = AWSSigner.import_(key)
        return AWSSigner(key, public)
    except UnsupportedLibraryError:
        change = "pip install boto3, or sign with --key"
        raise Unusable(f"given --kms {key} without boto3; rule: KMS is asked through boto3; change: {change}") from None
    except Exception as error:  # boto3's errors have no common base that can be imported without it
        rule = "an asymmetric key of KMS for signing, and credentials that may use it"
        change = "name such a key, or sign with --key"
        raise Unusable(f"given --kms {key} ({error}); rule: {rule}; change: {change}") from None


def public_key(path: Path) -> Key:
    """The public key in a file. Raises Unusable, also for a private key: an auditor has none."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey

    try:
        return SSlibKey.from_crypto(load_pem_public_key(read_file(path, SETTINGS)))
    except OSError as error:
        raise Unusable(f"given --key {path} ({error.strerror}); rule: {_PUBLIC}; change: name such a file") from None
    except (ValueError, TypeError):
        change = "make one from the private key with `openssl pkey -in PRIVATE -pubout -out FILE`"
        raise Unusable(f"given --key {path}; rule: {_PUBLIC}; change: {change}") from None
