"""Signatures without a key file, by Sigstore: a certificate of ten minutes for the identity in an OIDC token, a
timestamp and an entry in a transparency log, all in one Sigstore bundle.

The library is sigstore-python. Formats: sigstore/protobuf-specs, sigstore_bundle.proto and sigstore_trustroot.proto.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenancy.catalog.files import SETTINGS, read_text_file
from tenancy.evidence.bundle import Unusable, read_statement

if TYPE_CHECKING:
    import datetime as dt

    from cryptography.x509 import Certificate
    from sigstore.models import Bundle, ClientTrustConfig, TrustedRoot
    from sigstore.oidc import IdentityToken

BUNDLE = "statement.sigstore.json"
"""File of the folder with the signed statement; a folder has it in place of the envelope that a key signs."""
CLIENT_ID = "sigstore"
"""Audience of identity tokens, unless the instance has another."""
_VARIABLE = "env:"
_ISSUER = "1.3.6.1.4.1.57264.1.8"
"""Extension of a certificate with the OIDC issuer: sigstore/fulcio, docs/oid-info.md."""
_KINDS = {
    "certificate_authorities": "certificate authority",
    "ctlogs": "certificate log",
    "tlogs": "transparency log",
}
MAX_ERROR_LENGTH = 400
"""Characters of a server's answer that a message quotes."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Signer by the certificate, with the earliest and the latest time of the signature."""

    identity: str
    """Mail address of a person, or URI of a CI job."""
    issuer: str
    """URL of the OIDC issuer that knows the identity."""
    begin: dt.datetime
    end: dt.datetime

    def __str__(self) -> str:
        return f"{self.identity}, known to {self.issuer}, between {self.begin:%Y-%m-%d %H:%M} and {self.end:%H:%M} UTC"


class KeylessSigner:
    """Signs statements by a Sigstore instance, for the identity in an OIDC token.

    `trust_config` is a file with the addresses and the trusted root of an instance (ClientTrustConfig of Sigstore);
    None is the public instance, whose log shows the identity to everyone. `token` is a file with an identity token, or
    `env:NAME`; None takes the token of the CI job (GitHub, GitLab and the others that sigstore-python knows), or asks
    in a browser on a terminal. `client_id` is the audience of the token.

    Raises Unusable if the instance is not known or there is no valid token.
    """

    def __init__(self, trust_config: Path | None = None, token: str | None = None, client_id: str = CLIENT_ID) -> None:
        self._config = _config_of_file(trust_config) if trust_config else _public_config()
        self._obtain = lambda: _token(self._config, token, client_id)
        # Asked before a cluster is attacked for minutes; where the token ends meanwhile, it is asked again.
        self._token = self._obtain()

    def sign(self, statement: bytes) -> tuple[bytes, Signature]:
        """The Sigstore bundle of an in-toto statement, as JSON, and whose signature it is.

        Raises Unusable if the instance refuses to sign, or if its own trusted root does not verify what it signed.
        """
        from sigstore.dsse import Statement
        from sigstore.sign import SigningContext
        from sigstore.verify import Verifier
        from sigstore.verify.policy import Identity

        if not self._token.in_validity_period():
            self._token = self._obtain()
        try:
            with SigningContext.from_trust_config(self._config).signer(self._token) as signer:
                sigstore_bundle = signer.sign_dsse(Statement(statement))
            signature = _signature(sigstore_bundle.signing_certificate)
            # An instance whose timestamp authority is down signs all the same, and no auditor could verify it.
            policy = Identity(identity=signature.identity, issuer=signature.issuer)
            Verifier(trusted_root=self._config.trusted_root).verify_dsse(sigstore_bundle, policy)
        except Exception as error:  # the library's errors have no common base, and a refused request has no text
            raise Unusable(
                "given --keyless, and the Sigstore instance signed nothing that can be verified "
                f"({_error_text(error)}); "
                "rule: a certificate for the identity, a timestamp and an entry in the log; change: an identity that "
                "the instance knows, an instance that runs (--trust-config), or sign with --key"
            ) from None
        return sigstore_bundle.to_json().encode() + b"\n", signature


def verified_keyless(
    folder: Path, identity: str, issuer: str, trusted_root: Path | None
) -> tuple[str, bytes, Signature]:
    """Type and content of the statement in a folder, and its signature by this identity of this issuer.

    Nothing is asked of the network. `trusted_root` is a file with the certificates and keys of a Sigstore instance
    (TrustedRoot of Sigstore); None are those of the public instance, as the installed library has them or last fetched
    them.

    Raises Unusable if there is no such signature.
    """
    from sigstore.verify import Verifier
    from sigstore.verify.policy import Identity

    root = _root_of_file(trusted_root) if trusted_root else _public_root()
    path = folder / BUNDLE
    text = read_statement(folder, BUNDLE)
    sigstore_bundle = _parse_bundle(path, text)
    certificate = sigstore_bundle.signing_certificate
    try:
        verifier = Verifier(trusted_root=_root_in_use(root, certificate))
        kind, payload = verifier.verify_dsse(sigstore_bundle, Identity(identity=identity, issuer=issuer))
        signature = _signature(certificate)
    except Exception as error:  # a damaged certificate raises errors of several libraries; all mean: not verified
        raise Unusable(
            f"{path}: given a statement without a valid signature of {identity}, known to {issuer} "
            f"({_error_text(error)}); "
            "rule: a certificate of the trusted root for this identity and issuer, and an entry in its log; change: "
            "name the maker's identity and issuer and the trusted root of its instance, or get the bundle again"
        ) from None
    return kind, payload, signature


def _parse_bundle(path: Path, text: str) -> Bundle:
    from sigstore.models import Bundle

    try:
        return Bundle.from_json(text)
    except Exception as error:  # a damaged certificate or timestamp raises errors of several libraries
        raise Unusable(
            f"{path}: given no Sigstore bundle ({_error_text(error)}); rule: a bundle has a signed statement; "
            "change: get "
            "the bundle again from its maker"
        ) from None


def _root_in_use(root: TrustedRoot, certificate: Certificate) -> TrustedRoot:
    """The root with the authorities and logs that were in use while the certificate was valid.

    The library compares the time of a signature with the period of timestamp authorities alone: it trusts an authority
    or a log that was replaced, because its key was stolen for example, for signatures of today too.
    """
    from sigstore.models import TrustedRoot

    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc

    def used(period: Any) -> bool:
        return period is None or (period.start <= end and (period.end is None or begin <= period.end))

    # The library has no public access to these periods.
    root_model = root._inner
    active_entries = {
        "certificate_authorities": [entry for entry in root_model.certificate_authorities if used(entry.valid_for)],
        "ctlogs": [entry for entry in root_model.ctlogs if used(entry.public_key.valid_for)],
        "tlogs": [entry for entry in root_model.tlogs if used(entry.public_key.valid_for)],
    }
    for name, kind in _KINDS.items():
        if not active_entries[name]:
            raise ValueError(f"no {kind} of the trusted root was in use on {begin:%Y-%m-%d %H:%M} UTC")
    return TrustedRoot(root_model.model_copy(update=active_entries))


def _signature(certificate: Certificate) -> Signature:
    from cryptography.hazmat import asn1
    from cryptography.x509 import SubjectAlternativeName, UnrecognizedExtension

    (name,) = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    identity = name.value.decode() if isinstance(name.value, bytes) else str(name.value)
    (issuer,) = (
        asn1.decode_der(str, extension.value.value)
        for extension in certificate.extensions
        if isinstance(extension.value, UnrecognizedExtension) and extension.oid.dotted_string == _ISSUER
    )
    return Signature(identity, issuer, certificate.not_valid_before_utc, certificate.not_valid_after_utc)


# Instances and tokens


def _config_of_file(path: Path) -> ClientTrustConfig:
    from sigstore.models import ClientTrustConfig

    rule = "a ClientTrustConfig of Sigstore in JSON: the addresses and the trusted root of an instance"
    try:
        config = ClientTrustConfig.from_json(read_text_file(path, SETTINGS))
        _ = config.signing_config, config.trusted_root
        return config
    except OSError as error:
        reason = error.strerror
    except Exception as error:  # the library's errors have no common base
        reason = _error_text(error)
    raise Unusable(f"given --trust-config {path} ({reason}); rule: {rule}; change: name such a file")


def _root_of_file(path: Path) -> TrustedRoot:
    from sigstore.models import TrustedRoot

    rule = "a TrustedRoot of Sigstore in JSON: the certificates and keys of an instance"
    try:
        return TrustedRoot.from_file(str(path))
    except OSError as error:
        reason = error.strerror
    except Exception as error:  # the library's errors have no common base
        reason = _error_text(error)
    raise Unusable(f"given --trusted-root {path} ({reason}); rule: {rule}; change: name such a file")


def _public_config() -> ClientTrustConfig:
    from sigstore.models import ClientTrustConfig

    try:
        return ClientTrustConfig.production()
    except Exception as error:  # the library's errors have no common base
        raise Unusable(
            f"given --keyless, and the public Sigstore instance did not answer ({_error_text(error)}); rule: an "
            "instance "
            "that runs signs; change: allow access to it, or name another instance with --trust-config"
        ) from None


def _public_root() -> TrustedRoot:
    from sigstore.models import ClientTrustConfig

    # It warns that nothing was fetched, which is what is wanted here.
    logging.getLogger("sigstore._internal.tuf").setLevel(logging.ERROR)
    try:
        return ClientTrustConfig.production(offline=True).trusted_root
    except Exception as error:  # the library's errors have no common base
        raise Unusable(
            f"given no --trusted-root, and that of the public instance cannot be read ({_error_text(error)}); rule: a "
            "trusted root verifies; change: name it with --trusted-root"
        ) from None


def _token(config: ClientTrustConfig, source: str | None, client_id: str) -> IdentityToken:
    from sigstore.oidc import IdentityToken, Issuer, detect_credential

    input_text = f"--identity-token {source}" if source else "the identity token of this job"
    try:
        text = _read(source) if source else detect_credential(client_id)
        if text:
            return IdentityToken(text, client_id)
        if sys.stdin.isatty():
            return Issuer(config.signing_config.get_oidc_url()).identity_token(client_id)
    except OSError as error:
        reason = error.strerror
    except Exception as error:  # the library's errors have no common base
        reason = _error_text(error)
    else:
        input_text, reason = "--keyless without an identity token", "and there is no terminal to ask on"
    raise Unusable(
        f"given {input_text} ({reason}); rule: a valid OIDC token with the audience {client_id} names who "
        "signs; change: give "
        "--identity-token, let the CI job ask for tokens (GitHub: `id-token: write`), or run it on a terminal"
    )


def _read(source: str) -> str:
    if not source.startswith(_VARIABLE):
        return read_text_file(source, SETTINGS).strip()
    name = source.removeprefix(_VARIABLE)
    if not (text := os.environ.get(name, "").strip()):
        raise ValueError(f"the variable {name} is empty or not set")
    return text


def _error_text(error: BaseException) -> str:
    """Message of the library or the server, in one line: the library's error for a refused request is empty."""
    cause = error.__cause__ or error
    response = getattr(cause, "response", None)
    text = response.text if response is not None else str(error) or str(cause) or type(error).__name__
    return " ".join(text.split())[:MAX_ERROR_LENGTH]
