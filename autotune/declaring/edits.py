"""A mechanical change as an edit of the source, where the text allows it: only the expression that
the change is of, the rest stays as it is laid out."""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import accumulate, chain, groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from autotune.domain.change import ChangeKind, Place, SourceChange

_PRODUCTS = ("dot", "matmul", "dot_general", "einsum", "@")
_TPU_MODULE = "jax.experimental.pallas.tpu"
_KINDS = {"P": '"parallel"', "A": '"arbitrary"'}


class _Edit(NamedTuple):
    """Bytes from ``start`` to ``end`` are replaced."""

    start: int
    end: int
    text: str


def edited(text: str, changes: Sequence[SourceChange]) -> str | None:
    """The source with all the changes; None where one of them has no edit, or two overlap. Raises
    ``SyntaxError`` for a source that is none."""
    source, edits, by_place = _Source(text), list[_Edit](), attrgetter("place")
    for place, alike in groupby(sorted(changes, key=by_place), key=by_place):
        made = _edits(source, source.node_at(place), list(alike))
        if not made:
            return None
        edits += made
    edits = sorted({*edits, *source.imports})
    if any(edit.end > after.start for edit, after in pairwise(edits)):
        return None
    data = source.data
    for edit in reversed(edits):
        data = data[: edit.start] + edit.text.encode() + data[edit.end :]
    ast.parse(data)
    return data.decode()


def _edits(
    source: "_Source", node: ast.expr | None, changes: Sequence[SourceChange]
) -> list[_Edit] | None:
    """Of one expression: one change, or several parameters of the compiler."""
    if node is None:
        return None
    if all(change.kind in _PARAMETERS for change in changes):
        return _with_parameters(source, node, changes)
    make = _EDITS.get(changes[0].kind) if len(changes) == 1 else None
    return make(source, node, changes[0].value) if make else None


def diff(file: str, before: str, after: str) -> str:
    """Unified, as ``git apply`` and ``patch -p1`` take it in this folder, or at the root."""
    old, new = (each.splitlines(keepends=True) for each in (before, after))
    here = Path.cwd()
    name = str(Path(file).relative_to(here if Path(file).is_relative_to(here) else "/"))
    return "".join(unified_diff(old, new, fromfile=f"a/{name}", tofile=f"b/{name}"))


class _Source:
    def __init__(self, text: str) -> None:
        self.data, self.tree = text.encode(), ast.parse(text)
        self._starts = [0, *accumulate(map(len, self.data.splitlines(keepends=True)))]
        self.imports: list[_Edit] = []
        nodes = list(ast.walk(self.tree))
        self._assigns = [each for each in nodes if isinstance(each, ast.Assign)]
        self.functions = [each for each in nodes if isinstance(each, ast.FunctionDef)]

    def offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def start(self, node: ast.expr | ast.stmt | ast.arg) -> int:
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt | ast.arg) -> int:
        return self.offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def text(self, node: ast.expr | ast.arg, *, is_factor: bool = False) -> str:
        """A factor is in brackets where it needs them."""
        text = self.data[self.start(node) : self.end(node)].decode()
        needs = is_factor and isinstance(node, ast.BinOp | ast.UnaryOp | ast.IfExp)
        return f"({text})" if needs else text

    def value(self, node: ast.expr | None) -> ast.expr | None:
        """What a name stands for, if it is given once."""
        if not isinstance(node, ast.Name):
            return node
        given = self.assigned(node.id)
        return given[0].value if len(given) == 1 else None

    def assigned(self, name: str) -> list[ast.Assign]:
        """The statements that give this name a value."""
        return [a for a in self._assigns if [getattr(t, "id", "") for t in a.targets] == [name]]

    def function_of(self, node: ast.expr) -> ast.FunctionDef | None:
        """The innermost one that the expression stands in."""
        inside = [each for each in self.functions if any(part is node for part in ast.walk(each))]
        return max(inside, key=lambda each: each.lineno, default=None)

    def function(self, name: str) -> ast.FunctionDef | None:
        """The one of this name, if there is one."""
        named = [each for each in self.functions if each.name == name]
        return named[0] if len(named) == 1 else None

    def node_at(self, place: Place) -> ast.expr | None:
        wanted = place.line, place.column, place.end_line, place.end_column
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr) and wanted == (
                node.lineno,
                node.col_offset,
                node.end_lineno,
                node.end_col_offset,
            ):
                return node
        return None

    def name_of(self, module: str, *, through: bool = True) -> str | None:
        """What a module is called here, ``through`` its package too; None where it has no name."""
        parent, _, last = module.rpartition(".")
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                base = getattr(node, "module", None)
                for alias in node.names:
                    whole = f"{base}.{alias.name}" if base else alias.name
                    if whole == module and (alias.asname or base or not parent):
                        return alias.asname or alias.name
        parent_name = self.name_of(parent) if parent and through else None
        return f"{parent_name}.{last}" if parent_name else None

    def tpu_module(self) -> str | None:
        """What ``pltpu`` is called here; it is imported beside Pallas where it is not."""
        known = self.name_of(_TPU_MODULE, through=False)
        if known:
            return known
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "jax.experimental":
                line = f"\nfrom {_TPU_MODULE.rpartition('.')[0]} import tpu as pltpu"
                self.imports.append(_Edit(self.end(node), self.end(node), line))
                return "pltpu"
        return None


def _wide_sum(source: _Source, node: ast.expr, _: str) -> list[_Edit] | None:
    numpy, start, end = source.name_of("jax.numpy"), source.start(node), source.end(node)
    if numpy is None or _called(node) not in _PRODUCTS:
        return None
    wide, narrow = f"{numpy}.float32", f".astype({numpy}.bfloat16)"
    if isinstance(node, ast.BinOp):
        operands = f"{source.text(node.left)}, {source.text(node.right)}"
        product = f"{numpy}.matmul({operands}, preferred_element_type={wide}){narrow}"
        return [_Edit(start, end, product)]
    assert isinstance(node, ast.Call)
    sums = _keywords(source, node, {"preferred_element_type": wide})
    return [*sums, _Edit(end, end, narrow)]


def _late_scale(source: _Source, node: ast.expr, sign: str) -> list[_Edit] | None:
    """Where the left operand is scaled in its place, or by the statement that names it."""
    if _called(node) not in _PRODUCTS:
        return None
    first = next(iter(getattr(node, "args", ())), None)
    rows = _unconverted(node.left if isinstance(node, ast.BinOp) else first)
    given = [a for a in source.assigned(getattr(rows, "id", "")) if a.lineno < node.lineno]
    last = max(given, key=lambda each: each.lineno, default=None)
    scaled = _unconverted(last.value) if last else rows
    if not isinstance(scaled, ast.BinOp):
        return None
    remaining = source.text(scaled.left, is_factor=not last)
    scale = source.text(scaled.right, is_factor=True)
    edits = [_Edit(source.start(scaled), source.end(scaled), remaining)]
    if last:
        if not _is_read_once(source, last, node):
            return None
        name, begin = source.text(last.targets[0]), source.start(last)
        named, scale = f"{name}_scale = {source.text(scaled.right)}", f"{name}_scale"
        edits.append(_Edit(begin, begin, f"{named}\n{' ' * last.col_offset}"))
        if last.value is scaled and remaining == name:
            edits = [_Edit(begin, source.end(last), named)]
    start, end = source.start(node), source.end(node)
    return [_Edit(start, start, "("), *edits, _Edit(end, end, f" {sign} {scale})")]


def _early_scale(source: _Source, node: ast.expr, sign: str) -> list[_Edit] | None:
    """Where the product itself is scaled, in one expression."""
    product = node.left if isinstance(node, ast.BinOp) else None
    left = next(iter(getattr(product, "args", ())), getattr(product, "left", None))
    is_product = product is not None and _called(product) in set(_PRODUCTS) - {"einsum"}
    if not is_product or left is None or isinstance(left, ast.Constant):
        return None
    assert isinstance(node, ast.BinOp) and product is not None
    scaled = f" {sign} ".join(source.text(each, is_factor=True) for each in (left, node.right))
    scaled = f"({scaled})"
    if not isinstance(node.right, ast.Constant):  # an array would give its dtype to the product
        if not isinstance(left, ast.Name):
            return None
        scaled += f".astype({left.id}.dtype)"
    return [
        _Edit(source.start(node), source.start(product), ""),
        _Edit(source.start(left), source.end(left), scaled),
        _Edit(source.end(product), source.end(node), ""),
    ]


def _is_read_once(source: _Source, given: ast.Assign, node: ast.expr) -> bool:
    """Whether nothing but the expression, in the same function, reads what the statement names."""
    function = source.function_of(node)
    nodes = list(ast.walk(function)) if function else []
    later = [each for each in _reads(given.targets[0], nodes) if each.lineno > given.lineno]
    return given in nodes and len(later) == 1


def _reads(name: ast.expr | None, nodes: Iterable[ast.AST]) -> list[ast.Name]:
    """Those of the nodes that read what has the name; none where it is no name."""
    names = [each for each in nodes if isinstance(each, ast.Name)]
    wanted = getattr(name, "id", None)
    return [each for each in names if each.id == wanted and isinstance(each.ctx, ast.Load)]


def _unconverted(node: ast.expr | None) -> ast.expr | None:
    """Without its ``.astype``."""
    while isinstance(node, ast.Call) and _called(node) == "astype":
        node = getattr(node.func, "value", None)
    return node


def _unrolled(source: _Source, node: ast.expr, value: str) -> list[_Edit] | None:
    if not isinstance(node, ast.Call) or _called(node) not in ("fori_loop", "scan"):
        return None
    return _keywords(source, node, {"unroll": value})


def _with_parameters(
    source: _Source, node: ast.expr, changes: Sequence[SourceChange]
) -> list[_Edit] | None:
    call = _pallas_call(source, node)
    if call is None:
        return None
    values = {}
    for change in changes:
        name, text = _PARAMETERS[change.kind]
        values[name] = text(change.value)
    params = _keyword(call, _PARAMS)
    if isinstance(params, ast.Call) and _called(params) == "CompilerParams":
        return _keywords(source, params, values)
    module = source.tpu_module() if params is None else None
    if module is None:
        return None
    words = ", ".join(f"{name}={value}" for name, value in values.items())
    return _keywords(source, call, {_PARAMS: f"{module}.CompilerParams({words})"})


_PARAMS = "compiler_params"


def _cost(source: _Source, node: ast.expr, value: str) -> list[_Edit] | None:
    call, pallas = _pallas_call(source, node), source.name_of("jax.experimental.pallas")
    if call is None or pallas is None:
        return None
    flops, special, moved = map(int, value.split(","))
    words = f"flops={flops:_}, transcendentals={special:_}, bytes_accessed={moved:_}"
    return _keywords(source, call, {"cost_estimate": f"{pallas}.CostEstimate({words})"})


def _turned(source: _Source, node: ast.expr, value: str) -> list[_Edit] | None:
    """The grid, its semantics, the index maps, and what counts the axes: all must be written out,
    in the function that makes the call and those that it names."""
    call, order = _pallas_call(source, node), [int(axis) for axis in value]
    outer = source.function_of(call) if call else None
    if call is None or outer is None or not call.args:
        return None
    nodes = _nodes(_reached(source, outer))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    others = [each for each in calls if _called(each) == "pallas_call" and each is not call]
    if others or not _names_function(source, call.args[0]):
        return None
    spec = source.value(_keyword(call, "grid_spec")) or call
    if len(_reads(_keyword(spec, "grid"), nodes)) > 1:  # by more than its call
        return None
    params = source.value(_keyword(call, _PARAMS))
    lists = _lists(source, _keyword(spec, "grid"), _keyword(params, "dimension_semantics"))
    lists += [_arguments(source, each) for each in _index_maps(calls)]
    edits = [_reordered(source, each, order) for each in lists]
    edits += [_renumbered(source, each, order) for each in calls if _called(each) in _COUNTERS]
    return None if None in edits else list(chain.from_iterable(filter(None, edits)))


_COUNTERS = ("program_id", "num_programs")


def _names_function(source: _Source, kernel: ast.expr) -> bool:
    return any(source.function(getattr(node, "id", "")) for node in ast.walk(kernel))


def _nodes(functions: Iterable[ast.FunctionDef]) -> list[ast.AST]:
    return list(dict.fromkeys(node for each in functions for node in ast.walk(each)))


def _lists(source: _Source, *given: ast.expr | None) -> list[Sequence[ast.expr | ast.arg]]:
    return [getattr(source.value(each), "elts", ()) for each in given if each]


def _index_maps(calls: Iterable[ast.Call]) -> Iterator[ast.expr]:
    for each in calls:
        if _called(each) == "BlockSpec":
            index_map = each.args[1] if len(each.args) > 1 else _keyword(each, "index_map")
            if index_map:
                yield index_map


def _renumbered(source: _Source, call: ast.Call, order: Sequence[int]) -> list[_Edit] | None:
    """Of a call that counts a grid axis. None: which does not stand there as a number."""
    (axis,) = (*call.args, *(keyword.value for keyword in call.keywords))
    if not (isinstance(axis, ast.Constant) and isinstance(axis.value, int)):
        return None
    return [_Edit(source.start(axis), source.end(axis), str(order.index(axis.value)))]


def _reached(source: _Source, function: ast.FunctionDef) -> list[ast.FunctionDef]:
    """With the functions of the file that it names, at whatever remove."""
    reached = [function]
    for each in reached:
        names = {node.id for node in ast.walk(each) if isinstance(node, ast.Name)}
        reached += [f for f in source.functions if f.name in names and f not in reached]
    return reached


def _keyword(call: ast.expr | None, name: str) -> ast.expr | None:
    given = call.keywords if isinstance(call, ast.Call) else ()
    return next((each.value for each in given if each.arg == name), None)


def _arguments(source: _Source, index_map: ast.expr) -> Sequence[ast.expr | ast.arg]:
    """Of a lambda, or of a function that has a name."""
    named = source.function(index_map.id) if isinstance(index_map, ast.Name) else index_map
    return named.args.args if isinstance(named, ast.Lambda | ast.FunctionDef) else ()


def _reordered(
    source: _Source, nodes: Sequence[ast.expr | ast.arg], order: Sequence[int]
) -> list[_Edit] | None:
    """The first of them, as many as the order has; None where there are fewer."""
    if len(nodes) < len(order):
        return None
    pairs = [(nodes[place], nodes[axis]) for place, axis in enumerate(order)]
    return [_Edit(source.start(a), source.end(a), source.text(b)) for a, b in pairs if a is not b]


def _pallas_call(source: _Source, node: ast.expr) -> ast.Call | None:
    """That makes what is called: in the same expression, or under a name that is given once."""
    made = source.value(node.func) if isinstance(node, ast.Call) else None
    return made if isinstance(made, ast.Call) and _called(made) == "pallas_call" else None


def _keywords(source: _Source, call: ast.Call, values: Mapping[str, str]) -> list[_Edit]:
    """With other values, or more of them, laid out as the last one is."""
    given = {each.arg: each.value for each in call.keywords if each.arg in values}
    edits = [
        _Edit(source.start(node), source.end(node), values[str(name)])
        for name, node in given.items()
    ]
    added = [f"{name}={value}" for name, value in values.items() if name not in given]
    return [*edits, _added(source, call, added)] if added else edits


def _added(source: _Source, call: ast.Call, words: Sequence[str]) -> _Edit:
    given = [*call.args, *(each.value for each in call.keywords)]
    end = source.end(call) - 1
    last = max(map(source.end, given), default=end)
    rest = source.data[last:end].decode()
    if "\n" not in rest:
        return _Edit(last, end, ", " * bool(given) + ", ".join(words))
    line = source.data[: max(map(source.start, given)) + 1].decode().splitlines()[-1]
    space = line[: len(line) - len(line.lstrip())]
    behind = rest if rest.lstrip().startswith(",") else f",{rest}"
    comma, tail = behind[: behind.index(",") + 1], behind[behind.index(",") + 1 :]
    return _Edit(last, end, comma + "".join(f"\n{space}{word}," for word in words) + tail)


def _called(node: ast.AST) -> str:
    if isinstance(node, ast.BinOp):
        return "@" if isinstance(node.op, ast.MatMult) else ""
    function = getattr(node, "func", None)
    return str(getattr(function, "attr", getattr(function, "id", "")))


def _semantics_text(letters: str) -> str:
    return f"({', '.join(_KINDS[letter] for letter in letters)}{',' * (len(letters) == 1)})"


_PARAMETERS: Mapping[ChangeKind, tuple[str, Callable[[str], str]]] = {
    ChangeKind.VMEM_LIMIT: ("vmem_limit_bytes", lambda n: f"{int(n) >> 20} * 2**20"),
    ChangeKind.SEMANTICS: ("dimension_semantics", _semantics_text),
    ChangeKind.NO_BOUNDS_CHECKS: ("disable_bounds_checks", lambda _: "True"),
}
_EDITS: Mapping[ChangeKind, Callable[[_Source, ast.expr, str], list[_Edit] | None]] = {
    ChangeKind.WIDE_SUM: _wide_sum,
    ChangeKind.UNROLLED: _unrolled,
    ChangeKind.LATE_SCALE: _late_scale,
    ChangeKind.EARLY_SCALE: _early_scale,
    ChangeKind.COST_ESTIMATE: _cost,
    ChangeKind.GRID_ORDER: _turned,
}
