"""Declarations for kernels of a model that have none: a decorated function that calls the one that
made the kernel, with its block sizes as axes. Tracing decides what a block size is."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import combinations, islice, product
from operator import attrgetter
from pathlib import Path
from textwrap import indent
from typing import Any

from autotune.compiling.child.call_sites import SIZE_NAME, Site
from autotune.compiling.child.devices import automatic, meshed
from autotune.compiling.child.loading import OF_A_FILE
from autotune.compiling.child.pallas_calls import ModelCalls, PallasCall
from autotune.declaring.calls import text as texts
from autotune.declaring.calls.function import abstract
from autotune.domain.compilers import DeclaredCall
from autotune.domain.errors import InvalidInputError

_NO_SIZE_NAME = re.compile(r"window|cap|seed|head|dim|quant", re.I)
_PLAIN = re.compile(r"(^|_)(ref|reference|xla|naive)(_|$)", re.I)
_IMPORTED = re.compile(r"\b([A-Za-z_]\w*(?:\.\w+)+)")
_MOST_PAIRS = 200  # of sizes, each traced
_STAND_IN = 10**12  # for a number in a text that a name takes the place of
_LEAST, _SUBLANES = 128, 8
_AMBIENT = "jax.sharding.get_abstract_mesh()"
_CUT = attrgetter("grid", "blocks", "scratch")
_WHOLE = ("int32", "uint32", "int64")
_CONTAINERS = (dict, list, tuple)


@dataclass(frozen=True)
class _Size:
    """A number among the arguments, as ``tiling.0``: what it is called, and the values to try."""

    path: tuple[Any, ...]
    value: int
    name: str
    values: str


@dataclass(frozen=True)
class _Mesh:
    """A mesh among the arguments: in its place stands that of the trace."""

    axes: dict[str, int]


def declared(sites: Sequence[Site], call: PallasCall) -> DeclaredCall | None:
    """Of the innermost function that makes the same call from arguments that can be written down,
    sizes of blocks among them; None where there is none."""
    for site in sites:
        with suppress(Exception):  # a function that cannot be called alone, or written down
            given = _given(site)
            with _around(given):
                given = _chosen(site, given, call)
                sizes = list(_sizes(site.function, given, call))
            if sizes:
                return _written(site, given, sizes)
    return None


def _given(site: Site) -> dict[str, Any]:
    """Its arguments, arrays as ``AbstractArray``. Raises ``InvalidInputError`` for what cannot be
    given by name."""
    import jax

    given = {}
    for name, parameter in inspect.signature(site.function).parameters.items():
        value = site.arguments.get(name)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            if value:
                raise InvalidInputError(f"{name} of {site.name} takes any arguments")
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            raise InvalidInputError(f"{name} of {site.name} has no name")
        elif isinstance(value, jax.sharding.Mesh | jax.sharding.AbstractMesh):
            given[name] = _Mesh(dict(value.shape))
        else:
            given[name] = abstract(value, contents=True)
    return given


def _around(given: dict[str, Any]) -> AbstractContextManager[Any]:
    """The mesh among the arguments, where there is one, is that of what is traced."""
    from jax.sharding import AbstractMesh, get_abstract_mesh

    axes = next((value.axes for value in given.values() if isinstance(value, _Mesh)), None)
    if axes is None:
        return nullcontext()
    options = {"abstract_device": get_abstract_mesh().abstract_device, **automatic(len(axes))}
    return meshed(AbstractMesh(tuple(axes.values()), tuple(axes), **options))


def _traced(function: Callable[..., Any], given: dict[str, Any]) -> tuple[list[PallasCall], Any]:
    """The calls that it makes, and what it gives back. Raises what it raises."""
    import jax

    arrays = {p: jax.ShapeDtypeStruct(a.shape, a.dtype) for p, a in _arrays(given).items()}

    def called(*values: Any) -> Any:
        by_path = dict(zip(arrays, values, strict=True))
        every = {name: texts.mapped(value, name, by_path.get) for name, value in given.items()}
        meshes = [name for name, value in given.items() if isinstance(value, _Mesh)]
        return function(**every | dict.fromkeys(meshes, jax.sharding.get_abstract_mesh()))

    closed, calls = jax.make_jaxpr(called)(*arrays.values()), ModelCalls()
    calls.walk(closed, 1, counted=False)
    return list(calls.runs_by_call), [str(aval) for aval in closed.out_avals]


def _chosen(site: Site, given: dict[str, Any], call: PallasCall) -> dict[str, Any]:
    """With the sizes that the function has chosen itself, where it is given none or a function:
    those with which it makes the same calls, and with half of which it makes others."""
    calls, _ = _traced(site.function, given)
    every = {n for a in (*call.operands, *call.scratch) for n in a.block if n > 1}
    sizes = sorted(every, reverse=True)
    kinds = {n: str(p.annotation) for n, p in inspect.signature(site.function).parameters.items()}

    def makes_same(changed: dict[str, Any]) -> bool:
        with suppress(Exception):  # what it refuses
            made, _ = _traced(site.function, given | changed)
            return len(made) == len(calls) and all(map(PallasCall.alike, made, calls))
        return False

    def tries() -> Iterator[dict[str, Any]]:
        """What it has by its own names; each alone; two that only go together."""
        named = {n: v for n, v in site.chosen.items() if SIZE_NAME.search(n) or v in every}
        yield {n: v for n, v in named.items() if is_open(n) and not _NO_SIZE_NAME.search(n)}
        for name, kind in kinds.items():
            fit = [r for r in site.records if re.search(rf"\b{type(r).__name__}\b", kind)]
            if SIZE_NAME.search(name):
                fit += sizes if "tuple" not in kind else filter(len, site.sizes)
            yield from ({name: value} for value in fit)
        left = [n for n, kind in kinds.items() if is_open(n) and "tuple" not in kind]
        couples = combinations(filter(SIZE_NAME.search, left), 2)
        pairs = product(couples, product(sizes, repeat=2))
        yield from (dict(zip(*pair, strict=True)) for pair in islice(pairs, _MOST_PAIRS))

    def is_open(name: str) -> bool:
        return name in given and given[name] is None

    def is_choice(changed: dict[str, Any]) -> bool:
        halved = {name: _halved(value) for name, value in changed.items()}
        return makes_same(changed) and (changed == halved or not makes_same(halved))

    for changed in filter(None, tries()):
        if all(is_open(n) or callable(given.get(n)) for n in changed) and is_choice(changed):
            alone = {n: changed | {n: _halved(v)} for n, v in changed.items() if len(changed) > 1}
            used = {n: v for n, v in changed.items() if n not in alone or not makes_same(alone[n])}
            is_enough = 0 < len(used) < len(changed) and is_choice(used)
            given = given | (used if is_enough else changed)
    return given


def _halved(value: Any) -> Any:
    if type(value) is int:
        return max(1, value // 2)
    return tuple(map(_halved, value)) if type(value) is tuple else value


def _sizes(
    function: Callable[..., Any], given: dict[str, Any], call: PallasCall
) -> Iterator[_Size]:
    """Numbers that change blocks, grid or buffers of any of its kernels, but neither what they are
    given nor what the function gives back; and what is called a block and has its size, where it
    cannot change alone. Nothing where the function makes another call."""
    calls, results = _traced(function, given)
    if not any(made.alike(call) for made in calls):
        return
    for path, value in _numbers(given):
        name = str(path[0] if isinstance(path[-1], int) else path[-1])
        if value < 1 or _NO_SIZE_NAME.search(name):
            continue
        called, takes_other = f"{name}_{path[-1]}" if isinstance(path[-1], int) else name, False
        for other in (value // 2, value * 2):
            with suppress(Exception):  # a size that it refuses
                changed, other_results = _traced(function, _replaced(given, path, other))
                cut = _first_cut(changed, calls) if other_results == results else None
                if cut is not None:
                    new, old = cut
                    yield _Size(path, value, called, _choices(given, old, new.blocks, value))
                    break
                takes_other = True
        else:
            cut_so = (made for made in calls if any(value in block for block in made.blocks))
            made_so = next(cut_so, None)
            if SIZE_NAME.search(name) and value > 1 and made_so is not None and not takes_other:
                yield _Size(path, value, called, _choices(given, made_so, None, value))


def _first_cut(
    changed: Sequence[PallasCall], calls: Sequence[PallasCall]
) -> tuple[PallasCall, PallasCall] | None:
    """The first call that is cut otherwise now, and what it was, where each could be what it was.
    Raises ``ValueError``: there are not as many."""
    pairs = list(zip(changed, calls, strict=True))
    cut = ((new, old) for new, old in pairs if _CUT(new) != _CUT(old))
    return next(cut, None) if all(new.features == old.features for new, old in pairs) else None


def _numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], int]]:
    if type(value) is int:
        yield path, value
    elif type(value) in _CONTAINERS or (texts.is_record(value) and not texts.has_arrays(value)):
        for key, item in texts.parts(value).items():
            yield from _numbers(item, (*path, key))


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The same tree with another leaf; what a class would refuse is tried all the same."""
    if not path:
        return new
    first, *rest = path
    parts = texts.parts(value)
    return texts.remade(value, {**parts, first: _replaced(parts[first], tuple(rest), new)})


def _arrays(given: dict[str, Any]) -> dict[str, texts.AbstractArray]:
    arrays: dict[str, texts.AbstractArray] = {}

    def note(path: str, leaf: Any) -> Any:
        if isinstance(leaf, texts.AbstractArray):
            arrays[path] = leaf
        return leaf

    for name, value in given.items():
        texts.mapped(value, name, note)
    return arrays


def _choices(
    given: dict[str, Any], call: PallasCall, changed: Sequence[tuple[int, ...]] | None, value: int
) -> str:
    """Sizes of the dimension that a block cuts; powers of two around the value where none is an
    argument's."""
    least = next(size for size in (_LEAST, _SUBLANES, 1) if value % size == 0)
    for number, operand in enumerate(call.operands):
        for place, size in enumerate(operand.block):
            cuts = size == value != operand.shape[place]
            cuts = cuts if changed is None else changed[number][place] != size
            for path, array in _arrays(given).items() if cuts else ():
                if array.shape == operand.shape:
                    return f'autotune.block("{path}.{place}", minimum={least})'
    return repr(tuple(sorted({max(1, value * 2**n // 4) for n in range(5)})))


def _written(site: Site, given: dict[str, Any], sizes: Sequence[_Size]) -> DeclaredCall:
    """Raises ``InvalidInputError`` for an argument that cannot be written down."""
    parameters = inspect.signature(site.function).parameters
    arrays = {name: value for name, value in given.items() if texts.has_arrays(value)}
    if not arrays:
        raise InvalidInputError(f"{site.name} is called without an array")
    names = {size.path: size.name + "_size" * (size.name in arrays) for size in sizes}
    words = [f"{name}={name}" for name in arrays]
    for name, value in given.items():
        inside = {n: size for n, size in enumerate(sizes) if size.path[0] == name}
        if name in arrays or (not inside and value is parameters[name].default):
            continue
        for number, size in inside.items():
            value = _replaced(value, size.path[1:], _STAND_IN + number)
        text = _AMBIENT if isinstance(value, _Mesh) else texts.value_text(value)
        for number, size in inside.items():
            text = text.replace(str(_STAND_IN + number), names[size.path])
        words.append(f"{name}={text}")
    decorated = [f"{names[size.path]}={size.values}" for size in sizes]
    rules = list(_rules(given))
    decorated += [f"# reference={name}" for name in _references(site.function, len(arrays))]
    decorated += [f"mesh={value.axes}" for value in given.values() if isinstance(value, _Mesh)]
    decorated += [f"values={{\n{indent(''.join(rules), '    ')}}}"] if rules else []
    signature = [*arrays, "*", *(f"{names[size.path]}={size.value}" for size in sizes)]
    call = f"{texts.value_text(site.function)}(\n{_lines(words)})"
    code = (
        f"@autotune.tunable(\n{_lines(decorated)})\n"
        f"def {{name}}({', '.join(signature)}):\n{indent(f'return {call}', '    ')}\n"
    )
    imports = {name: _importable(name) for name in _imports(re.sub("# reference=.*", "", code))}
    for name, known in imports.items():
        code = code.replace(f"{name}.", f"{known}.")
    return DeclaredCall(site.name, tuple(imports.values()), code, texts.arguments_text(arrays))


def _references(function: Callable[..., Any], count: int) -> Iterator[str]:
    """What its module calls so, and what an imported one beside it has, of as many arrays."""
    home = function.__module__
    for beside in ("", "reference", "ref", "test"):
        module = f"{home.rpartition('.')[0]}.{beside}" if beside else home
        with suppress(Exception):  # there is none
            for name, value in vars(sys.modules[module]).items():
                is_plain = _PLAIN.search(f"{beside}_{name}") and not re.match("_|assert", name)
                if is_plain and inspect.isfunction(inspect.unwrap(value)):
                    taken = inspect.signature(value).parameters.values()
                    if sum(p.default is p.empty for p in taken) == count:
                        yield f"{module}.{name}"


def _lines(words: Sequence[str]) -> str:
    return indent("".join(f"{word},\n" for word in words), "    ")


def _imports(code: str) -> tuple[str, ...]:
    """The modules of the dotted names in a text."""
    modules = set()
    for dotted in _IMPORTED.findall(code):
        parts = dotted.split(".")
        longest = (".".join(parts[:n]) for n in range(len(parts) - 1, 0, -1))
        modules.add(next((name for name in longest if name in sys.modules), ""))
    return tuple(sorted(modules - {"", "np"}))


def _importable(name: str) -> str:
    """What others import a module by: one that was named by its file has another name here."""
    *package, last = name.split(".")
    if not last.startswith(OF_A_FILE):
        return name
    file = str(sys.modules[name].__file__)
    known = ".".join((*package, Path(file).stem))
    compile(f"import {known}", file, "exec")  # raises SyntaxError: my-model.py has no such name
    if getattr(find_spec(known), "origin", None) != file:
        raise InvalidInputError(f"{file} cannot be imported as {known}")
    return known


def _rules(given: dict[str, Any]) -> Iterator[str]:
    """What makes the whole numbers in an argument that only the model computes: by its name, or
    zeros, which are always places in an array. Guesses are marked."""
    arrays = _arrays(given)
    for path, array in arrays.items():
        if array.dtype not in _WHOLE or len(array.shape) > 2:
            continue
        numbers = f"np.zeros({path}.shape, np.int32)  # HOLE"
        if len(array.shape) == 1:
            numbers = _paged(path, arrays) or _by_name(path, arrays) or numbers
        used = [name for name in given if name == path or re.search(rf"\b{name}\b", numbers)]
        roots = dict.fromkeys((path.split(".")[0], *used))
        numbers, _, note = numbers.partition("  # ")
        yield f'"{path}": lambda {", ".join(roots)}: {numbers},  # {note}\n'


def _paged(path: str, arrays: dict[str, texts.AbstractArray]) -> str | None:
    """An expression, where a cache is in pages that a table names: each sequence has all of its
    pages, and one new token if there are as many."""

    def called(words: str, dims: int) -> str | None:
        named = (n for n, a in arrays.items() if re.search(words, n) and len(a.shape) >= dims)
        return next(named, None)

    cache, table = called("cache", 4), called("page_indices|block_table", 1)
    if cache is None or table is None:
        return None
    lengths, tokens, name = called("lens", 1), next(iter(arrays)), path.lower()
    if path == table:
        return f"np.arange({path}.shape[0]) % {cache}.shape[0]  # in order"
    if "cu_kv" in name:
        pages = f"{table}.shape[0] // ({path}.shape[0] - 1)"
        return f"np.arange({path}.shape[0]) * ({pages} * {cache}.shape[1])  # HOLE: all pages"
    if path == lengths:
        pages = f"{table}.shape[0] // {path}.shape[0]"
        return f"np.full({path}.shape, {pages} * {cache}.shape[1])  # HOLE: as long as can be"
    if "distribution" in name and lengths is not None:
        is_decode = arrays[tokens].shape[0] == arrays[lengths].shape[0]
        ends = "[1, 1, 1]" if is_decode else "[0, 0, 1]"
        return f"np.array({ends}) * {lengths}.shape[0]  # HOLE: that decode, prefill, all"
    return None


def _by_name(path: str, arrays: dict[str, texts.AbstractArray]) -> str | None:
    floats = {name: array for name, array in arrays.items() if "float" in array.dtype}
    if not floats:
        return None
    rows, name = next(iter(floats)), path.lower()
    starts = f"np.arange({path}.shape[0] + {{}}) * {rows}.shape[0] // {{}}"
    if re.search(r"cu_|start|indptr|offset", name):
        return starts.format(0, f"max(1, {path}.shape[0] - 1)") + "  # in equal parts"
    if re.search(r"size|count|group", name):
        return f"np.diff({starts.format(1, f'{path}.shape[0]')})  # in equal parts"
    longest = [
        (array.shape[place], other, place)
        for other, array in floats.items()
        for place in range(1, len(array.shape) - 1)
        if array.shape[0] == arrays[path].shape[0]
    ]
    if "len" in name and longest:
        _, other, place = max(longest)
        return f"np.full({path}.shape, {other}.shape[{place}])  # HOLE: as long as can be"
    return None
