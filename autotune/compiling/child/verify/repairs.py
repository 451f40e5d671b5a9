"""What JAX's TPU interpreter lacks for kernels that reshape or bitcast a reference, store with a
mask (its own ragged paged attention does all of these), are under ``vmap``, or wait for nothing.

Up to jax 0.12 at least: ``to_range`` (interpret/utils.py) takes every transform of a ref for an
index, and ``swap_buffer_content`` (interpret/shared_memory.py) cuts its mask of what is in bounds
along the first axis for every axis. ``Semaphore.wait`` asserts that somebody has signalled, also
where a DMA of no bytes is waited for (vLLM's mixture of experts, for experts without tokens).
``vmap`` puts axes in front of a grid, which the compiler takes for parallel ones; the interpreter
expects ``dimension_semantics`` for them. Before jax 0.11 every core compiles its own program of the
kernel, which was half of what a verification took.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any

import numpy as np

from autotune.compiling.child.chips import patched
from autotune.compiling.child.verify.packing import add_rules


@contextmanager
def repaired(
    *, unchecked: bool = False, count: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """All of it put right while it lasts; nothing on a JAX whose interpreter looks otherwise.
    ``count``: called before each access to simulated memory; what it raises ends the run.

    ``unchecked``: the kernel turns bounds checks off. What it loads past the end of a buffer in
    VMEM is uninitialised memory, as on a TPU: vLLM's latent attention reads a row ahead after its
    last step, and does not use it.
    """
    from jax._src import callback
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call as calls

    try:
        from jax._src.pallas.mosaic.interpret.shared_memory import Semaphore, SharedMemory

        get, swap, wait = calls.get, SharedMemory.swap_buffer_content, Semaphore.wait
    except (ImportError, AttributeError):
        yield
        return
    add_rules()
    guarded = getattr(calls, "fail_on_exception", lambda function: function)
    # A DMA asks what is inside of the guard, with no token for it to note a failure by.
    inside = _inside(get)
    bare = _reading(_straying(inside, calls, unchecked), calls)
    repairs = {
        "get": guarded(bare),
        "store": guarded(_placing(_inside(calls.store), calls)),
        "swap": guarded(_exchanging(_inside(calls.swap), bare, calls)),
    }
    if (semantics := getattr(calls, "_get_parallel_dim_semantics", None)) is not None:
        repairs["_get_parallel_dim_semantics"] = _with_added_axes(semantics)
    direct = _direct(callback.io_callback_impl, calls.__name__, count)
    with (
        patched(calls, **repairs),
        patched(SharedMemory, swap_buffer_content=_storing(swap)),
        patched(Semaphore, wait=_waiting(wait)),
        patched(callback, io_callback_impl=direct),
        _compiled_once(),
    ):
        yield


def _compiled_once() -> AbstractContextManager[None]:
    """As jax 0.11 does it: JAX knows the function again that is the same one on each core."""
    try:
        from jax._src.pallas.mosaic.interpret import thread_map
    except ImportError:
        return nullcontext()
    if hasattr(thread_map, "_run") or not hasattr(thread_map, "_run_jaxpr"):
        return nullcontext()
    return patched(thread_map, _run_jaxpr=_run_jaxpr)


def _evaluate(jaxpr: Any, consts: Any, *args: Any) -> None:
    from jax.core import eval_jaxpr

    eval_jaxpr(jaxpr, consts, *args)


def _run_jaxpr(jaxpr: Any, consts: Any, *args: Any) -> None:
    import jax

    traced = jax.jit(_evaluate, static_argnums=(0,)).trace(jaxpr, consts, *args)
    traced.lower().compile()(consts, *args)


def _direct(impl: Callable[..., Any], module: str, count: Callable[[], None]) -> Callable[..., Any]:
    """What the interpreter's own functions are given stays in NumPy. JAX puts each argument on a
    device first, and they read it back: that was more than half of what a loop over rows took."""

    @wraps(impl)
    def called(*args: Any, callback: Any, **more: Any) -> Any:
        function = getattr(callback, "callback_func", None)
        if getattr(getattr(function, "func", function), "__module__", None) != module:
            return impl(*args, callback=callback, **more)
        count()
        return [np.asarray(value) for value in callback(*args)]

    return called


def _inside(function: Callable[..., Any]) -> Callable[..., Any]:
    return getattr(function, "__wrapped__", function)


def _waiting(wait: Callable[..., None]) -> Callable[..., None]:
    """Who waits for nothing goes on, and learns nothing of other threads."""

    @wraps(wait)
    def waited(semaphore: Any, value: Any, *args: Any, **more: Any) -> None:
        if int(value):
            wait(semaphore, value, *args, **more)

    return waited


def _with_added_axes(semantics: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(semantics)
    def of_whole_grid(params: Any, rank: int) -> tuple[bool, ...]:
        semantic_names = params.dimension_semantics
        if semantic_names is None or len(semantic_names) >= rank:
            return tuple(semantics(params, rank))
        return (True,) * (rank - len(semantic_names)) + tuple(
            semantics(params, len(semantic_names))
        )

    return of_whole_grid


def _reading(get: Callable[..., Any], calls: Any) -> Callable[..., Any]:
    """Reads the block that the transforms lead to, and does them on that."""
    signature = inspect.signature(get)

    @wraps(get)
    def read(*args: Any, **more: Any) -> Any:
        given = signature.bind(*args, **more)
        transforms = tuple(given.arguments.get("transforms") or ())
        if all(hasattr(t, "indices") for t in transforms):
            empty = _nothing(given, transforms, calls)
            return get(*args, **more) if empty is None else (given.arguments["token"], empty)
        token, whole = _whole(get, calls, given, transforms)
        return token, _transformed(whole, transforms)

    return read


def _straying(get: Callable[..., Any], calls: Any, unchecked: bool) -> Callable[..., Any]:
    """Reads past the end of a buffer in HBM, up to the end of its last tile: ``emit_pipeline``
    copies whole ones. Without bounds checks also past the end of one in VMEM."""
    import jax
    from jax._src.pallas.mosaic.interpret import utils

    signature = inspect.signature(get)

    @wraps(get)
    def read(*args: Any, **more: Any) -> Any:
        try:
            return get(*args, **more)
        except IndexError:
            given = signature.bind(*args, **more).arguments
            key = _key(calls, given)
            content = calls._get_shared_memory().mem[key].content
            place = utils.to_range(jax.tree.map(int, given["transforms"]))
            ends = [part.stop if isinstance(part, slice) else part + 1 for part in place]
            if not (unchecked if key[0] == "vmem" else _in_tiles(ends, content)):
                raise
        sizes = [max(pair) for pair in zip(content.shape, ends, strict=True)]
        longer = np.full(sizes, utils.get_uninitialized_value(content.dtype, "nan"), content.dtype)
        longer[tuple(map(slice, content.shape))] = content
        return given["token"], longer[tuple(place)]

    return read


def _in_tiles(ends: Sequence[int], content: np.ndarray[Any, Any]) -> bool:
    """Whether what ends there is padding of the tiles of (32 bytes of rows, 128 lanes)."""
    tile = (1,) * (content.ndim - 2) + (max(8, 32 // content.itemsize), 128)
    return content.ndim > 1 and all(
        end <= -(-size // multiple) * multiple
        for end, size, multiple in zip(ends, content.shape, tile, strict=True)
    )


def _nothing(given: inspect.BoundArguments, transforms: Sequence[Any], calls: Any) -> Any:
    """What a read of no elements gives, wherever it is; None for another."""
    import jax

    sizes = [getattr(index, "size", 1) for t in transforms for index in t.indices]
    if 0 not in [int(size) for size in sizes if np.ndim(size) == 0]:
        return None
    shape, dtype = _buffer(calls, given.arguments)
    return _transformed(np.zeros(shape, dtype), jax.tree.map(int, tuple(transforms)))


def _whole(
    get: Callable[..., Any], calls: Any, given: inspect.BoundArguments, transforms: Sequence[Any]
) -> tuple[Any, Any]:
    """A token and an array like the buffer in which the block that the transforms lead to is read;
    ``given`` then asks for that block."""
    shape, dtype = _buffer(calls, given.arguments)
    block, _ = _block(shape, dtype, transforms)
    given.arguments["transforms"] = (_plain(block, shape),)
    known = inspect.signature(get).parameters
    token, result = get(**{n: value for n, value in given.arguments.items() if n in known})
    whole = np.zeros(shape, result.dtype)
    whole[block] = result
    return token, whole


def _placing(store: Callable[..., Any], calls: Any) -> Callable[..., Any]:
    """Writes through a reshaped ref (a DMA does it so) at the same elements of the ref itself: the
    others are not touched, as the race detector must see."""
    signature = inspect.signature(store)

    @wraps(store)
    def place(*args: Any, **more: Any) -> Any:
        given = signature.bind(*args, **more)
        transforms = tuple(given.arguments["transforms"] or ())
        if all(hasattr(t, "indices") for t in transforms):
            return store(*args, **more)
        shape, dtype = _buffer(calls, given.arguments)
        block, exact = _block(shape, dtype, transforms)
        if not exact:
            raise NotImplementedError("a store through a transformed ref to what is no block")
        whole = np.zeros(shape, dtype)
        stored, _ = _put(whole, transforms, np.asarray(given.arguments["val"]), None)
        given.arguments.update(transforms=(_plain(block, shape),), val=stored[block])
        return store(*given.args, **given.kwargs)

    return place


def _exchanging(
    swap: Callable[..., Any], get: Callable[..., Any], calls: Any
) -> Callable[..., Any]:
    """Reads the block that the transforms lead to, puts the value in its place, and writes it."""
    signature = inspect.signature(swap)

    @wraps(swap)
    def exchange(*args: Any, **more: Any) -> Any:
        given = signature.bind(*args, **more)
        transforms = tuple(given.arguments.get("transforms") or ())
        if all(hasattr(t, "indices") for t in transforms):
            return swap(*args, **more)
        shape, dtype = _buffer(calls, given.arguments)
        block, _ = _block(shape, dtype, transforms)
        token, whole = _whole(get, calls, given, transforms)
        mask = None if given.arguments["mask"] is None else np.asarray(given.arguments["mask"])
        stored, before = _put(whole, transforms, np.asarray(given.arguments["val"]), mask)
        given.arguments.update(token=token, val=stored[block], mask=None)
        token, _ = swap(*given.args, **given.kwargs)
        return token, np.ascontiguousarray(before)

    return exchange


def _buffer(calls: Any, given: Mapping[str, Any]) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of what is in the simulated memory."""
    memory = calls._get_shared_memory().mem[_key(calls, given)]
    return tuple(memory.logical_shape), np.dtype(memory.dtype)


def _key(calls: Any, given: Mapping[str, Any]) -> tuple[str, int, int, int]:
    """Of a buffer: its memory space comes first."""
    space = str(calls.TPU_MEMORY_SPACE_NAMES[int(given["memory_space"])])
    core = 0 if space in ("any", "hbm") else int(given["local_core_id"])
    return space, int(given["buffer_id"]), int(given["device_id"]), core


def _plain(block: tuple[slice, ...], shape: tuple[int, ...]) -> Any:
    from jax._src.state.indexing import NDIndexer, Slice

    return NDIndexer(tuple(Slice(s.start, s.stop - s.start) for s in block), shape, ())


def _block(
    shape: tuple[int, ...], dtype: Any, transforms: Sequence[Any]
) -> tuple[tuple[slice, ...], bool]:
    """The least block with all elements that the transforms lead to, and whether it has no others.
    They are found by setting all their bits in an array of zeros."""
    blank = np.zeros(shape, dtype)
    value = _transformed(blank, transforms)
    value.view(np.uint8)[...] = 255
    marked, _ = _put(blank, transforms, value, None)
    marks = np.ascontiguousarray(marked).view(f"u{marked.dtype.itemsize}") != 0
    touched = np.nonzero(marks)
    if not touched[0].size:  # a DMA may move nothing
        return (slice(0, 0),) * len(shape), True
    block = tuple(slice(int(at.min()), int(at.max()) + 1) for at in touched)
    return block, bool(marks[block].all())


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
