"""A Sigstore instance on this machine: the real Fulcio, TesseraCT, Rekor and timestamp authority, built from modules.

Its OIDC issuer alone is of the tests: it publishes a key, and makes the tokens that a test asks for.
"""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests import judges
from tests.answering import free_ports

LONG_AGO = "2020-01-01T00:00:00Z"
AUDIENCE = "sigstore"
CT_ORIGIN = "ct.bank.example"
PATIENCE = 60
"""Seconds until a service answers."""
CI_CLAIMS = {
    "job_workflow_ref": "bank/gpu/.github/workflows/evidence.yaml@refs/heads/main",
    "sha": "0123456789abcdef0123456789abcdef01234567",
    "event_name": "schedule",
    "repository": "bank/gpu",
    "workflow": "evidence",
    "ref": "refs/heads/main",
    "job_workflow_sha": "0123456789abcdef0123456789abcdef01234567",
    "runner_environment": "self-hosted",
    "repository_id": "1",
    "repository_owner": "bank",
    "repository_owner_id": "2",
    "repository_visibility": "private",
    "workflow_ref": "bank/gpu/.github/workflows/evidence.yaml@refs/heads/main",
    "workflow_sha": "0123456789abcdef0123456789abcdef01234567",
    "run_id": "3",
    "run_attempt": "1",
}
"""Claims of a CI job's token as GitHub names them."""
CI_IDENTITY = f"https://github.com/{CI_CLAIMS['job_workflow_ref']}"


class Issuer:
    """An OIDC issuer: discovery, its key, and tokens."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        keys = {"keys": [{**public, "kid": "1", "alg": "RS256", "use": "sig"}]}
        issuer = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                said = {"/.well-known/openid-configuration": issuer.configuration, "/keys": keys}.get(self.path)
                self.send_response(404 if said is None else 200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(said).encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://localhost:{self._server.server_port}"
        self.configuration = {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            "authorization_endpoint": f"{self.url}/auth",
            "token_endpoint": f"{self.url}/token",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def token(self, age: float = 0, audience: str = AUDIENCE, **claims: object) -> str:
        """A token that is valid for ten minutes; `age` are the seconds since it was made."""
        made = time.time() - age
        times = {"iat": int(made), "exp": int(made + 600)}
        return jwt.encode({"iss": self.url, "aud": audience, **times, **claims}, self._key, "RS256", {"kid": "1"})

    def of_person(self, mail: str, **more: Any) -> str:
        """A token of a person with this mail address."""
        return self.token(**{"sub": mail, "email": mail, "email_verified": True, **more})

    def of_ci_job(self) -> str:
        """A token of a CI job."""
        return self.token(sub="repo:bank/gpu:ref:refs/heads/main", **CI_CLAIMS)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Sigstore:
    """The instance: its issuers of people and of CI jobs, and its ClientTrustConfig. It runs in a `with` statement."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.people, self.jobs = Issuer(), Issuer()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        # The path of a socket has 107 bytes at most.
        self._sockets = tempfile.TemporaryDirectory(prefix="fulcio")

    def __enter__(self) -> Sigstore:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        folder = self.folder
        fulcio, grpc, fulcio_metrics, ct, rekor, rekor_grpc, rekor_metrics, tsa = free_ports(8)
        self.url = f"http://127.0.0.1:{fulcio}"
        self._ct, self._rekor, self._tsa = (f"http://127.0.0.1:{port}" for port in (ct, rekor, tsa))
        self._ct_key, self._rekor_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        (folder / "fulcio.json").write_text(json.dumps(self._issuers()), "utf-8")
        self._run(
            "fulcio",
            "serve",
            "--ca=ephemeralca",
            "--host=127.0.0.1",
            f"--port={fulcio}",
            "--grpc-host=127.0.0.1",
            f"--grpc-port={grpc}",
            f"--metrics-port={fulcio_metrics}",
            f"--legacy-unix-domain-socket={self._sockets.name}/grpc",
            f"--ct-log-url={self._ct}",
            f"--ct-log-origin={CT_ORIGIN}",
            f"--config-path={folder / 'fulcio.json'}",
        )
        roots = json.loads(self._answer("fulcio", f"{self.url}/api/v2/trustBundle"))["chains"]
        pem = "".join(roots[0]["certificates"])
        self.authority = x509.load_pem_x509_certificates(pem.encode())
        (folder / "roots.pem").write_text(pem, "utf-8")
        self._run(
            "tesseract",
            f"--http_endpoint=127.0.0.1:{ct}",
            f"--origin={CT_ORIGIN}",
            f"--roots_pem_file={folder / 'roots.pem'}",
            f"--storage_dir={folder / 'ct'}",
            f"--private_key={_written(folder / 'ct.pem', self._ct_key, PrivateFormat.TraditionalOpenSSL)}",
            "--checkpoint_interval=1s",
        )
        self._run(
            "rekor-server",
            "serve",
            f"--http-port={rekor}",
            f"--grpc-port={rekor_grpc}",
            f"--http-metrics-port={rekor_metrics}",
            "--hostname=rekor.bank.example",
            f"--storage-dir={folder / 'rekor'}",
            f"--signer-filepath={_written(folder / 'rekor.pem', self._rekor_key, PrivateFormat.PKCS8)}",
            "--checkpoint-interval=1s",
            "--batch-max-age=100ms",
        )
        self._run(
            "timestamp-server",
            "serve",
            "--host=127.0.0.1",
            f"--port={tsa}",
            "--timestamp-signer=memory",
            "--disable-ntp-monitoring",
        )
        chain = self._answer("timestamp-server", f"{self._tsa}/api/v1/timestamp/certchain").decode()
        self._tsa_chain = x509.load_pem_x509_certificates(chain.encode())
        self._answer("tesseract", f"{self._ct}/ct/v1/get-roots")
        self._answer("rekor-server", f"{self._rekor}/healthz")
        self.trust_config = folder / "trust-config.json"
        self.trust_config.write_text(json.dumps(self.config()), "utf-8")
        self.trusted_root = self.root("trusted-root.json")

    def _issuers(self) -> Mapping[str, Any]:
        common = {"ClientID": AUDIENCE}
        return {
            "OIDCIssuers": {
                self.people.url: {"IssuerURL": self.people.url, "Type": "email", **common},
                self.jobs.url: {"IssuerURL": self.jobs.url, "Type": "github-workflow", **common},
            }
        }

    def config(self) -> dict[str, Any]:
        """The ClientTrustConfig of the instance, with addresses and trusted root."""
        valid = {"start": LONG_AGO}
        service = {"majorApiVersion": 1, "validFor": valid, "operator": "bank.example"}
        root = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [_log(self._rekor, self._rekor_key, valid)],
            "ctlogs": [_log(self._ct, self._ct_key, valid)],
            "certificateAuthorities": [_authority(self.url, self.authority, valid)],
            "timestampAuthorities": [_authority(self._tsa, self._tsa_chain, valid)],
        }
        addresses = {
            "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
            "caUrls": [{"url": self.url, **service}],
            "oidcUrls": [{"url": self.people.url, **service}],
            "rekorTlogUrls": [{"url": self._rekor, **service, "majorApiVersion": 2}],
            "rekorTlogConfig": {"selector": "ANY"},
            "tsaUrls": [{"url": f"{self._tsa}/api/v1/timestamp", **service}],
            "tsaConfig": {"selector": "ANY"},
        }
        kind = "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json"
        return {"mediaType": kind, "trustedRoot": root, "signingConfig": addresses}

    def root(self, name: str, change: Callable[[dict[str, Any]], None] = lambda _: None) -> Path:
        """A file with the trusted root, changed."""
        root = self.config()["trustedRoot"]
        change(root)
        path = self.folder / name
        path.write_text(json.dumps(root), "utf-8")
        return path

    def _run(self, tool: str, *words: str) -> None:
        log = (self.folder / f"{tool}.log").open("wb")
        command = [str(judges.folder(tool)), *words]
        self._running[tool] = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)

    def _answer(self, tool: str, url: str) -> bytes:
        """What a service says as soon as it answers; AssertionError with its log if it has ended."""
        process = self._running[tool]
        until, log = time.monotonic() + PATIENCE, self.folder / f"{tool}.log"
        # TesseraCT answers to the host of its origin alone.
        request = urllib.request.Request(url, headers={"Host": CT_ORIGIN} if tool == "tesseract" else {})
        while time.monotonic() < until and process.poll() is None:
            try:
                with urllib.request.urlopen(request, timeout=5) as response:
                    return response.read()
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        raise AssertionError(f"{tool} does not answer {url}:\n{log.read_text('utf-8', 'replace')[-2000:]}")

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()
        self._sockets.cleanup()
        self.people.stop()
        self.jobs.stop()


def other_key(log: dict[str, Any]) -> None:
    """Give a log of a trusted root another key."""
    log["publicKey"]["rawBytes"] = _text(_der(ec.generate_private_key(ec.SECP256R1())))


def _log(url: str, key: ec.EllipticCurvePrivateKey, valid: Mapping[str, str]) -> dict[str, Any]:
    digest = Hash(SHA256())
    digest.update(_der(key))
    return {
        "baseUrl": url,
        "hashAlgorithm": "SHA2_256",
        "publicKey": {
            "rawBytes": _text(_der(key)),
            "keyDetails": "PKIX_ECDSA_P256_SHA_256",
            "validFor": dict(valid),
        },
        "logId": {"keyId": _text(digest.finalize())},
    }


def _authority(url: str, chain: Sequence[x509.Certificate], valid: Mapping[str, str]) -> dict[str, Any]:
    return {
        "subject": {"organization": "bank.example", "commonName": "bank"},
        "uri": url,
        "certChain": {"certificates": [{"rawBytes": _text(one.public_bytes(Encoding.DER))} for one in chain]},
        "validFor": dict(valid),
    }


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _der(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _written(path: Path, key: ec.EllipticCurvePrivateKey, form: PrivateFormat) -> Path:
    path.write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))
    return path
