#!/usr/bin/env python
"""Write comments and issues of the forge that this job runs on: GitHub or GitLab, recognised by the job's variables.

forge.py comment FILE [MORE…]   create or update the pull request's comment that contains FILE's first line; append each
                             of MORE, folded
forge.py issue FILE [MORE…]     create or update the open issue that contains FILE's first line, likewise
forge.py close FILE             close that issue if it is open

PULL_REQUEST is the pull or merge request's number. On GitHub GITHUB_TOKEN may write pull requests or issues; on GitLab
GITLAB_TOKEN is a project's access token, since CI_JOB_TOKEN cannot write notes. Only comments and issues of the token's
own user are updated: another user's comment with the same line stays.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.parse
from pathlib import Path

from tenancy.http_client import HttpClient, NoAnswer, Redirected

MOST = 60_000
"""Maximum number of characters of a body; GitHub accepts 65,536."""
PAGES = 50
FOLDED = 20_000


class Refused(Exception):
    """The forge, or this command, refuses."""


def variable(name: str) -> str:
    if value := os.environ.get(name):
        return value
    raise Refused(f"given no {name}; rule: a job of GitHub Actions or GitLab CI; change: set it")


class Forge:
    def __init__(self, root: str, headers: dict[str, str]) -> None:
        self.root, self.headers, self.client = root.rstrip("/"), headers, HttpClient(timeout=60)

    def call(self, method: str, path: str, body: object = None) -> object:
        data = None if body is None else json.dumps(body).encode()
        headers = {**self.headers, "Content-Type": "application/json", "User-Agent": "gpu-tenancy"}
        try:
            answer = self.client.request(method, self.root + path, data, headers)
            if answer.status < 300:
                return json.loads(answer.data or b"null")
        except Redirected as error:
            rule, change = "a token is sent only to its own forge", "check which server answers at the forge's address"
            raise Refused(f"given {method} {path}: {error}; rule: {rule}; change: {change}") from None
        except (NoAnswer, ValueError) as error:
            raise Refused(f"given {method} {path}: {error}; rule: an answer; change: run the job again") from None
        text = answer.data[:300].decode("utf-8", "replace")
        change = "give the token the rights that docs/pull-requests.md names"
        raise Refused(f"given {method} {path}: {answer.status} {text}; rule: an answer; change: {change}")

    def all(self, path: str) -> list[dict]:
        found: list[dict] = []
        for page in range(1, PAGES + 1):
            part = self.call("GET", f"{path}{'&' if '?' in path else '?'}per_page=100&page={page}")
            if not isinstance(part, list):
                break
            found += part
            if len(part) < 100:
                break
        return found


class GitHub(Forge):
    def __init__(self) -> None:
        headers = {"Authorization": f"Bearer {variable('GITHUB_TOKEN')}", "Accept": "application/vnd.github+json"}
        super().__init__(variable("GITHUB_API_URL"), headers)
        self.project = f"/repos/{variable('GITHUB_REPOSITORY')}"
        self.user = os.environ.get("FORGE_USER") or "github-actions[bot]"

    def mine(self, item: dict) -> bool:
        return (item.get("user") or {}).get("login") == self.user

    def comments(self) -> str:
        return f"{self.project}/issues/{variable('PULL_REQUEST')}/comments"

    def comment(self, marker: str, body: str) -> str:
        for one in self.all(self.comments()):
            if self.mine(one) and marker in (one.get("body") or ""):
                self.call("PATCH", f"{self.project}/issues/comments/{one['id']}", {"body": body})
                return "updated"
        self.call("POST", self.comments(), {"body": body})
        return "created"

    def issue(self, marker: str) -> dict | None:
        found = self.all(f"{self.project}/issues?state=open")
        return next(
            (i for i in found if self.mine(i) and marker in (i.get("body") or "") and "pull_request" not in i), None
        )

    def open(self, marker: str, title: str, body: str) -> str:
        if one := self.issue(marker):
            self.call("PATCH", f"{self.project}/issues/{one['number']}", {"title": title, "body": body})
            return "updated"
        self.call("POST", f"{self.project}/issues", {"title": title, "body": body})
        return "created"

    def close(self, marker: str) -> str:
        if one := self.issue(marker):
            self.call("PATCH", f"{self.project}/issues/{one['number']}", {"state": "closed"})
            return "closed"
        return "not found"


class GitLab(Forge):
    def __init__(self) -> None:
        super().__init__(variable("CI_API_V4_URL"), {"PRIVATE-TOKEN": variable("GITLAB_TOKEN")})
        self.project = f"/projects/{urllib.parse.quote(variable('CI_PROJECT_ID'), safe='')}"
        user = self.call("GET", "/user")
        self.user = user.get("id") if isinstance(user, dict) else None

    def mine(self, item: dict) -> bool:
        return (item.get("author") or {}).get("id") == self.user

    def comment(self, marker: str, body: str) -> str:
        notes = f"{self.project}/merge_requests/{variable('PULL_REQUEST')}/notes"
        for one in self.all(notes):
            if self.mine(one) and marker in (one.get("body") or ""):
                self.call("PUT", f"{notes}/{one['id']}", {"body": body})
                return "updated"
        self.call("POST", notes, {"body": body})
        return "created"

    def issue(self, marker: str) -> dict | None:
        found = self.all(f"{self.project}/issues?state=opened")
        return next((i for i in found if self.mine(i) and marker in (i.get("description") or "")), None)

    def open(self, marker: str, title: str, body: str) -> str:
        if one := self.issue(marker):
            self.call("PUT", f"{self.project}/issues/{one['iid']}", {"title": title, "description": body})
            return "updated"
        self.call("POST", f"{self.project}/issues", {"title": title, "description": body})
        return "created"

    def close(self, marker: str) -> str:
        if one := self.issue(marker):
            self.call("PUT", f"{self.project}/issues/{one['iid']}", {"state_event": "close"})
            return "closed"
        return "not found"


def folded(path: Path) -> str:
    """A file as a folded block of code, with a fence that does not occur in it."""
    text = path.read_text("utf-8", "replace").strip()
    if len(text) > FOLDED:
        text = f"{text[:FOLDED]}\n… and {len(text) - FOLDED} characters more: see the job's log"
    fence = "`" * (max(map(len, re.findall(r"`{3,}", text)), default=2) + 1)
    return f"\n\n<details><summary>{path.stem}</summary>\n\n{fence}\n{text}\n{fence}\n\n</details>"


def body_of(files: list[Path]) -> tuple[str, str]:
    """The marker and the whole text; files that do not fit are left out and named."""
    text = files[0].read_text("utf-8").strip()
    marker = text.splitlines()[0] if text else ""
    if not re.fullmatch(r"<!-- [^<>]+ -->", marker):
        raise Refused(f"given {files[0]}; rule: its first line is a marker, <!-- … -->; change: see tenancy diff")
    if len(text) > MOST:
        text = f"{text[:MOST]}\n\n… and more: see the job's log"
    left = []
    for path in files[1:]:
        more = folded(path)
        if len(text) + len(more) <= MOST:
            text += more
        else:
            left.append(path.stem)
    return marker, text + (f"\n\nLeft out for its length: {', '.join(left[:20])}; see the job's log." if left else "")


def main(words: list[str]) -> int:
    if len(words) < 2 or words[0] not in {"comment", "issue", "close"}:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        marker, body = body_of([Path(word) for word in words[1:]])
        forge = GitHub() if os.environ.get("GITHUB_API_URL") else GitLab()
        if words[0] == "comment":
            done = forge.comment(marker, body)
        elif words[0] == "issue":
            done = forge.open(marker, marker.strip("<!-> "), body)
        else:
            done = forge.close(marker)
    except (OSError, UnicodeDecodeError) as error:
        print(f"given {error}; rule: a file to show; change: name it", file=sys.stderr)
        return 2
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    print(f"{words[0]}: {done}")
    return 0


sys.exit(main(sys.argv[1:]))
