"""AWS Budgets and the cost-allocation tags of Cost Explorer, which moto does not play as Terraform's provider asks."""

from __future__ import annotations

from typing import Any

from judged.aws.answers import RefusedRequest, now, unknown

Values = dict[str, Any]
START, END = 1793491200, 3706473600
"""The period of a budget without one: from a first of a month to 2087-06-15, as AWS has it."""
COST_TYPES = {
    **dict.fromkeys(("UseBlended", "UseAmortized"), False),
    **dict.fromkeys(("IncludeTax", "IncludeSubscription", "IncludeRefund", "IncludeCredit", "IncludeUpfront"), True),
    **dict.fromkeys(("IncludeRecurring", "IncludeOtherSubscription", "IncludeSupport", "IncludeDiscount"), True),
}
ALERT = ("NotificationType", "ComparisonOperator", "Threshold")
"""Fields that tell the alerts of a budget apart."""


class Budgets:
    """Budgets by name, with their alerts."""

    def __init__(self) -> None:
        self._budgets: dict[str, Values] = {}
        self._alerts: dict[str, list[tuple[Values, list[Values]]]] = {}
        self._tags: dict[str, dict[str, str]] = {}

    def answer(self, operation: str, body: Values) -> Values:
        """The answer to a request. Raises RefusedRequest."""
        budget = body.get("Budget") or body.get("NewBudget") or {}
        name = body.get("BudgetName") or budget.get("BudgetName") or body.get("ResourceARN", "").partition("budget/")[2]
        match operation:
            case "CreateBudget":
                return self._create(name, body)
            case "UpdateBudget":
                self._budgets[name] |= budget
                return {}
            case "DeleteBudget":
                del self._budgets[name]
                self._alerts.pop(name, None)
                return {}
            case "DescribeBudget" if name in self._budgets:
                return {"Budget": self._budgets[name]}
            case "DescribeBudget":
                raise RefusedRequest(400, "NotFoundException", f"Unable to get budget: {name}")
            case "TagResource":
                self._tags.setdefault(name, {}).update({tag["Key"]: tag["Value"] for tag in body["ResourceTags"]})
                return {}
            case "ListTagsForResource":
                return {"ResourceTags": [{"Key": key, "Value": tag} for key, tag in self._tags.get(name, {}).items()]}
        return self._alert(operation, name, body)

    def _create(self, name: str, body: Values) -> Values:
        budget = dict(body["Budget"])
        if name in self._budgets:
            raise RefusedRequest(400, "DuplicateRecordException", f"the budget exists: {name}")
        self._budgets[name] = {
            "CalculatedSpend": {"ActualSpend": {"Amount": "0.0", "Unit": "USD"}},
            "CostFilters": {},
            **budget,
            "TimePeriod": {"Start": START, "End": END, **budget.get("TimePeriod", {})},
            "BudgetLimit": {**budget["BudgetLimit"], "Amount": str(float(budget["BudgetLimit"]["Amount"]))},
            "CostTypes": {**COST_TYPES, **budget.get("CostTypes", {})},
            "LastUpdatedTime": now(),
        }
        self._tags[name] = {tag["Key"]: tag["Value"] for tag in body.get("ResourceTags", [])}
        alerts = body.get("NotificationsWithSubscribers", [])
        self._alerts[name] = [(alert["Notification"], alert["Subscribers"]) for alert in alerts]
        return {}

    def _alert(self, operation: str, name: str, body: Values) -> Values:
        alerts, selector = self._alerts.setdefault(name, []), body.get("Notification", {})
        match operation:
            case "CreateNotification":
                alerts.append((selector, body["Subscribers"]))
                return {}
            case "DeleteNotification":
                self._alerts[name] = [alert for alert in alerts if not _same(alert[0], selector)]
                return {}
            case "DescribeNotificationsForBudget":
                filled = [{"ThresholdType": "PERCENTAGE", **alert, "NotificationState": "OK"} for alert, _ in alerts]
                return {"Notifications": filled}
            case "DescribeSubscribersForNotification":
                return {"Subscribers": next(people for alert, people in alerts if _same(alert, selector))}
        raise unknown(f"budgets:{operation}")


def _same(alert: Values, selector: Values) -> bool:
    return all(alert.get(key) == selector.get(key) for key in ALERT)


class CostTags:
    """Status of each cost-allocation tag. AWS knows a key from the day after its first use; here it knows each."""

    def __init__(self) -> None:
        self._status: dict[str, str] = {}

    def answer(self, operation: str, body: Values) -> Values:
        """The answer to a request. Raises RefusedRequest."""
        match operation:
            case "UpdateCostAllocationTagsStatus":
                self._status |= {item["TagKey"]: item["Status"] for item in body["CostAllocationTagsStatus"]}
                return {"Errors": []}
            case "ListCostAllocationTags":
                keys = body.get("TagKeys") or list(self._status)
                tags = [(key, self._status[key]) for key in keys if key in self._status]
                return {
                    "CostAllocationTags": [
                        {"TagKey": key, "Type": "UserDefined", "Status": state} for key, state in tags
                    ]
                }
        raise unknown(f"ce:{operation}")
