"""Options of the TPU compiler: how people write them, and the one text that stands in a key.

The text has ``name=value`` for each, sorted, parted by spaces, quoted as a shell quotes. Two sets
with the same text compile the same programs. It is empty where nothing is changed, as for nearly
all users. It leaves out options at their default, those that change no program, and our own.
"""

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from autotune.domain.errors import InvalidInputError

INIT_ARGS, XLA_FLAGS = "LIBTPU_INIT_ARGS", "XLA_FLAGS"
VMEM_LIMIT = "xla_tpu_scoped_vmem_limit_kib"
MOST_CHARACTERS = 20_000

_NAME = re.compile(r"[A-Za-z0-9]\w{0,199}", re.ASCII)
_SHOWN = 2

# Set by ourselves in every process that compiles: listings are read from what they write.
_OURS = re.compile(r"xla_jf_dump_\w+|logtostderr")

# They name files and variables with other options. A key could not say what these hold, and who
# sends a job could have a worker read them.
_NOT_OPTIONS = re.compile(r"flagfile|fromenv|tryfromenv|undefok|help\w*|only_check_args")

CHANGES_NOTHING = {
    r"xla_dump_\w+|xla_hlo_dump_\w+": "they write files",
    r"alsologtostderr|stderrthreshold|minloglevel|v|vmodule|log_dir|xla_hlo_profile": "they log",
    r"xla_cpu_\w+|xla_force_host_platform_device_count|xla_backend_optimization_level": "the CPU's",
    r"xla_gpu_\w+": "the GPU's",
    r"megascale_grpc_\w+": "they carry data between slices, when a program runs",
    r"xla_xprof_register_llo_debug_info": "it keeps lines of source beside the program",
}
"""Options that do not change what a TPU runs, by pattern, and why."""
_IRRELEVANT = re.compile("|".join(CHANGES_NOTHING))

# As ``xla_dump_to`` writes them (``*.tpu_comp_env.txt``), the same in libtpu 0.0.42.1 and 0.0.50.1.
_DEFAULTS = {VMEM_LIMIT: "-1"}


def parsed(text: str) -> dict[str, str]:
    """``--name=value --name --noname``, as ``LIBTPU_INIT_ARGS`` has it, or the text of a key: of an
    option that comes twice the last. Raises ``InvalidInputError``."""
    try:
        words = shlex.split(text, comments=True) if text else ()
    except ValueError as error:
        raise InvalidInputError(f"the compiler options cannot be read: {error}") from error
    return dict(_option(word) for word in words)


def process_options(environment: Mapping[str, str]) -> dict[str, str]:
    """What a process that uses the TPU compiles with. Raises ``InvalidInputError``."""
    flags = environment.get(XLA_FLAGS, "").strip()
    if flags and not flags.startswith("-"):  # XLA takes the name of a file too
        flags = _read(Path(flags))
    return parsed(flags) | parsed(environment.get(INIT_ARGS, ""))


def given_options(
    texts: Iterable[str], file: str | Path | None, environment: Mapping[str, str]
) -> str:
    """Those of the process, those of a file over them, single ``NAME=VALUE`` over these. Raises
    ``InvalidInputError``, also for an option that is ours."""
    options = process_options(environment) | (parsed(_read(Path(file))) if file else {})
    for text in texts:
        options |= dict([_option(text)])
    return over("", options)


def over(text: str, more: Mapping[str, object] | str) -> str:
    """The same with ``more``, also as JAX takes them, in the place of those of the same names.
    Raises ``InvalidInputError``, also for an option that is ours."""
    options = parsed(more) if isinstance(more, str) else dict(more)
    for name in options:
        _check_name(name, name)
        if _OURS.fullmatch(name):
            raise InvalidInputError(f"autotune sets the option {name} itself: leave it out")
    return canonical({**parsed(text), **options})


def canonical(options: Mapping[str, object]) -> str:
    """The text of a key. Raises ``InvalidInputError`` for one that is too long."""
    texts = {name: value_text(value) for name, value in options.items()}
    text = shlex.join(
        f"{name}={texts[name]}"
        for name in sorted(texts)
        if not (_IRRELEVANT.fullmatch(name) or _OURS.fullmatch(name))
        and _DEFAULTS.get(name) != texts[name]
    )
    if len(text) > MOST_CHARACTERS or not text.isprintable():
        raise InvalidInputError(f"give at most {MOST_CHARACTERS} characters of compiler options")
    return text


def for_host(flags: str) -> str:
    """What is left of ``XLA_FLAGS`` where the options for the TPU go with each program."""
    options = process_options({XLA_FLAGS: flags})
    return shlex.join(f"--{n}={value}" for n, value in options.items() if _IRRELEVANT.fullmatch(n))


def for_executable(text: str) -> dict[str, str | int | bool]:
    """As ``compile(compiler_options=…)`` takes them: XLA wants numbers and truths as such."""
    return {name: _typed(value) for name, value in parsed(text).items()}


def as_flags(text: str) -> str:
    """As ``LIBTPU_INIT_ARGS`` takes them."""
    return shlex.join(f"--{word}" for word in shlex.split(text))


def vmem_limit_bytes(text: str) -> int | None:
    """The limit of a kernel that asks for none itself; None: the compiler's own."""
    limit = parsed(text).get(VMEM_LIMIT, "") if VMEM_LIMIT in text else ""
    return int(limit) << 10 if limit.isascii() and limit.isdigit() else None


def in_short(text: str) -> str:
    """For people: all of one or two, of more the number and what tells them from others."""
    words = shlex.split(text)
    if len(words) <= _SHOWN:
        return ", ".join(words)
    return f"{len(words)} compiler options ({hashlib.sha256(text.encode()).hexdigest()[:6]})"


def differing(text: str, other: str) -> tuple[str, ...]:
    """Each option that the two have not in common: as ``text`` has it, else without its value."""
    here, there = parsed(text), parsed(other)
    more = [f"{name}={value}" for name, value in here.items() if there.get(name) != value]
    return (*more, *(f"no {name}" for name in sorted(there.keys() - here.keys())))


def _option(word: str) -> tuple[str, str]:
    bare = word.lstrip("-")
    name, sign, value = bare.partition("=")
    if not sign and word != bare:
        off = name.startswith("noxla")
        name, value = name.removeprefix("no") if off else name, "false" if off else "true"
    _check_name(name if sign or word != bare else None, word)
    return name, value_text(value)


def _check_name(name: object, text: object) -> None:
    """``text``: as somebody wrote it. Raises ``InvalidInputError``."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInputError(f"{text!r} is no compiler option: give {VMEM_LIMIT}=65536")
    if _NOT_OPTIONS.fullmatch(name):
        raise InvalidInputError(f"{name} is no compiler option: give the options themselves")


def value_text(value: object) -> str:
    """As the text of a key has it."""
    text = str(value).strip()
    return text.lower() if text.lower() in ("true", "false") else text


def _typed(value: str) -> str | int | bool:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if re.fullmatch(r"-?\d{1,18}", value, re.ASCII) else value


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"the compiler options in {file} cannot be read: {error}"
        ) from error
