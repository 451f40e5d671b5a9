"""The whole flow with a client that was generated from the description of the service.

Run in the environment of that client: PYTHON client_flow.py URL TOKEN < what is pushed, as JSON.
"""

import json
import sys
from http import HTTPStatus

from pallas_autotune_client import AuthenticatedClient
from pallas_autotune_client.api.lookup import config, lookup
from pallas_autotune_client.api.operation import healthz
from pallas_autotune_client.api.publishing import new_job, results
from pallas_autotune_client.api.registry import job, jobs, misses, records, snapshot, snapshots
from pallas_autotune_client.api.workers import claim, finish, heartbeat
from pallas_autotune_client.models import (
    BeatRequest,
    ClaimRequest,
    FinishRequest,
    JobRequest,
    LookupRequest,
    PushRequest,
)


def main(url: str, token: str) -> None:
    client = AuthenticatedClient(base_url=url, token=token, raise_on_unexpected_status=True)
    pushed = json.load(sys.stdin)
    key = pushed["results"][0]["record"]["key"]
    assert healthz.sync(client=client).status == "ok"

    done = results.sync(client=client, body=PushRequest.from_dict(pushed))
    assert (done.records, done.lost) == (1, 0), done

    question = {name: key[name] for name in ("kernel", "fingerprint", "problem")}
    asked = {
        "chip": key["chip"],
        "toolchain": key["toolchain"],
        "accept_claimed": True,  # no worker has checked it
        "questions": [question, question, {"kernel": "nobody", "problem": question["problem"]}],
    }
    answers = lookup.sync(client=client, body=LookupRequest.from_dict(asked))
    first, second, third = answers.answers
    assert first.match == second.match == "exact", answers
    assert first.config.to_dict() == pushed["results"][0]["record"]["config"]
    assert third.error.code == "unknown_kernel"

    shape = ",".join(f"{name}={size}" for name, size in key["problem"]["dims"].items())
    single = config.sync(
        key["kernel"],
        client=client,
        chip=key["chip"],
        shape=shape,
        option=["causal=true"],  # which nothing is published for
        **key["toolchain"],
    )
    assert single.match == "default" and single.config is None, single

    assert snapshots.sync(client=client).in_force == done.snapshot
    bundle = snapshot.sync_detailed("latest", client=client)
    assert bundle.status_code is HTTPStatus.OK and bundle.content[:2] == b"\x1f\x8b"

    newest = records.sync(client=client, limit=1)
    older = records.sync(client=client, limit=1, cursor=newest.next_)
    assert newest.records[0].number > older.records[0].number

    assert misses.sync(client=client).misses is not None
    wanted = {"kernel": key["kernel"], "problem": key["problem"], "chip": key["chip"]}
    made = new_job.sync(client=client, body=JobRequest.from_dict(wanted))
    assert job.sync(made.number, client=client).state == "queued"
    worker = {"worker": "w1", "kernels": pushed["kernels"], "toolchain": key["toolchain"]}
    taken = claim.sync(client=client, body=ClaimRequest.from_dict(worker)).job
    turn = {"worker": taken.worker, "attempt": taken.attempt}
    beat = BeatRequest.from_dict({**turn, "progress": {"done": 1, "goal": 2}})
    assert heartbeat.sync(made.number, client=client, body=beat).holds
    ended = FinishRequest.from_dict({**turn, "state": "failed", "message": "no room"})
    assert finish.sync(made.number, client=client, body=ended).holds
    assert "failed" in [job.state for job in jobs.sync(client=client).jobs]


if __name__ == "__main__":
    main(*sys.argv[1:])
