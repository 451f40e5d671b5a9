"""Records in one file: what goes in comes out, and half a file is never seen."""

import errno
import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from autotune.answering import bundle
from autotune.domain.errors import InvalidInputError
from tests.samples import matching
from tests.samples.estimates import estimate, parts
from tests.samples.records import key, record

EXPLANATION = estimate(parts()).explanation
RECORDS = (record(), record(key(m=256), 7.5), record(key("rmsnorm")))


def test_a_bundle_survives_its_file(tmp_path):
    made = bundle.new_bundle(RECORDS, snapshot=7)
    bundle.write_whole(tmp_path / "a.bundle", bundle.bundle_to_bytes(made))
    assert bundle.read_bundle(tmp_path / "a.bundle") == made
    assert made.records == RECORDS and made.snapshot == 7
    assert [path.name for path in tmp_path.iterdir()] == ["a.bundle"]


@pytest.mark.parametrize("kind", ["link", "pipe", "mount"])
def test_what_is_written_over_stays_what_it_is(kind, tmp_path, monkeypatch):
    (real := tmp_path / "a.bundle").touch(0o600)
    (path := tmp_path / "link").symlink_to(real)
    if kind == "pipe":
        real, path = (Path(f"/proc/self/fd/{end}") for end in os.pipe())
    elif kind == "mount":
        monkeypatch.setattr(bundle.Path, "replace", fails(errno.EBUSY))
    before = path.lstat().st_mode, real.stat().st_mode
    bundle.write_whole(path, b"content")
    assert (path.lstat().st_mode, real.stat().st_mode) == before
    assert os.read(os.open(real, os.O_RDONLY), 9) == b"content"


def test_a_client_that_knows_no_options_reads_no_record_of_some():
    asked = key(m=512)
    other = record(replace(asked, toolchain=replace(asked.toolchain, options="xla_a=1")))
    content = bundle.bundle_to_bytes(bundle.new_bundle((*RECORDS, other)))
    assert len(json.loads(gzip.decompress(content))["records"]) == len(RECORDS)
    assert bundle.bundle_from_bytes(content).records == (*RECORDS, other)


def fails(number):
    return Mock(side_effect=OSError(number, os.strerror(number)))


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.bundle"
    path.write_bytes(before := bundle.bundle_to_bytes(bundle.new_bundle(RECORDS)))
    monkeypatch.setattr(bundle.Path, "replace", fails(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        bundle.write_whole(path, bundle.bundle_to_bytes(bundle.new_bundle(())))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.bundle"]


def test_only_kernels_that_have_a_record_and_no_explanations():
    good, unused = matching.record(), replace(matching.SPEC, name="unused")
    explained = replace(good, estimate=replace(good.estimate, explanation=EXPLANATION))
    made = bundle.new_bundle([explained], kernels=[matching.SPEC, unused])
    assert made.kernels == (matching.SPEC,)
    assert made.records == (good,)


def test_a_config_that_its_kernel_cannot_have_is_neither_written_nor_read():
    good = matching.record()
    wrong = replace(good, config=replace(good.config, vmem_limit_bytes=(128 << 20) + 1))
    assert bundle.new_bundle([good, wrong], kernels=[matching.SPEC]).records == (good,)
    made = replace(bundle.new_bundle([good], kernels=[matching.SPEC]), records=(wrong,))
    with pytest.raises(InvalidInputError, match="a config that its kernel cannot have"):
        bundle.bundle_from_bytes(bundle.bundle_to_bytes(made))


WHOLE = bundle.bundle_to_bytes(bundle.new_bundle(RECORDS))


def packed(**changes):
    data = json.loads(gzip.decompress(WHOLE))
    return gzip.compress(json.dumps({**data, **changes}).encode(), mtime=0)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is not a bundle of records"),
        (b"{}", "is not a bundle of records"),
        (WHOLE[:100], "is not a bundle of records"),
        (gzip.compress(b"[1]", mtime=0), "is not a bundle of records"),
        (gzip.compress(b"{}", mtime=0), "has the format None, this version reads"),
        (packed(format="pallas-autotune bundle 9"), "has the format 'pallas-autotune bundle 9'"),
        (packed(records=[{"key": {}}]), "holds a record that cannot be read"),
        (packed(records=3), "holds a record that cannot be read"),
    ],
    ids=["missing", "empty", "plain", "cut", "list", "object", "format", "no record", "no records"],
)
def test_what_is_no_bundle_is_one_sentence(content, says, tmp_path):
    path = tmp_path / "b"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=says) as refusal:
        bundle.read_bundle(path)
    assert str(path) in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("time_us", [0.0, -1.0, 1e13, float("inf"), float("nan")])
def test_a_time_that_cannot_be_is_not_handed_on(time_us):
    bad = record(key(m=512), time_us)
    assert bundle.new_bundle([*RECORDS, bad]).records == RECORDS
    forged = replace(bundle.new_bundle(RECORDS), records=(*RECORDS, bad))
    with pytest.raises(InvalidInputError, match="not positive and finite"):
        bundle.bundle_from_bytes(bundle.bundle_to_bytes(forged))
