"""How a command names a problem: the same options everywhere, and what they mean. And
where the kernel of a searched key is, and whether its source is still what it was."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from autotune.cli.shared import one_compiler, repeated_option
from autotune.declaring.calls.text import call_of, called, with_contents
from autotune.declaring.discovery import catalogue, find_kernel
from autotune.declaring.fingerprint import fingerprint
from autotune.domain.arguments import ProblemWords
from autotune.domain.errors import AutotuneError, InvalidInputError, UnknownNameError
from autotune.domain.key import KernelRef, KernelSpec, Key
from autotune.domain.problem import Problem
from autotune.domain.store import Store
from autotune.wording.match import earlier_source

if TYPE_CHECKING:
    from autotune.domain.compilers import Compilers


F = TypeVar("F", bound=Callable[..., Any])


def problem_options(command: F, *, several: bool = False) -> F:
    """``--args``, or ``--shape``, ``--dtype`` and ``--option``, as ``words``; ``several``: those of
    several problems, one without anything in it where none is named."""

    @click.option(
        "--args",
        "call",
        multiple=several,
        metavar="q=bf16[2,8,4096,128],causal=true…|m=…,k=…,dtype=bf16…",
        help="All of the problem at once: how a function is called, or sizes, dtype and options "
        "of a declaration. i32[16]@lengths.npy has the integers of a file in it.",
    )
    @repeated_option(
        "--option",
        "options",
        metavar="NAME=VALUE",
        help="A static option or argument, beside --shape; may be given several times.",
    )
    @click.option("--dtype", help="Element type (bf16, float32, int8 …), beside --shape.")
    @click.option(
        "--shape",
        multiple=several,
        metavar="m=…,k=…|AxBxC|x=AxB,y=BxC",
        help="Sizes by name, or in the kernel's own order; of a function the shapes of its arrays."
        + " May be given several times, as --args." * several,
    )
    @wraps(command)
    def taking(
        *arguments: Any, shape: Any, dtype: str | None, options: Any, call: Any, **more: Any
    ) -> Any:
        beside = {"dtype": dtype or "", "options": options}
        if several:
            sizes = ",".join(shape)  # with a call it is refused
            words: Any = [ProblemWords(call=with_contents(c), shape=sizes, **beside) for c in call]
            words = words or [ProblemWords(shape=each, **beside) for each in shape or ("",)]
        else:
            words = ProblemWords(shape=shape or "", call=with_contents(call or ""), **beside)
        return command(*arguments, words=words, **more)

    return cast(F, taking)


def configs_option(note: str) -> Callable[[F], F]:
    """``--config``, as ``texts``, for a command that takes single configs of a kernel."""
    return repeated_option(
        "--config",
        "texts",
        metavar="block_m=256,…",
        help=f"{note} [default: default]",
    )


def wanted_problem(
    store: Store, kernel: str | None, words: ProblemWords
) -> tuple[str | None, Problem | None]:
    """Of what is listed or sent: the name of the kernel and the problem; None for any. Raises as
    ``searched_problem``."""
    if not words:
        return _spec(store, kernel).name if kernel and ".py" in kernel else kernel, None
    if kernel is None:
        raise InvalidInputError("--shape and --args are of a kernel: name the kernel as well")
    spec, problem = searched_problem(store, kernel, words)
    return spec.name, problem


def searched_problem(store: Store, kernel: str, words: ProblemWords) -> tuple[KernelSpec, Problem]:
    """What words mean for a kernel that was searched; where none are given the error has those of
    the last search. Raises ``InvalidInputError``, and ``UnknownNameError`` for another kernel."""
    if words.call:
        searched = places(store, [each.key for each in store.history(kernel, None, 1)])
        return called_problem(kernel, words, searched.get(kernel))
    spec = _spec(store, kernel)
    last = None if words.shape else next(iter(store.history(spec.name, None, 1)), None)
    if last and (call := call_of([spec], last.key)):
        raise InvalidInputError(f"say how {kernel} is called: add --args {call!r}, as your call is")
    return spec, words.of_searched(spec)


def called_problem(
    kernel: str, words: ProblemWords, ref: KernelRef | None = None
) -> tuple[KernelSpec, Problem]:
    """Only a process that imports the kernel knows what its call leaves to defaults."""
    with one_compiler() as pool:
        return read_problem(pool, ref or find_kernel(kernel), words)


def read_problem(
    compilers: "Compilers", ref: KernelRef, words: ProblemWords
) -> tuple[KernelSpec, Problem]:
    """The kernel, of a decorated function for calls of this form, with the problem. Raises
    ``InvalidInputError``."""
    from autotune.domain.compilers import DescribeKernel, ReadProblem  # not for what is looked up

    call, problem = compilers.ask(ReadProblem(ref=ref, words=words))
    return compilers.ask(DescribeKernel(ref=replace(ref, call=call))), problem


def _spec(store: Store, name: str) -> KernelSpec:
    """The kernel as it is here if it was ever searched, else as last searched."""
    specs = store.kernels()
    try:
        ref = find_kernel(name)
    except AutotuneError:
        ref = None
    if ref is not None:
        forms = {form: fingerprint(ref, form) for form in {spec.form for spec in specs}}
        known = [spec for spec in specs if spec.fingerprint == forms[spec.form]]
        if known:
            return known[0]
    spec = store.kernel(name)
    if spec is None and ref is not None:  # another source at the same place
        searched = places(store, [record.key for record in store.records()])
        spec = next(
            (store.kernel(kernel) for kernel, place in searched.items() if place == ref), None
        )
    if spec is None:
        names = sorted({spec.name for spec in specs})
        what = "is not known" if name not in catalogue() and ref is None else "was never searched"
        raise UnknownNameError(
            f"kernel {name!r} {what} in this database, it has {', '.join(names) or 'none'}: run "
            "autotune search first"
        )
    return spec


def kernel_of(store: Any, key: Key, given: str | None = None) -> KernelRef:
    """The kernel that was ``given``, else where the key was searched from, else the catalogue's; of
    a decorated function for calls like that of the key. Raises as ``find_kernel`` does."""
    place = given or _place(store, key) or key.kernel
    asked = store.searches.progress(key).asked
    return called(find_kernel(place), store.kernels(), key, asked)


def source_now(store: Any, key: Key, ref: KernelRef) -> str:
    """The fingerprint of the source at ``ref``, for calls of the form that the key is of. Raises
    ``OSError``."""
    spec = store.kernel(key.kernel, key.fingerprint)
    return fingerprint(ref, spec.form if spec else "")


def key_now(store: Any, key: Key) -> Key:
    """For the source of the kernel as it is now; the same where nobody knows where that is."""
    try:
        return replace(key, fingerprint=source_now(store, key, kernel_of(store, key)))
    except (AutotuneError, OSError):
        return key


def source_change(store: Any, key: Key, now: Key | None = None) -> str:
    """A sentence where the source of a kernel is not what the key is of; empty where it is, or
    nobody knows where it is. ``now``: its ``key_now``, where that is known."""
    if (now or key_now(store, key)) == key:
        return ""
    return earlier_source(key, store.searches.progress(key).asked)


def source_changes(store: Any, keys: Sequence[Key]) -> list[str]:
    """Those sentences of many keys: the source of each kernel is looked for only once."""
    first: dict[tuple[str, str], Key] = {}
    for key in keys:
        first.setdefault((key.kernel, key.fingerprint), key)
    said = {of: source_change(store, key) for of, key in first.items()}
    return list(filter(None, (said[key.kernel, key.fingerprint] for key in keys)))


def places(store: Any, keys: Iterable[Key]) -> dict[str, KernelRef]:
    """Where kernels were searched from, by name: those that are still there."""
    refs: dict[str, KernelRef] = {}
    for key in keys:
        if key.kernel in refs or not (place := _place(store, key)):
            continue
        with suppress(AutotuneError):
            refs[key.kernel] = find_kernel(place)
    return refs


def _place(store: Any, key: Key) -> str:
    """As it was said then; empty where nobody knows."""
    words = shlex.split(store.searches.progress(key).asked)
    return words[0] if words else ""
