"""What FOCUS 1.2 requires of the columns that we write: a rule each, with its clause.

A clause is a file of the specification's folder and the number of the requirement in it, counted
from 1 through the list below "adheres to the following requirements", nested ones included:
https://github.com/FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec/tree/v1.2/specification
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Cells = Mapping[str, str]
"""A row of the file, as text: an empty cell is null."""

MANDATORY = (
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
)
"""Of feature level "Mandatory"."""
CATEGORIES = ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
SERVICE_CATEGORIES = (
    "AI and Machine Learning",
    "Analytics",
    "Business Applications",
    "Compute",
    "Databases",
    "Developer Tools",
    "Multicloud",
    "Identity",
    "Integration",
    "Internet of Things",
    "Management and Governance",
    "Media",
    "Migration",
    "Mobile",
    "Networking",
    "Security",
    "Storage",
    "Web",
    "Other",
)
PRICING = ("Standard", "Dynamic", "Committed", "Other")
NUMBERS = (
    "BilledCost",
    "ConsumedQuantity",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "ListCost",
    "ListUnitPrice",
    "PricingQuantity",
)
FILES = {
    "InvoiceIssuerName": "invoiceissuer",
    "ProviderName": "provider",
    "PublisherName": "publisher",
}
"""Columns whose file has another name than theirs."""
NULL_CLAUSE = {
    "BillingCurrency": 5,
    "ChargeCategory": 3,
    "ServiceCategory": 3,
}
"""Number of "MUST NOT be null" where it is not 4."""
NEVER_NULL = tuple(
    name
    for name in MANDATORY
    if name
    not in (
        "BillingAccountName",
        "ChargeClass",
        "ChargeDescription",
        "PricingQuantity",
        "PricingUnit",
    )
)
_NUMBER = re.compile(r"-?\d+(\.\d+)?(E-?\d+)?")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@dataclass(frozen=True)
class Rule:
    """One requirement."""

    clause: str
    says: str
    holds: Callable[[Cells], bool]
    breaks: dict[str, str]
    """Cells that break it, put into a row of use: the test of the rule itself."""


def _of(column: str) -> str:
    return f"columns/{FILES.get(column, column.lower())}.md"


def _never_null(column: str) -> Rule:
    return Rule(
        f"{_of(column)} {NULL_CLAUSE.get(column, 4)}",
        f"{column} is not null",
        lambda row: bool(row[column].strip()),
        {column: ""},
    )


def _number(column: str) -> Rule:
    number = 4 if column == "ContractedUnitPrice" else 3
    return Rule(
        f"{_of(column)} {number}; attributes/numeric_format.md",
        f"{column} is a plain number or null",
        lambda row: not row[column] or _NUMBER.fullmatch(row[column]) is not None,
        {column: "1,000 USD"},
    )


def _instant(column: str) -> Rule:
    return Rule(
        f"{_of(column)} 3; attributes/datetime_format.md",
        f"{column} is a moment in UTC",
        lambda row: _INSTANT.fullmatch(row[column]) is not None,
        {column: "2027-01-01"},
    )


def _only(column: str, number: int, allowed: tuple[str, ...], *, null: bool = False) -> Rule:
    return Rule(
        f"{_of(column)} {number}",
        f"{column} is one of the allowed values",
        lambda row: row[column] in allowed or (null and not row[column]),
        {column: "Something"},
    )


def _null_for_tax(column: str, number: int, given: str) -> Rule:
    return Rule(
        f"{_of(column)} {number}",
        f"{column} is null for Tax",
        lambda row: row["ChargeCategory"] != "Tax" or not row[column],
        {"ChargeCategory": "Tax", column: given},
    )


def _given_for_use(column: str, number: int) -> Rule:
    return Rule(
        f"{_of(column)} {number}",
        f"{column} is not null for Usage and Purchase",
        lambda row: row["ChargeCategory"] not in ("Usage", "Purchase") or bool(row[column]),
        {column: ""},
    )


def _product(cost: str, price: str, number: int) -> Rule:
    from decimal import Decimal

    def holds(row: Cells) -> bool:
        if not row[price] or not row["PricingQuantity"]:
            return True
        return Decimal(row[price]) * Decimal(row["PricingQuantity"]) == Decimal(row[cost])

    return Rule(f"{_of(cost)} {number}", f"{cost} = {price} x PricingQuantity", holds, {cost: "1"})


def _not_negative(column: str, number: int) -> Rule:
    return Rule(
        f"{_of(column)} {number}",
        f"{column} is not negative",
        lambda row: not row[column].startswith("-"),
        {column: "-1"},
    )


RULES = (
    *map(_never_null, NEVER_NULL),
    *map(_number, NUMBERS),
    *map(
        _instant, ("BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart")
    ),
    _only("ChargeCategory", 4, CATEGORIES),
    _only("ServiceCategory", 4, SERVICE_CATEGORIES),
    _only("PricingCategory", 8, PRICING, null=True),
    _only("ChargeClass", 6, ("Correction",), null=True),
    Rule(
        "columns/chargeclass.md 4",
        "ChargeClass is null in a row that corrects nothing",
        lambda row: not row["ChargeClass"],
        {"ChargeClass": "Correction"},
    ),
    Rule(
        "columns/billingcurrency.md 4 and 7; attributes/currency_format.md",
        "BillingCurrency is three letters",
        lambda row: re.fullmatch("[A-Z]{3}", row["BillingCurrency"]) is not None,
        {"BillingCurrency": "dollars"},
    ),
    Rule(
        "columns/billingperiodend.md 5",
        "a billing period ends after its begin",
        lambda row: row["BillingPeriodStart"] < row["BillingPeriodEnd"],
        {"BillingPeriodEnd": "2020-01-01T00:00:00Z"},
    ),
    Rule(
        "columns/chargeperiodend.md 5",
        "a charge period ends after its begin",
        lambda row: row["ChargePeriodStart"] < row["ChargePeriodEnd"],
        {"ChargePeriodEnd": "2020-01-01T00:00:00Z"},
    ),
    Rule(
        "columns/chargedescription.md 4",
        "ChargeDescription is given",
        lambda row: bool(row["ChargeDescription"]),
        {"ChargeDescription": ""},
    ),
    _null_for_tax("PricingQuantity", 5, "1"),
    _null_for_tax("PricingCategory", 4, "Standard"),
    _null_for_tax("ContractedUnitPrice", 6, "1"),
    _null_for_tax("ListUnitPrice", 5, "1"),
    _given_for_use("PricingQuantity", 6),
    _given_for_use("PricingCategory", 5),
    _given_for_use("ContractedUnitPrice", 7),
    _given_for_use("ListUnitPrice", 6),
    _not_negative("ContractedUnitPrice", 10),
    _not_negative("ListUnitPrice", 9),
    _product("ContractedCost", "ContractedUnitPrice", 10),
    _product("ListCost", "ListUnitPrice", 10),
    Rule(
        "columns/pricingunit.md 6 and 7",
        "PricingUnit is null where PricingQuantity is, and only there",
        lambda row: bool(row["PricingUnit"]) == bool(row["PricingQuantity"]),
        {"PricingUnit": ""},
    ),
    Rule(
        "columns/consumedquantity.md 5 and 7",
        "ConsumedQuantity is null but for Usage",
        lambda row: bool(row["ConsumedQuantity"]) == (row["ChargeCategory"] == "Usage"),
        {"ConsumedQuantity": ""},
    ),
    Rule(
        "columns/consumedunit.md 6 and 7",
        "ConsumedUnit is null where ConsumedQuantity is, and only there",
        lambda row: bool(row["ConsumedUnit"]) == bool(row["ConsumedQuantity"]),
        {"ConsumedUnit": ""},
    ),
)
"""Every requirement that a row can be held to by itself."""


def broken(row: Cells) -> list[str]:
    """Return the rules that a row breaks, each with its clause."""
    return [f"{rule.clause}: {rule.says}" for rule in RULES if not rule.holds(row)]
