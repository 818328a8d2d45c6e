"""A page as Chromium opens it, where there is one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
POLICY = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
"""Makes the browser block all network requests and scripts of a page."""
PROBE = """<script>addEventListener("load", () => { document.body.dataset.seen = JSON.stringify({
  asked: performance.getEntriesByType("resource").map((entry) => entry.name),
  wide: document.documentElement.scrollWidth, seen: document.documentElement.clientWidth,
  planes: [...document.querySelectorAll(".plane")].filter((e) => e.offsetHeight > 0).length }) })</script>"""


def opened(page: str, folder: Path, width: int, *more: str) -> dict[str, Any]:
    """The page as Chromium opens it, and what it says of it: without the policy, which would hide what it asks for."""
    assert CHROMIUM is not None
    path = folder / "page.html"
    path.write_text(page.replace(POLICY, "").replace("</body>", f"{PROBE}</body>"), "utf-8")
    argv = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--window-size={width},900"]
    argv += [f"--user-data-dir={folder / 'profile'}", "--host-resolver-rules=MAP * ~NOTFOUND"]
    argv += ["--enable-logging=stderr", "--dump-dom", *more, path.as_uri()]
    process = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=True)
    match = re.search(r"data-seen=(\"|')(.*?)\1", process.stdout)
    assert match, "the page was loaded"
    console = [line for line in process.stderr.splitlines() if ":CONSOLE:" in line]
    return {**json.loads(match[2].replace("&quot;", '"')), "console": console}
