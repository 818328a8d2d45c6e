"""Build the wheel twice, from copies of the tracked files in two folders, and compare: `make reproducible`."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from judged.homes import ROOT


def build(folder: Path) -> Path:
    """The wheel of the last commit's files, built in `folder`."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    epoch = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder / "out"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    subprocess.run(
        command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    (wheel,) = (folder / "out").glob("*.whl")
    return wheel


def main() -> int:
    """Exit code 0 if both wheels have the same bytes, else 1."""
    digests = set()
    with tempfile.TemporaryDirectory() as place:
        for name in ("one", "another"):
            folder = Path(place) / name
            folder.mkdir()
            wheel = build(folder)
            digests.add(hashlib.sha256(wheel.read_bytes()).hexdigest())
            print(f"{wheel.name}  sha256 {hashlib.sha256(wheel.read_bytes()).hexdigest()}")
    print("the same bytes" if len(digests) == 1 else "different bytes")
    return len(digests) - 1


if __name__ == "__main__":
    sys.exit(main())
