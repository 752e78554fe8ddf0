"""Files of bills that providers export, read row by row."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from ....catalog.errors import UsageError
from .mappers import FIX, BillRow, Cells, Place, Rates, mapper_of, refuse

LONGEST_CELL = 10**6


def read_bill(path: Path, rates: Rates) -> Iterator[BillRow]:
    """Yield the charges of a file, in its order.

    Args:
        path: CSV or JSON (an array, or one object a line), also with gzip.
        rates: for bills in another currency than US dollars.

    Raises:
        UsageError: it is unreadable, truncated or of no known form, with its line; or in a
            currency without a rate.
    """
    line = 0
    mapper: Callable[[Cells, Place, Rates], BillRow] | None = None
    try:
        with _opened(path) as stream:
            for line, cells in _records(path, stream):
                place = Place(path, line)
                mapper = mapper or mapper_of(cells, place)
                yield mapper(cells, place, rates)
    except UnicodeDecodeError:
        refuse(Place(path, line + 1), "it is no UTF-8 text")
    except (EOFError, zlib.error, gzip.BadGzipFile):
        refuse(Place(path, line + 1), "the compressed file is damaged or ends too early")
    except (csv.Error, RecursionError) as error:
        refuse(Place(path, line + 1), f"it is no CSV: {error}")
    except OSError as error:
        raise UsageError(
            f"Cannot read {path}: {error.strerror or error}.", fix="name a file of a bill."
        ) from None
    if mapper is None:
        raise UsageError(f"{path} has no charges.", fix=FIX)


def _opened(path: Path) -> TextIO:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _records(path: Path, stream: TextIO) -> Iterator[tuple[int, Cells]]:
    """Yield each record with its line."""
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".json", ".jsonl", ".ndjson")):
        yield from _json_records(path, stream)
        return
    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(stream, strict=True)
    head = [name.strip() for name in next(reader, [])]
    if len(set(head)) != len(head):
        refuse(Place(path, 1), "a column is there twice")
    for row in reader:
        if not row:
            continue
        if len(row) != len(head):
            refuse(
                Place(path, reader.line_num),
                f"it has {len(row)} cells, and there are {len(head)} columns",
            )
        yield reader.line_num, dict(zip(head, row, strict=True))


def _json_records(path: Path, stream: TextIO) -> Iterator[tuple[int, Cells]]:
    first = stream.read(1)
    while first.isspace():
        first = stream.read(1)
    if first == "[":
        try:
            found = json.loads(first + stream.read())
        except ValueError as error:
            refuse(Place(path, getattr(error, "lineno", 1)), "it is no JSON")
        numbered = enumerate(found, start=1)
    else:
        numbered = _json_lines(path, first, stream)
    for line, record in numbered:
        if not isinstance(record, dict):
            refuse(Place(path, line), "it is no object with the columns of a bill")
        yield line, record


def _json_lines(path: Path, first: str, stream: TextIO) -> Iterator[tuple[int, Any]]:
    for line, text in enumerate(stream, start=1):
        whole = first + text if line == 1 else text
        if whole.strip():
            try:
                yield line, json.loads(whole)
            except ValueError:
                refuse(Place(path, line), "it is no JSON")
