"""Instance types that the catalogue lacks, described by the user, so that refreshes take them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from ..embedded import Catalogue
from ..paths import config_dir
from ..types import Instance
from ..user_files.offers import load_user_offers


def sku_map_path() -> Path:
    """Return the user's file, which need not exist."""
    return config_dir() / "sku_map.yaml"


def with_sku_map(catalogue: Catalogue) -> tuple[Catalogue, tuple[Instance, ...]]:
    """Return the catalogue with the instance types of the user's file, and these.

    The file is in the format of --offers, without prices: docs/prices.md.

    Raises:
        UsageError: The file cannot be read or is not understood.
    """
    path = sku_map_path()
    if not path.exists():
        return catalogue, ()
    described = load_user_offers(path, catalogue).instances
    new = {(row.provider, row.instance_type): row for row in described}
    instances = MappingProxyType({**new, **catalogue.instances})
    return replace(catalogue, instances=instances), tuple(new.values())
