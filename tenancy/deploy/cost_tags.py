"""Keys of cost-allocation tags that AWS knows: it knows a key a day after its first use, and refuses it until then."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

TOKEN = "aws:costexplorer/costAllocationTag:CostAllocationTag"
TIMEOUT = 60
"""Seconds."""


class CostTagsUnavailable(Exception):
    """AWS was not asked, or did not answer; the message says why."""


def known_keys(keys: Sequence[str], region: str) -> frozenset[str]:
    """Those of the keys that AWS knows, activated or not; CostTagsUnavailable if it does not say."""
    command = ("aws", "ce", "list-cost-allocation-tags", "--region", region, "--output", "json", "--tag-keys", *keys)
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True)
        tags = json.loads(completed.stdout)["CostAllocationTags"]
        return frozenset(keys) & {tag["TagKey"] for tag in tags}
    except FileNotFoundError:
        raise CostTagsUnavailable("there is no `aws` command on the PATH") from None
    except subprocess.TimeoutExpired:
        raise CostTagsUnavailable(f"`aws ce list-cost-allocation-tags` took more than {TIMEOUT} s") from None
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        raise CostTagsUnavailable(f"`aws ce list-cost-allocation-tags` failed: {lines[-1]}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise CostTagsUnavailable(f"`aws ce list-cost-allocation-tags` answered no list of tags ({error!r})") from None
