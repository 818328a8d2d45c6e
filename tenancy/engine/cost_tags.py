"""Keys of cost-allocation tags that AWS knows: it knows a key a day after its first use, and refuses it until then."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

TOKEN = "aws:costexplorer/costAllocationTag:CostAllocationTag"
TIMEOUT = 60
"""Seconds."""


class Unanswered(Exception):
    """AWS was not asked, or did not answer; the message says why."""


def known_keys(wanted: Sequence[str], region: str) -> frozenset[str]:
    """Those of the keys that AWS knows, activated or not; Unanswered if it does not say."""
    asked = ("aws", "ce", "list-cost-allocation-tags", "--region", region, "--output", "json", "--tag-keys", *wanted)
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=TIMEOUT, check=True)
        found = json.loads(done.stdout)["CostAllocationTags"]
        return frozenset(wanted) & {tag["TagKey"] for tag in found}
    except FileNotFoundError:
        raise Unanswered("there is no `aws` command on the PATH") from None
    except subprocess.TimeoutExpired:
        raise Unanswered(f"`aws ce list-cost-allocation-tags` took more than {TIMEOUT} s") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        raise Unanswered(f"`aws ce list-cost-allocation-tags` failed: {said[-1]}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise Unanswered(f"`aws ce list-cost-allocation-tags` answered no list of tags ({error!r})") from None
