"""Base of the spec models: closed, frozen, and with types that carry their rules."""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

from tenancy.catalog import vocabulary
from tenancy.catalog.text import is_shown
from tenancy.kube import quantities
from tenancy.rules.catalogue import Violation
from tenancy.rules.values import day, name_misfit
from tenancy.spec.reading.mistakes import (
    Mistake,
    Mistakes,
    describe_value,
    form_error,
)

if TYPE_CHECKING:
    _Model = BaseModel
else:

    class _Refusing(type(BaseModel)):
        """A model that is made in Python and is wrong raises SpecError with all of its problems. Parts that pydantic
        makes from mappings do not come by here: their problems are in the whole's."""

        def __call__(cls, *args: Any, **fields: Any) -> Any:
            try:
                return super().__call__(*args, **fields)
            except ValidationError as error:
                from tenancy.spec.reading.messages import spec_error  # imported only when there is a mistake

                raise spec_error(cls, fields, error) from None

    class _Model(BaseModel, metaclass=_Refusing):
        pass


class Spec(_Model):
    """Closed model: an unknown key is a mistake, and is refused by name.

    Python has the fields' own names (`cost_center`), files have them with dashes (`cost-center`). Made in Python, a
    wrong model raises SpecError with every problem.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
        # For Python; `from_file` reads aliases alone.
        validate_by_name=True,
        validate_by_alias=True,
        str_strip_whitespace=False,
        # Parts are compiled inside the file's own model: alone they would double the time to start.
        defer_build=True,
    )

    @classmethod
    def from_file(cls, document: Any) -> Self:
        """The model of a file's content, whose keys have dashes. Raises pydantic.ValidationError."""
        return cls.model_validate(document, by_alias=True, by_name=False)

    def mistakes(self) -> Iterator[Mistake]:
        """Mistakes of this part as a whole, although each field is valid."""
        return iter(())

    def model_post_init(self, context: Any, /) -> None:  # noqa: ARG002 - pydantic's signature
        """Raise all mistakes of this model at once."""
        if all_of_them := tuple(self.mistakes()):
            raise Mistakes(*all_of_them)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy, without the values that were computed from fields that may be other ones now."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys() if update else ():
            del copied.__dict__[name]
        return copied


def _valid_name(longest: int) -> Any:
    def check(name: str) -> str:
        if misfit := name_misfit(name, longest):
            respelling = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
            raise Violation("name-01", misfit, None if name_misfit(respelling, longest) else f"write {respelling}")
        return name

    return AfterValidator(check)


_EXAMPLE = re.compile(r"(?:like|such as) [\"']?([^\s\"',;]+)")


class TextForm:
    """Form of a text: a pattern for editors, and a rule in words for people. `change` has an example after "like"."""

    def __init__(self, pattern: str, rule: str, change: str, max_length: int | None = None) -> None:
        # ASCII, as JSON Schema reads \w and \d; lengths of policies are counted in characters of one byte each.
        self.compiled = re.compile(pattern, re.ASCII)
        self.rule, self.change, self.max_length = rule, change, max_length
        example = _EXAMPLE.search(change)
        self.examples = [example[1]] if example and self.compiled.fullmatch(example[1]) else []

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        length_limit = {"maxLength": self.max_length} if self.max_length else {}
        examples = {"examples": self.examples} if self.examples else {}
        return {**handler(schema), "pattern": self.compiled.pattern, **length_limit, **examples}

    def check(self, text: str) -> str:
        """The text, if it is short enough, matches the pattern and has printable characters only; raises Mistakes."""
        if self.max_length and len(text) > self.max_length:
            raise form_error(f"{len(text)} characters", f"at most {self.max_length} characters", "shorten it")
        if not self.compiled.fullmatch(text):
            raise form_error(repr(text), self.rule, self._suggestion(text))
        if not is_shown(text):
            raise form_error(repr(text), "a text has printable characters alone", "drop what is written here with '\\'")
        return text

    def _suggestion(self, text: str) -> str:
        """Advice for a text without the form: another spelling that has it, else the form's example."""
        spellings = [re.sub(r"[\s_]+", "-", text.strip().lower())]
        with suppress(ValueError):
            spellings.append(str(ipaddress.ip_network(text)))  # an address, with its length
        fitting = (spelling for spelling in spellings if spelling != text and self.compiled.fullmatch(spelling))
        return next((f"write {spelling}" for spelling in fitting), self.change)


class Distinct:
    """Entries without duplicates."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "uniqueItems": True}

    def check(self, entries: tuple[str, ...]) -> tuple[str, ...]:
        """The entries, if no two are equal; raises Mistakes with every repeated one."""
        again = [i for i, entry in enumerate(entries) if entry in entries[:i]]
        if again:
            rule, change = "an entry is named once", "drop it, or name the one that was meant"
            raise Mistakes(*(Mistake((i,), f"{entries[i]} twice", rule, change) for i in again))
        return entries


class WholeNumber:
    """A whole number in a range; booleans, texts and floats are refused."""

    def __init__(self, minimum: int, maximum: int) -> None:
        self.minimum, self.maximum = minimum, maximum

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "minimum": self.minimum, "maximum": self.maximum}

    def check(self, value: Any) -> Any:
        """The value, if it is an integer of the range, and not a boolean or a text; raises Mistakes."""
        if isinstance(value, bool) or not isinstance(value, int):
            digits = isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value)
            change = f"write {int(value)}, without quotes" if digits else "write one such as 8"
            if isinstance(value, float) and value.is_integer():
                change = f"write {int(value)}"
            raise form_error(describe_value(value), "a whole number is needed", change)
        if not self.minimum <= value <= self.maximum:
            raise form_error(
                describe_value(value),
                f"a whole number from {self.minimum} to {self.maximum}",
                "write one in that range",
            )
        return value


def _quantity(value: Any) -> str:
    if isinstance(value, float):
        raise form_error(repr(value), "a quantity is a whole number or a text", f'quote it: "{value}"')
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise form_error(describe_value(value), "a quantity is needed", "write one such as 500m, 64 or 256Gi")
    text = str(value)
    try:
        number = quantities.parse_plain(text)
    except ValueError as error:
        change = f"write {text[:-1]} for bytes in powers of ten, {text[:-1]}i in powers of two"
        with_b = text.endswith("B") and quantities.is_plain(text[:-1])
        generic = "write digits, with one suffix of m k M G T P E Ki Mi Gi Ti Pi Ei"
        raise form_error(describe_value(value), str(error), change if with_b else generic) from None
    if number < 0:
        raise form_error(text, "a quantity is not negative", "write 0 or more")
    if number > quantities.LARGEST:
        raise form_error(describe_value(value), "a quantity is less than 8Ei", "write a smaller one")
    return quantities.write(number)


def _cores(value: Any) -> str:
    if isinstance(value, str) and value.endswith(_BYTES) and quantities.is_plain(value):
        raise form_error(
            describe_value(value), "CPU is counted in cores", f"write {value.rstrip(_LETTERS)}, or 500m for a half"
        )
    return _quantity(value)


def _size(value: Any) -> str:
    text = _quantity(value)
    if 0 < quantities.parse_plain(text) < quantities.MIB:
        change = f"write {str(value).rstrip(_LETTERS)}Gi, or another unit"
        raise form_error(describe_value(value), "a size is in bytes, and 0 or 1Mi at least", change)
    return text


def _amounts(value: Any) -> Any:
    """Amounts by resource, each in the unit of its resource."""
    wrong: list[Mistake] = []
    for key, amount_input in value.items() if isinstance(value, dict) else ():
        try:
            _PARSERS.get(key, _quantity)(amount_input)
        except Mistakes as error:
            wrong += [replace(mistake, location=(key,)) for mistake in error.mistakes]
    if wrong:
        raise Mistakes(*wrong)
    return value


_LETTERS = "mkKMGTPEi"
_BYTES = ("M", "G", "T", "P", "E", "i")
_PARSERS: dict[str, Callable[[Any], str]] = {"cpu": _cores, "memory": _size, "ephemeral-storage": _size}


def _date(value: Any) -> Any:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    if isinstance(value, str) and (parsed := day(value)):
        return parsed
    raise form_error(describe_value(value), "a date is needed", "write it as 2027-01-31")


def _flag(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    suggestion = _BOOLEAN_SPELLINGS.get(str(value).lower(), "true or false")
    raise form_error(describe_value(value), "true or false is needed", f"write {suggestion}, without quotes")


_BOOLEAN_SPELLINGS = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}
_QUANTITY_SCHEMA = {
    "anyOf": [
        {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"},
        {"type": "integer", "minimum": 0},
    ]
}

TenantName = Annotated[str, _valid_name(vocabulary.TENANT_LENGTH), Field(examples=["fraud"])]
ShortName = Annotated[str, _valid_name(vocabulary.PART_LENGTH), Field(examples=["train"])]
Slug = Annotated[
    str,
    TextForm(
        r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        "lower-case letters, digits and dashes, at most 63",
        "write it like fraud-detection",
    ),
]
LabelValue = Annotated[
    str,
    TextForm(
        r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$",
        "letters, digits, '-', '_' and '.', at most 63, with a letter or digit at both ends",
        "write it like CC-4411",
    ),
]
LabelKey = Annotated[
    str,
    TextForm(
        r"^([a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$",
        "a label's key: a name of at most 63 letters, digits, '-', '_' and '.', after an optional domain and '/'",
        "write it like project or bank.example/data-class",
    ),
]
FlavorName = Annotated[
    str,
    TextForm(
        r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$",
        "lower-case letters, digits, dashes and dots, at most 63",
        "name a flavor under flavors of environment.yaml, such as a100-1g.5gb",
    ),
]
Mail = Annotated[
    str,
    TextForm(
        # Alertmanager expands {{…}} in an address and splits at a comma; reports are Markdown and HTML. \x22 is a
        # quote: editors refuse escapes that ECMAScript does not have.
        r"^[^@\s\x00-\x1f\x7f{},<>\x22|\\`;()\[\]]+@[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?\.[A-Za-z0-9-]+$",
        "one mail address, without braces, commas, quotes, '|', '<' and '>'",
        "write it like team@bank.example",
        254,
    ),
]
Line = Annotated[
    str, TextForm(r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$", "a text of one line", "drop control characters", 200)
]
"""Text for people; an annotation."""
Reason = Annotated[
    str,
    TextForm(
        r"^[^\x00-\x1f\x7f]{10,500}$",
        "a sentence of 10 to 500 characters on one line",
        "say why, for an auditor to read",
    ),
]
Flag = Annotated[bool, BeforeValidator(_flag)]
Day = Annotated[dt.date, BeforeValidator(_date)]
Count = Annotated[int, WholeNumber(0, 1_000_000)]
Positive = Annotated[int, WholeNumber(1, 1_000_000)]
Port = Annotated[int, WholeNumber(1, 65_535), Field(examples=[443])]
Quantity = Annotated[str, BeforeValidator(_quantity), WithJsonSchema(_QUANTITY_SCHEMA)]
Cores = Annotated[str, BeforeValidator(_cores), WithJsonSchema(_QUANTITY_SCHEMA)]
Size = Annotated[str, BeforeValidator(_size), WithJsonSchema(_QUANTITY_SCHEMA)]
VALID_AMOUNTS = BeforeValidator(_amounts)
Amounts = Annotated[dict[str, Quantity], VALID_AMOUNTS]
"""By resource."""


def amount(text: str) -> Decimal:
    """The number behind a validated quantity."""
    return quantities.parse_plain(text)
