"""What JAX's TPU interpreter lacks for kernels that reshape or bitcast a reference, store with a
mask (its own ragged paged attention does all of these), or are under ``vmap``.

Up to jax 0.12 at least: ``to_range`` (interpret/utils.py) takes every transform of a ref for an
index, and ``swap_buffer_content`` (interpret/shared_memory.py) cuts its mask of what is in bounds
along the first axis for every axis. ``vmap`` puts axes in front of a grid, which the compiler takes
for parallel ones; the interpreter expects ``dimension_semantics`` for them.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np


@contextmanager
def repaired() -> Iterator[None]:
    """Both put right while it lasts; nothing on a JAX whose interpreter looks otherwise."""
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call as calls

    try:
        from jax._src.pallas.mosaic.interpret.shared_memory import SharedMemory

        get, swap = calls.get, SharedMemory.swap_buffer_content
    except (ImportError, AttributeError):
        yield
        return
    semantics = getattr(calls, "_get_parallel_dim_semantics", None)
    if semantics is not None:
        calls._get_parallel_dim_semantics = _with_added_axes(semantics)
    guarded = getattr(calls, "fail_on_exception", lambda function: function)
    exchange = calls.swap
    calls.get, SharedMemory.swap_buffer_content = guarded(_reading(get)), _storing(swap)
    calls.swap = guarded(_exchanging(exchange, get))
    try:
        yield
    finally:
        calls.get, SharedMemory.swap_buffer_content = get, swap
        calls.swap = exchange
        if semantics is not None:
            calls._get_parallel_dim_semantics = semantics


def _with_added_axes(semantics: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(semantics)
    def of_whole_grid(params: Any, rank: int) -> tuple[bool, ...]:
        own = params.dimension_semantics
        if own is None or len(own) >= rank:
            return tuple(semantics(params, rank))
        return (True,) * (rank - len(own)) + tuple(semantics(params, len(own)))

    return of_whole_grid


def _reading(get: Callable[..., Any]) -> Callable[..., Any]:
    """Reads what the leading indices name, and does the rest of the transforms on that."""
    signature = inspect.signature(get)

    @wraps(get)
    def read(*args: Any, **more: Any) -> Any:
        given = signature.bind(*args, **more)
        transforms = tuple(given.arguments.get("transforms") or ())
        plain = next((n for n, t in enumerate(transforms) if not hasattr(t, "indices")), None)
        if plain is None:
            return get(*args, **more)
        given.arguments["transforms"] = transforms[:plain]
        token, found = get(*given.args, **given.kwargs)
        return token, _transformed(found, transforms[plain:])

    return read


def _exchanging(swap: Callable[..., Any], get: Callable[..., Any]) -> Callable[..., Any]:
    """Reads what the leading indices name, puts the value in its place in that, and writes all of
    it."""
    signature = inspect.signature(swap)
    known = inspect.signature(get).parameters

    @wraps(swap)
    def exchange(*args: Any, **more: Any) -> Any:
        given = signature.bind(*args, **more)
        transforms = tuple(given.arguments.get("transforms") or ())
        plain = next((n for n, t in enumerate(transforms) if not hasattr(t, "indices")), None)
        if plain is None:
            return swap(*args, **more)
        given.arguments["transforms"] = transforms[:plain]
        shared = {name: value for name, value in given.arguments.items() if name in known}
        token, whole = get(**shared)
        mask = None if given.arguments["mask"] is None else np.asarray(given.arguments["mask"])
        found, before = _put(whole, transforms[plain:], np.asarray(given.arguments["val"]), mask)
        given.arguments.update(token=token, val=found, mask=None)
        token, _ = swap(*given.args, **given.kwargs)
        return token, np.ascontiguousarray(before)

    return exchange


def _put(array: Any, transforms: Sequence[Any], value: Any, mask: Any) -> tuple[Any, Any]:
    """The array with ``value`` where the transforms lead, and what was there."""
    if not transforms:
        return value if mask is None else np.where(mask, value, array), array
    import jax

    first, *rest = jax.tree.map(int, tuple(transforms))
    if hasattr(first, "indices"):
        place = tuple(_plain_index(index) for index in first.indices)
        inner, before = _put(array[place], rest, value, mask)
        array = array.copy()
        array[place] = inner
        return array, before
    inner, before = _put(_transformed(array, [first]), rest, value, mask)
    if "Bitcast" in type(first).__name__:
        return _bitcast(inner, array.dtype), before
    return inner.reshape(array.shape), before


def _transformed(array: Any, transforms: Sequence[Any]) -> Any:
    import jax

    for transform in jax.tree.map(int, tuple(transforms)):
        if hasattr(transform, "indices"):
            array = array[tuple(_plain_index(index) for index in transform.indices)]
        elif hasattr(transform, "shape") and "Reshape" in type(transform).__name__:
            array = array.reshape(transform.shape)
        elif "Bitcast" in type(transform).__name__:
            array = _bitcast(array, np.dtype(transform.dtype))
        else:
            raise NotImplementedError(f"{type(transform).__name__} of a ref")
    return np.ascontiguousarray(array)


def _plain_index(index: Any) -> Any:
    if not hasattr(index, "stride"):
        return index
    return slice(index.start, index.start + (index.size - 1) * index.stride + 1, index.stride)


def _bitcast(array: Any, dtype: Any) -> Any:
    """As on a TPU: rows are packed into wider rows, the first into the low bits, and back."""
    packing = dtype.itemsize // array.dtype.itemsize
    if packing == 0:
        apart = np.ascontiguousarray(array)[..., None].view(dtype).swapaxes(-1, -2)
        *lead, rows, parts, lanes = apart.shape
        return np.ascontiguousarray(apart).reshape(*lead, rows * parts, lanes)
    if packing == 1:
        return array.view(dtype)
    *lead, rows, lanes = array.shape
    apart = array.reshape(*lead, rows // packing, packing, lanes).swapaxes(-1, -2)
    return np.ascontiguousarray(apart).view(dtype)[..., 0]


def _storing(swap: Callable[..., Any]) -> Callable[..., Any]:
    """A masked store that is all in bounds is a store of the old values where the mask is off."""
    signature = inspect.signature(swap)

    @wraps(swap)
    def store(*args: Any, **more: Any) -> Any:
        given = signature.bind(*args, **more)
        memory, key, place, value, mask = (
            given.arguments[name] for name in ("self", "key", "rnge", "value", "mask")
        )
        old = None if mask is None else memory.mem[key][place]
        if old is None or old.shape != mask.shape:
            return swap(*args, **more)
        given.arguments.update(value=np.where(mask, value, old), mask=None)
        before, *rest = swap(*given.args, **given.kwargs)
        return np.where(mask, before, value), *rest

    return store
