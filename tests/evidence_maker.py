"""Bundles of evidence in tests: an environment with a recorded attack, a key pair, and the commands on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tenancy.cli import main

KINDS: dict[str, Callable[[], Any]] = {
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "RSA": lambda: rsa.generate_private_key(65537, 2048),
}
REFUSED = {
    "id": "gpu-02-pod",
    "attack": "see all GPUs of the node",
    "expected_denier": "ValidatingAdmissionPolicy",
    "status": 422,
    "denier": "ValidatingAdmissionPolicy",
    "refused": True,
    "twin_admitted": True,
    "rule": "gpu-02",
}
TIME = "1790000000"


class Maker:
    """An environment with a recorded result, a key pair, and the commands on them."""

    def __init__(self, folder: Path, spec: Path, kind: str = "Ed25519") -> None:
        self.folder, self.spec = folder, spec
        key = KINDS[kind]()
        self.private, self.public = folder / f"{kind}.pem", folder / f"{kind}.pub.pem"
        self.private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        self.public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        self.attacks = folder / "attacks.json"
        self.attacks.write_text(json.dumps([REFUSED]), "utf-8")

    def make(self, name: str = "bundle", *more: str, key: bool = True) -> Result:
        key_options = ("--key", str(self.private)) if key else ()
        words = (
            "make",
            str(self.spec),
            "--out",
            str(self.folder / name),
            "--attack-results",
            str(self.attacks),
            *key_options,
            *more,
        )
        return run(*words)

    def verify(self, name: str = "bundle", key: Path | None = None) -> Result:
        return run("verify", str(self.folder / name), "--key", str(key or self.public))

    def read(self, file: str) -> Any:
        return json.loads((self.folder / "bundle" / file).read_text("utf-8"))


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["evidence", *words], env={"SOURCE_DATE_EPOCH": TIME}, catch_exceptions=False)
