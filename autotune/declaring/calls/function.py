"""A function with block sizes among its keyword arguments, as a ``Kernel``: one for each form of
call. JAX is imported where a kernel is built, which is where it is traced."""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any

from autotune.declaring.calls import text as texts
from autotune.declaring.calls.sizes import call_in_words, example
from autotune.declaring.kernel import Array, Axis, Blocks, Kernel
from autotune.domain.arguments import ProblemWords
from autotune.domain.errors import InvalidInputError
from autotune.domain.problem import (
    DTYPES,
    AxisValue,
    Config,
    Option,
    OptionValue,
    Problem,
    parse_dtype,
)

Arguments = Mapping[str, Any]
"""By parameter, but for the axes; arrays are ``AbstractArray``."""

PARAMS = ("dimension_semantics", "vmem_limit_bytes")
"""A function that has these parameters gets those of the config."""

_STEERING = ("bool", "int32", "uint32", "int64")
_MOST_INTEGERS = 1 << 16
"""Of an array whose contents are taken: lengths, page tables, group sizes; more are numbers."""


@dataclass(frozen=True, kw_only=True)
class FunctionKernel:
    """What ``autotune.tunable`` says of a function.

    ``axes``: for each block parameter the values worth trying. ``dims``: names of the dimensions by
    argument. ``reference``: None: the function itself with its default config. The others are as
    ``tunable`` has them.
    """

    name: str
    function: Callable[..., Any]
    axes: Mapping[str, Blocks | Sequence[AxisValue]]
    dims: str | Mapping[str, str] = ""
    reference: Callable[..., Any] | None = None
    baseline: Callable[..., Any] | None = None
    check: Callable[..., str | None] | None = None
    mesh: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    ignore: Sequence[str] = ()
    signature: inspect.Signature = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Raises ``ValueError`` with a sentence for axes, and for what is ignored, that are no
        parameters with a default, and for an axis without values."""
        signature = inspect.signature(self.function)
        for name in self.ignore:
            parameter = signature.parameters.get(name)
            if parameter is None or parameter.default is parameter.empty or name in self.axes:
                can_be = "a parameter with a default, which it is tuned with, and that is no axis"
                raise ValueError(f"ignore={name!r} of {self.name}: it must be {can_be}")
        for name, values in self.axes.items():
            parameter = signature.parameters.get(name)
            if parameter is None or type(parameter.default) not in (int, str, bool):
                raise ValueError(
                    f"{name} of {self.name} is to be tuned: the function needs a parameter of this "
                    f"name with a number, text, True or False as its default, as in {name}=128"
                )
            is_list = isinstance(values, Collection) and not isinstance(values, str | bytes)
            if not isinstance(values, Blocks) and not (is_list and len(values)):
                raise ValueError(
                    f"{name}={values!r} of {self.name} names no values worth trying: give a list, "
                    f"as in {name}=[128, 256], or autotune.block('ARRAY.-1')"
                )
        object.__setattr__(self, "signature", signature)

    @property
    def defaults(self) -> dict[str, AxisValue]:
        """The config that the function has without tuning."""
        return {name: self.signature.parameters[name].default for name in self.axes}

    @property
    def default_config(self) -> Config:
        return Config(axes=tuple(self.defaults.items()))

    @property
    def home(self) -> str:
        return str(getattr(self.function, "__module__", ""))

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        """Of a call with arrays, or with anything that has their shape and dtype. Raises
        ``TypeError`` as the call would."""
        bound = self.signature.bind(*args, **{k: v for k, v in kwargs.items() if k not in PARAMS})
        bound.apply_defaults()
        arguments: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = self.signature.parameters[name].kind
            if name in self.axes or name in PARAMS:
                continue
            value = abstract(value)
            if name in self.ignore and not texts.has_arrays(value):
                continue
            arguments |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
        return arguments

    def read(self, text: str) -> Arguments:
        """Of a call in words. Raises ``InvalidInputError``."""
        home = getattr(inspect.unwrap(self.function), "__globals__", {})
        given = texts.read_arguments(text, home)
        axes = [name for name in given if name in self.axes]
        if axes:
            raise InvalidInputError(f"{', '.join(axes)} of {self.name} is what is tuned")
        try:
            return self.arguments(*_placed(self.signature, given))
        except TypeError as error:
            form = example(self.signature, list(self.axes))
            raise InvalidInputError(f"{self.name} cannot be called so: {error}: {form}") from error

    def call(self, words: ProblemWords) -> str:
        """What ``read`` takes. Raises ``InvalidInputError``, also where no problem is named."""
        given, signature = self.dims, self.signature
        if isinstance(given, str):
            given = dict(zip(signature.parameters, filter(None, given.split(",")), strict=False))
        dims = {path: names.split() for path, names in given.items()}
        return call_in_words(self.name, signature, words, dims, list(self.axes))

    def text(self, arguments: Arguments) -> str:
        """``read`` is the inverse. Raises ``InvalidInputError`` for what cannot be written."""
        return texts.arguments_text(arguments, self.home)

    def problem(self, arguments: Arguments) -> Problem:
        """The key of a call: its sizes by name, the dtype of its first floating array, and as
        options its static arguments and what dtypes differ. Raises ``InvalidInputError``."""
        form = _Form(self, arguments)
        dims, options = tuple(form.sizes().items()), tuple(form.options().items())
        return Problem(dims=dims, dtype=form.dtype, options=options)

    def kernel(self, arguments: Arguments) -> Kernel:
        """The declaration for calls of this form. Raises ``InvalidInputError``."""
        form = _Form(self, arguments)
        form.check_values(self.problem(arguments))
        sizes, static = form.sizes(), form.options().items()
        default, mesh = self.defaults, self.mesh
        reference = self.reference and form.bound(self.reference, None)
        baseline = self.baseline and form.bound(self.baseline, None)
        return Kernel(
            name=self.name,
            dims=tuple(sizes),
            dtypes=(form.dtype, *(dtype for dtype in DTYPES if dtype != form.dtype)),
            options=tuple(
                Option(name=n, choices=(), default=self._default(n, v)) for n, v in static
            ),
            axes=tuple(self._axis(name, form) for name in self.axes),
            default=lambda _: default,
            inputs=form.inputs,
            build=lambda _, config: form.bound(self.function, config),
            reference=reference and (lambda _: reference),
            baseline=baseline and (lambda _: baseline),
            check=form.complaint,
            mesh=(lambda _: mesh) if mesh else None,
            form=form.text(),
            doc=inspect.getdoc(self.function) or "",
        )

    def _default(self, name: str, value: OptionValue) -> OptionValue:
        """What a problem has that does not name the option; of what has no default the call's."""
        parameter = self.signature.parameters.get(name)
        empty = inspect.Parameter.empty
        default = parameter.default if parameter else empty
        return value if default is empty else texts.option_value(default, self.home)

    def _axis(self, name: str, form: "_Form") -> Axis:
        values, default = self.axes[name], self.defaults[name]
        if isinstance(values, Blocks):
            axis = values.axis(name, form.dim_named(name, values.dim))
        else:
            offered = list(values)
            axis = Axis(name=name, choices=lambda _: offered)

        def choices(problem: Problem) -> list[AxisValue]:
            return list(dict.fromkeys([*axis.choices(problem), default]))

        return Axis(name=name, choices=choices, dim=axis.dim)


def abstract(value: Any, *, contents: bool = False) -> Any:
    """The same tree with ``AbstractArray`` in the place of arrays; with ``contents`` the integers
    of concrete ones in it. A record of arrays with a shape is one unless its class refuses."""
    if isinstance(value, texts.AbstractArray):
        return value
    inner = partial(abstract, contents=contents)
    is_array = hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type)
    if texts.is_record(value):
        items = {key: inner(item) for key, item in texts.parts(value).items()}
        if any(map(texts.has_arrays, items.values())):
            with suppress(*[Exception] * is_array):
                return type(value)(**items)
    if is_array:
        array = texts.AbstractArray(tuple(map(int, value.shape)), _dtype_name(value.dtype))
        if contents and array.dtype in _STEERING and prod(array.shape) <= _MOST_INTEGERS:
            with suppress(TypeError, RuntimeError):  # traced, donated, or of other hosts
                return array.of(value.__array__()) if hasattr(value, "__array__") else array
        return array
    if type(value) not in (dict, list, tuple):
        return value
    return texts.remade(value, {key: inner(item) for key, item in texts.parts(value).items()})


def _dtype_name(dtype: Any) -> str:
    return parse_dtype(str(getattr(dtype, "name", dtype)))


class _Form:
    """The form of a call: what its arrays and their dimensions are called."""

    def __init__(self, kernel: FunctionKernel, arguments: Arguments) -> None:
        self.kernel, self.arguments = kernel, arguments
        self.arrays: dict[str, texts.AbstractArray] = {}
        self.static: dict[str, Any] = {}
        for name, value in arguments.items():
            texts.mapped(value, name, self._note)
        if not self.arrays:
            raise InvalidInputError(f"{kernel.name} is called without an array: give f32[8,128]")
        dtypes = [array.dtype for array in self.arrays.values()]
        self.dtype = next((dtype for dtype in dtypes if "float" in dtype), dtypes[0])
        strange = [p for p in kernel.values if p not in self.arrays and p not in self.static]
        if strange:
            raise InvalidInputError(
                f"values= of {kernel.name} names {', '.join(strange)}: its arrays are called "
                f"{', '.join(self.arrays)}"
            )
        self._named = self._declared()

    def _note(self, path: str, leaf: Any) -> Any:
        leaves = self.arrays if isinstance(leaf, texts.AbstractArray) else self.static
        leaves[path] = leaf
        return leaf  # some records look at their fields as they are made

    def _declared(self) -> dict[str, list[str]]:
        """The names that were given, by array."""
        given = self.kernel.dims
        if isinstance(given, str):
            given = dict(zip(self.arrays, filter(None, given.split(",")), strict=False))
        names_of = {path: names.split() for path, names in given.items()}
        for path, names in names_of.items():
            array = self.arrays.get(path)
            if array is not None and len(array.shape) != len(names):
                raise InvalidInputError(
                    f"{path} of {self.kernel.name} is {array}: dims= names {len(names)} "
                    f"dimensions, {' '.join(names)}"
                )
        return names_of

    def names(self, path: str) -> list[str]:
        """Of the dimensions of an array: argument and place where none are given."""
        places = [f"{path}.{place}" for place in range(len(self.arrays[path].shape))]
        return self._named.get(path, places)

    def sizes(self) -> dict[str, int]:
        """All dimensions. Raises ``InvalidInputError`` where a name has two sizes."""
        places: dict[str, tuple[int, str]] = {}
        for path, array in self.arrays.items():
            for name, size in zip(self.names(path), array.shape, strict=True):
                known, other = places.setdefault(name, (size, path))
                if known != size:
                    raise InvalidInputError(
                        f"dimension {name} of {self.kernel.name} is {known} in {other} and {size} "
                        f"in {path}"
                    )
        return {name: size for name, (size, _) in places.items()}

    def options(self) -> dict[str, Any]:
        """Static arguments, and dtypes that are not that of the problem."""
        home = self.kernel.home
        others = [(path, a.dtype) for path, a in self.arrays.items() if a.dtype != self.dtype]
        dtypes = {f"{path}.dtype": dtype for path, dtype in others}
        return {p: texts.option_value(leaf, home) for p, leaf in self.static.items()} | dtypes

    def text(self) -> str:
        """All of the form that sizes and options do not say."""

        def shown(path: str, leaf: Any) -> Any:
            return self.names(path) if isinstance(leaf, texts.AbstractArray) else ""

        tree = {name: texts.mapped(value, name, shown) for name, value in self.arguments.items()}
        return f"{texts.value_text(tree, self.kernel.home)} {sorted(self.options())}"

    def _filled(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with these arrays in their places."""
        return {n: texts.mapped(value, n, arrays.get) for n, value in self.arguments.items()}

    def complaint(self, problem: Problem) -> str | None:
        """Why such a call is impossible, or None. Contents that nobody can make anew are those of
        the call itself."""
        known = [path for path, array in self.arrays.items() if array.contents is not None]
        unknown = [path for path in known if path not in self.kernel.values]
        if unknown and dict(problem.dims) != self.sizes():
            return f"the contents of {', '.join(unknown)} are of another problem"
        check = self.kernel.check
        return check and _called(check, self._sized(problem), lenient=True)

    def _sized(self, problem: Problem) -> dict[str, Any]:
        """The arguments, with arrays as large as the problem says."""
        arrays = {a.name: texts.AbstractArray(a.shape, a.dtype) for a in self.inputs(problem)}
        return self._filled(arrays)

    def _values(self, path: str, problem: Problem) -> Callable[[], Any] | None:
        """What makes the contents of an array: those that were given, for the call's own sizes."""
        array, make = self.arrays[path], self.kernel.values.get(path)
        if array.contents is not None and dict(problem.dims) == self.sizes():
            return array.integers
        return make and (lambda: self._made(path, make, problem))

    def _made(self, path: str, make: Callable[..., Any], problem: Problem) -> Any:
        """What a function of ``values=`` gives. Raises ``InvalidInputError`` for what does not fit,
        or where it raises."""
        array = replace(self.arrays[path], shape=self._shape(path, problem), contents=None)
        what = f"values={{{path!r}: …}} of {self.kernel.name}"
        try:
            numbers = _called(make, self._sized(problem), lenient=True)
        except Exception as error:
            raise InvalidInputError(f"{what} raised {type(error).__name__}: {error}") from error
        if array.dtype != "bool" and "int" not in array.dtype:
            return numbers
        try:
            return array.of(numbers).integers()
        except InvalidInputError as error:
            raise InvalidInputError(f"{what} gives what does not fit: {error}") from error

    def check_values(self, problem: Problem) -> None:
        """Raises ``InvalidInputError`` for contents that do not fit."""
        for array in self.inputs(problem):
            if array.values is not None:
                array.values()

    def _shape(self, path: str, problem: Problem) -> tuple[int, ...]:
        return tuple(problem[name] for name in self.names(path))

    def dim_named(self, axis: str, dim: str) -> str:
        """``q.-2`` is the last but one of q. Raises ``InvalidInputError`` where there is none."""
        path, _, place = dim.rpartition(".")
        if path in self.arrays and place.lstrip("-").isdigit():
            names, number = self.names(path), int(place)
            if -len(names) <= number < len(names):
                return names[number]
        elif dim in self.sizes():
            return dim
        raise InvalidInputError(
            f"{axis} of {self.kernel.name} cuts dimension {dim!r}: this call has "
            f"{', '.join(self.sizes())}"
        )

    def inputs(self, problem: Problem) -> list[Array]:
        """The arrays of a call, as large as the problem says."""
        return [
            Array(
                name=path,
                shape=self._shape(path, problem),
                dtype=str(dict(problem.options).get(f"{path}.dtype", problem.dtype)),
                values=self._values(path, problem),
            )
            for path in self.arrays
        ]

    def bound(self, function: Callable[..., Any], config: Config | None) -> Callable[..., Any]:
        """A function of the arrays alone. Without a config the axes are left out, and whatever else
        a reference does not take. Raises ``InvalidInputError`` for one that cannot be called."""
        values = {} if config is None else dict(config.axes)
        taken = inspect.signature(function).parameters
        names, star = (self._other_names(taken), self._star(taken)) if config is None else ({}, "")
        if config is not None:
            values |= {name: getattr(config, name) for name in PARAMS if name in taken}

        def call(*arrays: Any) -> Any:
            tree = self._filled(dict(zip(self.arrays, arrays, strict=True)))
            tree = {names.get(name, name): value for name, value in tree.items()}
            if star:  # a reference gets by place what it does not name
                tree[star] = tuple(tree[n] for n in self._with_arrays() if n not in taken)
            return _called(function, tree | values, lenient=config is None)

        return call

    def _star(self, taken: Mapping[str, inspect.Parameter]) -> str:
        """The name of the ``*args`` that get arrays by place, or nothing: ``**kwargs`` get all."""
        kinds = {parameter.kind: name for name, parameter in taken.items()}
        star = kinds.get(inspect.Parameter.VAR_POSITIONAL, "")
        return "" if inspect.Parameter.VAR_KEYWORD in kinds or star in self.arguments else star

    def _with_arrays(self) -> list[str]:
        return [name for name, value in self.arguments.items() if texts.has_arrays(value)]

    def _other_names(self, taken: Mapping[str, inspect.Parameter]) -> dict[str, str]:
        """What a reference calls the arrays that it does not know by name: those that it needs
        besides, in the same order. Raises ``InvalidInputError`` where that is not sure."""
        arrays = self._with_arrays()
        needed = (n for n, p in taken.items() if p.default is p.empty and "VAR" not in p.kind.name)
        lacks = [name for name in needed if name not in self.arguments]
        names = dict(zip((n for n in arrays if n not in taken), lacks, strict=False))
        given = [names.get(name, name) for name in arrays]
        if lacks and (len(names) < len(lacks) or given != [n for n in taken if n in given]):
            raise InvalidInputError(
                f"a reference or baseline of {self.kernel.name} needs {', '.join(lacks)}: which of "
                f"{', '.join(arrays)} is meant is not sure: name its arguments as the kernel does"
            )
        return names


def _called(function: Callable[..., Any], values: dict[str, Any], *, lenient: bool) -> Any:
    """With arguments by name. ``lenient``: what it does not take is left out."""
    signature = inspect.signature(function)
    known = signature.parameters
    if lenient and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        values = {name: value for name, value in values.items() if name in known}
    args, kwargs = _placed(signature, values)
    return function(*args, **kwargs)


def _placed(
    signature: inspect.Signature, values: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by name, those that take no name in their places, after defaults where there are
    arguments before ``*args`` that are not given."""
    ordered = OrderedDict(
        (name, values.get(name, parameter.default))
        for name, parameter in signature.parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
        and (name in values or parameter.default is not parameter.empty)
    )
    bound = inspect.BoundArguments(signature, ordered)
    return bound.args, bound.kwargs | {n: v for n, v in values.items() if n not in ordered}
