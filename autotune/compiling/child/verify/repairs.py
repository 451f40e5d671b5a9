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
from dataclasses import dataclass
from functools import cached_property, lru_cache, wraps
from math import prod
from typing import Any

import numpy as np

from autotune.compiling.child.chips import patched
from autotune.compiling.child.verify import half_sums
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
    half_sums.add_rule()
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
            _check_first(transforms)
            empty = _nothing(given, transforms, calls)
            return get(*args, **more) if empty is None else (given.arguments["token"], empty)
        places = _places(calls, given, transforms)
        token, whole = _whole(get, given, places)
        return token, places.read(whole)

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
    sizes = [getattr(index, "size", 1) for t in transforms for index in t.indices]
    if 0 not in [int(size) for size in sizes if np.ndim(size) == 0]:
        return None
    places = _places(calls, given, transforms)
    return places.read(np.zeros(places.shape, places.of_buffer))


def _whole(
    get: Callable[..., Any], given: inspect.BoundArguments, places: "_Places"
) -> tuple[Any, Any]:
    """A token and an array like the buffer in which the block with these places is read;
    ``given`` then asks for that block."""
    block, shape = places.block, places.shape
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
            _check_first(transforms)
            return store(*args, **more)
        places = _places(calls, given, transforms)
        block, shape = places.block, places.shape
        whole = np.zeros(shape, places.of_buffer)
        if whole[block].nbytes != places.at.size * places.unit:
            raise NotImplementedError("a store through a transformed ref to what is no block")
        places.write(whole, given.arguments["val"])
        given.arguments.update(transforms=(_plain(block, shape),), val=whole[block])
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
            _check_first(transforms)
            return swap(*args, **more)
        places = _places(calls, given, transforms)
        token, whole = _whole(get, given, places)
        value, mask, before = given.arguments["val"], given.arguments["mask"], places.read(whole)
        places.write(whole, value if mask is None else np.where(np.asarray(mask), value, before))
        given.arguments.update(token=token, val=whole[places.block], mask=None)
        token, _ = swap(*given.args, **given.kwargs)
        return token, before

    return exchange


def _key(calls: Any, given: Mapping[str, Any]) -> tuple[str, int, int, int]:
    """Of a buffer: its memory space comes first."""
    space = str(calls.TPU_MEMORY_SPACE_NAMES[int(given["memory_space"])])
    core = 0 if space in ("any", "hbm") else int(given["local_core_id"])
    return space, int(given["buffer_id"]), int(given["device_id"]), core


def _plain(block: tuple[slice, ...], shape: tuple[int, ...]) -> Any:
    from jax._src.state.indexing import NDIndexer, Slice

    return NDIndexer(tuple(Slice(s.start, s.stop - s.start) for s in block), shape, ())


@dataclass(frozen=True)
class _Places:
    """Where transforms lead in a buffer, in units of the narrowest dtype on the way: an element has
    one or more, in the last dimension. ``dtype``: of what is there."""

    shape: tuple[int, ...]
    of_buffer: np.dtype[Any]
    at: Any
    dtype: np.dtype[Any]

    @property
    def unit(self) -> int:
        return int(self.dtype.itemsize // self.at.shape[-1])

    @cached_property
    def block(self) -> tuple[slice, ...]:
        """The least with all of them."""
        if not self.at.size:  # a DMA may move nothing
            return (slice(0, 0),) * len(self.shape)
        elements = self.at.ravel() // (self.of_buffer.itemsize // self.unit)
        each = np.unravel_index(elements, self.shape)
        return tuple(slice(int(axis.min()), int(axis.max()) + 1) for axis in each)

    def read(self, buffer: Any) -> Any:
        return np.ascontiguousarray(self._units(buffer)[self.at]).view(self.dtype)[..., 0]

    def write(self, buffer: Any, values: Any) -> None:
        values = np.array(values, self.dtype, order="C")[..., None]
        self._units(buffer)[self.at] = values.view(f"u{self.unit}")

    def _units(self, buffer: Any) -> Any:
        return buffer.reshape(-1).view(f"u{self.unit}")


def _places(calls: Any, given: inspect.BoundArguments, transforms: Sequence[Any]) -> _Places:
    """Of a buffer in the simulated memory."""
    import jax

    memory = calls._get_shared_memory().mem[_key(calls, given.arguments)]
    shape, dtype = tuple(memory.logical_shape), np.dtype(memory.dtype)
    steps = jax.tree.map(int, tuple(transforms))
    dtypes = [dtype, *(np.dtype(s.dtype) for s in steps if "Bitcast" in type(s).__name__)]
    unit = min(each.itemsize for each in dtypes)
    at = _in_order((*shape, dtype.itemsize // unit))
    for step in steps:
        if hasattr(step, "indices"):
            _check_bounds(step.indices, at.shape)
            at = at[tuple(map(_plain_index, step.indices))]
        elif "Reshape" in type(step).__name__:
            at = at.reshape(*step.shape, at.shape[-1])
        elif "Bitcast" in type(step).__name__:
            at = _bitcast(at, np.dtype(step.dtype).itemsize // unit)
        else:
            raise NotImplementedError(f"{type(step).__name__} of a ref")
    return _Places(shape, dtype, at, dtypes[-1])


@lru_cache(maxsize=16)
def _in_order(shape: tuple[int, ...]) -> Any:
    return np.arange(prod(shape)).reshape(shape)


def _check_first(transforms: Sequence[Any]) -> None:
    for index in (index for step in transforms for index in step.indices):
        size, first = getattr(index, "size", 1), getattr(index, "start", index)
        if int(size) and int(first) < 0:
            raise IndexError(f"Out-of-bounds access: it begins at {int(first)}")


def _check_bounds(indices: Sequence[Any], shape: Sequence[int]) -> None:
    """NumPy cuts slices short, and counts what is negative from the end."""
    for index, size in zip(indices, shape, strict=False):
        first, count = getattr(index, "start", index), getattr(index, "size", 1)
        last = first + (count - 1) * getattr(index, "stride", 1)
        if count and not 0 <= first <= last < size:
            raise IndexError(f"Out-of-bounds access: {first} to {last} of {size}")


def _plain_index(index: Any) -> Any:
    if not hasattr(index, "stride"):
        return index
    return slice(index.start, index.start + (index.size - 1) * index.stride + 1, index.stride)


def _bitcast(at: Any, parts: int) -> Any:
    """As on a TPU: rows are packed into wider rows, the first into the low bits, and back."""
    *lead, rows, lanes, before = at.shape
    if parts > before:
        times = parts // before
        packed = at.reshape(*lead, rows // times, times, lanes, before).swapaxes(-3, -2)
        return packed.reshape(*lead, rows // times, lanes, parts)
    times = before // parts
    apart = at.reshape(*lead, rows, lanes, times, parts).swapaxes(-3, -2)
    return apart.reshape(*lead, rows * times, lanes, parts)


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
