"""Models and machines whose layouts that split the model are few enough to try one by one."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.vocabulary import Offloaded, Stack
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.hardware.device import capacity_bytes
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.planner.plan.setup import Date, Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.search.machines.offers import survey
from gpuplan.planner.search.search_space import space_of
from gpuplan.planner.search.splits.outcome import Asked
from gpuplan.planner.search.splits.predictor import SplitPredictor
from gpuplan.planner.search.splits.rows import Kind
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process.batch import ProfileRequest, profile_all

EXAMPLE = Path(__file__).parents[2] / "examples" / "decoder.py"
DENSE = {"layers": 24, "hidden": 512, "heads": 8, "kv_heads": 4, "ffn": 1536, "vocab": 4096}
MIXTURE = {**DENSE, "layers": 6, "experts": 8, "moe_ffn": 256, "dense_layers": 2, "dense_ffn": 1024}
UNEVEN = {**DENSE, "layers": 22, "ffn_kind": "gelu", "kv_heads": 8, "tied_embeddings": True}
HUGE = {**DENSE, "layers": 40, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672}
TWO_KINDS = {**DENSE, "experts": 4, "moe_ffn": 256, "dense_layers": 12, "dense_ffn": 1024}
"""Half of whose layers are of one kind and half of another, as of an encoder and a decoder."""
FEW_LAYERS = {**DENSE, "layers": 4}
LONG = {**FEW_LAYERS, "seq_len": 32768}
"""Long enough for context parallelism."""
FEW_EXPERTS = {**MIXTURE, "layers": 4, "experts": 4, "dense_layers": 1}
BATCHES = np.array([1, 2, 4, 8])
ANY_STEP = [Asked(nodes=1, bound_s=float("inf"))]
OPTIMIZER: frozenset[Offloaded] = frozenset({"optimizer"})
SOFTWARE: tuple[tuple[Stack, Date | None], ...] = (
    ("torch-eager", None),
    ("megatron", None),
    ("megatron", (2021, 6)),  # DeepSpeed's engine, whose buffers count, and a larger context.
)


def profiles_of(*models: dict) -> list[Profile]:
    """Return the Profiles of models, all made by processes that load torch once."""
    requests = [
        ProfileRequest(
            path=EXAMPLE,
            params={"seq_len": 512, "ffn_kind": "swiglu", **params},
            numerics=frozenset({"amp16", "fp32", "pure16"}),
        )
        for params in models
    ]
    made = profile_all(requests)
    found = [made[request.key] for request in requests]
    assert all(isinstance(one, Profile) for one in found), found
    return [one for one in found if isinstance(one, Profile)]


def predictor_of(
    cache: ModelCache,
    site: Site,
    *nodes: int,
    software: tuple[Stack, Date | None] = SOFTWARE[0],
    **given: object,
) -> SplitPredictor:
    work = Work(global_batch=given.pop("global_batch", 64))  # pyright: ignore[reportArgumentType]
    question = Question(
        work=work,
        machine=Machine(nodes=nodes),
        choices=Choices(micro_batches=tuple(BATCHES.tolist())),
    )
    base = bases(software=software)[-1]
    found = SplitPredictor.of(
        cache, space_of(question, cache.profile), base, [Kind(site.per_node, site.domain)]
    )
    assert found is not None
    return found


def bases(
    offload: frozenset[Offloaded] = frozenset(),
    software: tuple[Stack, Date | None] = SOFTWARE[0],
    *,
    compiled: bool = False,
) -> list[Setup]:
    """Return the setups whose kernels differ: without casts and, for some torch layouts, with."""
    base = Setup(
        layout=Layout(),
        precision="bf16-amp",
        micro_batch=1,
        stack=software[0],
        software_date=software[1],
        offload=offload,
        compile=compiled,
        by_block=True,
    )
    without_casts = replace(base, autocast=False)
    return [without_casts] if offload or software[0] == "megatron" else [without_casts, base]


def with_memory(site: Site, share: float) -> Site:
    """Return a site whose devices have a share of their memory."""
    visible = share * capacity_bytes(site.accelerator)
    changed = site.accelerator.model_copy(update={"memory_visible_bytes": visible})
    return replace(site, accelerator=changed)


def nearness(share: float) -> float:
    """Return how near the search is to one prediction.

    Where some layers are recomputed the slowest stage may be another than where all or none are.
    """
    return 1e-9 if share == 1 else 0.02


def sites_of_one_node() -> list[Site]:
    """Return one node of a switch, of a slower link, and of a rack that is one domain."""
    catalogue, found = load_catalogue(), []
    for name in ("H100-80GB-SXM:8", "A100-40GB-SXM:8", "GB200:4"):
        market = survey(catalogue, Machine(accelerators=(name,)), Question().money)
        one = next(c for c in market.choices if c.instance.inter_link.bytes_per_s is not None)
        found.append(
            Site(
                accelerator=one.accelerator,
                per_node=int(one.instance.accelerators),
                nodes=1,
                intra_link=one.instance.intra_link,
                inter_link=one.instance.inter_link,
                link_domain=one.instance.link_domain_accelerators,
            )
        )
    return found
