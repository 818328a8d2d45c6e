"""AWS on loopback: moto, and what moto does not play as Terraform's provider asks (EKS, Budgets, cost-allocation tags,
EKS' public parameters of images). Every request is judged by AWS' API models and logged as a line of JSON.

python -m judged.aws.server LOG CLUSTER...     prints its port, and ends with its standard input

Each CLUSTER is the name of one that another tool made.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

from judged.aws.answers import ACCOUNT, RefusedRequest, now
from judged.aws.billing import Budgets, CostTags
from judged.aws.eks import Eks, Request
from judged.aws.models import UnreadablePattern, mistakes

os.environ |= {"MOTO_ACCOUNT_ID": ACCOUNT, "MOTO_IAM_LOAD_MANAGED_POLICIES": "true"}

# moto reads its settings when it is imported.
from moto.backends import get_backend
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import Request as ParsedRequest
from moto.core.request import determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.utils import get_service_model
from moto.ec2.models.security_groups import SecurityGroupRule
from moto.ec2.responses.launch_templates import LaunchTemplates
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

Environ = dict[str, Any]
Headers = list[tuple[str, str]]
Answer = tuple[int, Headers, bytes]

IMAGES = b"/aws/service/eks/optimized-ami/"
CREDENTIAL = re.compile(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/")
EXCERPT = 400
"""Characters of a refusal in the log."""


def correct_moto() -> None:
    """Two mistakes of moto's: a launch template's own tags are among its data, and a rule of a security group that
    names a group has no description."""

    def description(rule: Any) -> str | None:
        return (rule.ip_range or {}).get("Description") or (rule.source_group or {}).get("Description")

    rules: Any = SecurityGroupRule
    templates: Any = LaunchTemplates
    create = templates.create_launch_template

    def create_launch_template(self: Any) -> Any:
        answer = create(self)
        template = self.ec2_backend.get_launch_template(answer._result["LaunchTemplate"]["LaunchTemplateId"])
        for version in template.versions:
            tags = version.data.get("TagSpecifications", [])
            version.data["TagSpecifications"] = [tag for tag in tags if tag["ResourceType"] != "launch-template"]
        return answer

    rules.description = property(description)
    templates.create_launch_template = create_launch_template


class Server:
    """The WSGI application."""

    def __init__(self, log: Path, clusters: Iterable[str]) -> None:
        self._log = log.open("a", encoding="utf-8")
        self._lock = threading.RLock()
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._eks, self._budgets, self._cost_tags = (
            Eks(lambda region: get_backend("ec2")[ACCOUNT][region], clusters),
            Budgets(),
            CostTags(),
        )

    def __call__(self, environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request and log it."""
        content = _content(environ)
        environ |= {"wsgi.input": io.BytesIO(content), "CONTENT_LENGTH": str(len(content))}
        scope = CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
        region, service = scope.groups() if scope else ("", "")
        path = re.sub(r"^https?://[^/]+", "", environ.get("REQUEST_URI") or environ["PATH_INFO"]).partition("?")[0]
        status, headers, answer = self._answer(environ, service, region, path, content)
        start(f"{status} answer", headers)
        self._note(environ, service, region, path, content, status, answer)
        return [answer]

    def _answer(self, environ: Environ, service: str, region: str, path: str, content: bytes) -> Answer:
        operation = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        if service == "ssm" and operation == "GetParameter" and IMAGES in content:
            return _json(_image(json.loads(content)["Name"], region))
        if service not in ("eks", "budgets", "ce"):
            return self._by_moto(environ)
        body = json.loads(content) if content else {}
        try:
            with self._lock:
                if service == "budgets":
                    return _json(self._budgets.answer(operation, body))
                if service == "ce":
                    return _json(self._cost_tags.answer(operation, body))
                parts = tuple(unquote(part) for part in path.strip("/").split("/"))
                query = parse_qs(environ.get("QUERY_STRING", ""))
                return _json(self._eks.answer(Request(environ["REQUEST_METHOD"], parts, query, body, region)))
        except RefusedRequest as error:
            text = {"__type": error.kind, "message": error.message, "Message": error.message}
            status, headers, answer = _json(text, error.status)
            return status, [*headers, ("x-amzn-ErrorType", error.kind)], answer

    def _by_moto(self, environ: Environ) -> Answer:
        started: list[tuple[str, Headers]] = []

        def start(status: str, headers: Headers, _: object = None) -> None:
            started.append((status, headers))

        answer = b"".join(self._moto(environ, start))
        status, headers = started[-1]
        return int(status.split()[0]), headers, answer

    def _note(
        self, environ: Environ, service: str, region: str, path: str, content: bytes, status: int, answer: bytes
    ) -> None:
        if not service:
            return
        line = {"service": service, "region": region, "status": status, **judge(environ, service, path, content)}
        if status >= 400:
            line["refusal"] = " ".join(re.sub(r"<[^>]+>", " ", answer.decode("utf-8", "replace")).split())[:EXCERPT]
        with self._lock:
            self._log.write(json.dumps(line) + "\n")
            self._log.flush()


def judge(environ: Environ, service: str, path: str, content: bytes) -> dict[str, Any]:
    """The operation of a request and what AWS' models have against its parameters; `unread` if they cannot be read."""
    if service == "s3" and path.startswith("/v20180820"):
        service = "s3control"
    line: dict[str, Any] = {"service": service, "operation": "", "wrong": []}
    query = environ.get("QUERY_STRING", "")
    uri = path + (f"?{query}" if query else "")
    # Requests to a proxy have the host in their path.
    form = {"wsgi.input": io.BytesIO(content), "RAW_URI": uri, "REQUEST_URI": uri, "PATH_INFO": unquote(path)}
    request = ParsedRequest({**environ, **form})
    try:
        operation, parameters = get_service_router(service).match(request)
        line["operation"] = operation.name
        protocol = determine_request_protocol(get_service_model(service), request.content_type)
        parts: Any = {
            "query_params": request.args,
            "values": request.values,
            "headers": request.headers,
            "body": content,
            "url_path": path,
            "method": request.method,
            "url_params": {key: unquote(value) for key, value in parameters.items()},
        }
        values = PROTOCOL_PARSERS[protocol](operation).parse(parts)
        if operation.input_shape:
            line["wrong"] = list(mistakes(operation.input_shape, dict(values)))
    except UnreadablePattern as error:
        line["unread"] = str(error)
    except Exception as error:
        line["unread"] = f"{request.method} {path[:60]}: {type(error).__name__}: {error}"[:EXCERPT]
    return line


def _content(environ: Environ) -> bytes:
    if environ.get("HTTP_TRANSFER_ENCODING") == "chunked" and environ.get("wsgi.input_terminated"):
        return environ["wsgi.input"].read()
    return environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))


def _json(values: dict[str, Any], status: int = 200) -> Answer:
    text = json.dumps(values).encode()
    return status, [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(text)))], text


def _image(name: str, region: str) -> dict[str, Any]:
    """EKS' public parameter of an image, whose release is the minor version and the day that the name says."""
    parts = name.split("/")
    return {
        "Parameter": {
            "Name": name,
            "Type": "String",
            "Value": f"{parts[5]}.3-{parts[-2].rpartition('-v')[2]}",
            "Version": 1,
            "DataType": "text",
            "LastModifiedDate": now(),
            "ARN": f"arn:aws:ssm:{region}::parameter{name}",
        }
    }


def main() -> None:
    """Serve on a free port until standard input ends."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    correct_moto()
    server = make_server("127.0.0.1", 0, Server(Path(sys.argv[1]), sys.argv[2:]), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
