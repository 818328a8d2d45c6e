"""A folder of files, and a signed statement of their digests: in-toto Statement v1 in a DSSE envelope.

Formats: in-toto attestation framework, spec/v1/statement.md; DSSE, protocol.md and envelope.md (secure-systems-lab).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from securesystemslib.signer import Key, Signer

ENVELOPE = "statement.dsse.json"
"""The one file of the folder that the statement does not name: it contains the statement."""
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

    made = Envelope(payload, PAYLOAD_TYPE, {})
    made.sign(signer)
    return (json.dumps(made.to_dict(), indent=1, sort_keys=True) + "\n").encode()


def write(folder: Path, files: Mapping[str, bytes], envelope_text: bytes) -> None:
    """Write the bundle into a new or empty folder. Raises Unusable if the folder has other content."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Unusable(
            f"given --out {folder}, which is not empty; rule: a bundle has a folder of its own; change: another"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / ENVELOPE).write_bytes(envelope_text)


def verified(folder: Path, keys: Sequence[Key]) -> tuple[Mapping[str, Any], list[str]]:
    """The predicate of the statement, and every deviation of the folder from it, the file named first.

    Raises Unusable if there is no statement that one of the keys has signed: nothing in the folder counts then.
    """
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    path = folder / ENVELOPE
    try:
        read = Envelope.from_dict(json.loads(path.read_text("utf-8")))
        if not isinstance(read.payload_type, str):
            raise ValueError("payloadType is no text")
    except OSError:
        raise Unusable(
            f"given {folder} without {ENVELOPE}; rule: a bundle has a signed statement; change: name the "
            "folder that `tenancy evidence` wrote"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unusable(
            f"{path}: given no DSSE envelope ({error}); rule: a bundle has a signed statement; change: get "
            "the bundle again from its maker"
        ) from None
    try:
        read.verify(list(keys), 1)
    except VerificationError:
        raise Unusable(
            f"{path}: given a statement that none of the keys has signed; rule: the maker's signature; "
            "change: name the maker's public key, or get the bundle again"
        ) from None
    body = _body(path, read.payload_type, read.payload)
    return body["predicate"], list(_deviations(folder, {s["name"]: s["digest"]["sha256"] for s in body["subject"]}))


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


def _deviations(folder: Path, wanted: Mapping[str, str]) -> Iterator[str]:
    entries = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir())
    present = {path.relative_to(folder).as_posix(): path for path in entries}
    present.pop(ENVELOPE)
    for name, expected in sorted(wanted.items()):
        path = present.pop(name, None)
        if path is None:
            yield f"{name}: missing; the statement names it"
        elif path.is_symlink():
            yield f"{name}: a link; the statement names a file"
        elif digest(path.read_bytes()) != expected:
            yield f"{name}: changed after it was signed"
    for name in present:
        yield f"{name}: not in the statement"
