"""How the layers of a model are dealt to the chunks of a pipeline; the runner deals them so too.

Standard library only, because the runner carries this file to the instances.
"""

from __future__ import annotations

from ..plan.errors import UnsupportedError


def chunk_sizes(layers: int, chunks: int) -> list[int]:
    """Return how many layers each chunk of a pipeline runs; chunk c is on rank c mod pipeline.

    Where they do not divide, but do with embedding and head counted as two layers, the first and
    the last chunk hold one less (as Megatron and BLOOM's layout do); else chunks behind the first
    get one more.

    Raises:
        UnsupportedError: there are fewer layers than chunks.
    """
    if layers % chunks == 0:
        return [layers // chunks] * chunks
    if (layers + 2) % chunks == 0:
        sizes = [(layers + 2) // chunks] * chunks
        sizes[0] -= 1
        sizes[-1] -= 1
        return sizes
    if layers < chunks:
        raise UnsupportedError(
            f"{layers} layers are too few for {chunks} pipeline chunks.",
            fix="use fewer pipeline or virtual stages.",
        )
    each, extra = divmod(layers, chunks)
    return [each + (1 <= chunk <= extra) for chunk in range(chunks)]
