"""What is to be done with a module once somebody has imported it. A model may not need it, or must
set flags of JAX before it does."""

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

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
