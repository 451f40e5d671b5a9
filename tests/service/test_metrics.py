"""What is exported, and that alerts and dashboard ask for nothing else."""

import json
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from autotune.domain.key import Toolchain
from autotune.domain.record import CheckVerdict, RecordCheck
from autotune_service.middleware import metrics
from autotune_service.middleware.metrics import OTHER, CallMeter
from tests.samples.dockerfiles import FOLDER
from tests.samples.matching import NOON, question, record
from tests.servers.service import asked, running, until

ALERTS = FOLDER / "prometheus" / "alerts.yml"
DASHBOARD = FOLDER / "grafana" / "dashboard.json"
TESTS = FOLDER.parent / "tests" / "docker" / "alerts.test.yml"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(service):
    text = service.raw("GET", "/metrics")[2].decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("autotune")
    }


def value(of, name, **labels):
    return of[name, tuple(sorted(labels.items()))]


def grown(before, after):
    return {name: after[name] - before.get(name, 0) for name in after}


def test_what_calls_add(service):
    before = samples(service)
    service.lookup(question(1024), question(9, 9), question(2048))
    service.post("/v1/lookup", {"questions": [7]})
    samples(service)  # what was handed on once is not handed on again
    after = samples(service)
    more = grown(before, after)
    for match in ("exact", "default", "nearest", "refused"):
        assert value(more, "autotune_lookups_total", match=match) == 1
    for match in ("default", "nearest"):
        assert value(more, "autotune_misses_total", kernel="mm", match=match) == 1
    assert value(more, "autotune_requests_total", route="/v1/lookup", status="200") == 2
    duration = "autotune_request_duration_seconds"
    assert value(more, f"{duration}_count", route="/v1/lookup") == 2
    assert value(more, f"{duration}_bucket", le="5.0", route="/v1/lookup") == 2
    assert 0 < value(more, f"{duration}_sum", route="/v1/lookup") < 10
    assert (value(after, "autotune_snapshot"), value(after, "autotune_records")) == (2, 2)
    assert value(after, "autotune_snapshot_age_seconds") > 0
    assert value(after, "autotune_database_up") == 1


def test_the_same_body_counts_each_time_and_the_version_is_told(service):
    before = samples(service)
    for _ in range(3):
        service.lookup(question(1024))
        service.lookup(question(1024), question(2048))
    more = grown(before, samples(service))
    assert value(more, "autotune_lookups_total", match="exact") == 6
    assert value(more, "autotune_lookups_total", match="nearest") == 3
    (built,) = (labels for name, labels in more if name == "autotune_build_info")
    assert dict(built)["version"] == service.get("/openapi.json")[1]["info"]["version"]


def test_names_and_paths_of_callers_are_no_labels(service):
    before = samples(service)
    service.get("/v1/made_up_by_a_caller")
    service.get("/v1/configs/mm?chip=v5e")
    service.lookup(question(kernel="made_up_by_a_caller"))
    more = grown(before, samples(service))
    assert value(more, "autotune_lookups_total", match="refused") == 1
    assert "made_up" not in str(more) and "/v1/configs/{kernel}" in str(more)


def test_a_closed_service_tells_strangers_no_kernel(store, database):
    _, reader = store.tokens.create("r", "reader", None)
    with running(database, closed=True) as service:
        before = samples(service)
        body = {"questions": [asked(question(9, 9))]}
        assert service.post("/v1/lookup", body, token=reader)[0] == 200
        more = grown(before, samples(service))
    assert value(more, "autotune_misses_total", kernel=OTHER, match="default") == 1


def test_so_many_kernels_and_no_more(monkeypatch):
    monkeypatch.setattr(metrics, "MOST_KERNELS", 2)
    meter = CallMeter()
    for name in ("a", "b", "c", "a"):
        meter.answered("default", kernel=name)
    assert meter._missed == {("a", "default"): 2, ("b", "default"): 1, (OTHER, "default"): 1}


def test_a_stream_is_no_slow_call(service):
    def ended():
        return grown(before, samples(service))

    before = samples(service)
    assert service.raw("GET", "/keys/1/events")[0] == 200
    until(lambda: value(ended(), "autotune_stream_duration_seconds_count") == 1)
    route = "/keys/{key_id}/events"
    assert value(ended(), "autotune_requests_total", route=route, status="200") == 1
    grew = [name for name, by in ended().items() if by and "request_duration" in name[0]]
    assert route not in str(grew)


def test_broken_records_are_counted_until_they_are_replaced(store, service):
    new = Toolchain(jax="0.12.0", jaxlib="0.12.0", libtpu="0.0.50")

    def broken():
        return value(samples(service), "autotune_broken_records")

    def publish(key, *checks):
        store.save_record(replace(record(key), checks=checks))

    publish(question(512), _check(CheckVerdict.SLOWER, new))
    publish(question(256), _check(CheckVerdict.BROKEN, new))
    until(lambda: broken() == 1)
    publish(replace(question(256), toolchain=new))
    until(lambda: broken() == 0)


def _check(verdict, toolchain):
    return RecordCheck(toolchain=toolchain, verdict=verdict, checked_at=NOON)


def _expressions():
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def test_alerts_and_dashboard_ask_for_what_is_exported(service):
    service.lookup(question(9, 9))
    service.raw("GET", "/keys/1/events")
    wanted = {
        name for expression in _expressions() for name in re.findall(r"\bautotune_\w+", expression)
    }
    assert len(wanted) > 10
    assert wanted - {name for name, _ in samples(service)} == set()


@pytest.mark.slow
def test_alerts_fire_on_what_they_are_for(tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not on this machine: apt-get install prometheus")
    for file in (ALERTS, TESTS):
        shutil.copy(file, tmp_path)
    done = subprocess.run(
        [promtool, "test", "rules", TESTS.name], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
