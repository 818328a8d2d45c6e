"""Days on which the locked packages were released: `python -m judged.ages` asks the package index through uv.

Lock files have hashes and no dates. uv's own lock has the time of upload of each file, so that one resolution of the
pins gives all days. They are kept as data with the day on which they were asked, and pages are written without network.
"""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from judged.homes import ROOT
from judged.licences import plain

FILE = Path(__file__).parent / "released.yaml"
LOCK = ROOT / "requirements" / "lock.txt"
_PIN = re.compile(r"^(?P<pin>[\w.-]+(?:\[[\w,-]+\])?==[^\\]+?)\s*\\?$", re.M)


def recorded_dates(file: Path = FILE) -> tuple[str, Mapping[str, Mapping[str, str]]]:
    """The day on which the index was asked, and for each package its version and the day of that version's release."""
    document = yaml.safe_load(file.read_text("utf-8"))
    return str(document["asked"]), {
        name: {str(k): str(v) for k, v in row.items()} for name, row in document["packages"].items()
    }


def release_date(name: str, version: str) -> str:
    """Day of a version's release; empty if it was not asked about."""
    row = recorded_dates()[1].get(plain(name), {})
    return row["released"] if row.get("version") == version else ""


def days(lock: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """First day on which a file of each package was uploaded, of a uv.lock."""
    upload_days = {}
    for package in lock["package"]:
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
        times = sorted(str(file["upload-time"])[:10] for file in files if "upload-time" in file)
        if times:
            upload_days[plain(package["name"])] = {"version": package["version"], "released": times[0]}
    return upload_days


def main() -> int:
    """Ask for every pin of the lock file. Exit code 1 if uv cannot resolve them."""
    pins = [match["pin"] for match in _PIN.finditer(LOCK.read_text("utf-8"))]
    with tempfile.TemporaryDirectory() as place:
        project = {"name": '"pins"', "version": '"0"', "requires-python": '">=3.11"', "dependencies": pins}
        text = "[project]\n" + "\n".join(f"{key} = {value}" for key, value in project.items())
        (Path(place) / "pyproject.toml").write_text(text, "utf-8")
        process = subprocess.run(["uv", "lock", "--quiet"], cwd=place, capture_output=True, text=True, check=False)
        if process.returncode:
            print(f"uv lock: {process.stderr.strip()}", file=sys.stderr)
            return 1
        upload_days = days(tomllib.loads((Path(place) / "uv.lock").read_text("utf-8")))
    document = {"asked": dt.datetime.now(dt.UTC).date(), "packages": dict(sorted(upload_days.items()))}
    head = "# Days of upload to the package index: `make lock` writes this (python -m judged.ages).\n"
    FILE.write_text(head + yaml.safe_dump(document, sort_keys=False, default_flow_style=None), "utf-8")
    print(f"{FILE.relative_to(ROOT)}: {len(upload_days)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
