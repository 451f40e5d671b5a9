"""A mechanical change as an edit of the source, where the text allows it: only the expression that
the change is of, the rest stays as it is laid out."""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import unified_diff
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

from autotune.domain.change import ChangeKind, SourceChange

_PRODUCTS = ("dot", "matmul", "dot_general")
_TPU_MODULE = "jax.experimental.pallas.tpu"
_KINDS = {"P": '"parallel"', "A": '"arbitrary"'}


class _Edit(NamedTuple):
    """Bytes from ``start`` to ``end`` are replaced."""

    start: int
    end: int
    text: str


def edited(text: str, changes: Sequence[SourceChange]) -> str | None:
    """The source with all the changes; None where one of them has no edit, or two are of the same
    expression."""
    source = _Source(text)
    edits: list[_Edit] = []
    for change in changes:
        make, node = _EDITS.get(change.kind), source.node_at(change)
        made = make(source, node, change.value) if make and node is not None else None
        if not made:
            return None
        edits += made
    edits = sorted({*edits, *source.imports})
    if any(edit.end > after.start for edit, after in pairwise(edits)):
        return None
    data = source.data
    for edit in reversed(edits):
        data = data[: edit.start] + edit.text.encode() + data[edit.end :]
    return data.decode()


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

    def offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt) -> int:
        return self.offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def text(self, node: ast.expr) -> str:
        return self.data[self.start(node) : self.end(node)].decode()

    def node_at(self, change: SourceChange) -> ast.expr | ast.stmt | None:
        """The expression of a change, or the assignment that it is."""
        place = change.place
        wanted = place.line, place.column, place.end_line, place.end_column
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr | ast.AugAssign) and wanted == (
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


_Node = ast.expr | ast.stmt


def _reciprocal(source: _Source, node: _Node, _: str) -> list[_Edit] | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        left, right, sign, times = node.left, node.right, "/", "* (1.0 /"
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
        left, right, sign, times = node.target, node.value, "/=", "*= (1.0 /"
    else:
        return None
    start, end = source.end(left), source.start(right)
    between = source.data[start:end].decode()
    if between.count("/") != 1:
        return None
    last = source.end(node)
    divisor = "" if _is_tight(right) or between.rstrip().endswith("(") else "("
    closing = ")" if not divisor else "))"
    return [_Edit(start, end, between.replace(sign, times) + divisor), _Edit(last, last, closing)]


def _narrow_product(source: _Source, node: _Node, _: str) -> list[_Edit] | None:
    return _product(source, node, ".astype({}.bfloat16)", "")


def _wide_sum(source: _Source, node: _Node, _: str) -> list[_Edit] | None:
    return _product(source, node, "", ".astype({}.bfloat16)")


def _product(source: _Source, node: _Node, operand: str, result: str) -> list[_Edit] | None:
    """A product that sums in float32, with something behind its operands and behind itself."""
    numpy = source.name_of("jax.numpy")
    if numpy is None:
        return None
    behind, at_end = operand.format(numpy), result.format(numpy)
    dtype = f"{numpy}.float32"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        x, y = (_closed(source, each) + behind for each in (node.left, node.right))
        text = f"{numpy}.dot({x}, {y}, preferred_element_type={dtype}){at_end}"
        return [_Edit(source.start(node), source.end(node), text)]
    if not isinstance(node, ast.Call) or _called(node) not in _PRODUCTS or len(node.args) < 2:
        return None
    operands = [
        _Edit(source.start(each), source.end(each), _closed(source, each) + behind)
        for each in node.args[:2]
    ]
    sums = _keyword(source, node, "preferred_element_type", dtype)
    end = source.end(node)
    return [*(operands if behind else ()), sums, *([_Edit(end, end, at_end)] if at_end else ())]


def _turned_product(source: _Source, node: _Node, _: str) -> list[_Edit] | None:
    lax = source.name_of("jax.lax")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        operands, more = [node.left, node.right], ""
    elif isinstance(node, ast.Call) and _called(node) in ("dot", "matmul") and len(node.args) == 2:
        operands = node.args
        more = "".join(f", {each.arg}={source.text(each.value)}" for each in node.keywords)
    else:
        return None
    turned = [isinstance(each, ast.Attribute) and each.attr == "T" for each in operands]
    if lax is None or not any(turned):
        return None
    plain = [
        each.value if isinstance(each, ast.Attribute) and t else each
        for each, t in zip(operands, turned, strict=True)
    ]
    dims = f"((({int(not turned[0])},), ({int(turned[1])},)), ((), ()))"
    x, y = map(source.text, plain)
    text = f"{lax}.dot_general({x}, {y}, {dims}{more})"
    return [_Edit(source.start(node), source.end(node), text)]


def _scaled_operand(source: _Source, node: _Node, _: str) -> list[_Edit] | None:
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult | ast.Div):
        return None
    call, sign = node.left, "*" if isinstance(node.op, ast.Mult) else "/"
    if not isinstance(call, ast.Call) or _called(call) not in _PRODUCTS or not call.args:
        return None
    first, scale = call.args[0], source.data[source.end(call) : source.end(node)].decode()
    if not scale.lstrip().startswith(sign):
        return None
    scaled = f"{_closed(source, first)} {scale.strip()}"
    return [
        _Edit(source.start(first), source.end(first), scaled),
        _Edit(source.end(call), source.end(node), ""),
    ]


def _unrolled(source: _Source, node: _Node, value: str) -> list[_Edit] | None:
    if not isinstance(node, ast.Call) or _called(node) not in ("fori_loop", "scan"):
        return None
    return [_keyword(source, node, "unroll", value)]


def _parameter(name: str, text: Callable[[str], str]) -> "_Make":
    """Of the compiler, by its name."""

    def make(source: _Source, node: _Node, value: str) -> list[_Edit] | None:
        call = _pallas_call(source, node)
        if call is None:
            return None
        params = next((each.value for each in call.keywords if each.arg == _PARAMS), None)
        if isinstance(params, ast.Call) and _called(params) == "CompilerParams":
            return [_keyword(source, params, name, text(value))]
        module = source.tpu_module() if params is None else None
        if module is None:
            return None
        made = f"{module}.CompilerParams({name}={text(value)})"
        return [_keyword(source, call, _PARAMS, made)]

    return make


_PARAMS = "compiler_params"


def _pallas_call(source: _Source, node: _Node) -> ast.Call | None:
    """That makes what is called: in the same expression, or under a name that is given once."""
    made = node.func if isinstance(node, ast.Call) else None
    if isinstance(made, ast.Name):
        given = [
            each.value
            for each in ast.walk(source.tree)
            if isinstance(each, ast.Assign)
            and [getattr(target, "id", "") for target in each.targets] == [made.id]
        ]
        made = given[0] if len(given) == 1 else None
    is_call = isinstance(made, ast.Call) and _called(made) == "pallas_call"
    return made if isinstance(made, ast.Call) and is_call else None


def _keyword(source: _Source, call: ast.Call, name: str, value: str) -> _Edit:
    """With another value, or one more, laid out as the last one is."""
    for each in call.keywords:
        if each.arg == name:
            return _Edit(source.start(each.value), source.end(each.value), value)
    given = [*call.args, *(each.value for each in call.keywords)]
    end = source.end(call) - 1
    if not given:
        return _Edit(end, end, f"{name}={value}")
    last = max(map(source.end, given))
    rest = source.data[last:end].decode()
    if "\n" not in rest:
        return _Edit(last, end, f", {name}={value}")
    line = source.data[: max(map(source.start, given)) + 1].decode().splitlines()[-1]
    indent = re.match(r"\s*", line)
    space = indent[0] if indent else ""
    behind = rest if rest.lstrip().startswith(",") else f",{rest}"
    comma, tail = behind[: behind.index(",") + 1], behind[behind.index(",") + 1 :]
    return _Edit(last, end, f"{comma}\n{space}{name}={value},{tail}")


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _is_tight(node: ast.expr) -> bool:
    """Whether an operator beside it, or an attribute behind it, is of it as a whole."""
    return isinstance(node, ast.Name | ast.Call | ast.Attribute | ast.Subscript)


def _closed(source: _Source, node: ast.expr) -> str:
    return source.text(node) if _is_tight(node) else f"({source.text(node)})"


def _semantics_text(letters: str) -> str:
    return f"({', '.join(_KINDS[letter] for letter in letters)}{',' * (len(letters) == 1)})"


_Make = Callable[[_Source, _Node, str], list[_Edit] | None]

_EDITS: Mapping[ChangeKind, _Make] = {
    ChangeKind.WIDE_SUM: _wide_sum,
    ChangeKind.VMEM_LIMIT: _parameter("vmem_limit_bytes", lambda n: f"{int(n) >> 20} * 2**20"),
    ChangeKind.SEMANTICS: _parameter("dimension_semantics", _semantics_text),
    ChangeKind.NO_BOUNDS_CHECKS: _parameter("disable_bounds_checks", lambda _: "True"),
    ChangeKind.NARROW_PRODUCT: _narrow_product,
    ChangeKind.TURNED_PRODUCT: _turned_product,
    ChangeKind.RECIPROCAL: _reciprocal,
    ChangeKind.SCALED_OPERAND: _scaled_operand,
    ChangeKind.UNROLLED: _unrolled,
}
