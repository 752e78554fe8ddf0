"""On how many samples a run is evaluated: as it was stated, else as many as the file has."""

from __future__ import annotations

from dataclasses import replace

from ...planner.plan.question import Question
from ...profiles.user_model.spec import ModelSpec


def with_eval_samples(
    question: Question, spec: ModelSpec | None
) -> tuple[Question, tuple[str, ...]]:
    """Return the question with the samples of an evaluation, and a note where nobody knows them.

    Args:
        question: as it was asked.
        spec: the model; None where its Profile came from elsewhere.
    """
    work = question.work
    if work.eval_every is None or work.eval_samples is not None:
        return question, ()
    from ...profiles.measure.eval_samples import EvalSamples, count_eval_samples

    found = EvalSamples(None, "there is no file") if spec is None else count_eval_samples(spec)
    if found.count is None:
        note = (
            f"on how many samples is evaluated is not known: {found.why_not}. Evaluation and slow"
            " steps are counted as assumed (docs/real-cost.md); --eval-samples says how many"
        )
        return question, (note,)
    return replace(question, work=replace(work, eval_samples=found.count)), ()
