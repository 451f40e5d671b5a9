"""Options of the TPU compiler: what people write, and the one text of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.codec import from_data, to_data
from autotune.domain.compiler_options import (
    VMEM_LIMIT,
    as_flags,
    canonical,
    for_executable,
    for_host,
    given_options,
    in_short,
    over,
    parsed,
    process_options,
    vmem_limit_bytes,
)
from autotune.domain.errors import InvalidInputError
from autotune.domain.key import Toolchain, process_toolchain

NAMES = st.from_regex(r"xla_tpu_[a-z][a-z0-9_]{0,20}", fullmatch=True)
OPTIONS = st.dictionaries(
    NAMES, st.text(min_size=1).filter(str.isprintable) | st.booleans() | st.integers(), max_size=5
)
VERSIONS = {"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.42.1"}


@given(OPTIONS)
def test_one_text_for_one_set_however_it_is_written(options):
    text = canonical(options)
    assert canonical(parsed(text)) == canonical(parsed(as_flags(text))) == text
    assert canonical(dict(reversed(options.items()))) == text
    assert Toolchain(**VERSIONS, options=as_flags(text)) == Toolchain(**VERSIONS, options=text)


def test_flags_as_people_write_them():
    flags = "--xla_b=2 # why\n --xla_a --noxla_c --xla_b=1 --xla_d='x y'"
    assert canonical(parsed(flags)) == "xla_a=true xla_b=1 xla_c=false 'xla_d=x y'"
    assert for_executable("xla_a=true xla_b=-1 xla_c=1.5") == {
        "xla_a": True,
        "xla_b": -1,
        "xla_c": "1.5",
    }


@pytest.mark.parametrize(
    "flags",
    [
        "--xla_dump_to=/tmp/x --v=3",
        f"--{VMEM_LIMIT}=-1",
        "--xla_gpu_autotune_level=0 --xla_force_host_platform_device_count=8",
        "--xla_jf_dump_to=/tmp",
    ],
)
def test_what_changes_no_program_is_in_no_key(flags):
    assert canonical(process_options({"XLA_FLAGS": flags, "LIBTPU_INIT_ARGS": flags})) == ""


def test_what_is_nearer_wins(tmp_path):
    file = tmp_path / "flags"
    file.write_text("--xla_b=file\n--xla_c=file\n")
    environment = {
        "XLA_FLAGS": "--xla_a=x --xla_b=x --xla_cpu_y=1",
        "LIBTPU_INIT_ARGS": "--xla_a=args",
    }
    text = given_options(["xla_c=given"], file, environment)
    assert text == "xla_a=args xla_b=file xla_c=given"
    assert for_host(environment["XLA_FLAGS"]) == "--xla_cpu_y=1"
    assert process_options({"XLA_FLAGS": str(file)}) == {"xla_b": "file", "xla_c": "file"}


@pytest.mark.parametrize(
    "options",
    [
        {"xla_jf_dump_to": "/tmp"},
        {"a b": 1},
        {1: 2},
        {"xla_a": "a\nb"},
        {"flagfile": "/etc/passwd"},
    ],
)
def test_what_is_no_option_or_ours_is_refused(options):
    with pytest.raises(InvalidInputError):
        over("", options)


@pytest.mark.parametrize(
    "text", ["xla_a", "=1", "'", "--a-b=1", "--flagfile=/etc/passwd", "--fromenv=A", "--help=true"]
)
def test_a_text_that_is_none_is_refused(text):
    with pytest.raises(InvalidInputError):
        given_options([text], None, {})
    if text != "xla_a":
        with pytest.raises(InvalidInputError):
            given_options([], None, {"LIBTPU_INIT_ARGS": text})


def test_few_are_shown_and_many_told_apart():
    assert in_short("xla_a=1 xla_b=2") == "xla_a=1, xla_b=2"
    many, others = ("".join(f"xla_{n}={v} " for n in "abc").rstrip() for v in (1, 2))
    assert in_short(many).startswith("3 compiler options") and in_short(many) != in_short(others)
    assert vmem_limit_bytes(f"{VMEM_LIMIT}=65536 xla_a=1") == 64 << 20


def test_without_options_nothing_is_said_or_sent(monkeypatch):
    plain = Toolchain(**VERSIONS)
    assert to_data(plain) == VERSIONS and from_data(Toolchain, VERSIONS) == plain
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_a=1 --xla_dump_to=/tmp")
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    own = process_toolchain()
    assert own is not None and own.options == "xla_a=1"
