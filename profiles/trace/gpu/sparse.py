"""Sparse tensors of a traced step, such as the gradients of `nn.Embedding(sparse=True)`.

torch has hardly a shape rule for them on meta tensors, and they have no storage of their own. Each
operation is done on the indices [1, rows] and the values [rows, …] that a sparse tensor holds, with
the kernels that CUDA runs for it (torch aten/src/ATen/native/sparse/cuda/SparseCUDATensorMath.cu,
SparseCUDATensor.cu). Which rows are looked up twice depends on the data: all are taken as distinct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import torch

from ....catalog.errors import UserFileError
from ..kernels.operations import op_name, words

_aten: Any = torch.ops.aten
MAKES_SPARSE = _aten._sparse_coo_tensor_with_dims_and_tensors.default
"""Makes a sparse tensor of indices and values, without a kernel."""
BAG_BACKWARD = _aten._embedding_bag_backward.default
BAG_ROWS, BAG_IS_SPARSE = 6, 9
"""Positions of `num_weights` and `sparse` among its arguments."""
WITHOUT_KERNEL = words(
    """_indices _values indices values _nnz is_coalesced _coalesced sparse_dim dense_dim detach
    alias _sparse_coo_tensor_with_dims_and_tensors"""
)
ELEMENTWISE = words("mul div neg pow sqrt abs")
"""Operations on the values alone, where the other operand is a number."""
Run = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Runs one operation on dense tensors, and records it."""


def is_sparse(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is one of indices and values (COO)."""
    return tensor.layout is torch.sparse_coo


def concerns_sparse(func: Any, args: tuple[Any, ...], operands: Iterable[torch.Tensor]) -> bool:
    """Return whether an operation makes or takes a sparse tensor.

    Args:
        func: the operation.
        args: what it was called with.
        operands: the tensors among them.
    """
    if func is MAKES_SPARSE or (func is BAG_BACKWARD and args[BAG_IS_SPARSE]):
        return True
    return any(map(is_sparse, operands))


def run_sparse(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Any:
    """Return what an operation gives whose operands or result are sparse.

    Args:
        func: the operation.
        args: its operands.
        kwargs: its named operands.
        run: what runs the dense operations that it consists of.

    Raises:
        UserFileError: it is none of those that an embedding and an optimizer need.
    """
    name = op_name(func)
    if name in WITHOUT_KERNEL:
        return func(*args, **kwargs)
    first = args[0]
    if name == "add":
        add = _add_in_place if func._schema.is_mutable else _add
        return add(run, *args, **kwargs)
    rule = _RULES.get(name)
    if rule is not None:
        return rule(run, *args, **kwargs)
    if name in ELEMENTWISE and is_sparse(first) and not _other_is_tensor(args):
        values = run(func, (_values(first), *args[1:]), kwargs)
        # In place the values of the tensor itself were written.
        return first if func._schema.is_mutable else _made(first, _indices(first), values)
    return _refuse(name)


def empty_gradient(parameter: torch.Tensor) -> torch.Tensor:
    """Return a sparse gradient without rows."""
    indices = torch.empty((1, 0), dtype=torch.int64, device=parameter.device)
    values = parameter.new_empty((0, *parameter.shape[1:]))
    return torch.sparse_coo_tensor(indices, values, parameter.shape, check_invariants=False)


def new_tensor(func: Callable[..., Any], tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Return what `Tensor.new` gives, which torch does not have on sparse meta tensors."""
    if is_sparse(tensor):
        return new_sparse(torch.sparse_coo_tensor, *args, **kwargs)
    return func(tensor, *args, **kwargs)


def new_sparse(func: Callable[..., Any], *args: Any, **kwargs: Any) -> torch.Tensor:
    """Return what `torch.sparse_coo_tensor` gives; without values there is nothing to check."""
    return func(*args, **{"check_invariants": False, **kwargs})


def parts_of(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tensors that hold what a tensor says: itself, or its indices and values."""
    return (_indices(tensor), _values(tensor)) if is_sparse(tensor) else (tensor,)


def _to_copy(
    run: Run,
    tensor: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    **_: Any,
) -> torch.Tensor:
    """Move or cast a tensor, such as a buffer that a layer keeps."""
    indices, values = (
        run(_aten._to_copy.default, (part,), {"device": device, **cast})
        for part, cast in ((_indices(tensor), {}), (_values(tensor), {"dtype": dtype}))
    )
    return MAKES_SPARSE(
        tensor.sparse_dim(),
        tensor.dense_dim(),
        list(tensor.shape),
        indices,
        values,
        dtype=values.dtype,
        layout=torch.sparse_coo,
        device=values.device,
        is_coalesced=tensor.is_coalesced(),
    )


def _clone(run: Run, tensor: torch.Tensor, **_: Any) -> torch.Tensor:
    indices = run(_aten.clone.default, (_indices(tensor),), {})
    values = run(_aten.clone.default, (_values(tensor),), {})
    return _made(tensor, indices, values, is_coalesced=tensor.is_coalesced())


def _coalesce(run: Run, tensor: torch.Tensor) -> torch.Tensor:
    """Sort the rows by index, then add up equal ones."""
    _, order = run(_aten.sort.default, (_rows(tensor),), {})
    indices = run(_aten.clone.default, (_indices(tensor),), {})
    values = run(_aten.index_select.default, (_values(tensor), 0, order), {})
    return _made(tensor, indices, values, is_coalesced=True)


def _sparse_mask(run: Run, dense: torch.Tensor, mask: torch.Tensor, **_: Any) -> torch.Tensor:
    """Take the rows of a dense tensor that another one has."""
    if is_sparse(dense):
        _refuse("sparse_mask")
    values = run(_aten.index_select.default, (dense, 0, _rows(mask)), {})
    return _made(mask, _indices(mask), values, is_coalesced=mask.is_coalesced())


def _add(run: Run, one: torch.Tensor, other: torch.Tensor, **_: Any) -> torch.Tensor:
    """Add gradients of a weight that is used several times."""
    if is_sparse(one) and is_sparse(other):
        indices = run(_aten.cat.default, ([_indices(one), _indices(other)], 1), {})
        values = run(_aten.cat.default, ([_values(one), _values(other)],), {})
        return _made(one, indices, values)
    dense, sparse = (other, one) if is_sparse(one) else (one, other)
    return _add_in_place(run, run(_aten.clone.default, (dense,), {}), sparse)


def _add_in_place(run: Run, one: torch.Tensor, other: torch.Tensor, **_: Any) -> torch.Tensor:
    """Add rows to a dense tensor."""
    if is_sparse(one):
        _refuse("an addition in place")
    run(_aten.index_add_.default, (one, 0, _rows(other), _values(other)), {})
    return one


def _bag_backward(
    run: Run, gradient: torch.Tensor, indices: torch.Tensor, *rest: Any, **_: Any
) -> torch.Tensor:
    """Give every row the gradient of its bag (aten EmbeddingBag.cpp, `_sparse_backward`)."""
    rows = BAG_ROWS - 2
    values = run(_aten.index_select.default, (gradient, 0, indices), {})
    shape = [rest[rows], *gradient.shape[1:]]
    return _of_rows(_aten.view.default(indices, [1, -1]), values, shape)


_RULES: dict[str, Callable[..., torch.Tensor]] = {
    "_embedding_bag_backward": _bag_backward,
    "clone": _clone,
    "_to_copy": _to_copy,
    "_coalesce": _coalesce,
    "sparse_mask": _sparse_mask,
}


def _made(
    like: torch.Tensor, indices: torch.Tensor, values: torch.Tensor, *, is_coalesced: bool = False
) -> torch.Tensor:
    if like.sparse_dim() != 1:
        _refuse(f"an operation on {like.sparse_dim()} sparse dimensions")
    return _of_rows(indices, values, list(like.shape), is_coalesced=is_coalesced)


def _of_rows(
    indices: torch.Tensor, values: torch.Tensor, shape: list[int], *, is_coalesced: bool = False
) -> torch.Tensor:
    return MAKES_SPARSE(
        1,
        len(shape) - 1,
        shape,
        indices,
        values,
        dtype=values.dtype,
        layout=torch.sparse_coo,
        device=values.device,
        is_coalesced=is_coalesced,
    )


def _indices(tensor: torch.Tensor) -> torch.Tensor:
    return _aten._indices.default(tensor)


def _values(tensor: torch.Tensor) -> torch.Tensor:
    return _aten._values.default(tensor)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return the index of each row [rows]; a tensor that is sparse in two dimensions is refused."""
    if tensor.sparse_dim() != 1:
        _refuse(f"an operation on {tensor.sparse_dim()} sparse dimensions")
    return _aten.select.int(_indices(tensor), 0, 0)


def _other_is_tensor(args: tuple[Any, ...]) -> bool:
    return any(isinstance(each, torch.Tensor) and each.dim() for each in args[1:])


def _refuse(name: str) -> NoReturn:
    raise UserFileError(
        f"The step runs {name} on a sparse tensor. Of those gpuplan traces the gradients of"
        " embeddings, and optimizers that take them (SGD, Adagrad, SparseAdam).",
        fix="leave an embedding's sparse=True out to estimate the same model with dense gradients;"
        " for an estimate write a product with a sparse matrix as what it does: rows that are taken"
        " (x[columns]), scaled, and added up (index_add).",
    )
