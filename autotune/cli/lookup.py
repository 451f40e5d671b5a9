"""``autotune lookup``: answers from the database or a service, without JAX."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from autotune.answering.matching import RULE, Match, match_in
from autotune.cli import shared
from autotune.cli.searched_source import key_now, places, source_change
from autotune.domain.codec import to_data
from autotune.domain.errors import InvalidInputError, UnknownNameError
from autotune.domain.key import KernelSpec, Key
from autotune.domain.record import Evidence, Method, Record
from autotune.measuring.attached import chip_or_attached
from autotune.wording.match import checked
from autotune.wording.match import in_words as match_in_words
from autotune.wording.output import echo
from autotune.wording.publication import in_words, times_default, who_says
from autotune.wording.units import counted, micros

if TYPE_CHECKING:
    from autotune.domain.store import Store

_PATIENCE_S = 10.0  # of a person


@click.command()
@click.argument("kernel")
@shared.problem_options
@click.option("--chip", default=None, help="TPU generation; default: the attached TPU.")
@click.option(
    "--toolchain",
    default=None,
    metavar="jax=…,jaxlib=…,libtpu=…",
    help="Versions; default: those installed here.",
)
@click.option("--url", default=None, metavar="URL", help="Ask this service, not a database.")
@shared.accept_claimed_option
@shared.database_and_json
def lookup(
    kernel: str,
    shape: str,
    dtype: str | None,
    options: tuple[str, ...],
    chip: str | None,
    toolchain: str | None,
    url: str | None,
    accept_claimed: bool,
    database: str | None,
    as_json: bool,
) -> None:
    """Print the published config of KERNEL for this problem, chip and toolchain.

    If none is published for exactly these, the answer comes from another toolchain, a rule or a
    near shape, and says so. Exit code 1 when there is nothing.
    """
    versions, target = shared.parse_toolchain(toolchain), chip_or_attached(chip)
    if url is not None:
        from autotune.answering.client import ServiceAnswers

        if database is not None:
            raise InvalidInputError("give --url or --db, not both")
        client = ServiceAnswers(url, timeout_s=_PATIENCE_S, accept_claimed=accept_claimed)
        match = client.lookup_shape(kernel, shape, dtype, options, chip=target, toolchain=versions)
        _print_match(match, client.snapshot, as_json)
        sys.exit(0 if match.record else 1)
    with shared.open_database(database, create=False) as store:
        spec = _spec(store, kernel)
        key = spec.key(spec.problems.parse(shape, dtype, options), target, versions)
        changed = source_change(store, key)
        key = key_now(store, key)
        match = match_in_words(match_in(store, key, claimed=accept_claimed), key)
        others = [] if match.record else _others(store, key)
    if changed:
        echo(changed, err=True)
    if as_json and not match.record:
        shared.print_json({"match": None, "why": match.why, "nearby": others})
    else:
        _print_match(match, None, as_json)
        for line in () if as_json else others:
            echo(f"  {line}", err=True)
    sys.exit(0 if match.record else 1)


def _print_match(match: Match, snapshot: int | None, as_json: bool) -> None:
    """``snapshot``: of the service; None for the newest of a database."""
    of = "" if snapshot is None else f" (snapshot {snapshot})"
    if as_json:
        record = to_data(replace(in_words(match.record), rule=None)) if match.record else {}
        if match.config is not None:
            record["config"] = to_data(match.config)
        said = {"match": match.kind, "why": match.why, "snapshot": snapshot}
        shared.print_json({**said, "standing": match.record and match.record.standing, **record})
    elif match.config is not None and match.kind == RULE:
        echo(str(match.config))
        echo(f"  {match.kind}: {match.why}{of}")
    elif match.record:
        _print(in_words(match.record))
        echo(f"  {match.kind}: {match.why}{of}")
    else:
        echo(f"{match.kind}: {match.why}{of}", err=True)


def _spec(store: "Store", name: str) -> KernelSpec:
    """The kernel as it is here if it was ever searched, else as last searched."""
    from autotune.declaring.discovery import catalogue, find_kernel, fingerprint
    from autotune.domain.errors import AutotuneError

    specs = store.kernels()
    try:
        ref = find_kernel(name)
    except AutotuneError:
        ref = None
    if ref is not None:
        forms = {form: fingerprint(ref, form) for form in {spec.form for spec in specs}}
        known = [spec for spec in specs if spec.fingerprint == forms[spec.form]]
        if known:
            return known[0]
    spec = store.kernel(name)
    if spec is None and ref is not None:  # another source at the same place
        searched = places(store, [record.key for record in store.records()])
        spec = next(
            (store.kernel(kernel) for kernel, place in searched.items() if place == ref), None
        )
    if spec is None:
        names = sorted({spec.name for spec in specs})
        what = "is not known" if name not in catalogue() and ref is None else "was never searched"
        raise UnknownNameError(
            f"kernel {name!r} {what} in this database, it has {', '.join(names) or 'none'}: run "
            "autotune search first"
        )
    return spec


def _others(store: "Store", key: Key) -> list[str]:
    """What is published for the same kernel: so that a miss tells where it missed."""
    lines = []
    for record in store.records(key.kernel):
        other = record.key
        same = {
            "another fingerprint of the kernel": other.fingerprint == key.fingerprint,
            f"chip {other.chip}": other.chip == key.chip,
            str(other.toolchain): other.toolchain == key.toolchain,
            str(other.problem): other.problem == key.problem,
        }
        different = [what for what, is_same in same.items() if not is_same]
        if len(different) == 1:
            lines.append(f"published for {different[0]}, otherwise the same")
    return lines[:5]


def _default(record: Record) -> Evidence:
    """The default's time by the method of the record."""
    default, run = record.default, record.measurement
    if record.method is not Method.MEASURED or run is None or default.config is None:
        return default
    timed = run.of(default.config)
    return Evidence(config=default.config, time_us=timed.median_us if timed else None)


def _print(record: Record) -> None:
    echo(str(record.config))
    evidence = _default(record)
    is_known = evidence.time_us or evidence.is_predicted
    default = f", {times_default(evidence, record.time_us)} the default's speed" if is_known else ""
    echo(f"  {record.method} {micros(record.time_us)}{default}; {record.reason}")
    if record.method == Method.MEASURED and record.measurement is not None:
        echo(
            f"  {record.measurement.method} on {record.measurement.device}; estimated "
            f"{micros(record.estimate.time_us)}"
        )
    echo(f"  {record.verification}")
    echo(f"  {who_says(record)}")
    if record.baseline.note:
        echo(f"  {record.baseline.note}")
    echo(f"  {record.key}")
    echo(f"  {counted(record.trials, 'trial')}, published {record.created_at:%Y-%m-%d %H:%M} UTC")
    for check in record.checks:
        echo(f"  {checked(check)}")
