"""A small database with every kind of outcome, and texts that try to be more than text."""

import re
from dataclasses import replace
from datetime import timedelta
from html import unescape

from autotune.domain.evidence import Measurement, Timed
from autotune.domain.job import Ability, Progress, Request
from autotune.domain.key import Chip
from autotune.domain.outcome import (
    CompileFailed,
    Crashed,
    Estimated,
    Illegal,
    NotEstimated,
    OutOfVmem,
    TimedOut,
    WrongResult,
)
from autotune.domain.problem import Config
from autotune.domain.record import Check, CheckVerdict, Evidence, Method, Trial
from autotune.domain.step import StepKind, StepTime, TunedStep
from autotune.domain.workload import TunedEntry, TunedWorkload
from tests.samples import estimates as estimatesamples
from tests.samples.line_profiles import profiled
from tests.samples.matching import NOON, SPEC, question
from tests.samples.matching import record as bare_record
from tests.samples.records import save_trial

EVIL = '</script><script>window.evil=1</script><img src=x onerror="window.evil=1">\'{{7*7}}'
HTML = {"Accept": "text/html"}


def estimated(time_us, used=3 << 20):
    parts = estimatesamples.parts(issue=time_us * 0.6, hbm=time_us * 0.3, fill=time_us * 0.1)
    changes = {"memory_us": 4.0, "roofline_us": 6.0, "hbm_bytes": 4 << 20, "flops": 10**9}
    e = estimatesamples.estimate(parts, vmem_used_bytes=used, **changes)
    return Estimated(estimate=e, program=f"{time_us}")


OUTCOMES = (
    estimated(100.0),
    estimated(25.0),
    estimated(9.5),
    estimated(10.0),
    OutOfVmem(reason="needs 32 MiB", used_bytes=32 << 20, allowed_bytes=16 << 20),
    Illegal(reason="block 12 is no multiple of 8"),
    CompileFailed(reason="Mosaic refused", message=f"error: {EVIL}\nsecond line"),
    Crashed(reason="SIGABRT", log_tail=f"F0000 {EVIL}"),
    TimedOut(reason="no answer within 120 s", limit_s=120.0),
    WrongResult(reason="off by 3", estimate=estimated(5.0).estimate, check="race", where=EVIL),
    NotEstimated(reason="an unknown instruction", vmem_used_bytes=1 << 20, program="p"),
)


def config(number):
    return Config(
        axes=(("bm", 128 * (1 + number // 3)), ("unroll", 1 + number % 3)),
        grid_order=("m",),
        dimension_semantics=("parallel",),
    )


def trial(number, outcome):
    at = NOON + timedelta(seconds=3 * number)
    return Trial(number=number, config=config(number), outcome=outcome, seconds=2.5, created_at=at)


def published(key):
    won = estimated(9.5).estimate
    return replace(
        bare_record(key),
        config=config(2),
        estimate=won,
        default=Evidence(config=config(0), time_us=100.0),
        baseline=Evidence(config=None, time_us=4.75, expected_us=7.6, note="a bound"),
    )


RUN = Measurement(
    method="device time",
    device="TPU v5 lite 0",
    stopped_by="settled",
    drift=0.012,
    set_aside=2,
    seed=7,
    timed=(
        Timed(config=config(2), samples_us=(8.0, 8.5, 8.25), ratio=1.0, low=1.0, high=1.0),
        Timed(config=config(3), samples_us=(8.5, 8.75), ratio=1.04, low=0.99, high=1.09),
        Timed(config=None, samples_us=(6.6,), ratio=0.8, low=0.75, high=0.85),
        Timed(
            config=config(0), samples_us=(90.0, 91.0), ratio=11.0, low=10.5, high=11.5, slower=True
        ),
        Timed(config=config(1), samples_us=(), refused="it aborts", note=EVIL),
    ),
)
"""The winner, a runner-up that cannot be told from it, plain XLA, the default, one that aborts."""


def timed_record(key, run=RUN, method="measured"):
    return replace(published(key), method=Method(method), measurement=run)


def fill(store):
    """Key 1 has every outcome and a record, key 2 another toolchain with some failing, key 3 has
    trials only and names of the evil sort; one key is missed, one job waits."""
    store.save_kernel(SPEC)
    for number, outcome in enumerate(OUTCOMES):
        save_trial(store, question(), trial(number, outcome))
    store.save_record(published(question()))
    newer = question(jax="0.12.0")
    save_trial(store, newer, trial(0, estimated(90.0)))
    save_trial(store, newer, trial(2, CompileFailed(reason="no longer supported")))
    evil = evil_key()
    store.save_kernel(replace(SPEC, name=evil.kernel, fingerprint=evil.fingerprint, doc=EVIL))
    wicked = replace(config(1), axes=((EVIL, EVIL), ("bm", 8)), grid_order=(EVIL,))
    save_trial(store, evil, trial(0, estimated(50.0)))
    save_trial(store, evil, replace(trial(1, Illegal(reason=EVIL)), config=wicked, pushed_by=EVIL))
    bad = replace(published(evil), reason=EVIL, verification=EVIL, pushed_by=EVIL, checked_by=EVIL)
    store.save_record(replace(bad, config=wicked, baseline=replace(bad.baseline, note=EVIL)))
    store.save_misses({(question(77, 5, chip=Chip.V6E), "nearest"): 5})
    store.save_misses({(replace(evil, chip=Chip.V7X), "default"): 3})
    store.jobs.add(wanted(evil), by=EVIL)
    store.workloads.save(workload())
    for check in CHECKS:
        store.save_check(check)
    for number in (1, 3):
        store.profiles.save(number, profiled(f"trial {number}: {EVIL}", 1000 * number))


def workload():
    """A problem that is published, one that is not, one that nothing is known of."""
    rows = [(question(), 12.0, 50.0, ""), (evil_key(), 1.0, 9.0, EVIL)]
    rows.append((question(3, 4), 2.0, None, "interrupted"))
    return TunedWorkload(
        name="model",
        entries=tuple(
            TunedEntry(key=key, weight=weight, before_us=before_us, reason=reason)
            for key, weight, before_us, reason in rows
        ),
        missing=(f"not tuned: line 3: {EVIL}",),
        steps=(TunedStep(chip=Chip.V5E, devices=4, times=STEP_TIMES, error=None),),
    )


STEP_TIMES = (
    StepTime(kind=StepKind.PRODUCT, before_us=60.0, after_us=60.0),
    StepTime(kind=StepKind.KERNEL, line=f"/net/{EVIL}.py:3", before_us=80.0, after_us=40.0),
)


def evil_key():
    plain = question()
    problem = replace(plain.problem, options=(("causal", EVIL),))
    chain = replace(plain.toolchain, jax=EVIL)
    return replace(plain, kernel=f"bad{EVIL}", fingerprint=EVIL, problem=problem, toolchain=chain)


def checked(verdict, **changes):
    """Of the record of key 1, under the toolchain of key 2."""
    no_room = OutOfVmem(reason="no room", used_bytes=32 << 20, allowed_bytes=16 << 20)
    usual = Check(
        key=question(),
        config=published(question()).config,
        toolchain=question(jax="0.12.0").toolchain,
        chip=question().chip,
        verdict=verdict,
        checked_at=NOON,
        winner=estimated(27.2) if verdict.compiles else no_room,
        before_us=9.5,
        after_us=27.2 if verdict.compiles else None,
        needed_bytes=24 << 20,
        allowed_bytes=16 << 20,
        least_limit_bytes=25_427_968,
    )
    return replace(usual, **changes)


CHECKS = (
    checked(CheckVerdict.NEEDS_LIMIT),
    checked(CheckVerdict.SAME, chip=Chip.V6E),
    checked(
        CheckVerdict.BROKEN,
        key=evil_key(),
        config=Config(axes=((EVIL, EVIL),)),
        toolchain=replace(question().toolchain, jax="0.13.0.dev1+x"),
        winner=CompileFailed(reason=EVIL, message=EVIL),
        detail=EVIL,
        pushed_by=EVIL,
    ),
)
"""One that can be requested, one that was looked at on another chip, one of the evil sort."""


def html(service, path, status=200, **headers):
    answered, _, body = service.raw("GET", path, **HTML, **headers)
    assert answered == status, body[:300]
    return body.decode()


def plain(text):
    """What a page says, without its elements."""
    words = re.sub(r"</?bdi>", "", unescape(text))
    return " ".join(re.sub(r"<[^>]+>", " ", words).split())


def wanted(key, **more):
    return Request(kernel=key.kernel, problem=key.problem, chip=key.chip, **more)


def claimed_job(store, key):
    """A waiting job of its kernel, taken by a worker."""
    able = Ability(kernels={key.kernel: key.fingerprint}, toolchain=key.toolchain)
    job = store.jobs.claim("w", able)
    assert job is not None
    return job


def running_job(store, note):
    """The waiting job, taken by a worker that says what it does."""
    job = claimed_job(store, evil_key())
    store.jobs.heartbeat(job, Progress(done=1, goal=9, note=note))
    store.jobs.write_log(job, f"12:00:00 {note}\n12:00:01 {'x' * 3_000}\n")
    return job
