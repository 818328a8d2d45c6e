"""A Helm repository on this machine: real charts where their Go modules bring them, empty ones in place of the rest."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import judges
from answering import answering

from tenancy.catalog.versions import CHARTS
from tenancy.lab import tools

REAL = ("karpenter", "karpenter-crd", "cilium")
DEFINITIONS = {"prometheus-operator-crds": "schemas-prometheus-operator"}
"""Charts that are nothing but definitions, which a module brings without them. As in the real one they are in a chart
of the chart: else they are in Helm's own Secret too, which they are too long for."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Tests print what matters."""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of a repository with every chart that the platform installs, made in `folder`."""
    folder.mkdir(parents=True)
    helm = tools.ensure(only=["helm"])["helm"]
    for name, pin in CHARTS.items():
        source = judges.folder(f"chart-{name}") if name in REAL else _stand_in(folder.parent / "stand-ins", name)
        if name in DEFINITIONS:
            shutil.copytree(judges.folder(DEFINITIONS[name]), _stand_in(source / "charts", "crds") / "crds")
        package = [helm, "package", source, "--version", pin.version.removeprefix("v"), "-d", folder]
        subprocess.run(package, check=True, capture_output=True)
    subprocess.run([helm, "repo", "index", folder], check=True, capture_output=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    with answering(server):
        yield f"http://127.0.0.1:{server.server_port}"


def _stand_in(folder: Path, name: str) -> Path:
    """A chart of that name that holds nothing: for what cannot be had here."""
    chart = folder / name
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text(f"apiVersion: v2\nname: {name}\nversion: 0.0.0\n", "utf-8")
    return chart
