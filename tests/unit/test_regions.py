"""Regions against botocore's list of endpoints."""

from __future__ import annotations

import json
from importlib.metadata import distribution
from pathlib import Path

from tenancy.catalog.regions import REGIONS


def test_regions_are_those_of_botocore() -> None:
    listed = json.loads(Path(str(distribution("botocore").locate_file("botocore/data/endpoints.json"))).read_text())
    ours = [part["regions"] for part in listed["partitions"] if part["partition"] in {"aws", "aws-cn", "aws-us-gov"}]
    assert sorted(REGIONS) == sorted(region for part in ours for region in part)
