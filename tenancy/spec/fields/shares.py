"""A tenant's share of a flavor, and its budget."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tenancy.spec.fields.base import Count, Spec, WholeNumber
from tenancy.spec.fields.calendar import TemporaryShare
from tenancy.spec.fields.queues import BudgetExemption, Duration, SharingPreset
from tenancy.spec.reading.mistakes import Mistake, rule_mistake


class GpuShare(Spec):
    """The tenant's share of a flavor. Counts are GPUs, slices or replicas of the flavor."""

    guaranteed: Count = Field(
        description="Number of GPUs, slices or replicas that the tenant can always get, by reclaiming lent ones. "
        "Required."
    )
    sharing: SharingPreset = Field(
        default=SharingPreset.STRICT,
        description="Whether idle GPUs are lent to other tenants, and whether the tenant borrows. Default: strict.",
    )
    lending_limit: Count | None = Field(
        default=None,
        description="Maximum number that is lent while idle. Default: the whole guarantee with sharing lend or "
        "lend-and-borrow; 0 with strict.",
    )
    borrowing_limit: Count | None = Field(
        default=None,
        description="Maximum number that is borrowed on top of the guarantee, in each pool. Default: as many as are "
        "guaranteed with sharing lend-and-borrow; 0 otherwise.",
    )
    temporary_shares: tuple[TemporaryShare, ...] = Field(
        default=(),
        max_length=20,
        description="Further guaranteed GPUs from a first to a last day; the environment needs queues.clock. "
        "Default: none.",
    )

    @property
    def lends(self) -> int:
        """Maximum number that is lent."""
        return (self.guaranteed if self.lending_limit is None else self.lending_limit) if self.sharing.lends else 0

    @property
    def borrows(self) -> int:
        """Maximum number that is borrowed in each pool, by a tier that borrows."""
        return (
            (self.guaranteed if self.borrowing_limit is None else self.borrowing_limit) if self.sharing.borrows else 0
        )

    def mistakes(self) -> Iterator[Mistake]:
        if self.lending_limit is not None:
            location = ("lending-limit",)
            if self.sharing is SharingPreset.STRICT:
                yield rule_mistake(location, "share-01", f"lending-limit: {self.lending_limit} with sharing: strict")
            elif self.lending_limit > self.guaranteed:
                fault = f"lending-limit: {self.lending_limit} of {self.guaranteed} guaranteed"
                yield rule_mistake(location, "share-01", fault, f"write {self.guaranteed} at most")
        if self.borrowing_limit is not None and self.sharing is not SharingPreset.LEND_AND_BORROW:
            fault = f"borrowing-limit: {self.borrowing_limit} with sharing: {self.sharing}"
            yield rule_mistake(("borrowing-limit",), "share-01", fault)


class WhenSpent(StrEnum):
    """Effect of a spent monthly budget on a tenant's queues."""

    ALERT = "alert"  # an alert is sent, and work starts as before
    HOLD = "hold"  # no new work starts until the next month; running work ends by itself
    STOP = "stop"  # the same, and running work is evicted after the grace period


class Budget(Spec):
    """A tenant's monthly budget, in US dollars and optionally in GPU-hours. Months begin at midnight UTC."""

    monthly_usd: Annotated[int, WholeNumber(1, 1_000_000_000)] = Field(
        description="Budget of a month, US dollars. Alerts start at half of it. Required."
    )
    monthly_gpu_hours: Annotated[int, WholeNumber(1, 1_000_000_000)] | None = Field(
        default=None,
        description="GPU-hours of a month, of all flavors; a slice counts as its part of a GPU. It needs when-spent "
        "hold or stop. Default: no limit.",
    )
    when_spent: WhenSpent = Field(
        default=WhenSpent.ALERT,
        description="What happens to the tenant's queues when one of the two is spent. hold and stop need "
        "queues.clock. Default: alert.",
    )
    grace_period: Duration = Field(
        default="1h",
        description="With when-spent: stop, time for which running work may go on after the budget is spent. "
        "Default: 1h.",
    )
    exemption: BudgetExemption | None = Field(
        default=None, description="A time for which the budget does not bind, as with when-spent: alert. Default: none."
    )

    def mistakes(self) -> Iterator[Mistake]:
        if self.monthly_gpu_hours and self.when_spent is WhenSpent.ALERT:
            fault, rule = "monthly-gpu-hours with when-spent: alert", "alerts compare dollars"
            yield Mistake(("monthly-gpu-hours",), fault, rule, "write when-spent: hold or stop, or drop it")
        if "grace_period" in self.model_fields_set and self.when_spent is not WhenSpent.STOP:
            fault, rule = f"grace-period with when-spent: {self.when_spent}", "only stop evicts running work"
            yield Mistake(("grace-period",), fault, rule, "write when-spent: stop, or drop grace-period")
        if self.exemption and self.when_spent is WhenSpent.ALERT:
            fault, rule = "exemption with when-spent: alert", "such a budget does not bind"
            yield Mistake(("exemption",), fault, rule, "write when-spent: hold or stop, or drop exemption")
