"""What makes a record stale: what the kernel runs, and nothing else."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from autotune.declaring.fingerprint import fingerprint
from autotune.domain.key import KernelRef

DECLARED = '''"""What it is for."""
import jax
import helper
from autotune import Kernel, block

SCALE = 2  # why


def body(x_ref, out_ref):
    """Doubles."""
    out_ref[...] = helper.twice(x_ref[...]) * SCALE


def build(problem, config):
    return lambda x: body(x, config["block"])


def unrelated(x):
    return x


def default(problem):
    return {"block": 8}


KERNEL = Kernel(
    name="k",
    axes=(block("block", "m", minimum=8),),
    default=default,
    build=build,
    doc="in words",
)
'''

DECORATED = '''"""What it is for."""
import jax
import autotune
import helper

SCALE = 2  # why


def body(x_ref, out_ref):
    """Doubles."""
    out_ref[...] = helper.twice(x_ref[...]) * SCALE


def unrelated(x):
    return x


@autotune.tunable(block=autotune.block("x.0", minimum=8), how=[1, 2])
def KERNEL(x: jax.Array, *, block: int = 8, how=1) -> jax.Array:
    """In words."""
    return body(x, block)
'''

HELPER = '''"""Helps."""


def twice(x):
    return x * 2  # times two


def thrice(x):
    return x * 3
'''


HARMLESS = {
    "both": [
        ("kernel.py", '"""What it is for."""', '"""Another docstring."""'),
        ("kernel.py", '    """Doubles."""\n', ""),
        ("kernel.py", "# why", "# because\n# of that"),
        ("kernel.py", "def unrelated(x):\n    return x", "def unrelated(x):\n    return -x"),
        ("kernel.py", "x_ref[...]) * SCALE", "\n        x_ref[...]\n    ) * SCALE"),
        ("kernel.py", "import jax\n", "import jax\nimport os\n"),
        ("kernel.py", "minimum=8", "minimum=16, maximum=4096"),
        ("helper.py", "# times two", ""),
        ("helper.py", "x * 3", "x + x + x"),
    ],
    DECLARED: [
        ("kernel.py", '{"block": 8}', '{"block": 128}'),
        ("kernel.py", "default=default", "default=lambda p: {}"),
        ("kernel.py", 'doc="in words"', 'doc="in other words"'),
    ],
    DECORATED: [
        ("kernel.py", "block: int = 8", "block: int = 128"),
        ("kernel.py", "how=[1, 2]", "how=[1, 2, 3]"),
        ("kernel.py", "x: jax.Array", "x"),
        ("kernel.py", '    """In words."""\n', ""),
    ],
}
HARMFUL = {
    "both": [
        ("kernel.py", "SCALE = 2", "SCALE = 3"),
        ("kernel.py", ") * SCALE", ") + SCALE"),
        ("kernel.py", "import helper", "import jax as helper"),
        ("helper.py", "x * 2", "x + x"),
    ],
    DECLARED: [
        ("kernel.py", 'config["block"])', 'config["block"] * 2)'),
        ("kernel.py", 'block("block", "m"', 'block("block", "n"'),
    ],
    DECORATED: [
        ("kernel.py", "body(x, block)", "body(x, 2 * block)"),
        ("kernel.py", 'block("x.0"', 'block("x.1"'),
    ],
}


def fingerprint_after(folder, source, edits):
    texts = {"kernel.py": source, "helper.py": HELPER}
    for file, before, after in edits:
        assert before in texts[file], before
        texts[file] = texts[file].replace(before, after)
    for file, text in texts.items():
        compile(text, file, "exec")
        (folder / file).write_text(text)
    return fingerprint(KernelRef(path=str(folder / "kernel.py"), attribute="KERNEL"))


@pytest.mark.parametrize("source", [DECLARED, DECORATED], ids=["declared", "decorated"])
def test_each_edit_alone(tmp_path, source):
    before = fingerprint_after(tmp_path, source, [])
    for edit in (*HARMLESS["both"], *HARMLESS[source]):
        assert fingerprint_after(tmp_path, source, [edit]) == before, edit
    harmless = [*HARMLESS["both"], *HARMLESS[source]]
    assert fingerprint_after(tmp_path, source, harmless) == before
    for edit in (*HARMFUL["both"], *HARMFUL[source]):
        assert fingerprint_after(tmp_path, source, [edit]) != before, edit


def test_the_text_of_a_notebook_has_the_fingerprint_of_the_file(tmp_path):
    before = fingerprint_after(tmp_path, DECORATED, [])
    here = str(tmp_path / "kernel.py")
    assert fingerprint(KernelRef(path=here, attribute="KERNEL", source=DECORATED)) == before


@pytest.mark.parametrize(
    "imported", ["from body import *", "try:\n    from body import *\nfinally:\n    pass"]
)
def test_what_a_star_brings_makes_a_record_stale(tmp_path, imported):
    kernel, body = tmp_path / "kernel.py", tmp_path / "body.py"
    kernel.write_text(f"import autotune\n{imported}\nKERNEL = autotune.Kernel(build=build)\n")
    found = []
    for factor in (2, 3):
        body.write_text(f"def build(problem, config):\n    return lambda x: x * {factor}\n")
        found.append(fingerprint(KernelRef(path=str(kernel), attribute="KERNEL")))
    assert found[0] != found[1]


def test_of_an_installed_kernel_only_its_own_package_counts(tmp_path):
    """Beside it lie JAX and all else that is installed: another version of those is told by the
    toolchain, and reading them takes minutes."""
    (tmp_path / "mine-1.0.dist-info").mkdir()
    for name in ("mine", "jaxlike"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    kernel, helper = tmp_path / "mine" / "kernel.py", tmp_path / "mine" / "helper.py"
    kernel.write_text("import jaxlike\nfrom mine import helper\nKERNEL = helper.f(jaxlike.g)\n")
    helper.write_text("def f(x):\n    return x\n")
    other = tmp_path / "jaxlike" / "__init__.py"
    other.write_text("def g():\n    return 1\n")
    ref = KernelRef(path=str(kernel), attribute="KERNEL")
    first = fingerprint(ref)
    other.write_text("def g():\n    return 2\n")
    assert fingerprint(ref) == first
    helper.write_text("def f(x):\n    return x + 1\n")
    assert fingerprint(ref) != first


class _Waits:
    """Garbage that lets other threads run while it is collected."""

    def __init__(self):
        self.own = self

    def __del__(self):
        for _ in range(200):
            pass


@pytest.fixture
def others_run_while_syntax_is_read():
    """Python before 3.12.3 then takes one thread's depth in a syntax tree for that of another."""
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()

    def more(_phase, _info):
        for _ in range(3):
            _Waits()

    gc.callbacks.append(more)
    gc.set_threshold(50, 2, 2)
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)
    gc.callbacks.remove(more)


@pytest.mark.usefixtures("others_run_while_syntax_is_read")
def test_threads_may_ask_at_once(tmp_path):
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "k.py").write_text(DECLARED)
    ref = KernelRef(path=str(tmp_path / "k.py"), attribute="KERNEL")
    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(lambda _: fingerprint(ref), range(100)))) == 1


@pytest.mark.parametrize("word", ["baseline", "check", "mesh", "values"])
def test_what_a_decorator_says_beside_its_axes_counts(tmp_path, word):
    ways = (f"how=[1, 2], {word}={what}" for what in ("body", "unrelated"))
    sources = (DECORATED.replace("how=[1, 2]", way) for way in ways)
    assert len({fingerprint_after(tmp_path, source, []) for source in sources}) == 2
