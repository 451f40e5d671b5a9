"""The call of a decorated function that a problem is the key of: from the problem and the form
of the call, as they are stored. Nothing is imported."""

import ast
import shlex
from collections.abc import Iterable
from dataclasses import replace

from autotune.declaring.calls.text import expression
from autotune.domain.key import KernelRef, KernelSpec, Key
from autotune.domain.problem import Problem


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
