"""The options of `gpuplan estimate`, as click declares them, and what they hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import click

from ...catalog.vocabulary import (
    FROZEN_CHOICES,
    OFFLOADABLE,
    OPTIMIZERS,
    PRECISIONS,
    RECOMPUTES,
    STACKS,
    PurchaseWish,
)
from ...planner.plan.question import MOST_OOM, By
from ...planner.plan.setup import REDUCE_DTYPES
from .curves import curves_option
from .inputs import InputsOptions
from .question import QuestionOptions
from .shared import (
    Bytes,
    Count,
    Dollars,
    Duration,
    F,
    LayoutText,
    OneOf,
    RecomputeText,
    list_option,
    option,
    with_options,
)
from .values.amounts import BatchSize, CountOrAll, Share
from .values.file_to_write import FileToWrite

OFFLOADS = ("none", *OFFLOADABLE)
SORTS = ("cost", "time", "throughput", "memory", "price", "carbon")
WHOLE = Count(whole=True)
BYS: tuple[By, ...] = get_args(By)
PURCHASES: tuple[str, ...] = get_args(PurchaseWish)
AMOUNT_OF_WORK = (
    option("Work", "--tokens", type=Count(), help="Number of tokens to train on: 10B."),
    option("Work", "--samples", type=Count(), help="Number of samples to train on: 300M."),
    option("Work", "--epochs", type=Count(), help="Number of passes over the data set."),
    option(
        "Work",
        "--dataset-size",
        type=WHOLE,
        help="Samples in the data set, for --epochs.",
    ),
)
offers_option = option(
    "Machine",
    "--offers",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Your own machines and prices, YAML (docs/templates).",
)
OPTIONS = (
    *AMOUNT_OF_WORK,
    option(
        "Work",
        "--dataset-bytes",
        type=Bytes(),
        help="Size of the data set: 500GB, 2TiB. What it costs to keep is counted.",
    ),
    option(
        "Work",
        "--dataset-at",
        metavar="PROVIDER/REGION",
        help="Where the data set is now: aws/us-east-1. To move it is counted.",
    ),
    option(
        "Work",
        "--eval-every",
        type=WHOLE,
        metavar="STEPS",
        help="Count evaluations after every so many steps and at the end.",
    ),
    option(
        "Work",
        "--eval-samples",
        type=WHOLE,
        help="Samples of one evaluation; default: as many as build_eval_dataset() has.",
    ),
    option("Work", "--steps", type=WHOLE, help="Number of optimizer steps."),
    option(
        "Work",
        "--global-batch",
        type=BatchSize(),
        help="One optimizer step: 512 samples, or 0.5M-tokens; default: that of published runs.",
    ),
    option(
        "Work",
        "--critical-batch",
        type=Count(),
        help="Samples: a batch B then needs 1 + B/N times the work (McCandlish et al. 2018).",
    ),
    list_option("Machine", "--provider", help='Only these providers; "all" adds marketplaces.'),
    list_option("Machine", "--region", help="Only these regions."),
    list_option(
        "Machine", "--jurisdiction", help="Only regions in these: eu, eu27, uk, or a country (de)."
    ),
    list_option(
        "Machine", "--accelerator", help="Only these accelerators: H100, A100-80GB-SXM, H100:8."
    ),
    list_option("Machine", "--instance", help="Only these instance types."),
    list_option(
        "Machine", "--nodes", WHOLE, help="Exactly this many nodes; each number given is tried."
    ),
    option(
        "Machine",
        "--cluster",
        metavar="NxNAME",
        help="N nodes of one instance type or of H100:8; yours, where nobody sells it.",
    ),
    option(
        "Machine",
        "--max-nodes",
        type=WHOLE,
        default=64,
        show_default=True,
        help="Try no more nodes than this.",
    ),
    curves_option,
    offers_option,
    option(
        "Machine",
        "--offline",
        is_flag=True,
        hidden=True,  # Accepted for the scripts that give it: without two options it never does.
        help="Never use the network: refuses --reprice and --check-capacity.",
    ),
    list_option(
        "Layout", "--layout", LayoutText(), help="Only these layouts: dp8, fsdp16, hsdp2x8."
    ),
    list_option(
        "Layout",
        "--micro-batch",
        WHOLE,
        help="Samples per device and pass; only these sizes are tried.",
    ),
    list_option(
        "Layout",
        "--grad-accum",
        WHOLE,
        help="Micro-batches per optimizer step; only these are tried.",
    ),
    list_option("Layout", "--precision", OneOf(PRECISIONS), help="Only these precisions."),
    list_option(
        "Layout",
        "--recompute",
        RecomputeText(RECOMPUTES),
        help="Only these settings; full:10 recomputes ten of the layers.",
    ),
    list_option(
        "Layout",
        "--frozen-precision",
        OneOf(FROZEN_CHOICES),
        help="How to keep parameters that are not trained; only these.",
    ),
    option(
        "Layout",
        "--reduce-dtype",
        type=OneOf(REDUCE_DTYPES),
        help="What FSDP reduces gradients in beside 16-bit layers; default: as the file's own"
        " MixedPrecisionPolicy, else fp32.",
    ),
    option(
        "Layout",
        "--compile/--no-compile",
        default=None,
        help="Plan with torch.compile, or without; default: as the file does. One of them is"
        " tried.",
    ),
    option("Layout", "--stack", type=OneOf(STACKS), help="Software that runs the step."),
    option(
        "Layout",
        "--optimizer",
        type=OneOf(OPTIMIZERS),
        help="Optimizer to assume instead of the file's own.",
    ),
    list_option("Layout", "--offload", OneOf(OFFLOADS), help="What to keep in host memory."),
    option(
        "Money",
        "--deadline",
        type=Duration(),
        help="Only plans that finish within this time: 48h, 3d.",
    ),
    option(
        "Money",
        "--budget",
        type=Dollars(),
        help="Only plans that cost at most this: 500, 2k. Without an amount of work: how much it"
        " trains.",
    ),
    option(
        "Money",
        "--purchase",
        "purchase",
        type=OneOf(PURCHASES),
        help="How to pay for machines; all: on demand, and the other ways beside it.",
    ),
    option(
        "Money",
        "--on-demand",
        "purchase",
        flag_value="on-demand",
        default=True,
        help="Rank by on-demand prices (the default).",
    ),
    option("Money", "--spot", "purchase", flag_value="spot", help="Rank by spot prices."),
    option("Money", "--any", "purchase", flag_value="any", help="Rank by the cheaper of both."),
    option(
        "Money",
        "--pricebook",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Your own terms: discounts, reservations, credits, tax (docs/pricebook.md).",
    ),
    option(
        "Money",
        "--reprice",
        is_flag=True,
        help="Ask the clouds for today's prices first, and keep them (docs/prices.md).",
    ),
    option(
        "Machine",
        "--check-capacity",
        is_flag=True,
        help="Ask the clouds what your account can start now; what it cannot comes last.",
    ),
    option(
        "Money",
        "--sort",
        type=OneOf(SORTS),
        help="Order of the plans: memory is the smallest peak of a device first, throughput the"
        " most samples a second; default: cost.",
    ),
    option(
        "Money",
        "--max-oom-risk",
        type=Share(),
        default=MOST_OOM,
        show_default=True,
        help="Largest chance of running out of memory of the plans that come first.",
    ),
    option(
        "Output", "--top", type=CountOrAll(), help="Number of plans to show, or all; default: 10."
    ),
    option("Output", "--by", type=OneOf(BYS), help="One plan for each of these."),
    option(
        "Output",
        "--all-variants",
        is_flag=True,
        help="Show every plan, not only the best per accelerator.",
    ),
    option("Layout", "--runnable", is_flag=True, help="Only plans that gpuplan launch can run."),
    option("Output", "--vs-cpu", is_flag=True, help="Add host processors, for comparison."),
    option(
        "Output", "--pareto", is_flag=True, help="Draw cost against time, and scaling over nodes."
    ),
    option("Output", "--explain", type=WHOLE, metavar="N", help="Show plan N in full."),
    option(
        "Output",
        "--trace",
        type=FileToWrite(),
        metavar="FILE",
        help="Write the predicted step of plan N (or 1) for ui.perfetto.dev.",
    ),
)


def amount_of_work(command: F) -> F:
    """Add the amounts of work that `gpuplan advise` asks for too."""
    return with_options(AMOUNT_OF_WORK, command)


def estimate_options(command: F) -> F:
    """Add all of them to a command, in the order in which `--help` prints them."""
    return with_options(OPTIONS, command)


@dataclass(frozen=True, kw_only=True)
class EstimateOptions(QuestionOptions, InputsOptions):
    """What the options of `gpuplan estimate` hold."""

    curves: Path | None
    pricebook: Path | None
    """The user's own terms."""
    pareto: bool
    explain: int | None
    trace: str | None
    check_capacity: bool
    reprice: bool
    offline: bool
