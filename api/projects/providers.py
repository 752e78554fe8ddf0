"""The providers that a project names beside its experiments, as the catalogue calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ...catalog.errors import UsageError
from ...catalog.names import resolve_provider
from ...planner.budget.project.lines import Egress, Funding, Storage
from ...planner.budget.project.project import Project

if TYPE_CHECKING:
    from ...catalog.snapshot import Catalogue

Line = TypeVar("Line", Storage, Egress, Funding)
PARTS = ("storage", "egress", "funding")


def with_known_providers(project: Project, catalogue: Catalogue) -> Project:
    """Return a project whose funding, storage and egress name providers as the ledger does.

    Data at a price of its own may be kept by somebody whom the catalogue does not know, and credits
    may be of that one.

    Raises:
        UsageError: There is no such provider.
    """
    own = {
        *(one.provider for one in project.storage if one.usd_per_gb_month is not None),
        *(one.provider for one in project.egress if one.usd_per_gb is not None),
    }

    def known(one: Line) -> Line:
        if one.provider is None:
            return one
        try:
            name = resolve_provider(one.provider, catalogue=catalogue)
        except UsageError as error:
            if one.provider in own:
                return one
            raise UsageError(f"{one.name}: {error.message}", fix=error.fix) from error
        return one.model_copy(update={"provider": name})

    parts = {name: tuple(map(known, getattr(project, name))) for name in PARTS}
    return project.model_copy(update=parts)
