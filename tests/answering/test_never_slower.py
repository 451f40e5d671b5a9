"""Whatever was changed between the search and the question: a model is never slower by our own
estimate than without us, or it is told that nothing is known and takes its own default."""

from dataclasses import replace

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from autotune.answering.client import ServiceAnswers
from autotune.answering.sources import BundleAnswers, StoreAnswers
from autotune.cli.main import cli
from autotune.declaring.kernel import Array, Axis, Kernel
from autotune.domain.evidence import Verdict
from autotune.python.tuned import Tuned
from autotune_db import open_store
from tests.publishing.test_ended_early import tuned
from tests.publishing.test_publish import SUBJECT
from tests.searching.test_transfer import BLOCKS, time_us
from tests.servers.service import running

SEARCHED = (512, 1 << 14)
DEFAULT, TRIED = 16, BLOCKS[:4]  # 256 would be the fastest


def kernel(default, choices):
    return Kernel(
        name=SUBJECT.spec.name,
        dims=("rows",),
        dtypes=("bfloat16", "float32"),
        axes=(Axis(name="block", choices=lambda _: choices, dim="rows"),),
        default=lambda _: {"block": default},
        inputs=lambda p: [Array(name="x", shape=(p["rows"], 128), dtype=p.dtype)],
        build=lambda *_: lambda x: x,
    )


@pytest.fixture(scope="module", params=["database", "bundle", "service"])
def source(request, tmp_path_factory):
    """What two searches have published, wherever it is asked for."""
    folder = tmp_path_factory.mktemp("never")
    with open_store(str(folder / "db.db"), create=True) as store:
        spec = replace(SUBJECT.spec, problems=kernel(DEFAULT, BLOCKS).problem_spec)
        right = Verdict(ok=True, reason="right")
        for rows in SEARCHED:
            tuned(store, rows, lambda _: right, block=DEFAULT, blocks=TRIED)
        store.save_kernel(replace(spec, axes=("block",), cuts=(("block", "rows"),)))
        if request.param == "database":
            yield StoreAnswers(store)
        elif request.param == "bundle":
            exported = CliRunner().invoke(cli, ["export", f"{folder}/b.bundle", "--db", store.url])
            assert exported.exit_code == 0, exported.output
            yield BundleAnswers(folder / "b.bundle")
        else:
            with running(str(folder / "db.db")) as service:
                yield ServiceAnswers(service.url)


def asked(source, rows, now):
    """The kind of answer, and its time beside that of what the code does without us."""
    toolchain = replace(SUBJECT.toolchain, libtpu=now.get("libtpu", SUBJECT.toolchain.libtpu))
    default = min(rows, now.get("default", DEFAULT))
    declared = replace(kernel(default, now.get("choices", BLOCKS)), doc=now.get("doc", ""))
    chip = now.get("chip", "v5e")
    model = Tuned(declared, declared_in=__file__, source=source, chip=chip, toolchain=toolchain)
    model._fingerprint = now.get("body", SUBJECT.spec.fingerprint)
    answer = model.answer(model.problem(rows=rows, dtype="bfloat16"))
    assert answer.match != "default" or (answer.config["block"] == default and answer.why)
    return answer.match, time_us(rows, answer.config["block"]), time_us(rows, default)


CHANGES = {
    "default": BLOCKS,
    "choices": [BLOCKS[:n] for n in (1, 3, 6)],
    "doc": ["It says more."],
    "libtpu": ["0.0.1", "9.0"],
    "chip": ["v6e"],
    "body": ["edited"],
}


@given(
    st.sampled_from((64, 256, 512, 768, 1000, 1 << 12, 1 << 14, 1 << 16)),
    st.fixed_dictionaries({}, optional={n: st.sampled_from(v) for n, v in CHANGES.items()}),
)
@example(512, {"default": 256, "libtpu": "9.0"})
def test_no_change_makes_a_model_slower(source, rows, now):
    match, taken_us, own_us = asked(source, rows, now)
    assert taken_us <= own_us, match


def test_what_is_still_the_kernel_that_was_searched_is_seldom_not_known(source):
    same = [
        {},
        *({"default": block} for block in TRIED),
        *({name: value} for name in ("choices", "doc", "libtpu") for value in CHANGES[name]),
    ]
    kinds = [asked(source, rows, now)[0] for rows in SEARCHED for now in same]
    print(f"not known: {kinds.count('default')} of {len(kinds)} by {type(source).__name__}")
    assert kinds.count("default") <= len(kinds) / 10, kinds
