"""The small decoder, with a plan of its own for tensor and sequence parallelism."""

from split_decoder import (  # noqa: F401 - the contract's functions
    build_model,
    build_optimizer,
    compute_loss,
    make_batch,
)


def tensor_parallel_plan() -> dict[str, str]:
    return {
        "embedding": "embedding",
        "blocks.*_norm": "sequence",
        "norm": "sequence",
        "blocks.*.attention": "gather",
        "blocks.*.attention.query": "colwise",
        "blocks.*.attention.key": "colwise",
        "blocks.*.attention.value": "colwise",
        "blocks.*.attention.out": "rowwise",
        "blocks.*.ffn": "gather",
        "blocks.*.ffn.up": "colwise",
        "blocks.*.ffn.down": "rowwise",
        "head": "colwise_gather_output",
    }
