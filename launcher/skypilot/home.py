"""A SkyPilot of gpuplan's own beside the user's, whose tables of machines hold gpuplan's prices.

SkyPilot 0.14 keeps what it knows (state, locks, tables, its server's log) below SKY_RUNTIME_DIR,
and takes the port of its local server from SKYPILOT_API_SERVER_LOCAL_PORT, so that two of them live
side by side. Keys and accounts stay where they are, in the user's home: nothing is copied.
Only where GPUPLAN_SKY_HOME names a folder; else the user's own SkyPilot is used as it is.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import shutil
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from ...catalog.errors import UsageError
from ...catalog.files import write_atomically
from ...catalog.snapshot import Catalogue
from .price_tables import Export, Table, clouds_of, with_our_prices

VARIABLE = "GPUPLAN_SKY_HOME"
TABLES = Path(".sky", "catalogs", "v8")
"""Below a home: SkyPilot's tables, in the form that 0.14 reads."""
UNTOUCHED = Path(".sky", "catalogs", "gpuplan-before")
"""Below a home of gpuplan's: SkyPilot's own tables, as they were before our prices."""
STAMP = Path(".sky", "catalogs", "gpuplan-prices")
MACHINES = "vms.csv"
FIRST_PORT = 46600
"""First port for the servers of such homes; SkyPilot's own server is at 46580."""
PORTS = 1000
NEEDED_COLUMNS = {"InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region"}


def own_home() -> Path | None:
    """Return the folder that GPUPLAN_SKY_HOME names, or None."""
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser().absolute() if named else None


def enter() -> Path | None:
    """Make SkyPilot, not yet imported, use gpuplan's own home if one is named; return it."""
    home = own_home()
    if home is not None:
        os.environ.update(environment(home))
    return home


def environment(home: Path) -> Mapping[str, str]:
    """Return what must be in the environment, before SkyPilot is imported, to use such a home.

    The port follows from the folder: two homes have two servers, and one home always the same.
    """
    port = FIRST_PORT + zlib.crc32(str(home).encode()) % PORTS
    return {
        "SKY_RUNTIME_DIR": str(home),
        "SKYPILOT_API_SERVER_LOCAL_PORT": str(port),
        # A team's server that the user's settings name is not ours.
        "SKYPILOT_API_SERVER_ENDPOINT": f"http://127.0.0.1:{port}",
    }


def write_prices(home: Path, catalogue: Catalogue, *, person: Path) -> Export | None:
    """Write the catalogue's prices into the tables of a home; return None if they are there.

    SkyPilot never refreshes a table without the checksum that it writes beside its downloads, so
    what is written stays until it is written again.

    Args:
        home: of gpuplan's own SkyPilot; created if it does not exist.
        catalogue: the prices.
        person: the user's home, whose tables are read where this one has none yet.

    Raises:
        UsageError: a table cannot be read, or the folder cannot be written.
    """
    if home.resolve() == person.resolve():
        raise UsageError(
            f"{home} is your own home: SkyPilot itself would use these prices from then on.",
            fix=f"name another folder, such as {home / '.gpuplan-sky'}.",
        )
    try:
        sources = _sources(home, clouds_of(catalogue), person)
        stamp = _stamp(catalogue, sources)
        marked = home / STAMP
        if marked.is_file() and marked.read_text(encoding="utf-8") == stamp:
            return None
        tables = {cloud: read_table(path) for cloud, path in sources.items()}
        export = with_our_prices(catalogue, tables)
        for cloud, table in export.tables.items():
            write_atomically(home / TABLES / cloud / MACHINES, text_of(table))
            _checksum(home, cloud).unlink(missing_ok=True)
        write_atomically(marked, stamp)
    except OSError as error:
        raise UsageError(
            f"{error.filename or home} cannot be written or read: {error.strerror or error}.",
            fix="name a folder of yours.",
        ) from None
    return export


def missing_tables(home: Path, clouds: Iterable[str], *, person: Path) -> tuple[str, ...]:
    """Return the clouds of which neither home has SkyPilot's own table."""
    have = _sources(home, clouds, person)
    return tuple(cloud for cloud in clouds if cloud not in have)


def read_table(path: Path) -> Table:
    """Return one of SkyPilot's tables of machines.

    Raises:
        UsageError: it is none.
    """
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream, restval="")
        columns = tuple(reader.fieldnames or ())
        if not NEEDED_COLUMNS.issubset(columns):
            raise UsageError(
                f"{path} is no table of machines of SkyPilot 0.14.",
                fix="delete it; SkyPilot downloads it again.",
            )
        return Table(columns=columns, rows=tuple(reader))


def text_of(table: Table) -> str:
    """Return a table as SkyPilot reads it."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, table.columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.rows)
    return stream.getvalue()


def _sources(home: Path, clouds: Iterable[str], person: Path) -> dict[str, Path]:
    """Return SkyPilot's own tables, the newest that are surely without our prices."""
    found = {}
    for cloud in clouds:
        kept = home / UNTOUCHED / cloud / MACHINES
        downloaded = home / TABLES / cloud / MACHINES
        if downloaded.is_file() and _is_download(home, cloud):
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(downloaded, kept)
        persons = person / TABLES / cloud / MACHINES
        candidates = [path for path in (kept, persons) if path.is_file()]
        if candidates:
            found[cloud] = max(candidates, key=lambda path: path.stat().st_mtime)
    return found


def _is_download(home: Path, cloud: str) -> bool:
    """Whether SkyPilot downloaded the table of a home, and nobody changed it since."""
    checksum = _checksum(home, cloud)
    if not checksum.is_file():
        return False
    table = (home / TABLES / cloud / MACHINES).read_bytes()
    held = hashlib.md5(table, usedforsecurity=False).hexdigest()
    return checksum.read_text(encoding="utf-8").strip() == held


def _checksum(home: Path, cloud: str) -> Path:
    return home / TABLES / ".meta" / cloud / f"{MACHINES}.md5"


def _stamp(catalogue: Catalogue, sources: Mapping[str, Path]) -> str:
    """Return what changes when a price or one of SkyPilot's tables does."""
    offers = repr((catalogue.offers, catalogue.cpu_offers)).encode()
    lines = [f"{catalogue.snapshot_date} {hashlib.sha256(offers).hexdigest()}"]
    for cloud, path in sorted(sources.items()):
        lines.append(f"{cloud} {path} {path.stat().st_size} {path.stat().st_mtime_ns}")
    return "\n".join([*lines, ""])
