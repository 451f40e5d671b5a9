"""A database in which each state that the pages name is somebody's."""

from dataclasses import replace
from datetime import timedelta

from autotune.domain.job import Progress, State
from autotune.domain.key import Chip, KernelSpec, Key, Toolchain
from autotune.domain.outcome import OutOfVmem
from autotune.domain.problem import Config, Option, Problem, ProblemSpec
from autotune.domain.record import CheckVerdict, Evidence, Method
from autotune.domain.workload import TunedEntry, TunedWorkload
from tests.samples.dashboard import OUTCOMES, RUN, checked, claimed_job, estimated, trial, wanted
from tests.samples.dashboard import published as published_sample
from tests.samples.matching import NOON
from tests.samples.records import save_trial

KERNELS = ("splash_attention", "rmsnorm", "gmm")
TOO_LARGE = OutOfVmem(reason="needs 32 MiB", used_bytes=32 << 20, allowed_bytes=16 << 20)


def key(kernel, q_len, *, chip=Chip.V6E, jax="0.10.2"):
    dims = (("batch", 4), ("heads", 16), ("q_len", q_len), ("kv_len", 4096), ("head_dim", 128))
    problem = Problem(dims=dims, dtype="bfloat16", options=(("causal", True),))
    toolchain = Toolchain(jax=jax, jaxlib=jax, libtpu="0.0.42")
    return Key(kernel=kernel, fingerprint="f00d", problem=problem, chip=chip, toolchain=toolchain)


def config(number):
    axes = (("block_q", 128 << number % 4), ("block_kv", 256 << number // 4 % 3))
    return Config(axes=axes, grid_order=("m",), dimension_semantics=("parallel",))


def record(of, time_us=9.5, **changes):
    """Of the third trial, which took ``time_us``."""
    usual = replace(
        published_sample(of),
        config=config(2),
        estimate=estimated(time_us).estimate,
        default=Evidence(config=config(0), time_us=100.0),
        baseline=Evidence(config=None, time_us=time_us / 2, expected_us=time_us * 1.4),
        reason="",
        verification="",
    )
    return replace(usual, **changes)


def tried(store, of, *times_us):
    """A key with trials of these times; without any, with nothing that fits."""
    outcomes = [*map(estimated, times_us)] or [TOO_LARGE] * 4
    for number, outcome in enumerate(outcomes):
        save_trial(store, of, replace(trial(number, outcome), config=config(number)))
    return of


def every_state(store):
    """Each with its own problem, told apart by ``q_len``."""
    for name in KERNELS:
        store.save_kernel(spec(name))
    attention, norm, grouped = KERNELS
    proven = _published(store)
    tried(store, key(attention, 16), 100.0, 25.0, 9.5)  # the best trial of all is not served
    tried(store, key(norm, 64), 40.0, 12.0)  # never published
    tried(store, key(norm, 128))  # nothing fits
    for of in (tried(store, key(norm, 256), 30.0, 20.0), proven):
        store.searches.report(of, "9 points", Progress(done=3, goal=9, note="at 3"), over=False)
    store.save_misses({(key(grouped, 32, chip=Chip.V7X), "nearest"): 5})
    store.save_misses({(key(grouped, 16, chip=Chip.V7X), "default"): 3})
    for number, outcome in enumerate(OUTCOMES):
        of = key(grouped, 256)
        save_trial(store, of, replace(trial(number, outcome), config=config(number)))
    for number, verdict in enumerate(CheckVerdict):
        elsewhere = Toolchain(jax=f"0.12.{number}", jaxlib="0.12.0", libtpu="0.0.43")
        of, served = key(attention, 32), config(2)
        store.save_check(checked(verdict, key=of, config=served, toolchain=elsewhere, chip=of.chip))
    _jobs(store)
    entries = [
        TunedEntry(key=of, weight=weight, before_us=before_us, reason="")
        for of, weight, before_us in (
            *((proven, 24.0, 100.0), (key(norm, 512), 48.0, 9.5), (key(norm, 64), 2.0, 40.0)),
            (key(attention, 16, chip=Chip.V5E), 24.0, 90.0),
        )
    ]
    store.workloads.save(TunedWorkload(name="llama", entries=tuple(entries), missing=("line 3",)))


def _published(store):
    """Gives the one whose best trial is not what is served."""
    attention, norm, grouped = KERNELS
    proven = tried(store, key(attention, 16), 100.0, 25.0, 9.5, 4.7)
    store.save_record(record(proven, created_at=NOON - timedelta(days=3), config=config(1)))
    predicted = Evidence(config=config(0), time_us=None, expected_us=19.0, expected_error=0.2)
    for of, changes in (
        (proven, {"pushed_by": "night-ci", "checked_by": "own"}),
        (tried(store, key(attention, 32), 100.0, 25.0, 9.5), {}),  # broken elsewhere
        (tried(store, key(attention, 64), 100.0, 25.0, 9.5), {"pushed_by": "laptop"}),  # claimed
        (tried(store, key(attention, 128), 100.0, 25.0, 9.5), {"default": predicted}),
        (tried(store, key(attention, 512), 100.0, 25.0, 9.5), {"verified": False}),
        (tried(store, key(attention, 256), 10.0, 9.8, 9.5), _small()),
        (tried(store, key(norm, 512), 9.5), _default()),
        (tried(store, key(grouped, 64), 100.0, 25.0, 9.5), _measured()),
        (tried(store, key(attention, 16, jax="0.12.0"), 90.0, 9.5, 9.0), {"config": config(1)}),
        (tried(store, key(attention, 16, chip=Chip.V5E), 90.0, 30.0, 9.5), {}),
        (replace(key(norm, 1024), fingerprint="01d"), {}),  # stale, and without its trials
    ):
        changed = {"created_at": NOON, **changes}
        store.save_record(record(of, **changed))
    return proven


def _small():
    return {"default": Evidence(config=config(0), time_us=10.0)}


def _default():
    best = Evidence(config=config(0), time_us=9.5)
    return {"is_default": True, "config": config(0), "default": best}


def _measured():
    timed = tuple(
        replace(t, config=t.config and config(number)) for number, t in enumerate(RUN.timed)
    )
    winner = timed[0].config
    return {"measurement": replace(RUN, timed=timed), "method": Method.MEASURED, "config": winner}


def _jobs(store):
    attention, norm, grouped = KERNELS
    asked = [key(attention, 1024), key(norm, 2048), key(grouped, 512), key(attention, 2048)]
    for of in asked[:3]:
        store.jobs.add(wanted(of), by="ci")
    for ends in (State.DONE, State.FAILED, None):
        job = claimed_job(store, asked.pop(0))
        if ends:
            store.jobs.finish(job, ends, "no such luck" * (ends is State.FAILED))
        else:
            store.jobs.heartbeat(job, Progress(done=1, goal=9, note="compiling"))
    store.jobs.cancel(store.jobs.add(wanted(asked[0]), by="ci")[0].number)
    store.jobs.add(wanted(key(attention, 4096)), by="ci")


def spec(name):
    option = Option(name="causal", choices=(False, True), default=False)
    return KernelSpec(
        name=name,
        fingerprint="f00d",
        problems=ProblemSpec(
            dims=("batch", "heads", "q_len", "kv_len", "head_dim"),
            dtypes=("bfloat16",),
            options=(option,),
        ),
        axes=("block_q", "block_kv"),
        grid=("m",),
        doc=f"The {name} of the samples.",
    )
