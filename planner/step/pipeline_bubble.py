"""How long pipeline stages wait for each other in a step.

1F1B and GPipe take the same time: every stage works `grad_accum` times, and waits for the stages
before it once and for those behind it once, 1/virtual of it with interleaving (Narayanan et al.
2021, arXiv:2104.04473, section 2.2):

    step = accumulation · slowest stage + (sum of stages - slowest stage) / virtual
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def bubble_s(others_s: Array, virtual_stages: Array) -> Array:
    """Return seconds that the slowest stage waits in a step for the others, which take so long."""
    return others_s / virtual_stages


def covering_passes(pipeline: Array, virtual_stages: Array, grad_accum: Array) -> Array:
    """Return how many passes of a micro-batch hide what a stage communicates once a step.

    An interleaved schedule runs as many micro-batches as there are stages through one chunk before
    it goes on to the next (Narayanan et al. 2021, arXiv:2104.04473, figure 4; Megatron-LM
    core/pipeline_parallel/schedules.py, `microbatch_group_size_per_vp_stage`). So the gradients of
    its chunks are whole one after another, all but those of the last chunk while such groups still
    run, and the parameters of all but the first chunk are not needed before such groups have run.
    Without chunks everything waits for the last micro-batch, and hides under that alone.

    Args:
        pipeline: stages.
        virtual_stages: chunks of a stage.
        grad_accum: micro-batches a step.
    """
    group = np.minimum(pipeline, grad_accum)
    return 1 + (1 - 1 / virtual_stages) * (group - 1)
