"""``autotune.install``: tuned blocks in the code of others, which stays as it is.

    autotune.install("jax", "tokamax", workload="model.toml")

or ``AUTOTUNE_INSTALL=jax,tokamax`` where a package has plug-ins (vLLM). ``autotune.tables.hooks``
says which lookups decide on block sizes; while a model is traced they take what is published, for
calls that say none themselves. Nothing here stops a model because of a config, a source or another
release: the call then runs as it would have.
"""

import inspect
import logging
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache, partial, reduce
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from autotune.answering.generation import GENERATION
from autotune.answering.sources import is_strict, settings
from autotune.declaring.calls.listening import LISTENER
from autotune.declaring.discovery import named_kernel
from autotune.domain.errors import AutotuneError, InvalidInputError
from autotune.domain.problem import Problem, parsed_parts
from autotune.domain.version import installed_version
from autotune.domain.workload import Workload, load_workload
from autotune.python.tuned import Tuned, error_sentence
from autotune.tables import hooks
from autotune.tables.hooks.hook import Hook, Named, Package, Problems
from autotune.tables.table import UNTYPED

_Task = Callable[[], None]


class _WhenImported(MetaPathFinder):
    """``then``: at once where a module is there. Tasks raise nothing."""

    def __init__(self) -> None:
        self._tasks: dict[str, list[_Task]] = {}

    def then(self, module: str, task: _Task) -> None:
        if module in sys.modules:
            task()
            return
        self._tasks.setdefault(module, []).append(task)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def forget(self) -> None:
        """What is still to be done."""
        self._tasks.clear()

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        """As whoever else finds it."""
        tasks = self._tasks.pop(name, None)
        if tasks is None:
            return None
        spec = find_spec(name)
        self._tasks[name] = tasks
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                execute(module)
                for task in self._tasks.pop(name, ()):
                    task()

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


WHEN_IMPORTED = _WhenImported()


WORKLOAD = "AUTOTUNE_WORKLOAD"

_log = logging.getLogger("autotune")
_asking: ContextVar[bool] = ContextVar("autotune_asking", default=False)
_undo: dict[str, list[Callable[[], None]]] = {}
_workloads: list[Workload] = []  # that a service is asked for
_asked: set[int] = set()  # in these generations of answers


def install(*packages: str, workload: str | Path | None = None) -> list[str]:
    """Let these packages take block sizes from what is published, for calls that say none: without
    names those of ``AUTOTUNE_INSTALL``. Which ones it was done for; why not for another is logged.
    What JAX has traced before keeps its blocks, until ``jax.clear_caches()``.

    ``workload``: a file that ``autotune.collect`` wrote, by default what ``AUTOTUNE_WORKLOAD``
    says: a service is asked for all its problems in one call, when the first is traced. Raises
    ``InvalidInputError`` for a package that there is not, and a file that is no workload.
    """
    named = packages or hooks.named_in_environment()
    if not named or (unknown := hooks.unknown_packages(named)):
        wrong = (
            f"no package is named ({hooks.ENVIRONMENT})"
            if not named
            else f"unknown package {unknown}"
        )
        raise InvalidInputError(
            f"{wrong}: choose among {', '.join(hooks.PACKAGES)}, as in install('jax')"
        )
    installed = [name for name in named if _install(hooks.PACKAGES[name])]
    if file := workload or os.environ.get(WORKLOAD):
        _workloads.append(load_workload(Path(file)))
        _asked.clear()
    return installed


def uninstall() -> None:
    """Give all lookups back what they did. What was traced with tuned blocks keeps them, until
    ``jax.clear_caches()``."""
    WHEN_IMPORTED.forget()
    _workloads.clear()
    while _undo:
        for undo in reversed(_undo.popitem()[1]):
            undo()
    _tuned.cache_clear()
    _tuned_or_none.cache_clear()


def install_from_environment() -> None:
    """``install`` for plug-ins: nothing where ``AUTOTUNE_INSTALL`` is not set."""
    try:
        if os.environ.get(hooks.ENVIRONMENT):
            install()
    except AutotuneError as error:
        _log.warning("autotune: %s", error)


def _install(package: Package) -> bool:
    if (why := hooks.untouched(package, installed_version(package.name))) is not None:
        _log.warning("autotune: %s", why)
        return False
    if package.name not in _undo:
        undo = _undo[package.name] = []
        for hook in package.hooks():
            WHEN_IMPORTED.then(hook.module, partial(_put, hook, undo))
    return True


def _put(hook: Hook, undo: list[Callable[[], None]]) -> None:
    """``undo``: gets what takes it out again."""
    *owners, name = hook.path.split(".")
    try:
        owner: Any = reduce(getattr, owners, sys.modules[hook.module])
        theirs = getattr(owner, name)
    except AttributeError as error:  # other kernels of the package need not lack what this one does
        _log.warning("autotune: %s is left alone: %s", hook, error_sentence(error))
        return
    before = vars(owner).get(name, theirs)
    original = hook.original or getattr(theirs, "fget", theirs)
    ours = hook.put(theirs, _lookup(hook, original))
    wraps: dict[type, Callable[[Any], Any]] = {classmethod: staticmethod, property: property}
    setattr(owner, name, wraps[type(before)](ours) if type(before) in wraps else ours)
    undo.append(partial(setattr, owner, name, before))


def _lookup(hook: Hook, original: Callable[..., Any]) -> Callable[..., Any]:
    """In the place of the original."""
    signature = inspect.signature(original)

    def lookup(*args: Any, **kwargs: Any) -> Any:
        default, variables = partial(original, *args, **kwargs), _variables(hook, sys._getframe(1))
        # while a default is asked for, or a model collected, nothing changes
        if variables is None or _asking.get() or LISTENER.get() is not None:
            return default()
        token = _asking.set(True)
        try:
            call = {**variables, **signature.bind(*args, **kwargs).arguments}
            axes = _axes(hook, call)
            return default() if axes is None else hook.result(call, axes, default)
        except Exception as error:  # what stands in the way of tuned blocks must not stop a model
            if isinstance(error, AutotuneError) and is_strict(None):
                raise
            result = default()  # raises what is not of our blocks
            _log.warning("autotune: %s runs as it is: %s", hook, error_sentence(error))
            return result
        finally:
            _asking.reset(token)

    return lookup


def _variables(hook: Hook, frame: FrameType | None) -> Named | None:
    """Of its caller, which may ask in a function within; None where another asks."""
    for _ in range(2) if hook.callers else ():
        if frame is not None and frame.f_globals.get("__name__") == hook.module:
            if frame.f_code.co_name in hook.callers:
                return frame.f_locals
            frame = frame.f_back
    return None if hook.callers else {}


def _axes(hook: Hook, call: Named) -> Named | None:
    """Of the records for a call; None where there is none for its first kernel."""
    axes: Named = {}
    if hook.problems is None:
        return axes
    try:
        problems = _described(hook.problems(call))
    except (AutotuneError, *UNTYPED) as error:  # nothing that the catalogue has
        _log.debug("autotune: %s runs as it is: %s", hook, error_sentence(error))
        return None
    if GENERATION.number not in _asked:  # a fork, refresh, or the end of an outage asks again
        _asked.add(GENERATION.number)
        for workload in _workloads:
            _ask_for(workload)
    for tuned, problem in problems:
        answer = tuned.answer(problem)
        if answer.config.vmem_limit_bytes is not None:
            _log.warning("autotune: %s has no place for the limit of %s", hook, answer.config)
        elif answer.record is not None:
            axes.update(answer.config.axes)
            call.setdefault("autotune", []).append(answer.record.key)
        if not axes:
            break
    return axes or None


def _described(named: Problems) -> list[tuple[Tuned, Problem]]:
    """An operation and its gradients share one problem. Raises as ``Tuned.problem``."""
    made: list[tuple[Tuned, Named, Problem]] = []
    for kernel, parts in named.items():
        tuned = _tuned(kernel)
        same = [known for of, given, known in made if of.spec == tuned.spec and given == parts]
        made.append((tuned, parts, same[0] if same else tuned.problem(**parts)))
    return [(tuned, problem) for tuned, _, problem in made]


@cache
def _tuned(kernel: str) -> Tuned:
    ref = named_kernel(kernel)
    return Tuned.at(getattr(import_module(ref.module), ref.attribute), ref)


@cache
def _tuned_or_none(kernel: str) -> Tuned | None:
    """None for one that is not installed here."""
    try:
        return _tuned(kernel)
    except (AutotuneError, ImportError):
        return None


def _ask_for(workload: Workload) -> None:
    """A service, at once. Not before a kernel is traced: to ask JAX for its device would be too
    early for ``jax.distributed.initialize``, and for a server that forks."""
    try:
        source, keys = settings().source, []
        for problem in workload.problems:
            if tuned := not problem.args and _tuned_or_none(problem.kernel):
                parts = parsed_parts(",".join([problem.shape, *problem.options]), "problem")
                keys.append(tuned.key(tuned.problem(dtype=problem.dtype, **parts)))
        if lookup := getattr(source, "lookup", None):
            lookup(keys)
    except Exception as error:  # each is asked for again when it is traced
        _log.warning("autotune: a workload is not asked for: %s", error_sentence(error))
