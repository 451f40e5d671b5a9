"""``autotune.tunable``: a function whose block sizes are looked up when it is called.

    @autotune.tunable(block_q=autotune.block("q.-2"), block_kv=[128, 256, 512, 1024])
    def attention(q, k, v, *, block_q=512, block_kv=512, causal=True): ...

    attention.search(q, k, v, chip="v6e", trials=30)
    attention(q, k, v)

A ``Kernel`` behind another face: ``autotune.declaring.calls`` makes one for each form of call.
"""

import functools
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Never, ParamSpec, TypeVar

from autotune.answering.generation import GENERATION
from autotune.answering.matching import DEFAULT
from autotune.answering.sources import Source, is_strict
from autotune.declaring.calls.function import PARAMS, FunctionKernel, abstract
from autotune.declaring.calls.listening import LISTENER
from autotune.declaring.calls.place import place_of
from autotune.declaring.kernel import Blocks, Kernel
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import KernelRef
from autotune.domain.problem import AxisValue, Problem
from autotune.python.tuned import Tuned, TunedConfig, error_sentence

if TYPE_CHECKING:
    from autotune.python.notebook import Tuning

P = ParamSpec("P")
R = TypeVar("R")

_Answer = tuple[TunedConfig, dict[str, Any], int]
"""An answer, the arguments that it means, and the generation that it was asked for in."""

_log = logging.getLogger("autotune")


def tunable(
    *misplaced: Never,
    name: str | None = None,
    dims: str | Mapping[str, str] | None = None,
    reference: Callable[..., Any] | None = None,
    baseline: Callable[..., Any] | None = None,
    check: Callable[..., str | None] | None = None,
    mesh: Mapping[str, int] | None = None,
    values: Mapping[str, Callable[..., Any]] | None = None,
    ignore: Sequence[str] = (),
    **axes: Blocks | Sequence[AxisValue],
) -> "Callable[[Callable[P, R]], Tunable[P, R]]":
    """A decorator. Each of ``axes`` is a keyword parameter of the function, with the values worth
    trying, or ``block("q.-2")``: block sizes over the last but one dimension of argument ``q``. Its
    default is the config that the function has without tuning.

    ``dims``: names of the dimensions, as in ``{"q": "b h q d", "k": "b h kv d"}``, or in the order
    of the arrays, ``"b h q d, b h kv d"``. A name that comes twice says that they are as long.
    ``reference``: a function of the same arguments in plain JAX, less the axes; without one a
    result is right when it agrees with the default config. ``baseline``: the same, the plain-XLA
    competitor, by default the reference. ``check``: of the same arguments, which have a ``shape``
    and a ``dtype``: a sentence about why such a call is impossible, or None. ``mesh``: names and
    sizes of the axes that a ``shard_map`` in it is over. ``values``: by argument, a function of the
    same arguments that returns the integers in it (lengths, page tables) as a NumPy array; each
    function takes those arguments that it needs. ``ignore``: arguments, such as ``("scale",)``,
    with which the time does not change: calls with any value of them have one key, which is tuned
    with their defaults; an array is never left out. Raises ``TypeError`` for an argument by place,
    ``ValueError`` for an axis, or what is ignored, that is no parameter with a default.
    """
    ignored = (ignore,) if isinstance(ignore, str) else ignore
    functions = {"reference": reference, "baseline": baseline, "check": check}
    given: dict[str, Any] = {"name": name, **functions, "mesh": mesh, "values": values}
    _check_declared({**given, "ignore": ignored})
    if misplaced:
        raise TypeError("tunable takes what is to be tuned: @autotune.tunable(block=[128, 256])")
    caller = sys._getframe(1)
    module, filename = str(caller.f_globals.get("__name__")), caller.f_code.co_filename

    def decorate(function: Callable[P, R]) -> Tunable[P, R]:
        named: Any = function if hasattr(function, "__name__") else getattr(function, "func", None)
        default_name = str(getattr(named, "__name__", "kernel"))
        declaration = FunctionKernel(
            name=name or default_name,
            function=function,
            axes=axes,
            dims=dims or "",
            reference=reference,
            baseline=baseline,
            check=check,
            mesh=mesh or {},
            values=values or {},
            ignore=ignored,
        )
        return Tunable(function, declaration, module, filename)

    return decorate


_TAKES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "name": ("a text", lambda given: isinstance(given, str)),
    **dict.fromkeys(("reference", "baseline", "check"), ("a function", callable)),
    "mesh": ('axes and how many devices each has, {"x": 4}', lambda given: _has(given, _is_count)),
    "values": ('functions by argument, {"lengths": made}', lambda given: _has(given, callable)),
    "ignore": ("names of arguments", lambda given: isinstance(given, list | tuple)),
}


def _is_count(given: Any) -> bool:
    return type(given) is int and given > 0


def _has(given: Any, is_right: Callable[[Any], bool]) -> bool:
    return isinstance(given, Mapping) and all(map(is_right, given.values()))


def _check_declared(given: Mapping[str, Any]) -> None:
    """Raises ``ValueError`` for what is about the kernel and is something else."""
    for name, (takes, is_right) in _TAKES.items():
        if given[name] is not None and not is_right(given[name]):
            raise ValueError(
                f"{name}={given[name]!r}: {name}= is about the kernel, and takes {takes}; a "
                "parameter of this name cannot be tuned, give it another one"
            )


class Tunable(Generic[P, R]):
    """A function that takes its block sizes from what is published for the shapes that it is called
    with; under ``jax.jit`` while it is traced. Block sizes among the arguments win: then nothing is
    looked up."""

    def __init__(
        self, function: Callable[P, R], declaration: FunctionKernel, module: str, filename: str
    ) -> None:
        functools.update_wrapper(self, function)
        self.function, self.declaration = function, declaration
        self.module, self.filename = module, filename
        self._bound: tuple[Any, ...] = ()
        self._source: Source | None = None
        self._names = frozenset(declaration.axes)
        self._places = _places(declaration)
        self._answers: dict[Any, _Answer] = {}
        self._tuned: dict[tuple[str, str], Tuned] = {}
        self._said: set[str] = set()
        self._lock = threading.Lock()
        self._override: ContextVar[dict[str, Any]] = ContextVar("override")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        given: Any = (*self._bound, *args)
        if len(given) > self._places or not self._names.isdisjoint(kwargs):
            return self.function(*given, **kwargs)
        override = self._override.get(None)
        values: Any = self._cached_answer(given, kwargs)[1]
        if override:
            values = values | override
        listener = LISTENER.get()
        if listener is None:
            return self.function(*given, **kwargs, **values)
        with listener.called(self.ref, args, kwargs):
            return self.function(*given, **kwargs, **values)

    def __get__(self, instance: Any, owner: type | None = None) -> "Tunable[..., R]":
        """A method of an object is called with it."""
        if instance is None:
            return self
        method = self._copied()
        method._bound = (instance,)
        return method

    def __repr__(self) -> str:
        return f"<tunable {self.declaration.name} of {self.module}: {', '.join(self._names)}>"

    def answer(self, *args: Any, **kwargs: Any) -> TunedConfig:
        """What a call with these arguments takes, and where it comes from."""
        answer = self._cached_answer((*self._bound, *args), kwargs)[0]
        axes = dict(answer.config.axes) | self._override.get({})
        return replace(answer, config=answer.config.replace(axes=tuple(axes.items())))

    def __reduce__(self) -> str:
        """By its name, as a function is: for ``pickle``, and so that ``copy`` leaves it alone."""
        return self._attribute()

    def asking(self, source: Source | None) -> "Tunable[P, R]":
        """The same function with configs from this source; None: from what is configured."""
        other = self._copied()
        other._source, other._answers, other._tuned = source, {}, {}
        return other

    def _copied(self) -> "Tunable[P, R]":
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    def search(self, *args: Any, **options: Any) -> "Tuning":
        """As ``autotune.search`` with this function."""
        from autotune.python.notebook import search

        return search(self, *args, **options)

    def problem(self, *args: Any, **kwargs: Any) -> Problem:
        """The key of a call. Raises ``InvalidInputError``."""
        return self.declaration.problem(self._arguments(args, kwargs))

    def kernel(self, *args: Any, **kwargs: Any) -> Kernel:
        """The declaration for such calls. Raises ``InvalidInputError``."""
        return self.declaration.kernel(self._arguments(args, kwargs))

    def ref(self, *args: Any, **kwargs: Any) -> KernelRef:
        """Where the compiler process finds it, and such a call in words. Raises
        ``InvalidInputError``."""
        known = functools.partial(abstract, contents=True)
        text = self.declaration.text(self._arguments([*map(known, args)], known(kwargs)))
        place = place_of(self._attribute(), self.module, self.filename)
        return replace(place, call=text)

    def _arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.declaration.arguments((*self._bound, *args), kwargs)

    def _attribute(self) -> str:
        """Its name in the module: what it is assigned to, else that of the function."""
        known = vars(sys.modules[self.module]) if self.module in sys.modules else {}
        for name, value in known.items():
            if getattr(value, "declaration", None) is self.declaration:
                return name
        return str(getattr(self.function, "__qualname__", self.declaration.name))

    def _cached_answer(self, given: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Answer:
        try:
            answer = self._answers[_fast_key(given, kwargs)]
            if answer[2] == GENERATION.number:
                return answer
        except (KeyError, TypeError):
            pass
        return self._looked_up(given, kwargs)

    def _looked_up(self, given: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Answer:
        with self._lock:
            generation = GENERATION.number
            answer = self._answer(given, kwargs)
            values: dict[str, Any] = {}
            if answer.match != DEFAULT:
                values = dict(answer.config.axes)
                taken = self.declaration.signature
                said = taken.bind_partial(*given, **kwargs).arguments
                values |= {
                    name: getattr(answer.config, name)
                    for name in PARAMS
                    if name in taken.parameters and name not in said
                }
            with suppress(TypeError):  # an argument that cannot be hashed: looked up each time
                self._answers[_fast_key(given, kwargs)] = (answer, values, generation)
            return answer, values, generation

    def _answer(self, given: tuple[Any, ...], kwargs: Mapping[str, Any]) -> TunedConfig:
        """Whatever goes wrong in describing a call is a default, and one line, unless the source is
        strict."""
        try:
            arguments = self.declaration.arguments(given, kwargs)
            problem = self.declaration.problem(arguments)
            kernel = self.declaration.kernel(arguments)
            tuned = self._tuned.get((kernel.form, problem.dtype))
            if tuned is None:
                place = place_of(self._attribute(), self.module, self.filename)
                tuned = Tuned.at(kernel, place, self._source)
                self._tuned[kernel.form, problem.dtype] = tuned
            return tuned.answer(problem)
        except Exception as error:  # a model must start with whatever it is called
            if is_strict(self._source):
                raise
            why = error_sentence(error)
            if why not in self._said:
                self._said.add(why)
                _log.warning("autotune: %s takes its default: %s", self, why)
            return TunedConfig(config=self.declaration.default_config, match=DEFAULT, why=why)


def decorated(function: object) -> Tunable[..., Any]:
    """Raises ``InvalidInputError`` for any other object."""
    if isinstance(function, Tunable):
        return function
    raise InvalidInputError(f"{function!r} is no function that @autotune.tunable has decorated")


def _places(declaration: FunctionKernel) -> int:
    """How many arguments by place there can be before one of them is a block size."""
    for place, parameter in enumerate(declaration.signature.parameters.values()):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return sys.maxsize
        if parameter.name in declaration.axes or parameter.kind is parameter.KEYWORD_ONLY:
            return place
    return sys.maxsize


def _fast_key(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What tells two calls apart, without describing them."""
    key: list[Any] = [_part(arg) for arg in args]
    if kwargs:
        key.append([(name, _part(kwargs[name])) for name in sorted(kwargs)])
        key[-1] = tuple(key[-1])
    return tuple(key)


def _part(value: Any) -> Any:
    try:
        if not isinstance(value, type):  # np.float32 has both, and they are those of np.int8
            return value.shape, value.dtype
    except AttributeError:
        pass
    if isinstance(value, dict):
        return tuple((key, _part(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return type(value), tuple(map(_part, value))
    return type(value), value


@contextmanager
def override(kernel: Tunable[..., Any], /, **values: AxisValue) -> Iterator[None]:
    """In its block the function takes these values instead of what is published, for
    experiments. What ``jax.jit`` has traced before stays as it is. Raises ``InvalidInputError`` for
    what is no axis of it."""
    declaration = decorated(kernel).declaration
    for name in values:
        if name not in declaration.axes:
            known = ", ".join(declaration.axes)
            raise InvalidInputError(f"{declaration.name} has no axis {name}: {known}")
    token = kernel._override.set({**kernel._override.get({}), **values})
    try:
        yield
    finally:
        kernel._override.reset(token)
