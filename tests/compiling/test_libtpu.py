"""When libtpu is asked for the packer's log, and when for whole listings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.compiling import libtpu
from autotune.domain.key import Chip


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Asks, in an environment of its own and with a file for stderr; what it has set."""

    def ask(version="0.0.42.1", stderr=None):
        monkeypatch.setattr(libtpu, "version", lambda: version)
        monkeypatch.setattr(libtpu._Packing, "log", None)
        monkeypatch.setattr(libtpu, "_STDERR", tmp_path / "log")
        monkeypatch.setattr(os, "environ", {**os.environ, "LIBTPU_INIT_ARGS": "as it was"})
        status = Path(stderr or __file__).stat()
        monkeypatch.setattr(libtpu.os, "fstat", lambda number: status)
        libtpu.log_the_packing(tmp_path)
        return os.environ["LIBTPU_INIT_ARGS"]

    return ask


@pytest.mark.parametrize("version", ["0.0.42", "0.0.42.1", "0.0.48", "0.0.50.1"])
def test_known_versions_are_asked_for_the_log(asked, version):
    assert "--logtostderr=true" in asked(version)
    assert libtpu.packing_is_logged()
    assert os.environ["TPU_VMODULE"] == "bundle_packer=2,global_bundle_packer=1"


@pytest.mark.parametrize("version", ["0.0.17.1", "0.0.41", "0.0.51", "0.1.0", "", None])
def test_others_print_whole_listings(asked, version):
    assert asked(version) == "as it was"
    assert not libtpu.packing_is_logged()


def test_so_do_they_where_somebody_wants_it(asked, monkeypatch):
    monkeypatch.setenv(libtpu.WHOLE_LISTING, "1")
    assert asked() == "as it was"


def test_so_do_they_where_stderr_is_no_file(asked):
    assert asked(stderr=os.devnull) == "as it was"


@pytest.mark.parametrize(("version", "asked_for"), [("0.0.42.1", True), ("0.0.17.1", False)])
def test_lines_of_source_are_asked_for_where_libtpu_knows_the_switch(
    asked, monkeypatch, version, asked_for
):
    monkeypatch.setenv(libtpu.SOURCE_LINES, "1")
    flags = asked(version)
    assert ("--xla_xprof_register_llo_debug_info=true" in flags) is asked_for
    assert asked_for or flags == "as it was"
    assert libtpu.tells_lines() and not libtpu.packing_is_logged()


def test_a_long_log_loses_nothing_and_meets_no_limit(tmp_path):
    """A process that may not write larger files than ours logs more than that, in pieces."""
    log, limit = tmp_path / "log", 1 << 16
    code = f"""
import os, resource
from pathlib import Path
from autotune.compiling import libtpu
libtpu._Packing.log, libtpu.LONGEST_LOG_BYTES = Path({str(log)!r}), {limit // 4}
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
read, start = b"", 0
for number in range(20_000):
    os.write(2, b"%d\\n" % number)
    if number % 1_000 == 999:
        more, start = libtpu.packing_log(start)
        read += more
assert read.split() == [b"%d" % number for number in range(20_000)]
"""
    with log.open("ab") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, stderr=file, check=True)
    assert log.stat().st_size < limit


def test_a_schedule_is_read_before_any_code_is_there_and_when_it_is_whole(tmp_path):
    written = tmp_path / "module_0001.jit_f.cl_1.after_optimizations.txt"
    written.write_text("HloModule jit_f, is_scheduled=true\n\nENTRY %main")
    assert libtpu.scheduled_module(tmp_path) == ""
    written.write_text(whole := "HloModule jit_f\n\nENTRY %main () -> f32[] {\n}\n")
    assert libtpu.scheduled_module(tmp_path) == whole


@pytest.mark.parametrize(("chip", "bounds"), [(Chip.V5E, (3, 3)), (Chip.V5P, (4, 3, 1))])
def test_a_slice_that_no_chip_has_is_named_with_those_that_it_has(chip, bounds):
    assert libtpu.topology(chip, bounds=(2, 6, *bounds[2:]))
    with pytest.raises(ValueError, match=f"{'x'.join(map(str, bounds))}.* even, as in .*4x4"):
        libtpu.topology(chip, bounds=bounds)
