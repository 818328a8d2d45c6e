"""A folder of files, and a signed statement of their digests: in-toto Statement v1 in a DSSE envelope.

Formats: in-toto attestation framework, spec/v1/statement.md; DSSE, protocol.md and envelope.md (secure-systems-lab).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenancy.catalog.files import read_file, read_text_file

if TYPE_CHECKING:
    from securesystemslib.signer import Key, Signer

ENVELOPE = "statement.dsse.json"
"""File of the folder with the statement that a key signed: the one file that the statement does not name."""
STATEMENT = "statement.json"
"""File of the folder, in place of the envelope, with the statement that another tool signs."""
SIGNATURE = "statement.sigstore.json"
"""File of the folder into which that tool may write its signature."""
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
PREDICATE_TYPE = "urn:gpu-tenancy:evidence:v1"


class Unusable(ValueError):
    """A key or a folder that cannot be used: given, rule and change in one sentence."""


def digest(content: bytes) -> str:
    """SHA-256 of the content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def as_json(value: Any) -> bytes:
    """The bytes of a JSON file of the bundle: sorted, so that equal facts have equal digests."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def statement(files: Mapping[str, bytes], predicate: Mapping[str, Any]) -> bytes:
    """The in-toto statement about the files; `predicate` is the bundle's summary."""
    subjects = [{"name": name, "digest": {"sha256": digest(files[name])}} for name in sorted(files)]
    body = {"_type": STATEMENT_TYPE, "subject": subjects, "predicateType": PREDICATE_TYPE, "predicate": predicate}
    return json.dumps(body, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def envelope(payload: bytes, signer: Signer) -> bytes:
    """The signed envelope of a statement, as JSON."""
    from securesystemslib.dsse import Envelope

    dsse_envelope = Envelope(payload, PAYLOAD_TYPE, {})
    dsse_envelope.sign(signer)
    return (json.dumps(dsse_envelope.to_dict(), indent=1, sort_keys=True) + "\n").encode()


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the bundle into a new or empty folder. Raises Unusable if the folder has other content."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Unusable(
            f"given --out {folder}, which is not empty; rule: a bundle has a folder of its own; change: another"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def read_statement(folder: Path, name: str) -> str:
    """Text of the signed statement, in the file of the folder with this name. Raises Unusable."""
    try:
        return read_text_file(folder / name)
    except OSError:
        raise Unusable(
            f"given {folder} without {name}; rule: a bundle has a statement ({ENVELOPE}, verified with --key, or "
            f"{STATEMENT}, with --signature-verified); change: name the folder that `tenancy evidence` wrote, and the "
            "option for its statement"
        ) from None
    except ValueError as error:
        raise _no_envelope(folder / name, error) from None


def verified_statement(folder: Path, keys: Sequence[Key]) -> tuple[str, bytes]:
    """Type and content of the statement in the folder, which one of the keys has signed. Raises Unusable."""
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    path = folder / ENVELOPE
    text = read_statement(folder, ENVELOPE)
    try:
        dsse_envelope = Envelope.from_dict(json.loads(text))
        if not isinstance(dsse_envelope.payload_type, str):
            raise ValueError("payloadType is no text")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _no_envelope(path, error) from None
    try:
        dsse_envelope.verify(list(keys), 1)
    except VerificationError:
        raise Unusable(
            f"{path}: given a statement that none of the keys has signed; rule: the maker's signature; "
            "change: name the maker's public key, or get the bundle again"
        ) from None
    return dsse_envelope.payload_type, dsse_envelope.payload


def unsigned_statement(folder: Path) -> bytes:
    """Content of the statement in the folder that another tool has signed. Raises Unusable."""
    return read_statement(folder, STATEMENT).encode()


def _no_envelope(path: Path, error: Exception) -> Unusable:
    return Unusable(
        f"{path}: given no DSSE envelope ({error}); rule: a bundle has a signed statement; change: get the bundle "
        "again from its maker"
    )


def deviations_of_folder(
    folder: Path, statement_file: str, payload_type: str, payload: bytes
) -> tuple[Mapping[str, Any], list[str]]:
    """The predicate of a verified statement, and every deviation of the folder from it, the file named first.

    `statement_file` is the one file that the statement does not name: it contains the statement. Raises Unusable if the
    statement is of another type.
    """
    body = _body(folder / statement_file, payload_type, payload)
    digests_by_name = {subject["name"]: subject["digest"]["sha256"] for subject in body["subject"]}
    return body["predicate"], list(_deviations(folder, statement_file, digests_by_name))


def _body(path: Path, payload_type: str, payload: bytes) -> Mapping[str, Any]:
    """The statement, which the maker signed: its shape is checked so that another statement is not taken for one."""
    try:
        body = json.loads(payload)
        kind = (payload_type, body["_type"], body["predicateType"])
    except (ValueError, KeyError, TypeError):
        kind, body = (payload_type, None, None), {}
    if kind != (PAYLOAD_TYPE, STATEMENT_TYPE, PREDICATE_TYPE):
        raise Unusable(
            f"{path}: given a statement of type {kind[2]}; rule: {PREDICATE_TYPE}; change: name a folder that "
            "`tenancy evidence` of this version wrote"
        )
    return body


def _deviation(path: Path, expected: str) -> str:
    """Difference of a file from its signed digest; empty without one."""
    try:
        return "" if digest(read_file(path)) == expected else "changed after it was signed"
    except OSError as error:
        return f"{error.strerror}; the statement names a file"


def _deviations(folder: Path, statement_file: str, digests_by_name: Mapping[str, str]) -> Iterator[str]:
    entries = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir())
    present = {path.relative_to(folder).as_posix(): path for path in entries}
    present.pop(statement_file)
    if statement_file == STATEMENT:
        present.pop(SIGNATURE, None)
    for name, expected in sorted(digests_by_name.items()):
        path = present.pop(name, None)
        if path is None:
            yield f"{name}: missing; the statement names it"
        elif path.is_symlink():
            yield f"{name}: a link; the statement names a file"
        elif reason := _deviation(path, expected):
            yield f"{name}: {reason}"
    for name in present:
        yield f"{name}: not in the statement"
