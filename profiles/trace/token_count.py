"""Whether the tokens that a file states for a sample are those that its batches hold.

Amounts in tokens are divided by the stated number: where it is wrong, time and cost are wrong by as
much. A model may count other tokens than the integers of its batch, so that only one case is an
error: a constant that is right without the params that were given, and wrong with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

from ...catalog.errors import UserFileError
from ..profile import BatchTensor
from ..user_model.workload import Workload

INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
MOST_LENGTHS = 6
"""A batch of more lengths than these is not summed up in every way."""

Tensors = Sequence[BatchTensor]


def token_warnings(
    workload: Workload, given: Tensors, usual: Callable[[], Tensors | None]
) -> list[str]:
    """Return that TOKENS_PER_SAMPLE does not count what the batches hold, where that seems so.

    Args:
        workload: the file, with its params.
        given: the tensors of its batches.
        usual: returns those of the batches without the params that were given; None: not known.

    Raises:
        UserFileError: it is a constant, and params that were given change what it stands for.
    """
    stated = workload.tokens_per_sample
    if stated is None or _counts(stated, given):
        return []
    before = None
    if workload.params and not workload.tokens_follow_params:
        before = usual()
    if before is not None and before != given:
        if _counts(stated, before):
            raise _outdated(workload, stated, _lengths(given), _lengths(before))
        return [_unmoved(workload, stated)]
    lengths = _lengths(given)
    if not lengths or _has_other_inputs(given, lengths):
        return []
    return [_other_number(stated, lengths)]


def tokens_of_batch(tensors: Tensors) -> int | None:
    """Return the tokens that a sample seems to have, of a file that does not say.

    None where that is not clear: no sequence of integers, several lengths, or images, sound or
    numbers beside them.
    """
    lengths = _lengths(tensors)
    if len(lengths) != 1 or _has_other_inputs(tensors, lengths):
        return None
    return lengths[0]


def _counts(stated: float, tensors: Tensors) -> bool:
    """Return whether the number is the length of a sequence, or of several: encoder and decoder.

    A sequence may be one longer, where the targets are the inputs shifted by one. Equal lengths
    count once: inputs and labels of as many tokens are the same tokens.
    """
    lengths = _lengths(tensors)
    if len(lengths) > MOST_LENGTHS:
        return True
    sums = {
        sum(some) - shift
        for count in range(1, len(lengths) + 1)
        for some in combinations(lengths, count)
        for shift in range(count + 1)
    }
    return stated in sums


def _lengths(tensors: Tensors) -> list[int]:
    """Return the different lengths of what seem to be sequences of token ids, longest first."""
    found = {
        one.sample_shape[0]
        for one in tensors
        if one.dtype in INTEGERS and len(one.sample_shape) == 1 and one.sample_shape[0] > 1
    }
    return sorted(found, reverse=True)


def _has_other_inputs(tensors: Tensors, lengths: Iterable[int]) -> bool:
    """Return whether something else is in the batch that tokens may be made of: images, sound."""
    masks = {1, *lengths}
    return any(one.dtype != "bool" and not set(one.sample_shape) <= masks for one in tensors)


def _outdated(
    workload: Workload, stated: float, now: Sequence[int], before: Sequence[int]
) -> UserFileError:
    given = " ".join(f"--param {name}={value}" for name, value in workload.params.items())
    return UserFileError(
        f"TOKENS_PER_SAMPLE is the constant {stated:,.0f}, but with {given} a sample of the batch"
        f" has {_listed(now)} tokens ({_listed(before)} without), so every amount in tokens would"
        f" be counted wrong{_how_far(stated, now)}.",
        fix=f"let it follow the param: {_function(workload, now, before)}.",
    )


def _unmoved(workload: Workload, stated: float) -> str:
    given = " ".join(f"--param {name}={value}" for name, value in workload.params.items())
    return (
        f"TOKENS_PER_SAMPLE stays {stated:,.0f} while {given} changes the shape of a sample, and"
        " amounts in tokens are counted with it; let it follow the param:"
        " def TOKENS_PER_SAMPLE(name_of_the_param): return …"
    )


def _other_number(stated: float, lengths: Sequence[int]) -> str:
    total = sum(lengths)
    return (
        f"TOKENS_PER_SAMPLE is {stated:,.0f}, but a sample of the batch has {_listed(lengths)}"
        " tokens: unless it has others beside them, amounts in tokens are counted"
        f" wrong{_how_far(stated, lengths)}; write TOKENS_PER_SAMPLE = {total}, or let it follow"
        f" a param: def TOKENS_PER_SAMPLE(seq_len={total}): return seq_len"
    )


def _how_far(stated: float, lengths: Sequence[int]) -> str:
    """Return how wrong time and cost would be, in words; nothing where that is not clear."""
    if len(lengths) != 1:
        return ""
    ratio = lengths[0] / stated
    factor = f"{max(ratio, 1 / ratio):.2g}"
    return f", time and cost {factor} times too {'high' if ratio > 1 else 'low'}"


def _function(workload: Workload, now: Sequence[int], before: Sequence[int]) -> str:
    """Return the function to write instead of the constant."""
    for name, value in workload.params.items():
        if list(now) == [value] and len(before) == 1:
            return f"def TOKENS_PER_SAMPLE({name}={before[0]}): return {name}"
    name = next(iter(workload.params))
    return f"def TOKENS_PER_SAMPLE({name}): return … (a function is taken at its word)"


def _listed(lengths: Sequence[int]) -> str:
    return " + ".join(f"{length:,}" for length in lengths) if lengths else "no"
