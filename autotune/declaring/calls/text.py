"""The arguments of a call as text, and back: ``q=bf16[2,4096,128], causal=True, f=jax.nn.gelu``.

Python's own expressions, read without running any: literals, containers, what can be imported by
name, dataclasses and named tuples by their fields, and ``dtype[sizes]`` for an array.
"""

import ast
import copy
import enum
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

from autotune.domain.errors import InvalidInputError
from autotune.domain.key import KernelRef, KernelSpec, Key
from autotune.domain.problem import DTYPES, OptionValue, Problem, bits, parse_dtype

_WORDS = {"true": True, "false": False, "none": None, "inf": float("inf"), "nan": float("nan")}


_FILE = re.compile(r"\]\s*@\s*['\"]?([^\s,'\"\[\](){}]+)['\"]?")

_WRITTEN = (
    *(ast.Constant, ast.UnaryOp, ast.USub, ast.Tuple, ast.List, ast.Dict, ast.Subscript),
    *(ast.Call, ast.keyword, ast.Name, ast.Attribute, ast.Load),
)


@dataclass(frozen=True, slots=True)
class AbstractArray:
    """An array without its numbers. ``dtype``: its full name. ``contents``: the integers in it, 0
    and 1 of truth values, row by row, where they are known."""

    shape: tuple[int, ...]
    dtype: str
    contents: tuple[int, ...] | None = None

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: prod(self.shape))

    def __str__(self) -> str:
        text = f"{self.dtype}[{','.join(map(str, self.shape)) or '()'}]"
        return text if self.contents is None else f"{text}@{list(self.contents)}"

    def of(self, contents: Any) -> "AbstractArray":
        """With these integers in it. Raises ``InvalidInputError`` for others."""
        import numpy as np

        numbers, size, dtype = np.asarray(contents), self.size, self.dtype
        is_whole = ("int" in dtype or dtype == "bool") and numbers.dtype.kind in "biu"
        if not is_whole or numbers.size != size:
            raise InvalidInputError(
                f"{self}@… takes {size} integers: i32[2]@[5,9], i32[16]@lengths.npy"
            )
        wide = 1 if dtype == "bool" else min(32, bits(dtype))  # JAX has no more by default
        low = 0 if dtype[0] in "ub" else -(2 ** (wide - 1))
        least, most = (int(numbers.min()), int(numbers.max())) if size else (0, 0)
        if least < low or most >= low + 2**wide:
            raise InvalidInputError(
                f"{self}@… has {least} to {most}: on a TPU it has {low} to {low + 2**wide - 1}"
            )
        return replace(self, contents=tuple(map(int, numbers.reshape(-1))))

    def integers(self) -> Any:
        """The contents, as an array of NumPy."""
        import numpy as np

        return np.array(self.contents, self.dtype).reshape(self.shape)


def is_record(value: Any) -> bool:
    """A dataclass's instance or a named tuple; of transformers' configs some fields raise."""
    is_named_tuple = isinstance(value, tuple) and hasattr(value, "_fields")
    if isinstance(value, type | AbstractArray) or not (is_named_tuple or is_dataclass(value)):
        return False
    with suppress(Exception):
        parts(value)
        return True
    return False


def parts(value: Any) -> dict[Any, Any]:
    """What a container or a record can be made of again, by key, place or field."""
    if isinstance(value, dict):
        return value
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    return dict(value._asdict()) if hasattr(value, "_asdict") else dict(enumerate(value))


def remade(value: Any, items: Mapping[Any, Any]) -> Any:
    """The same container or record of other parts. A class that refuses them is not asked."""
    if not is_record(value):
        return dict(items) if isinstance(value, dict) else type(value)(items.values())
    with suppress(Exception):
        return type(value)(**items)
    record = copy.copy(value)
    for name, item in items.items():
        object.__setattr__(record, name, item)
    return record


def arguments_text(arguments: Mapping[str, Any], home: str = "") -> str:
    """``home``: the module in which names need no prefix. ``read_arguments`` is the inverse.

    Raises ``InvalidInputError`` for what cannot be written down.
    """
    return ", ".join(f"{name}={value_text(value, home)}" for name, value in arguments.items())


def value_text(value: Any, home: str = "") -> str:
    """One value. Raises ``InvalidInputError`` for what cannot be written down."""
    if isinstance(value, enum.Enum):
        return f"{_name(type(value), home)}.{value.name}"
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return repr(value)
    if isinstance(value, AbstractArray):
        return str(value)
    if is_record(value):
        return f"{_name(type(value), home)}({arguments_text(parts(value), home)})"
    if type(value) in (list, tuple, dict):
        return _container_text(value, home)
    if hasattr(value, "newbyteorder") and not isinstance(value, type) and _dtype_name(value):
        return f"numpy.dtype({value.name!r})"
    return _name(value, home)


def option_value(value: Any, home: str = "") -> OptionValue:
    """A static argument in a problem: as it is, or its text. ``x.dtype``, ``jnp.float32`` and
    ``np.float32`` are one."""
    if type(value) in (bool, int):
        option: OptionValue = value
        return option
    if type(value) is str and not _is_literal(value):
        node = expression(value)
        is_known = isinstance(node, ast.Name) and not hasattr(sys.modules.get(home), value)
        return value if node is None or is_known else repr(value)
    dtype = _dtype_name(value)
    return f"jax.numpy.{dtype}" if dtype in DTYPES else value_text(value, home)


def _dtype_name(value: Any) -> str | None:
    """Of a dtype, or of what could be the type of its numbers."""
    kind = value if isinstance(value, type) else type(value)
    if kind.__module__.partition(".")[0] not in ("numpy", "jax", "ml_dtypes"):
        return None
    return getattr(value, "__name__" if isinstance(value, type) else "name", None)


def expression(text: str) -> ast.expr | None:
    """What ``value_text`` can have written, as one argument; None of other text."""
    try:
        call = ast.parse(f"_(_={text})", mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    if not isinstance(call, ast.Call) or call.args or len(call.keywords) != 1:
        return None
    node = call.keywords[0].value
    known = _is_literal(text) or all(isinstance(part, _WRITTEN) for part in ast.walk(node))
    return node if known else None


def read_arguments(text: str, home: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name. ``home``: names that need no prefix.

    Raises ``InvalidInputError`` with the part that cannot be read.
    """
    try:
        call = ast.parse(f"_({text})", mode="eval").body
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            return _keywords(call, home)
        raise SyntaxError("a bracket is closed that was not opened")
    except InvalidInputError:
        raise
    except Exception as error:  # of the module or the class that is named, too
        why = getattr(error, "msg", error)
        raise InvalidInputError(f"the arguments {text!r} cannot be read: {why}") from error


def _keywords(call: ast.Call, home: Mapping[str, Any]) -> dict[str, Any]:
    names = {word.arg for word in call.keywords}
    if call.args or None in names or len(names) < len(call.keywords):
        given = ast.unparse(call).removeprefix("_")
        raise InvalidInputError(f"{given}: say each argument once, as name=value")
    return {str(word.arg): _read(word.value, home) for word in call.keywords}


def _read(node: ast.expr, home: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.UnaryOp(op=ast.USub()):
            return -_read(node.operand, home)
        case ast.Tuple() | ast.List():
            items = [_read(item, home) for item in node.elts]
            return tuple(items) if isinstance(node, ast.Tuple) else items
        case ast.Dict() if all(node.keys):  # {**other} has none
            pairs = zip(node.keys, node.values, strict=True)
            return {_read(key, home): _read(item, home) for key, item in pairs if key is not None}
        case ast.Subscript(value=ast.Name(id=name)):
            return _array(name, _read(node.slice, home))
        case ast.BinOp(left=ast.Subscript() as array, op=ast.MatMult(), right=contents):
            return _read(array, home).of(_read(contents, home))
        case ast.Call(args=[ast.Constant(value=str(name))]) if (
            ast.unparse(node.func) == "numpy.dtype"
        ):
            return import_module("numpy").dtype(name)
        case ast.Call():
            made = _named_value(ast.unparse(node.func), home)
            if not (isinstance(made, type) and (is_dataclass(made) or hasattr(made, "_fields"))):
                raise InvalidInputError(
                    f"{ast.unparse(node)} is no value: an array is written f32[8,128], and only "
                    "dataclasses and named tuples are called"
                )
            return made(**_keywords(node, home))
        case ast.Name() | ast.Attribute():
            return _named_value(ast.unparse(node), home)
    raise InvalidInputError(f"{ast.unparse(node)} is no value of an argument")


def _array(dtype: str, sizes: Any) -> AbstractArray:
    shape = sizes if isinstance(sizes, tuple) else (sizes,)
    for size in shape:
        if type(size) is not int or size < 0:
            raise InvalidInputError(f"{dtype}[{size}]: a size of an array is a whole number")
    return AbstractArray(shape, parse_dtype(dtype))


def with_contents(text: str, folder: Path = Path()) -> str:
    """The text of a call with the integers of each ``@FILE`` of NumPy in the place of its name.
    Raises ``InvalidInputError``."""

    def loaded(match: re.Match[str]) -> str:
        import numpy as np

        try:
            return f"]@{np.load(folder / match[1]).reshape(-1).tolist()}"
        except FileNotFoundError as error:
            raise InvalidInputError(f"there is no file {folder / match[1]}") from error
        except (OSError, ValueError, EOFError, AttributeError) as error:
            text = f"{match[1]} holds no array of numbers: write it with numpy.save"
            raise InvalidInputError(text) from error

    return _FILE.sub(loaded, text)


def _named_value(name: str, home: Mapping[str, Any]) -> Any:
    """What a dotted name means: at home, else imported."""
    first, *rest = name.split(".")
    if first in home:
        return _attribute(home[first], rest, name)
    if not rest:
        return _WORDS.get(first.lower(), first)  # text needs no quotes on a command line
    for cut in range(len(rest), 0, -1):
        try:
            module = import_module(".".join([first, *rest[: cut - 1]]))
        except ImportError:
            continue
        return _attribute(module, rest[cut - 1 :], name)
    raise InvalidInputError(f"{name} cannot be imported")


def _attribute(value: Any, names: list[str], whole: str) -> Any:
    for name in names:
        try:
            value = getattr(value, name)
        except AttributeError as error:
            raise InvalidInputError(f"there is no {whole}: {error}") from error
    return value


def _container_text(value: Any, home: str) -> str:
    if isinstance(value, dict):
        pairs = (f"{value_text(k, home)}: {value_text(v, home)}" for k, v in value.items())
        return f"{{{', '.join(pairs)}}}"
    items = [value_text(item, home) for item in value]
    if isinstance(value, list):
        return f"[{', '.join(items)}]"
    return f"({', '.join(items)}{',' * (len(items) == 1)})"


def _name(value: Any, home: str) -> str:
    """The name under which a value can be imported."""
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if (
        not isinstance(module, str)
        or not isinstance(name, str)
        or not _is_under(value, module, name)
    ):
        raise InvalidInputError(
            f"{value!r} cannot be written down: give text, numbers, dataclasses of these, or what "
            "can be imported by name"
        )
    return name if module == home else f"{_public(value, module, name)}.{name}"


def _public(value: Any, module: str, name: str) -> str:
    """``jax.nn`` rather than ``jax._src.nn.functions``, which may be moved at any time."""
    parts = [part for part in module.split(".") if not part.startswith("_")]
    shorter = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next(
        (shorter_name for shorter_name in shorter if _is_under(value, shorter_name, name)), module
    )


def _is_under(value: Any, module: str, name: str) -> bool:
    return part_of(sys.modules.get(module), name) is value


def part_of(value: Any, dotted: str) -> Any:
    """What it has under a dotted name, or None."""
    for part in dotted.split("."):
        value = getattr(value, part, None)
    return value


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text.lower() in _WORDS
    return True


def mapped(value: Any, path: str, change: Callable[[str, Any], Any]) -> Any:
    """The same tree with every leaf changed. A leaf is an array, or what holds no array at all; its
    path is ``argument.field.0``."""
    if isinstance(value, AbstractArray) or not has_arrays(value):
        return change(path, value)
    pairs = parts(value).items()
    return remade(value, {key: mapped(item, f"{path}.{key}", change) for key, item in pairs})


def has_arrays(value: Any) -> bool:
    if isinstance(value, dict | list | tuple) or is_record(value):
        return any(map(has_arrays, parts(value).values()))
    return isinstance(value, AbstractArray)


def called(ref: KernelRef, specs: Iterable[KernelSpec], key: Key, asked: str = "") -> KernelRef:
    """The kernel of a key at ``ref``; of a decorated function for calls of the form that the key is
    of. ``specs``: what is known of kernels; ``asked``: as in ``call_of``."""
    return replace(ref, call=call_of(specs, key, asked) or ref.call)


def call_of(specs: Iterable[KernelSpec], key: Key, asked: str = "") -> str:
    """The call that a key is of; empty where it is no decorated function's. ``asked``: what was
    searched, as the command line said it: its arrays have their contents again."""
    words = shlex.split(asked)
    if "--args" in words and "@" in (call := words[words.index("--args") + 1]):
        return call
    for spec in specs:
        if (spec.name, spec.fingerprint) == (key.kernel, key.fingerprint) and spec.form:
            return call_text(spec.form, key.problem)
    return ""


def call_text(form: str, problem: Problem) -> str:
    """As ``--args`` takes it. ``form``: that of the call's ``Kernel``."""
    tree = ast.parse(form[: form.rindex(" [")], mode="eval").body
    assert isinstance(tree, ast.Dict)
    items = zip(tree.keys, tree.values, strict=True)
    named = [(ast.literal_eval(key), value) for key, value in items if key is not None]
    return ", ".join(f"{name}={_text(value, name, problem)}" for name, value in named)


def _text(node: ast.expr, path: str, problem: Problem) -> str:
    """One argument, or a part of it; ``mapped`` says what its path is."""
    if isinstance(node, ast.Constant):
        return _static(problem, path)
    if isinstance(node, ast.List) and all(map(_is_dimension, node.elts)):
        sizes = [str(problem[ast.literal_eval(element)]) for element in node.elts]
        dtype = dict(problem.options).get(f"{path}.dtype", problem.dtype)
        return f"{dtype}[{','.join(sizes) or '()'}]"
    if isinstance(node, ast.Dict):
        items = [(ast.literal_eval(k), v) for k, v in zip(node.keys, node.values, strict=True) if k]
        parts = [f"{key!r}: {_text(value, f'{path}.{key}', problem)}" for key, value in items]
        return f"{{{', '.join(parts)}}}"
    if isinstance(node, ast.Call):
        fields = [f"{w.arg}={_text(w.value, f'{path}.{w.arg}', problem)}" for w in node.keywords]
        return f"{ast.unparse(node.func)}({', '.join(fields)})"
    assert isinstance(node, ast.List | ast.Tuple)
    parts = [_text(element, f"{path}.{place}", problem) for place, element in enumerate(node.elts)]
    if isinstance(node, ast.List):
        return f"[{', '.join(parts)}]"
    return f"({', '.join(parts)}{',' * (len(parts) == 1)})"


def _is_dimension(node: ast.expr) -> bool:
    """Its name; the text of what is no array is empty."""
    return isinstance(node, ast.Constant) and bool(node.value)


def _static(problem: Problem, path: str) -> str:
    """``option_value`` keeps text that is no expression as it is, and all else as one."""
    value = dict(problem.options)[path]
    is_expression = not isinstance(value, str) or expression(value) is not None
    return str(value) if is_expression else repr(value)
