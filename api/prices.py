"""The user's own price snapshots: refresh them, compare them, see them over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..catalog.clouds.interface import Cloud, CloudError
    from ..catalog.listing.price_changes import PriceDifference, PriceHistory
    from ..catalog.prices.snapshot import PriceSnapshot

    Tell = Callable[[str, int | None, int | None], None]

PACKAGE = "the package's own prices"


def current() -> PriceSnapshot | None:
    """Return the snapshot whose prices every estimate takes; None: the package's own are taken.

    Raises:
        PriceError: It is damaged.
    """
    from ..catalog.prices.files import newest_snapshot

    return newest_snapshot()


def refresh(
    *,
    providers: Iterable[str] = (),
    regions: Iterable[str] = (),
    accept_changes: bool = False,
    clouds: Mapping[str, Cloud] | None = None,
    now: datetime | None = None,
    on_progress: Tell | None = None,
) -> PriceSnapshot:
    """Ask the clouds for today's prices and keep them; return the snapshot that estimates take.

    Only read requests are made. A provider that does not answer keeps its older rows.

    Args:
        providers: aws, gcp, azure, and those of gpuhunt by name (lambda, nebius, oci, runpod,
            verda, vultr, vast-ai); none: the first three.
        regions: Only these.
        accept_changes: Whether prices far from the last ones are taken, too.
        clouds: By provider, to be asked instead of those of the user's own accounts.
        now: With its time zone; None: the clock's.
        on_progress: Called with what is being done, how much of it is done, and of how much.

    Raises:
        PriceError: Nobody answered, or it cannot be kept; older snapshots are as they were.
        UsageError: A name is not known.
    """
    from ..catalog.clouds.connect import connect, known_clouds
    from ..catalog.listing.query import parse_filter
    from ..catalog.prices.files import newest_snapshot, one_writer, write_snapshot
    from ..catalog.prices.refresh import answers_of, refreshed, sellers_in, sold_elsewhere
    from ..catalog.snapshot import load_catalogue

    catalogue = load_catalogue()
    asked = parse_filter(catalogue, providers=providers, regions=regions)
    meant = known_clouds(sorted(asked.providers))
    selling = sellers_in(catalogue, meant, asked.regions)
    # One that was named and sells elsewhere is answered; of all, only those that sell there count.
    names = meant if asked.providers else selling

    def ask(name: str) -> Cloud | CloudError:
        if name not in selling:
            return sold_elsewhere(catalogue, name, asked.regions)
        return clouds[name] if clouds and name in clouds else connect(name)

    with one_writer():
        pass  # Where nothing can be kept, nobody is asked.
    moment = now or datetime.now(UTC)
    answers = answers_of(
        [ask(name) for name in names],
        catalogue,
        names=names,
        regions=sorted(asked.regions),
        now=moment,
        tell=on_progress or (lambda _what, _done, _total: None),
    )
    with one_writer():
        # Another refresh may have ended meanwhile: this one follows it.
        snapshot = refreshed(
            answers,
            load_catalogue(),
            newest_snapshot(),
            accept_changes=accept_changes,
            now=moment,
        )
        write_snapshot(snapshot)
    return snapshot


def diff(since: date | None = None) -> PriceDifference:
    """Return what changed from an older snapshot to the newest.

    Args:
        since: The newest snapshot of that day or before it is the older one; None: the one before
            the newest. Where there is none, the package's own prices are.

    Raises:
        PriceError: There is no snapshot, or one is damaged.
    """
    from ..catalog.embedded import embedded_catalogue
    from ..catalog.errors import PriceError
    from ..catalog.listing.price_changes import difference
    from ..catalog.price_folder import snapshot_files
    from ..catalog.prices.files import catalogue_with, read_snapshot

    files = snapshot_files()
    if not files:
        raise PriceError(
            "There is no price snapshot of your own to compare.",
            fix="make one with `gpuplan prices refresh`.",
        )
    older = files[:-1]
    if since is not None:
        older = [path for path in older if read_snapshot(path).made_at.date() <= since]
    package = embedded_catalogue()
    before = catalogue_with(package, older[-1]) if older else package
    name = f"{read_snapshot(older[-1]).made_at:%Y-%m-%d %H:%M} UTC" if older else PACKAGE
    newest = f"{read_snapshot(files[-1]).made_at:%Y-%m-%d %H:%M} UTC"
    after = catalogue_with(package, files[-1])
    return difference(before.offers, after.offers, names=(name, newest))


def history(accelerator: str, *, providers: Iterable[str] = ()) -> PriceHistory:
    """Return the lowest prices of an accelerator in every snapshot, by provider.

    Args:
        accelerator: "H100", or "H100:8" for instances of eight.
        providers: Only these; none: all that are no marketplace.

    Raises:
        UsageError: A name is not known.
        PriceError: A snapshot is damaged.
    """
    from ..catalog.embedded import embedded_catalogue
    from ..catalog.listing.price_changes import history as over_time
    from ..catalog.listing.query import parse_filter
    from ..catalog.price_folder import snapshot_files
    from ..catalog.prices.files import read_snapshot

    package = embedded_catalogue()
    asked = parse_filter(package, accelerators=[accelerator], providers=providers)
    own = [read_snapshot(path) for path in snapshot_files()]
    return over_time(
        [(None, package.offers), *((one.made_at, one.offers) for one in own)],
        accelerator,
        asked.accelerators[0],
        providers=asked.providers,
    )
