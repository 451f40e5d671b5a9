"""A function whose ``pallas_call`` equations are changed as it is traced.

A change is of all equations that one expression of the source has made, so that it is the same in
the small problems that a kernel is verified on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from autotune.compiling.child.pallas_calls import MACHINERY
from autotune.compiling.child.trace.scalars import open_jaxpr, source_of
from autotune.declaring.kernel import Kernel
from autotune.domain.change import ChangeKind, Place, SourceChange
from autotune.domain.problem import Config, Problem

Made = Mapping[Any, Any]
"""The equations of a jaxpr by the variables that they make."""

Rule = Callable[[Any, Made], Mapping[str, Callable[[], Any]]]
"""The equations that can be put in the place of one, by the value of the change. Empty where the
rule does not apply; those of calls are asked of ``pallas_call`` alone."""


@dataclass(frozen=True)
class ChangedBuild:
    """``Kernel.build`` with the changes made; what comes out is compared with ``original``."""

    original: Callable[[Problem, Config], Callable[..., Any]]
    changes: tuple[SourceChange, ...]

    def __call__(self, problem: Problem, config: Config) -> Callable[..., Any]:
        return changed(self.original(problem, config), self.changes)


def original_build(kernel: Kernel) -> Callable[[Problem, Config], Callable[..., Any]]:
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
        # other kinds find the calls and bodies that more buffers put in other places
        for change in sorted(changes, key=lambda each: each.kind is ChangeKind.BUFFERS):
            rule = {**BODY_RULES, **CALL_RULES}[change.kind]
            closed = rewritten(closed, partial(_at, change, rule))
        results = jaxpr_as_fun(closed)(*jax.tree_util.tree_leaves(arguments))
        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shapes), results)

    return run


def possible_changes(closed: Any) -> Sequence[SourceChange]:
    """Of all calls of a function, in the order of its program, without doubles."""
    from autotune.compiling.child.changes.rules import BODY_RULES, CALL_RULES

    listed: dict[SourceChange, None] = {}

    def note(rules: Mapping[ChangeKind, Rule], eqn: Any, made: Made) -> Sequence[Any] | None:
        is_call, where = eqn.primitive.name == "pallas_call", place_of(eqn)
        if where is not None and is_call == (rules is CALL_RULES):
            for kind, rule in rules.items():
                for value in rule(eqn, made):
                    listed[SourceChange(kind=kind, place=where, value=value)] = None
        if is_call:
            rewritten(eqn.params["jaxpr"], partial(note, BODY_RULES))
        return [eqn] if is_call else None

    rewritten(closed, partial(note, CALL_RULES))
    return tuple(listed)


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
    # The body of a ``pallas_call`` that is the whole function: nobody's expression calls it.
    inner = eqn.params.get("jaxpr") if eqn.primitive.name == "pallas_call" else None
    file, line = source_of(inner) or ("", None)
    return _place(file, line, line, 0, 0)


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
    made = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    eqns = list[Any]()
    for eqn in jaxpr.eqns:
        others = [eqn] if _is_machinery(eqn) else change(eqn, made)
        if others is None:
            params = {name: rewritten(value, change) for name, value in eqn.params.items()}
            others = [eqn.replace(params=params)]
        eqns += others
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


def _at(change: SourceChange, rule: Rule, eqn: Any, made: Made) -> Sequence[Any] | None:
    others = rule(eqn, made).get(change.value) if place_of(eqn) == change.place else None
    return None if others is None else list(others())


def _is_machinery(eqn: Any) -> bool:
    """A call of a function of JAX's own: it is traced once, with the place of its first use."""
    inner = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
    file, _ = source_of(inner) or ("", 0)
    is_call = eqn.primitive.name not in ("pallas_call", "scan", "while", "cond", "run_scoped")
    return is_call and any(part in file for part in MACHINERY)
