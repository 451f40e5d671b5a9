"""A function whose ``pallas_call`` equations are changed as it is traced.

A change is of all equations that one expression of the source has made, so that it is the same in
the small problems that a kernel is verified on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from autotune.compiling.child.pallas_calls import MACHINERY
from autotune.compiling.child.trace.calls import inner_jaxprs
from autotune.compiling.child.trace.scalars import open_jaxpr
from autotune.declaring.kernel import Kernel
from autotune.domain.change import ChangeKind, Place, SourceChange
from autotune.domain.problem import Config, Problem

Made = Callable[[Any], Any]
"""The equation that makes a variable; None of an argument or a literal."""

Rule = Callable[[Any, Made], Mapping[str, Callable[[], Any]]]
"""What can be put in the place of an equation, by the value of the change: other equations, or of a
``pallas_call`` other parameters. Empty where the rule does not apply."""


@dataclass(frozen=True)
class ChangedBuild:
    """``Kernel.build`` with the changes made; what comes out is compared with ``original``."""

    original: Callable[[Problem, Config], Callable[..., Any]]
    changes: tuple[SourceChange, ...]

    def __call__(self, problem: Problem, config: Config) -> Callable[..., Any]:
        return changed(self.original(problem, config), self.changes)


def original_build(kernel: Kernel) -> Callable[[Problem, Config], Callable[..., Any]]:
    """Without changes."""
    build = kernel.build
    return build.original if isinstance(build, ChangedBuild) else build


def changed_kernel(kernel: Kernel, changes: tuple[SourceChange, ...]) -> Kernel:
    return replace(kernel, build=ChangedBuild(kernel.build, changes))


def changed(function: Callable[..., Any], changes: Sequence[SourceChange]) -> Callable[..., Any]:
    """The same function with other equations in its kernels."""
    import jax
    from jax.extend.core import jaxpr_as_fun

    from autotune.compiling.child.changes.rules import BODY_RULES, CALL_RULES

    def run(*arguments: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        for change in changes:
            rule = CALL_RULES.get(change.kind)
            if rule is None:
                closed = _in_bodies(closed, change, BODY_RULES[change.kind])
            else:
                closed = rewritten(closed, _at(change, _of_calls(rule)))
        results = jaxpr_as_fun(closed)(*jax.tree_util.tree_leaves(arguments))
        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shapes), results)

    return run


def possible_changes(closed: Any) -> Iterator[SourceChange]:
    """Of all calls of a function, in the order of its program, without doubles."""
    from autotune.compiling.child.changes.rules import BODY_RULES, CALL_RULES

    listed: dict[SourceChange, None] = {}

    def note(rules: Mapping[ChangeKind, Rule], eqn: Any, made: Made) -> None:
        where = place_of(eqn)
        if where is not None:
            for kind, rule in rules.items():
                for value in rule(eqn, made):
                    listed[SourceChange(kind=kind, place=where, value=value)] = None

    for call, made in _calls(closed):
        note(CALL_RULES, call, made)
        for eqn, inner in _walked(call.params["jaxpr"]):
            note(BODY_RULES, eqn, inner)
    yield from listed


def place_of(eqn: Any) -> Place | None:
    """The innermost expression that is no machinery's."""
    traceback = eqn.source_info.traceback
    codes, offsets = traceback.raw_frames() if traceback is not None else ((), ())
    for code, offset in zip(codes, offsets, strict=True):
        if not any(part in code.co_filename for part in MACHINERY):
            nowhere = (None, None, None, None)
            return _place(
                code.co_filename, *next(islice(code.co_positions(), offset // 2, None), nowhere)
            )
    return _body_place(eqn)


def _body_place(eqn: Any) -> Place | None:
    """The body of a ``pallas_call`` that is the whole function: nobody's expression calls it."""
    inner = eqn.params.get("jaxpr") if eqn.primitive.name == "pallas_call" else None
    info = str(getattr(getattr(inner, "debug_info", None), "func_src_info", ""))
    file, _, line = info.rpartition(" at ")[2].rpartition(":")
    return _place(file, int(line), int(line), 0, 0) if file and line.isdigit() else None


def _place(
    file: str, line: int | None, end_line: int | None, column: int | None, end_column: int | None
) -> Place | None:
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return Place(file=file, line=line, column=column, end_line=end_line, end_column=end_column)


def rewritten(jaxpr: Any, change: Callable[[Any, Made], Sequence[Any] | None]) -> Any:
    """The same with the equations that ``change`` gives in the place of one; None: it stays, and
    what is in it is changed."""
    plain = open_jaxpr(jaxpr)
    if not hasattr(plain, "eqns"):
        if type(jaxpr) in (tuple, list):
            return type(jaxpr)(rewritten(each, change) for each in jaxpr)
        return jaxpr
    if plain is not jaxpr:
        return jaxpr.replace(jaxpr=rewritten(plain, change))
    made, eqns = _maker(jaxpr), list[Any]()
    for eqn in jaxpr.eqns:
        others = None if _is_machinery(eqn) else change(eqn, made)
        if others is not None:
            eqns += others
        elif _is_machinery(eqn):
            eqns.append(eqn)
        else:
            params = {name: rewritten(value, change) for name, value in eqn.params.items()}
            eqns.append(eqn.replace(params=params))
    return jaxpr.replace(eqns=eqns)


def spliced(eqn: Any, inputs: Sequence[Any], function: Callable[..., Any]) -> list[Any]:
    """The equations of a function of ``inputs``, which are variables, in the place of ``eqn``."""
    import jax

    avals = [jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in inputs]
    jaxpr = jax.make_jaxpr(function)(*avals).jaxpr
    given = dict(zip(jaxpr.invars, inputs, strict=True))
    results = dict(zip(jaxpr.outvars, eqn.outvars, strict=True))
    return [
        each.replace(
            invars=[var if hasattr(var, "val") else given.get(var, var) for var in each.invars],
            outvars=[results.get(var, var) for var in each.outvars],
            source_info=eqn.source_info,
        )
        for each in jaxpr.eqns
    ]


def _in_bodies(closed: Any, change: SourceChange, rule: Rule) -> Any:
    def of_call(eqn: Any, _: Made) -> list[Any] | None:
        if eqn.primitive.name != "pallas_call":
            return None
        body = rewritten(eqn.params["jaxpr"], _at(change, rule))
        return [eqn.replace(params={**eqn.params, "jaxpr": body})]

    return rewritten(closed, of_call)


def _of_calls(rule: Rule) -> Rule:
    """The same as equations."""

    def of_call(eqn: Any, made: Made) -> Mapping[str, Callable[[], Any]]:
        if eqn.primitive.name != "pallas_call":
            return {}
        return {value: partial(_with, eqn, params) for value, params in rule(eqn, made).items()}

    return of_call


def _with(eqn: Any, params: Callable[[], Any]) -> list[Any]:
    return [eqn.replace(params={**eqn.params, **params()})]


def _at(change: SourceChange, rule: Rule) -> Callable[[Any, Made], Sequence[Any] | None]:
    def at(eqn: Any, made: Made) -> Sequence[Any] | None:
        if place_of(eqn) != change.place:
            return None
        others = rule(eqn, made).get(change.value)
        return None if others is None else list(others())

    return at


def _calls(jaxpr: Any) -> Iterator[tuple[Any, Made]]:
    for eqn, made in _walked(jaxpr):
        if eqn.primitive.name == "pallas_call":
            yield eqn, made


def _walked(jaxpr: Any) -> Iterator[tuple[Any, Made]]:
    """All equations but those in a ``pallas_call`` inside, and those of JAX's own functions."""
    plain = open_jaxpr(jaxpr)
    made = _maker(plain)
    for eqn in plain.eqns:
        if _is_machinery(eqn):
            continue
        yield eqn, made
        if eqn.primitive.name != "pallas_call":
            for inner, _ in inner_jaxprs(eqn, [None] * max(1, len(eqn.invars))):
                yield from _walked(inner)


def _maker(plain: Any) -> Made:
    by_variable = {var: eqn for eqn in plain.eqns for var in eqn.outvars}
    return lambda var: None if hasattr(var, "val") else by_variable.get(var)


def _is_machinery(eqn: Any) -> bool:
    """A call of a function of JAX's own: it is traced once, with the place of its first use."""
    inner = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
    info = getattr(open_jaxpr(inner), "debug_info", None) if inner is not None else None
    source = str(getattr(info, "func_src_info", ""))
    is_call = eqn.primitive.name not in ("pallas_call", "scan", "while", "cond", "run_scoped")
    return is_call and any(part in source for part in MACHINERY)
