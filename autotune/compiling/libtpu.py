"""Every switch of libtpu and of the JAX that drives it.

See docs/explanation/compiling-without-a-tpu.md."""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from functools import cache
from glob import escape
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from autotune.domain.compiler_options import INIT_ARGS, XLA_FLAGS, as_flags, for_host
from autotune.domain.key import Chip
from autotune.domain.version import installed_version

_TOPOLOGIES = {
    Chip.V2: "v2:2x2",
    Chip.V3: "v3:2x2",
    Chip.V4: "v4:2x2x1",
    Chip.V5E: "v5e:2x2",
    Chip.V5P: "v5p:2x2x1",
    Chip.V6E: "v6e:2x2",
    Chip.V7X: "tpu7x:2x2x1",
}

_CHIPS_OF_HOST = 8  # at most; larger slices have several hosts

# Set by JAX when it is imported, for its own libtpu: a child under another interpreter with
# another JAX would load the parent's compiler.
_NOT_INHERITED = ("TPU_LIBRARY_PATH",)

CPU_DEVICES = 8
"""Of a process that compiles: interpret mode runs the kernels of a mesh of so many."""

_ENTRY_CHARACTERS = 400

LISTING_SUFFIX = "-final_bundles.txt"


IN_COMPILER = "AUTOTUNE_IN_COMPILER"
"""Set where kernels are loaded only to be compiled."""

READ_ONCE = "AUTOTUNE_READ_ONCE"
"""Compiler options, as flags, that libtpu takes only when it is loaded."""

WHOLE_LISTING = "AUTOTUNE_WHOLE_LISTING"
"""Set where libtpu is to print the final listings itself, whatever that costs."""

SOURCE_LINES = "AUTOTUNE_SOURCE_LINES"
"""Set where libtpu is to say as well which line of source each operation comes from."""

_PACKING_LOGGED = (0, 0, 42), (0, 0, 50)
"""First and last libtpu of which final listings have been put together and compared with its own
(tests/e2e/test_assembly.py)."""
_PACKER = {
    "TPU_VMODULE": "bundle_packer=2,global_bundle_packer=1",
    "TPU_MIN_LOG_LEVEL": "0",
    "TPU_STDERR_LOG_LEVEL": "0",
}
_OPERATIONS = "post-delay-converter"
_PASSES = f"original|post-simplifier-1|post-MXU-assigner|post-vmac-transform|{_OPERATIONS}"
_LINES = "--xla_jf_dump_llo_proto=true --xla_xprof_register_llo_debug_info=true"
_MODULE_SUFFIX = "-llo_module.pb"
_STDERR = Path("/proc/self/fd/2")
LONGEST_LOG_BYTES = 256 << 20
_HBM = re.compile(r"Memory Space: default.*\nTotal bytes(?: used)?: (\d+)")
_INSTRUCTION = re.compile(r"^ *(?:ROOT )?%([\w.-]+) = .*? ([a-z][\w-]*)\(", re.M)


def child_environment(dump: Path, base: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that compiles for a TPU that is not there.

    ``LIBTPU_INIT_ARGS`` is read once, when libtpu is loaded: all candidates of a process share
    the ``dump`` folder. ``ALLOW_MULTIPLE_LIBTPU_LOAD`` keeps two processes from colliding on
    libtpu's lock file; the rest keeps libtpu from asking a metadata server that does not exist.
    """
    flags = f"{_dumping(dump)} --xla_jf_dump_llo_pass_label_regex=final_bundles"
    host = {XLA_FLAGS: for_host(base[XLA_FLAGS])} if base.get(XLA_FLAGS) else {}
    inherited = {name: value for name, value in base.items() if name not in _NOT_INHERITED}
    return {
        "JAX_NUM_CPU_DEVICES": str(CPU_DEVICES),
        **inherited,
        **host,
        IN_COMPILER: "1",
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "0",  # what is compiled for no device cannot be read back
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-4",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_LOG_DIR": str(dump / "log"),
        INIT_ARGS: f"{flags} {base.get(READ_ONCE, '')}".rstrip(),
        "PYTHONDONTWRITEBYTECODE": base.get("PYTHONDONTWRITEBYTECODE", "1"),
    }


def _dumping(dump: Path) -> str:
    return f"--xla_jf_dump_to={dump} --xla_jf_dump_llo_text=true"


def measuring_environment(
    folder: Path, base: Mapping[str, str], platform: str, options: str = ""
) -> dict[str, str]:
    """The environment of the one process that opens the accelerator: nothing of a TPU that is not
    there; libtpu is loaded with the compiler options of what is measured. Without
    ``ALLOW_MULTIPLE_LIBTPU_LOAD`` libtpu says so when somebody else has it."""
    inherited = {
        name: value
        for name, value in base.items()
        if name not in (*_NOT_INHERITED, "ALLOW_MULTIPLE_LIBTPU_LOAD", INIT_ARGS)
    }
    return {
        **inherited,
        **({INIT_ARGS: as_flags(options)} if options else {}),
        "JAX_PLATFORMS": platform,
        "TPU_LOG_DIR": str(folder / "log"),
        "PYTHONDONTWRITEBYTECODE": base.get("PYTHONDONTWRITEBYTECODE", "1"),
    }


def interpreting_flags(jaxlib: str, libtpu: str) -> str:
    """``XLA_FLAGS`` of a process whose programs for the CPU run once, under a version of jaxlib: to
    optimise them takes longer than it saves. What is compiled for a TPU is as it was. XLA aborts
    for a flag that it does not know: jaxlib 0.11 has no second one, nor has the libtpu that is read
    with it; what is before 0.7 interprets nothing."""
    plain = "--xla_backend_optimization_level=0"
    release = tuple(map(int, re.findall(r"\d+", libtpu)[:3]))
    known = (0, 7) <= tuple(map(int, re.findall(r"\d+", jaxlib)[:2])) < (0, 11)
    known = known and release < (0, 0, 44)  # the last of jax 0.10 is 0.0.43
    return f"{plain} --xla_cpu_use_fusion_emitters=false" if known else plain


@cache
def version(package: str = "libtpu") -> str | None:
    """The installed one; None when there is none. Read once: every candidate asks."""
    return installed_version(package)


def topology(chip: Chip, devices: int = 1, bounds: Sequence[int] = ()) -> dict[str, Any]:
    """Arguments of ``get_topology_desc`` for a compile-only chip, v4 and v5p as megacore.

    Of several ``devices`` it has just as many, all of one host; ``bounds``: chips along each axis
    of the slice, where they are given. Raises ``ValueError`` for what no slice of the chip has.
    """
    more: dict[str, Any] = {"chip_config_name": "megacore"} if chip is Chip.V4 else {}
    name = _TOPOLOGIES[chip]
    rank = name.count("x", name.index(":")) + 1
    if devices > 1 and not bounds:
        bounds = _bounds(devices // chip.devices_per_chip, rank)
        if prod(bounds) * chip.devices_per_chip != devices:
            raise ValueError(f"a mesh of {devices} {chip} devices: their number is a power of two")
    if len(bounds) not in (0, rank):
        example = name.partition(":")[2]
        raise ValueError(f"a slice of {chip} has {rank} axes, as in {example}")
    if bounds:
        shape = "x".join(map(str, bounds))
        name = name.partition(":")[0] + ":" + shape
        if prod(bounds) <= _CHIPS_OF_HOST:
            more["chips_per_host_bounds"] = (*bounds, *[1] * (3 - rank))
        elif any(size % 2 for size in bounds[:2]):
            even = f"above {_CHIPS_OF_HOST} chips its first two axes are even, as in 2x6 and 4x4"
            raise ValueError(f"no slice of {chip} is {shape}: {even}{'x1' * (rank - 2)}")
    return {"platform": "tpu", "topology_name": name, **more}


def _bounds(chips: int, rank: int) -> list[int]:
    """The largest power of two up to ``chips``, spread over the dimensions."""
    bounds = [1] * rank
    for turn in range(max(chips, 1).bit_length() - 1):
        bounds[turn % rank] *= 2
    return bounds


class _Packing:
    """``log``: where this process's libtpu logs how it packs; None where it was not asked to."""

    log: Path | None = None


def log_the_packing(dump: Path) -> None:
    """Ask for the operations of each function and the packer's log in place of the final listing,
    where that is known to be the same and costs less. Called before libtpu is loaded, in a process
    whose stderr is a file: the log goes there. Where lines of source are wanted, ask for these and
    the listing; an older libtpu would abort for a switch that it does not know."""
    first, last = _PACKING_LOGGED
    release = tuple(map(int, re.findall(r"\d+", version() or "")[:3]))
    is_file = stat.S_ISREG(os.fstat(2).st_mode)
    if SOURCE_LINES in os.environ and release >= first:
        regex = f"final_bundles|{_PASSES}"
        flags = f"{_dumping(dump)} --xla_jf_dump_llo_pass_label_regex={regex} {_LINES}"
        os.environ[INIT_ARGS] = f"{flags} {os.environ.get(READ_ONCE, '')}".rstrip()
    whole = {WHOLE_LISTING, SOURCE_LINES} & {*os.environ}
    if whole or not is_file or not first <= release <= last:
        return
    flags = (
        f"--logtostderr=true {_dumping(dump)} --xla_jf_dump_category_filter=basic "
        f"--xla_jf_dump_llo_pass_label_regex={_OPERATIONS} {os.environ.get(READ_ONCE, '')}"
    )
    os.environ.update({**_PACKER, INIT_ARGS: flags.rstrip()})
    _Packing.log = _STDERR.resolve()


def tells_lines() -> bool:
    """Whether this process's libtpu was loaded to say the lines of source."""
    return SOURCE_LINES in os.environ


def packing_is_logged() -> bool:
    """Whether this process has asked for it."""
    return _Packing.log is not None


def packing_log(start: int = 0) -> tuple[bytes, int]:
    """What this process has logged since ``clear``, from a byte on, and where what it logs next
    begins.

    A long log is begun anew: no file of this process may be larger than a GiB (``serving``), and a
    step of a model logs more.
    """
    if _Packing.log is None:
        return b"", 0
    with _Packing.log.open("rb") as file:
        is_long = os.fstat(file.fileno()).st_size > LONGEST_LOG_BYTES
        if is_long:
            _begin_anew(_Packing.log)
        file.seek(start)
        new = file.read()
    return new, 0 if is_long else start + len(new)


def _begin_anew(log: Path) -> None:
    """What is written from now on goes to a new file of that name."""
    log.unlink()
    with log.open("ab") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)


def operations(dump: Path) -> list[Path]:
    """The texts of each function that was compiled last, registers allocated: it is packed then."""
    return _texts(dump, f"-{_OPERATIONS}.txt")


def scheduled_module(dump: Path) -> str:
    """Of what is compiled with ``buffers_dumped``: written before any code is, which may take
    minutes, for SparseCores above all. Empty until then."""
    texts = [path.read_text() for path in sorted(dump.glob("*.after_optimizations.txt"))[-1:]]
    whole = (text for text in texts if "\nENTRY " in text and text.rstrip().endswith("}"))
    return next(whole, "")


def buffers_dumped(dump: Path) -> dict[str, str | bool]:
    """Options of one program: as it is scheduled it is written in the plainest form, and what
    memory its buffers take."""
    return {
        "xla_dump_to": str(dump),
        "xla_dump_hlo_as_text": True,
        "xla_dump_compact_gte": False,
        "xla_syntax_sugar_async_ops": True,
    }


def hbm_bytes(dump: Path) -> int:
    """Of what was compiled with ``buffers_dumped``: arguments, results and temporaries on a device;
    0 where that is not known."""
    reports = [path.read_text() for path in dump.glob("*-memory-usage-report.txt")]
    return max((int(total[1]) for total in map(_HBM.search, reports) if total), default=0)


def opcodes(dump: Path) -> dict[str, str]:
    """Of the instructions of what was compiled last, by name."""
    return {
        name: opcode
        for path in sorted(dump.glob("*-TLP-hlo.txt"))
        for name, opcode in _INSTRUCTION.findall(path.read_text())
    }


def listings(dump: Path) -> dict[str, str]:
    """Texts of the final instruction listings of what was compiled last, by name of the
    instruction: Pallas calls, and XLA's own fusions and copies."""
    texts = {}
    for path in _texts(dump, LISTING_SUFFIX):
        text = path.read_text()
        entry = _entry(text)
        if entry:
            texts[entry.lstrip(" %").partition(" = ")[0]] = text
    return texts


class SourceTexts(NamedTuple):
    """Of one function: libtpu's description, which has the lines, and the texts of its passes in
    their order."""

    module: bytes
    passes: list[str]


def source_texts(dump: Path) -> dict[str, SourceTexts]:
    """Of what was compiled last, by name of the instruction; those without lines are left out."""
    texts = {}
    for module in _texts(dump, _MODULE_SUFFIX):
        stem = module.name.removesuffix(_MODULE_SUFFIX).rpartition("-")[0]
        passes = [
            path.read_text()
            for path in sorted(dump.glob(f"{escape(stem)}-*.txt"))
            if re.search(rf"-\d+-({_PASSES})\.txt$", path.name)
        ]
        texts[stem.partition("-")[2]] = SourceTexts(module.read_bytes(), passes)
    return texts


def _texts(dump: Path, suffix: str) -> list[Path]:
    """Of functions, in the order in which they were compiled."""
    others = "schedule-analysis", "<late-", "-TLP-"
    paths = sorted(dump.glob(f"*{suffix}"))
    return [path for path in paths if not any(other in path.name for other in others)]


def is_kernel(listing: str) -> bool:
    """Whether a listing is that of a Pallas call."""
    return "custom-call(" in _entry(listing).partition("*/")[0]


def _entry(listing: str) -> str:
    """The beginning of the instruction that a listing is of; empty where it names none."""
    opening = "/* entry bundle: "
    start = listing.find(opening)
    return (
        ""
        if start < 0
        else listing[start + len(opening) : start + len(opening) + _ENTRY_CHARACTERS]
    )


def clear(dump: Path) -> None:
    """Remove what earlier compilations left, and cut libtpu's logs: they grow without end."""
    for path in dump.iterdir():
        if path.is_file():
            path.unlink(missing_ok=True)
    for log in (dump / "log").glob("*"):
        if log.is_file() and not log.is_symlink():
            os.truncate(log, 0)  # libtpu holds it open: removing would free nothing
    if _Packing.log:
        os.truncate(_Packing.log, 0)
