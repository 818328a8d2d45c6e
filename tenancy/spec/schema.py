"""JSON Schema of the two kinds of file, for editors."""

from __future__ import annotations

from typing import Any

from tenancy.spec.environment import Environment
from tenancy.spec.tenant import Tenant

MODELS = {"environment": Environment, "tenant": Tenant}


def schema(kind: str) -> dict[str, Any]:
    """The schema of `environment` or `tenant` files, draft 2020-12."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **MODELS[kind].model_json_schema(by_alias=True)}
