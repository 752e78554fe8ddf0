"""`gpuplan actuals import`: what providers billed beside what was counted, launch by launch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from ...catalog.frozen import FrozenModel, Usd

if TYPE_CHECKING:
    from ...launcher.store.bills.billing import Billed
    from ...launcher.store.launch_record import LaunchRecord

BILLING_SCHEMA_VERSION = "1.0"
DRIFT = 0.05
"""From this share on, list prices in a bill are no longer those that were counted with: below it
lie the seconds between a machine's begin and its first look, and the rounding of bills."""


class BilledLaunch(FrozenModel):
    """What was billed for one launch; US dollars."""

    run: str
    """Its id, or the label where this store does not know it."""
    is_known: bool
    """Whether this store has it."""
    counted_usd: Usd | None
    """What gpuplan counts for it; None where the store does not know it."""
    billed_usd: Usd
    """What the bills say, tax and credits included."""
    list_usd: Usd | None
    """Its usage at list prices; None where the bills do not say it."""
    effective_usd: Usd | None
    """With the share of what was paid ahead; None where the bills do not say it."""
    difference_usd: Usd | None
    """Billed less counted."""
    drift: float | None
    """List prices ÷ what was counted − 1: how far the catalogue is off. None where not known."""  # noqa: RUF001
    is_drifted: bool
    """Whether that is 5 % or more."""


class UnbilledMonth(FrozenModel):
    """A month of a launch that is counted, and of which no charge was read."""

    run: str
    """The launch."""
    month: str
    """2027-03 (UTC)."""
    counted_usd: Usd
    """US dollars that gpuplan counts for it in that month."""
    is_month_imported: bool
    """Whether a bill of its provider for that month was read now: the charges are of another
    account, have no label, or were not made."""


class BillingImport(FrozenModel):
    """What an import came to, and every launch that is billed."""

    schema_version: str = BILLING_SCHEMA_VERSION
    """Of this format."""
    files: tuple[str, ...]
    """That were read."""
    charges: int
    """In the files."""
    labelled: int
    """Of them, those with the label of a launch, which are kept."""
    duplicates: int
    """With such a label, that were there twice and count once."""
    months: tuple[str, ...]
    """Provider, account and month that the files replace."""
    unlabelled_usd: Usd
    """US dollars of the charges without such a label, which are in no launch."""
    launches: tuple[BilledLaunch, ...]
    """All that are billed, the dearest first."""
    unbilled: tuple[UnbilledMonth, ...]
    """Months of launches that are counted and not billed: of bills that were read now, and of
    launches whose other months are billed. A difference of such a launch holds them."""


def import_actuals(
    files: Iterable[str | Path],
    *,
    rates: Mapping[str, Decimal] | None = None,
    now: Callable[[], datetime] | None = None,
) -> BillingImport:
    """Keep what providers billed, and return it beside what was counted for each launch.

    Charges are joined by the label `gpuplan-run` of the machines. A month of an account that was
    imported before is replaced: give all files of a month at once.

    Args:
        files: FOCUS 1.x or AWS CUR 2.0 as CSV, Google Cloud billing as CSV or JSON; also .gz.
        rates: Currency → US dollars for one unit, for bills that are not in US dollars.
        now: The clock; default: the current time in UTC.

    Raises:
        UsageError: A file is unreadable, truncated or of no known form, with its line; nothing of
            any file is kept then.
        StoreError: The store cannot be read or written.
    """
    from ...launcher.labels import slug
    from ...launcher.store.bills.billing import billed_by_run, billed_months, keep_bills
    from ...launcher.store.bills.files import read_bill
    from ...launcher.store.estimates import Store
    from ...launcher.store.launches import default_ledger

    clock = now or (lambda: datetime.now(UTC))
    named = [Path(one) for one in files]
    store = Store()
    rows = (row for path in named for row in read_bill(path, rates or {}))
    done = keep_bills(store, rows, at=clock().isoformat(timespec="seconds"))
    known = {slug(one.run): one for one in default_ledger(clock).all()}
    return BillingImport(
        files=tuple(map(str, named)),
        charges=done.rows,
        labelled=done.labelled,
        duplicates=done.duplicates,
        months=done.months,
        unlabelled_usd=done.unlabelled_usd,
        launches=tuple(_launches(billed_by_run(store), known, clock())),
        unbilled=tuple(_unbilled(known, billed_months(store), done.bills, clock())),
    )


def _launches(
    billed: Mapping[str, Billed], known: Mapping[str, LaunchRecord], now: datetime
) -> Iterable[BilledLaunch]:
    """Return what was billed for each launch beside what was counted, the dearest first."""
    found = [_launch(run, one, known.get(run), now) for run, one in billed.items()]
    return sorted(found, key=lambda one: (-one.billed_usd, one.run))


def _unbilled(
    known: Mapping[str, LaunchRecord],
    billed: Collection[tuple[str, str]],
    bills: Collection[tuple[str, str]],
    now: datetime,
) -> Iterable[UnbilledMonth]:
    """Yield months of launches that are counted and not billed, launch by launch.

    Args:
        known: launches of the store, by their label.
        billed: label and month of all charges.
        bills: provider and month of the bills that were read now.
        now: the time, for what is spent by open launches.
    """
    from ...launcher.store.accounting import spent_by_month
    from ...launcher.store.launch_sums import provider_of

    labels = {label for label, _ in billed}
    for label, record in known.items():
        provider = provider_of(record)
        for month, usd in spent_by_month(record, now=now).items():
            is_imported = (provider, month) in bills
            if usd and (label, month) not in billed and (is_imported or label in labels):
                yield UnbilledMonth(
                    run=record.run, month=month, counted_usd=usd, is_month_imported=is_imported
                )


def _launch(run: str, billed: Billed, record: LaunchRecord | None, now: datetime) -> BilledLaunch:
    from ...launcher.store.accounting import spent_usd

    counted = None if record is None else spent_usd(record, now=now)
    drift = None
    if counted and billed.list_usd is not None:
        drift = float(billed.list_usd / counted) - 1
    return BilledLaunch(
        run=run if record is None else record.run,
        is_known=record is not None,
        counted_usd=counted,
        billed_usd=billed.billed_usd,
        list_usd=billed.list_usd,
        effective_usd=billed.effective_usd,
        difference_usd=None if counted is None else billed.billed_usd - counted,
        drift=drift,
        is_drifted=drift is not None and abs(drift) >= DRIFT,
    )
