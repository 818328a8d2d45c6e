"""The ground under the spec models: closed, frozen, and with types that carry their rules."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from tenancy.catalog import quantity
from tenancy.catalog import vocabulary as words
from tenancy.rules.catalogue import Violation
from tenancy.rules.values import name_misfit


class Spec(BaseModel):
    """Closed: a key that nobody reads is a mistake, and is refused by name."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
        validate_by_name=False,
        validate_by_alias=True,
        str_strip_whitespace=False,
    )


def _named(longest: int) -> Any:
    def check(name: str) -> str:
        if misfit := name_misfit(name, longest):
            raise Violation("name-01", misfit)
        return name

    return AfterValidator(check)


def _quantity(value: Any) -> Any:
    # YAML reads `64` as a number; a float such as 0.1 would not come back as it was written.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _canonical(text: str) -> str:
    number = quantity.parse(text)
    if number < 0:
        raise ValueError("a quantity is not negative")
    return quantity.write(number)


def _plain_int(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("a whole number is needed here")
    return value


TenantName = Annotated[str, _named(words.TENANT_LENGTH)]
PartName = Annotated[str, _named(words.PART_LENGTH)]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
LabelValue = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$")]
FlavorName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")]
Mail = Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$", max_length=254)]
Count = Annotated[int, BeforeValidator(_plain_int), Field(ge=0, le=1_000_000)]
Positive = Annotated[int, BeforeValidator(_plain_int), Field(ge=1, le=1_000_000)]
Port = Annotated[int, BeforeValidator(_plain_int), Field(ge=1, le=65_535)]
Quantity = Annotated[
    str,
    BeforeValidator(_quantity),
    AfterValidator(_canonical),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0}]}),
]


def amount(text: str) -> Decimal:
    """The number behind a validated quantity."""
    return quantity.parse(text)


