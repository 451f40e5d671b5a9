"""The ways by which a service's config comes to a model: of a key, with claims or without. Each has
the service, and a folder of its own."""

from dataclasses import asdict
from urllib.parse import urlencode

from autotune.answering.client import ServiceAnswers
from autotune.answering.sources import BundleAnswers
from autotune.domain.codec import from_data
from autotune.domain.problem import Config

NOBODY = "http://127.0.0.1:9"


def lookup(service, _, key, claimed):
    asked = {"accept_claimed": True} if claimed else {}
    return read(service.lookup(key, **asked)[1][0]["config"])


def one_question(service, _, key, claimed):
    shape = ",".join(f"{name}={size}" for name, size in key.problem.dims)
    query = {"chip": key.chip, "shape": shape, "fingerprint": key.fingerprint}
    query |= asdict(key.toolchain) | ({"accept_claimed": "true"} if claimed else {})
    status, answer = service.get(f"/v1/configs/{key.kernel}?{urlencode(query)}")
    assert status == 200
    return read(answer["config"])


def client(service, _, key, claimed):
    return ServiceAnswers(service.url, strict=True, accept_claimed=claimed).match(key).config


def client_without_the_service(service, folder, key, claimed, everything=True):
    """With a snapshot on disk that another client wrote, which accepts all."""
    file = folder / "cache.bundle"
    assert ServiceAnswers(service.url, cache=file, accept_claimed=everything).refresh()
    return ServiceAnswers(NOBODY, cache=file, accept_claimed=claimed).match(key).config


def bundle(service, folder, key, claimed, everything=True):
    file = folder / "all.bundle"
    path = "/v1/snapshots/latest" + "?accept_claimed=true" * everything
    file.write_bytes(service.raw("GET", path)[2])
    return BundleAnswers(file, accept_claimed=claimed).match(key).config


def read(data):
    return data and from_data(Config, data)


DOORS = (lookup, one_question, client, client_without_the_service, bundle)
