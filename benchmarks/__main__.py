"""``python -m benchmarks`` lists what they answer, ``python -m benchmarks NAME …`` runs one."""

import ast
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import GROUPS

NAMES = tuple(name for names in GROUPS.values() for name in names)


def question(name: str) -> str:
    """What a benchmark answers, read without importing it: some import JAX."""
    source = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    doc = ast.get_docstring(ast.parse(source)) or ""
    return doc.partition("\n")[0].replace("``", "`")


def listing() -> Iterator[str]:
    yield "python -m benchmarks NAME [--help | OPTIONS], from the root of the repository"
    for title, names in GROUPS.items():
        yield f"\n{title}"
        yield from (f"  {name:<22}{question(name)}" for name in names)


def main() -> int | str | None:
    """The exit code, or a sentence."""
    if not sys.argv[1:] or sys.argv[1] in ("-h", "--help"):
        print("\n".join(listing()))
        return 0
    name = sys.argv[1]
    if name not in NAMES:
        return f"there is no benchmark {name}: python -m benchmarks lists them"
    sys.argv = [f"python -m benchmarks {name}", *sys.argv[2:]]
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as commands do
    code: int | None = importlib.import_module(f"benchmarks.{name}").main()
    return code


if __name__ == "__main__":
    sys.exit(main())
