"""The question that an experiment of a project asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...catalog.text.amounts import parse_batch
from ...planner.budget.project.experiment import Experiment
from ...planner.plan.layout import parse_layout
from ...planner.plan.question import MOST_OOM, Choices, Machine, Money, Question, Work


def question_of(spec: Experiment, amount: Mapping[str, Any]) -> Question:
    """Return the question that an experiment asks, as the options of `estimate` would."""
    samples, tokens = (None, None) if spec.global_batch is None else parse_batch(spec.global_batch)
    nodes = {} if spec.max_nodes is None else {"max_nodes": spec.max_nodes}
    return Question(
        work=Work(
            **amount,
            dataset_size=spec.dataset_size,
            global_batch=samples,
            global_batch_tokens=tokens,
            critical_batch=spec.critical_batch,
        ),
        machine=Machine(
            providers=spec.provider,
            regions=spec.region,
            jurisdictions=spec.jurisdiction,
            accelerators=spec.accelerator,
            instances=spec.instance,
            nodes=spec.nodes,
            **nodes,
        ),
        choices=Choices(
            layouts=tuple(parse_layout(one) for one in spec.layout),
            micro_batches=spec.micro_batch,
            precisions=spec.precision,
            recomputes=spec.recompute,  # pyright: ignore[reportArgumentType]
            frozen_precisions=spec.frozen_precision,
            compile=spec.compile,
            stack=spec.stack,
            optimizer=spec.optimizer,
        ),
        money=Money(
            deadline_s=spec.deadline,
            budget_usd=spec.budget,
            purchase=spec.purchase or "on-demand",
            max_oom=spec.max_oom_risk or MOST_OOM,
        ),
    )
