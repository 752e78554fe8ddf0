"""The small decoder with a tied head, whose plan splits the head and leaves the embedding whole."""

import tensor_decoder
from tied_decoder import (  # noqa: F401 - the contract's functions
    build_model,
    build_optimizer,
    compute_loss,
    make_batch,
)


def tensor_parallel_plan() -> dict[str, str]:
    plan = tensor_decoder.tensor_parallel_plan()
    del plan["embedding"]
    return plan
