"""``autotune rule``: blocks for shapes that nobody tuned, from all that was compiled."""

import sys
from typing import Any

import click

from autotune.answering.matching import any_problem
from autotune.cli import shared
from autotune.domain.compilers import DescribeKernel, DescribeToolchain
from autotune.domain.key import Identity, identity_of, parse_chip
from autotune.domain.record import Record
from autotune.domain.rule import NoRule, ShapeRule
from autotune.wording.match import by_rule, no_rule
from autotune.wording.output import echo


@click.command()
@click.argument("kernel")
@click.option("--chip", required=True, help="TPU generation.")
@shared.compiler_options
@shared.database_and_json
def rule(kernel: str, chip: str, database: str | None, as_json: bool, **compilers: Any) -> None:
    """Make a rule for the shapes between those that KERNEL was tuned for, and publish it.

    Each problem is left out once and answered by a rule of the others; the answers are compiled.
    The rule is published if it beats the nearest record and the kernel's default, and no answer is
    more than 10 % slower than the best that is known. Else an earlier rule is withdrawn. Exit
    code 1 when none was published.
    """
    from autotune.declaring.discovery import find_kernel
    from autotune.tables.rule_maker import RuleMaker

    ref, target = find_kernel(kernel), parse_chip(chip)
    made: list[Record] = []
    with (
        shared.open_database(database, create=False) as store,
        shared.new_pool(**compilers) as pool,
    ):
        spec, toolchain = pool.ask(DescribeKernel(ref=ref)), pool.ask(DescribeToolchain())
        groups: dict[Identity, list[Record]] = {}
        for record in store.records(spec.name, target):
            if (record.key.fingerprint, record.key.toolchain) == (spec.fingerprint, toolchain):
                groups.setdefault(any_problem(identity_of(record.key)), []).append(record)
        for records in groups.values():
            maker = RuleMaker(pool=pool, store=store, ref=ref, spec=spec, records=records)
            best = maker.make()
            key = records[0].key
            options = "".join(f" {name}={value}" for name, value in key.problem.options)
            rule = best if isinstance(best, ShapeRule) else None
            said = no_rule(best) if isinstance(best, NoRule) else by_rule(best)
            carrier = store.save_rule([record.key for record in records], rule)
            made += [carrier] if carrier and rule else []
            if not as_json or not (carrier and rule):
                name = f"{key.kernel} {key.problem.dtype}{options} on {key.chip}"
                echo(f"{name}: {said}", err=not (carrier and rule))
    if as_json:
        shared.print_json([_data(record) for record in made])
    elif not groups:
        echo(f"nothing is published for {spec.name} on {target} with {toolchain}", err=True)
    sys.exit(0 if made else 1)


def _data(record: Record) -> dict[str, Any]:
    rule = record.rule
    assert rule is not None
    regrets = [f"{name}_regret" for name in ("median", "worst", "nearest", "default")]
    names = ("left_out", "problems", *regrets)
    return {"key": str(record.key), **{name: getattr(rule, name) for name in names}}
