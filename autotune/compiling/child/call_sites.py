"""Who makes the kernels of a model: the functions on the way to each call, with their arguments as
they were called, noted while the model is traced."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

from autotune.compiling.child.chips import patched
from autotune.compiling.child.known_numbers import KnownNumbers
from autotune.compiling.child.pallas_calls import MACHINERY, PallasCall, operands_of
from autotune.compiling.child.trace.calls import as_any_kernel
from autotune.compiling.child.trace.pallas_call import name_of
from autotune.declaring.calls import text as texts
from autotune.declaring.calls.function import abstract

SIZE_NAME = re.compile(
    r"block|tile|tiling|chunk|^b[a-z]?(q|k|kv|m|n|d)?(_c?sz|_size)?$|_per_", re.I
)
_MOST_FUNCTIONS = 8  # on the way to one call, from within


@dataclass(frozen=True)
class Site:
    """A function that can be imported, as it was called. ``records``: what it has made of classes
    with fields, as of sizes that it has chosen itself; ``chosen``: numbers that it, or a function
    of its own, has by the name of a parameter; ``sizes``: such as it gives to functions of its own,
    for any of its kernels."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    records: tuple[Any, ...]
    chosen: dict[str, int]
    sizes: Iterable[tuple[int, ...]]

    @property
    def name(self) -> str:
        whole = str(inspect.unwrap(self.function).__qualname__)
        return whole.removesuffix(".__call__").replace(".", "_")


class CallSites:
    """By kernel name and operands: transformations of JAX make a call anew, but keep these."""

    def __init__(self, numbers: KnownNumbers) -> None:
        self._numbers = numbers
        self._running: dict[FrameType, dict[str, Any]] = {}
        self._can_be: dict[CodeType, bool] = {}
        self._sites: dict[Any, list[list[Site]]] = {}
        self._sizes: dict[Callable[..., Any], dict[tuple[int, ...], None]] = {}

    def of(self, call: PallasCall) -> list[Site]:
        """The functions that made a call, the innermost first, with the numbers that are known at
        the end of the trace, and no contents where another such call has other ones."""
        first, *others = self._sites.get((call.name, call.operands), [[]])
        return [replace(site, arguments=self._shared(site, chain(*others))) for site in first]

    def _shared(self, site: Site, others: Iterable[Site]) -> dict[str, Any]:
        alike = [site, *(other for other in others if other.function is site.function)]
        given = {}
        for name in site.arguments:
            filled = [self._numbers.filled(each.arguments.get(name)) for each in alike]
            given[name] = filled[0]
            with suppress(Exception):  # of what cannot be compared
                values = [abstract(value, contents=True) for value in filled]
                if values.count(values[0]) < len(values):
                    given[name] = abstract(filled[0])
        return given

    @contextmanager
    def noted(self) -> Iterator[None]:
        profiler = sys.getprofile()
        with ExitStack() as stack:
            for primitive in _primitives():
                bind = partial(self._bind, primitive, primitive.bind)
                stack.enter_context(patched(primitive, bind=bind))
            sys.setprofile(self._profile)
            try:
                yield
            finally:
                sys.setprofile(profiler)
                self._running.clear()

    def _bind(self, primitive: Any, bind: Callable[..., Any], *args: Any, **params: Any) -> Any:
        import jax

        given = [SimpleNamespace(aval=jax.typeof(argument)) for argument in args]
        made = [SimpleNamespace(aval=aval) for aval in params.get("out_avals", ())]
        equation = SimpleNamespace(
            primitive=primitive, params=params, invars=given, outvars=made, source_info=None
        )
        call: Any = as_any_kernel(equation)
        key = name_of(call), operands_of(call.params["grid_mapping"])
        self._sites.setdefault(key, []).append(list(self._on_the_way(sys._getframe(1))))
        return bind(*args, **params)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Parameters are bound anew in many a function: what it was given is known as it begins."""
        if event == "call" and self._is_candidate(frame.f_code):
            self._running[frame] = dict(frame.f_locals)
        elif event == "return":
            self._running.pop(frame, None)

    def _is_candidate(self, code: CodeType) -> bool:
        if code not in self._can_be:
            is_ours = any(part in code.co_filename for part in MACHINERY)
            self._can_be[code] = not is_ours and "<" not in code.co_qualname
        return self._can_be[code]

    def _on_the_way(self, frame: FrameType | None) -> Iterator[Site]:
        count, sizes, chosen = 0, dict[tuple[int, ...], None](), dict[str, int]()
        while frame is not None and count < _MOST_FUNCTIONS:
            numbers = _numbers(frame)
            sizes[tuple(n for name, n in numbers.items() if SIZE_NAME.search(name))] = None
            chosen = numbers | chosen
            given = self._running.get(frame)
            function = None if given is None else _imported(frame)
            if function is not None and given is not None:
                count += "." not in frame.f_code.co_qualname  # methods of all layers may be there
                self._sizes.setdefault(function, {}).update(sizes)
                self._numbers.note(*given.values())
                records = tuple(_records(frame.f_locals.values()))
                yield Site(function, given, records, chosen, self._sizes[function])
            frame = frame.f_back


def _primitives() -> list[Any]:
    """What kernels are bound with, over JAX versions."""
    from jax._src.pallas.pallas_call import pallas_call_p

    primitives = [pallas_call_p]
    with suppress(ImportError):  # before jax 0.9
        from jax._src.pallas import mpmd

        primitives.append(mpmd.mpmd_map_p)
    return primitives


def _numbers(frame: FrameType) -> dict[str, int]:
    """Parameters of a function that are whole numbers now, whatever it was given."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    named = {name: frame.f_locals.get(name) for name in names}
    return {name: number for name, number in named.items() if type(number) is int}


def _records(values: Iterable[Any]) -> Iterator[Any]:
    for value in list(values):
        if texts.is_record(value):
            yield value
            yield from _records(texts.parts(value).values())


def _imported(frame: FrameType) -> Callable[..., Any] | None:
    """The function of a frame under the name that others import it by."""
    home = sys.modules.get(str(frame.f_globals.get("__name__")))
    function = texts.part_of(home, frame.f_code.co_qualname)
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return function if code is frame.f_code else None
