"""Regions against botocore's list of endpoints."""

from __future__ import annotations

import json
from importlib.metadata import distribution
from pathlib import Path

from tenancy.catalog.regions import REGIONS


def test_regions_are_those_of_botocore() -> None:
    endpoints = json.loads(Path(str(distribution("botocore").locate_file("botocore/data/endpoints.json"))).read_text())
    regions_by_partition = [
        part["regions"] for part in endpoints["partitions"] if part["partition"] in {"aws", "aws-cn", "aws-us-gov"}
    ]
    assert sorted(REGIONS) == sorted(region for part in regions_by_partition for region in part)
