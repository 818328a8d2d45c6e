"""Files that a pull request can bring, and names in them: commands end in bounded time, and print no command."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tenancy.catalog import files
from tenancy.catalog.text import escape_output, in_markdown, is_shown, printed_json
from tenancy.cli import main
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[3]
POD = """apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s}
spec: {containers: [{name: c, image: x/y:1}]}
"""


def run(*words: object) -> Result:
    result = CliRunner().invoke(main, list(map(str, words)))
    assert result.exception is None or isinstance(result.exception, SystemExit), "no traceback, whatever is given"
    return result


# Files


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a path of each kind that a command must not read."""
    folder = tmp_path_factory.mktemp("endless")
    os.mkfifo(folder / "pipe.yaml")
    (folder / "link.yaml").symlink_to("/dev/zero")
    (folder / "kernel.yaml").symlink_to("/proc/self/status")
    (folder / "folder.yaml").mkdir()
    (folder / "long.yaml").touch()
    os.truncate(folder / "long.yaml", files.TRACES + 1)
    key = Ed25519PrivateKey.generate()
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*pem))
    with socket.socket(socket.AF_UNIX) as listening:
        working_directory = Path.cwd()
        os.chdir(folder)  # the path of a socket has a hundred characters
        listening.bind("socket.yaml")
        os.chdir(working_directory)
        yield folder


KINDS = {
    "pipe": "a named pipe",
    "link": "a device",
    "kernel": "a file of the kernel",
    "folder": "a folder",
    "socket": "a socket",
    "long": "more than",
}
CHARGEBACK = ("chargeback", "local", "--from", "2026-10-01", "--to", "2026-11-01")
READERS: dict[str, Sequence[object]] = {
    "check": ("check",),
    "exceptions": ("check", ROOT / "stacks", "--exceptions"),
    "fits": ("fits",),
    "verify": ("verify", ROOT / "stacks" / "local", "--attacks"),
    "simulate": ("simulate", ROOT / "stacks" / "local", "--trace"),
    "diff": ("diff", "--preview"),
    "simulation": ("report", ROOT / "stacks" / "local", "--out", "x.html", "--simulation"),
    "charged": ("report", ROOT / "stacks" / "local", "--out", "x.html", "--chargeback"),
    "token": (*CHARGEBACK, "--prometheus", "http://127.0.0.1:1", "--token-file"),
    "bill": (*CHARGEBACK, "--example", 1, "--bill"),
    "attacks": ("evidence", "make", ROOT / "stacks" / "local", "--out", "bundle", "--attack-results"),
    "judge": ("evidence", "make", ROOT / "stacks" / "local", "--out", "bundle", "--sarif"),
    "key": ("evidence", "verify", ROOT / "stacks", "--key"),
}


@pytest.mark.parametrize(
    ("reader", "kind"),
    [*(("check", kind) for kind in KINDS if kind != "folder"), *((name, "pipe") for name in READERS)],
)
def test_a_command_refuses_what_is_no_regular_file_of_bounded_size(
    reader: str, kind: str, endless: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT if reader in {"token", "bill"} else tmp_path)
    key_option = ["--key", endless / "key.pem"] if READERS[reader][:2] == ("evidence", "make") else []
    result = run(*READERS[reader], endless / f"{kind}.yaml", *key_option)
    assert result.exit_code == 2, result.output
    assert KINDS[kind] in result.stderr


def test_a_folder_with_a_pipe_and_a_device_is_checked_in_bounded_time_and_memory(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(POD % ("a", "t"))
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    limited = f"ulimit -v 2000000; exec {Path(sys.executable).parent / 'tenancy'} check {tmp_path}"
    completed = subprocess.run(["bash", "-c", limited], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert completed.returncode == 2, completed.stderr
    assert [line.partition(":")[0].rpartition("/")[2] for line in completed.stderr.splitlines()] == [
        "pipe.yaml",
        "zero.yaml",
    ]
    assert "Pod t/a" in completed.stdout, "what can be read is judged"


def test_a_link_of_a_checked_folder_leads_to_that_folder_or_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, elsewhere = tmp_path / "checkout", tmp_path / "elsewhere"
    mounted = checkout / "mounted"
    for folder in (mounted / "..of-today", checkout / "base", elsewhere):
        folder.mkdir(parents=True)
        (folder / "pod.yaml").write_text(POD % (folder.name.strip("."), "t"))
    (mounted / "..data").symlink_to("..of-today")
    (mounted / "pod.yaml").symlink_to("..data/pod.yaml")
    (mounted / "base.yaml").symlink_to(checkout / "base" / "pod.yaml")
    monkeypatch.chdir(checkout)
    result = run("check", "mounted", "--format", "json")
    assert result.exit_code == 1
    assert {finding["object"] for finding in json.loads(result.stdout)["findings"]} >= {"Pod t/of-today", "Pod t/base"}
    (mounted / "out.yaml").symlink_to(elsewhere / "pod.yaml")
    result = run("check", "mounted")
    assert result.exit_code == 2
    assert "mounted/out.yaml:1: given no file that can be read (a link that leads out of its folder)" in result.stderr
    assert "elsewhere" not in result.output
    result = run("check", "mounted/out.yaml")
    assert result.exit_code == 1, (result.output, "a file that the command line names")


def test_a_file_that_is_exchanged_for_a_pipe_while_it_is_opened_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(files, "regular_file", lambda path, *_: Path(path))
    with pytest.raises(files.UnusableInput, match="no regular file"):
        files.read_file(tmp_path / "pipe")


# Names

HOSTILE = {
    "escape": r'"\e[2J\e]8;;http://evil.example\a x"',
    "c1": r'"\x9b2J"',
    "bidi": r'"a\u202ecba"',
    "line": r'"t\n::stop-commands::x\n::notice::all good\n"',
    "return": r'"t\r::error::x"',
    "separator": r'"t\u2028::stop-commands::x"',
    "github": '"::stop-commands::x"',
    "old": '"x ##[add-path]/tmp"',
    "azure": '"x ##vso[task.setvariable variable=a]b"',
    "control": r'"a\b\x01]]><x/>"',
    "noncharacter": r'"a\ufffe"',
    "long": '"' + "x" * 87 + '::stop-commands::y"',
}
OBEYED = re.compile(r"^\s*::[A-Za-z-]+[^\n]*::|##\[|##vso\[|##teamcity\[", re.MULTILINE)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("field", ["name", "namespace", "image", "file", "kind"])
def test_names_of_manifests_move_no_cursor_and_command_no_ci(field: str, name: str, tmp_path: Path) -> None:
    value, file = HOSTILE[name], "m.yaml"
    if field == "file":
        text = value[1:-1].replace("\\e", "\\x1b").encode().decode("unicode_escape").replace("/", "-")
        file, pod = f"{text}.yaml", POD % ("a", "t")
    else:
        pod = POD % (value if field == "name" else "a", value if field == "namespace" else "t")
        pod = pod.replace("x/y:1", value) if field == "image" else pod
        pod = pod.replace("kind: Pod", f"kind: {value}") if field == "kind" else pod
    (tmp_path / file).write_text(pod, errors="surrogatepass")
    for form in ("text", "junit", "sarif", "json"):
        result = run("check", tmp_path, "--all", "--format", form)
        assert result.exit_code in {0, 1, 2}
        for line in result.output.splitlines():
            assert is_shown(line), f"{form}: {line!r}"
        assert not OBEYED.search(result.output), f"{form}: {OBEYED.search(result.output)}"
        if form == "junit" and result.stdout:
            ElementTree.fromstring(result.stdout)
        if form in {"sarif", "json"} and result.stdout:
            json.loads(result.stdout)


def test_a_name_without_any_of_these_is_printed_as_it_is() -> None:
    plain = "egress to ::/0, ü → 日本, a::b, # and ## headings\n\tindented"
    assert escape_output(plain) == plain
    assert printed_json(json.dumps("##[x]")) == '"#\\u0023[x]"'
    assert json.loads(printed_json(json.dumps("##[x] \\##"))) == "##[x] \\##"


def test_markdown_shows_invisible_characters_as_numbers() -> None:
    assert in_markdown("a\u202eb\x1b") == "a\\\\u202eb\\\\x1b"
