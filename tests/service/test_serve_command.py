"""``serve``, ``lookup --url``, ``export`` and ``misses`` as installed commands."""

import http.client
import json
import os
import re
import signal
import socket
from dataclasses import replace

import pytest

from autotune.answering.bundle import read_bundle
from autotune.answering.client import ServiceAnswers
from autotune_db import open_store
from tests.samples.dashboard import fill
from tests.samples.database import new_store
from tests.samples.matching import SPEC, question, record
from tests.servers.commands import assert_one_sentence, autotune, autotune_here
from tests.servers.service import Running, free_port, serving, until

TOOLCHAIN = "jax=0.10.2,jaxlib=0.10.2,libtpu=0.0.42"
ASK = ("--chip", "v5e", "--toolchain", TOOLCHAIN)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_serve_answers_takes_over_and_stops(store, database, workers):
    port = free_port()
    with serving(database, "--workers", workers, port=port) as process:
        client = ServiceAnswers(f"http://127.0.0.1:{port}", timeout_s=120, strict=True)
        answers = client.lookup([question(1024), question(9, 9)])
        assert [answer.kind for answer in answers] == ["exact", "default"]
        store.save_record(record(question(512)))
        service = Running(port)
        for _ in range(20):  # both workers, as connections are spread
            until(lambda: service.get("/healthz")[1]["snapshot"] == 3)
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=120)
    assert "Traceback" not in printed
    assert [(miss.key, miss.count) for miss in store.misses()] == [(question(9, 9), 1)]


@pytest.mark.slow
def test_lookup_from_a_service(store, database, tmp_path):
    port = free_port()
    with serving(database, port=port):
        url = ("--url", f"http://127.0.0.1:{port}")
        done = autotune("lookup", "mm", "--shape", "2048x128", *ASK, *url, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert "bm=256" in done.stdout
        assert re.search(r"nearest: tuned for .* \(snapshot 2\)", done.stdout)
        done = autotune_here("lookup", "mm", "--shape", "9x9", *ASK, *url, "--json", cwd=tmp_path)
        assert (done.returncode, json.loads(done.stdout)["match"]) == (1, "default")
        done = autotune_here("lookup", "mm", "--shape", "9x9x9", *ASK, *url, cwd=tmp_path)
        assert_one_sentence(done, "has 3 dimensions, this kernel has 2")
        done = autotune_here("lookup", "nope", "--shape", "9", *ASK, *url, cwd=tmp_path)
        assert_one_sentence(done, "unknown kernel 'nope'")
    done = autotune_here("lookup", "mm", "--shape", "9x9", *ASK, *url, cwd=tmp_path)
    assert_one_sentence(done, "cannot be used")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_that_is_used(store, database, tmp_path, workers):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = autotune_here(
            "serve", "--db", database, "--port", port, "--workers", workers, cwd=tmp_path
        )
    assert_one_sentence(done, f"port {port} cannot be listened on: Address already in use")
    assert done.returncode == 2


def test_serve_without_a_database(tmp_path):
    assert_one_sentence(autotune_here("serve", cwd=tmp_path), "there is no database at")


def test_export(store, database, tmp_path):
    file = tmp_path / "configs.bundle"
    done = autotune_here("export", str(file), "--db", database, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2 records in ")
    bundle = read_bundle(file)
    assert {record.key for record in bundle.records} == {question(1024), question(4096, 256)}
    assert bundle.kernels == (SPEC,)
    answers = ServiceAnswers(None, cache=file).lookup([question(2048)])
    assert [answer.kind for answer in answers] == ["nearest"]
    file.unlink()
    for only in (("--kernel", "other"), ("--chip", "v6e")):
        done = autotune_here("export", str(file), "--db", database, *only, cwd=tmp_path)
        assert done.returncode == 1
        assert not file.exists()
    done = autotune_here("export", str(tmp_path), "--db", database, cwd=tmp_path)
    assert_one_sentence(done, "cannot be written")
    pipe = f"/proc/self/fd/{os.pipe()[1]}"
    done = autotune_here("export", pipe, "--db", database, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("", f"2 records in {pipe}\n")
    done = autotune_here("export", str(file), "--db", database, "--chip", "h100", cwd=tmp_path)
    assert_one_sentence(done, "unknown chip")


def test_misses(database, tmp_path):
    nasty = replace(question(9, 9), kernel="[/red]odd")
    with new_store(database) as store:
        done = autotune_here("misses", "--db", database, cwd=tmp_path)
        assert done.stdout == "nothing was asked for in vain\n"
        store.save_misses({(question(9, 9), "nearest"): 3, (nasty, "default"): 5})
    done = autotune_here("misses", "--db", database, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[1:4:2] for line in done.stdout.splitlines() if "bfloat16" in line] == [
        ["5", "[/red]odd"],
        ["3", "mm"],
    ]
    done = autotune_here("misses", "--db", database, "--json", "--limit", "1", cwd=tmp_path)
    (only,) = json.loads(done.stdout)
    assert (only["count"], only["key"]["kernel"]) == (5, "[/red]odd")


@pytest.mark.slow
def test_an_open_stream_does_not_hold_up_the_end(database):
    with open_store(database, create=True) as store:
        fill(store)
    port = free_port()
    with serving(database, "--drain-s", "600", port=port) as process:
        watching = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        watching.request("GET", "/keys/1/events")
        stream = watching.getresponse()
        assert stream.readline().startswith(b"retry")
        process.send_signal(signal.SIGTERM)
        process.wait(300)  # a stream lives for five seconds, the drain would last ten minutes
        assert process.returncode == 0
        watching.close()
