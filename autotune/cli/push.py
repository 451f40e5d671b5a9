"""``autotune push``: results of this machine to a service."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial

import click

from autotune.answering.http import Remote
from autotune.answering.push import checked, possible_check, send, send_checks, whole_result
from autotune.cli import shared
from autotune.domain.errors import InvalidInputError, ServiceError
from autotune.domain.key import KernelSpec
from autotune.domain.record import Check, Record
from autotune.domain.store import KeyResult, Pushed, Store
from autotune.wording.output import Countdown, echo
from autotune.wording.units import counted

_TIMEOUT_S = 60.0
_MOST_CHECKS = 100_000
_Specs = Mapping[tuple[str, str], KernelSpec]


@click.command()
@click.option("--url", metavar="URL", help="The service.")
@click.option(
    "--token",
    envvar="AUTOTUNE_TOKEN",
    help="With the role writer; better in $AUTOTUNE_TOKEN, where others do not see it.",
)
@shared.database_and_json
def push(url: str | None, token: str | None, database: str | None, as_json: bool) -> None:
    """Send the published records of this machine, with their trials, and its checks to a service.

    What is there already changes nothing: push as often as you like. Exit code 1 when there is
    nothing to send.
    """
    if url is None:
        raise InvalidInputError("name the service: autotune push --url http://HOST:8700")
    remote = Remote(url, _TIMEOUT_S, token)
    with shared.open_database(database, create=False) as store:
        say = partial(echo, err=True)
        kernels, records = store.kernels(), store.records(tell=Countdown(say, "read"))
        specs, left = {(spec.name, spec.fingerprint): spec for spec in kernels}, list[str]()
        good = _good(store, specs, records, left)
        total, sent = Pushed(records=0, trials=0, lost=0, snapshot=0, checks=0), 0
        sending = Countdown(say, "sent")
        try:
            for count, part in send(remote, kernels, good):
                total, sent = _sum(total, part), sent + count
                sending(sent, len(records) - len(left))
            checks = _good_checks(store, specs, left)
            try:
                for part in send_checks(remote, kernels, checks):
                    total = _sum(total, part)
            except ServiceError as error:
                if error.status != 403 or not sent:
                    raise
                left.append(f"{counted(len(checks), 'check')}: {error}")  # the records are there
                checks = []
        except OSError as error:
            raise ServiceError(f"the service at {remote} cannot be reached: {error}") from error
    if as_json:
        shared.print_json({**asdict(total), "sent": sent, "left_out": left})
    elif records or checks or left:
        _print(total, sent, left, len(checks))
    else:
        echo("nothing is published here: there is nothing to send")
    sys.exit(0 if records or checks else 1)


def _good_checks(store: Store, specs: _Specs, left: list[str]) -> list[Check]:
    """Of all that was checked here, also where the records are another machine's."""
    good = []
    for check in store.checks(_MOST_CHECKS):
        spec = specs.get((check.key.kernel, check.key.fingerprint))
        try:
            good.append(possible_check(check, spec, datetime.now(UTC)))
        except InvalidInputError as error:
            left.append(f"check of {check.key} with {check.toolchain}: {error}")
    return good


def _good(
    store: Store, specs: _Specs, records: Sequence[Record], left: list[str]
) -> Iterator[KeyResult]:
    """With all that was found, read when it is wanted: it may be much. ``left`` is told what is no
    good."""
    for record in records:
        key = record.key
        try:
            result = whole_result(store, record)
            yield checked(result, specs.get((key.kernel, key.fingerprint)), datetime.now(UTC))
        except InvalidInputError as error:
            left.append(f"{key}: {error}")


def _sum(total: Pushed, other: Pushed) -> Pushed:
    names = ("records", "trials", "lost", "checks", "candidates")
    pairs = {name: (getattr(total, name), getattr(other, name)) for name in names}
    return replace(other, **{name: sum(filter(None, pair)) for name, pair in pairs.items()})


def _print(total: Pushed, sent: int, left: list[str], checks: int) -> None:
    for line in left:
        echo(f"left out: {line}", err=True)
    same = sent - (total.records or total.candidates) - total.lost
    records, trials = counted(total.records, "record"), counted(total.trials, "trial")
    echo(
        f"{records} and {trials} are new there; {same} there already, {total.lost} older or slower "
        f"than what is; snapshot {total.snapshot}"
    )
    waiting = counted(total.candidates, "record")
    if total.trusted and sent:
        later = f"; a worker is to check {waiting}" if total.candidates else ""
        echo(f"the service trusts its writers: what it took answers everybody{later}")
    elif total.candidates:
        echo(f"{waiting} claimed: answers who accepts claims, until a worker has checked it")
    if checks:
        echo(f"in force there: {total.checks} of {counted(checks, 'check')}; newer ones stay")
