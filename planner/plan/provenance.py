"""Where the numbers of a plan are from: the curves, the device, the machine, the price."""

from __future__ import annotations

from ...catalog.snapshot import Catalogue
from ...profiles.curves.choice import CurveChoice
from ...profiles.curves.device_curves import curves_for
from ...profiles.curves.user_curves import user_curve_file
from .plan import Plan


def provenance(plan: Plan, catalogue: Catalogue, curve_choice: CurveChoice) -> dict[str, str]:
    """Return what the numbers rest on → its source; only what the catalogue still holds.

    Args:
        plan: the plan.
        catalogue: where its device, machine and price are looked up.
        curve_choice: which measurements of the device are used.
    """
    chosen = plan.offer
    found: dict[str, str] = {}
    accelerator = catalogue.accelerators.get(chosen.accelerator)
    if accelerator is not None:
        curves = curves_for(accelerator, curve_choice)
        dtype = plan.precision.removesuffix("-amp")
        own = curves.basis_of("gemm", dtype) == "measured"
        kernels = "measured on" if own else "scaled by data sheets from"
        found["kernel curves"] = f"{kernels} {curves.relative_of('gemm', dtype)}"
        users = user_curve_file(accelerator.name, curve_choice) if own else None
        if users is not None and users.gemm_grids:
            found["kernel curves"] += f", {users.path}: {'; '.join(users.sources)}"
        found["device"] = accelerator.source
    instance = catalogue.instances.get((chosen.provider, chosen.instance_type))
    if instance is not None:
        found["instance"] = f"{instance.source} ({instance.basis})"
    same = (chosen.provider, chosen.region, chosen.instance_type)
    for offer in (*catalogue.offers, *catalogue.cpu_offers):
        if (offer.provider, offer.region, offer.instance_type) == same:
            found["offer"] = offer.source
    return found
