"""What must be true after a load: nothing acknowledged is lost, nothing doubled, no snapshot
changed."""

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select

from autotune_db import open_store
from autotune_db.tables import KEYS, RECORDS, TRIALS
from benchmarks.harness.load.reader import digest, questions
from benchmarks.harness.load.samples import SHARED, key, lookup_body
from benchmarks.harness.load.service import BASE, Service, wait_for
from benchmarks.harness.load.writer import OWN

_BATCH = 500


@dataclass
class Check:
    """``counts``: how much was looked at; ``wrong``: one sentence for each violation."""

    counts: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def check_database(database: str, writers: list[dict[str, Any]]) -> Check:
    """Every acknowledged record once, no record twice, all trials; nothing that nobody sent."""
    check = Check()
    with open_store(database, create=False) as store:
        records, trials = store._work.read(_kept)
    acknowledged = unknown = again = 0
    sent = {f"base {number}" for number in range(BASE)}
    for writer in writers:
        for push in writer["pushes"]:
            names = _names(writer["writer"], push["number"])
            sent |= set(names)
            acknowledged += push["answer"] is not None
            unknown += push["answer"] is None
            again += push.get("again") is not None
            check.wrong += _wrong_push(push, [records[name] for name in names])
    check.wrong += [f"{name} is there, and nobody sent it" for name in set(records) - sent][:5]
    least = 2 * (BASE + (OWN + 1) * acknowledged)
    if not least <= trials <= least + 2 * (OWN + 1) * unknown:
        check.wrong.append(f"there are {trials} trials, {least} were acknowledged")
    check.counts = {
        "pushes acknowledged": acknowledged,
        "pushed once more": again,
        "records": sum(records.values()),
        "trials": trials,
        "pushes never acknowledged": unknown,
    }
    return check


def _kept(connection: Any) -> tuple[Counter[str], int]:
    """How often each reason is there, and how many trials."""
    mine = KEYS.c.kernel == key(0, 0).kernel
    texts = connection.scalars(select(RECORDS.c.evidence).join(KEYS).where(mine))
    reasons = Counter(json.loads(text)["reason"] for text in texts)
    trials = select(func.count()).select_from(TRIALS).join(KEYS).where(mine)
    return reasons, connection.scalar(trials)


def _names(writer: int, number: int) -> list[str]:
    return [
        f"w{writer} n{number} {which}" for which in (*(f"own{n}" for n in range(OWN)), "shared")
    ]


def _wrong_push(push: dict[str, Any], counts: list[int]) -> list[str]:
    """``kept``: how often each of its records is there, the shared one last."""
    wrong, answer, private, shared = [], push["answer"], counts[:-1], counts[-1]
    if max(counts) > 1:
        wrong.append(f"push {push['number']}: a record is there {max(counts)} times")
    if answer is None:
        return (
            wrong
            if len({*private}) == 1
            else [*wrong, f"push {push['number']}: half of it is there"]
        )
    if min(private) < 1:
        wrong.append(f"push {push['number']} was acknowledged and is lost")
    if push["tries"] == 1 and (answer["records"], answer["lost"]) != (sum(counts), 1 - shared):
        wrong.append(f"push {push['number']}: {counts} are there, it was told {answer}")
    again = push.get("again")
    if again and (again["records"], again["trials"]) != (0, 0):
        wrong.append(f"push {push['number']}, once more: {again}")
    return wrong


def check_lookups(service: Service, database: str, writers: list[dict[str, Any]]) -> Check:
    """What was acknowledged is answered; of a shared key, what was accepted last. Asked by the
    number of the newest snapshot: a process takes over what is newer each second, and no number of
    connections is sure to reach all of them."""
    expected = {
        key(writer["writer"] + 1, push["number"] * OWN + n): writer["writer"] * 1_000_000
        + push["number"]
        + 1
        for writer in writers
        for push in writer["pushes"]
        if push["answer"]
        for n in range(OWN)
    }
    with open_store(database, create=False) as store:
        newest_number = store.snapshots(1)[0].number
        for number in range(SHARED):
            newest = store.record(key(0, number), claimed=True)
            assert newest is not None
            expected[newest.key] = newest.config["mark"]
    wait_for(lambda: _everywhere(service, newest_number), "all processes have the newest snapshot")
    check, keys = Check(counts={"keys looked up": len(expected)}), list(expected)
    for start in range(0, len(keys), _BATCH):
        batch = keys[start : start + _BATCH]
        status, _, body = service.call("POST", "/v1/lookup", lookup_body(batch, newest_number))
        answers = json.loads(body)["answers"] if status == 200 else [{}] * len(batch)
        for asked, answer in zip(batch, answers, strict=True):
            mark = answer.get("config", {}).get("axes", {}).get("mark")
            if (answer.get("match"), mark) != ("exact", expected[asked]):
                check.wrong.append(f"{asked.problem}: {answer}, not {expected[asked]}"[:300])
    return check


def _everywhere(service: Service, number: int) -> bool:
    """As far as twenty new connections can tell."""
    states = (json.loads(service.call("GET", "/healthz")[2]) for _ in range(20))
    return all(state["snapshot"] >= number for state in states)


def check_snapshots(service: Service, seen: dict[str, str], most: int = 40) -> Check:
    """A sample of what readers were told is told again."""
    names = sorted(seen)
    sample = random.Random(3).sample(names, min(most, len(names)))
    check = Check(
        counts={
            "snapshots seen": len({n.split()[0] for n in names}),
            "asked for again": len(sample),
        }
    )
    for name in sample:
        number, what = name.split()
        if what == "bundle":
            answered = service.call("GET", f"/v1/snapshots/{number}")[1].get("etag", "")
        else:
            body = lookup_body(questions(int(what)), int(number))
            answered = digest(service.call("POST", "/v1/lookup", body)[2])
        if answered != seen[name]:
            check.wrong.append(f"snapshot {number} answers otherwise than before ({what})")
    return check
