"""The description of the HTTP interface: complete, and enough for a generated client."""

import json

from tests.servers.service import running

OPEN = ("/healthz", "/readyz", "/metrics")


def operations(service, token=None):
    paths = service.get("/openapi.json", token)[1]["paths"]
    return {
        (path, how): operation
        for path, methods in paths.items()
        for how, operation in methods.items()
    }


def test_every_operation_has_a_name_of_its_own_a_tag_and_a_sentence(service):
    described = operations(service)
    assert len({operation["operationId"] for operation in described.values()}) == len(described)
    tags = {tag["name"] for tag in service.get("/openapi.json")[1]["tags"]}
    assert {tag for operation in described.values() for tag in operation["tags"]} == tags
    assert all(operation["description"] for operation in described.values())


def address(path):
    """One that is answered where there is something to answer."""
    query = "?chip=v5e&jax=0.10.2&jaxlib=0.10.2&libtpu=0.0.42&shape=1024x128"
    filled = path.replace("{number}", "1").replace("{kernel}", "mm")
    return filled + query if "{kernel}" in path else filled


def test_a_parameter_that_is_not_known_or_given_twice_is_refused(service, admin):
    """On each route: a name that is misspelt, and ignored, would be answered as something else."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {admin}"}
    empty = b'{"kernels": [], "results": []}'
    for (path, how), operation in operations(service).items():
        wanted = [x for x in operation.get("parameters", ()) if x["in"] == "query"]
        twice = [x["name"] for x in wanted if x["schema"].get("type") != "array"]
        for name in ("dytpe", *twice):
            more = "&".join([f"{name}=1"] * 2)
            to = f"{address(path)}{'&' if '?' in address(path) else '?'}{more}"
            status, _, answer = service.raw(how.upper(), to, empty, **headers)
            assert (status, path) == (422, path), answer
            error = json.loads(answer)["error"]
            assert (error["field"], "twice" in error["message"]) == (name, name != "dytpe"), path


def test_head_is_get_without_its_body(service):
    got = [path for path, how in operations(service) if how == "get"]
    for path in ("/", "/docs", *map(address, got)):
        (status, _, body), headed = service.raw("GET", path), service.raw("HEAD", path)
        assert (headed[0], headed[2], path) == (status, b"", path)
        if path != "/metrics":  # which has changed by then
            assert headed[1]["content-length"] == str(len(body)), path


def test_another_method_is_told_which_there_are(service):
    here = {}
    for path, how in operations(service):
        here.setdefault(path, set()).update(("GET", "HEAD") if how == "get" else (how.upper(),))
    for path, methods in here.items():
        for other in ("OPTIONS", *{"GET", "HEAD"} - methods):
            status, headers, _ = service.raw(other, address(path))
            assert (status, headers["allow"], path) == (405, ", ".join(sorted(methods)), path)


def test_every_list_has_pages(service):
    schemas = service.get("/openapi.json")[1]["components"]["schemas"]
    lists = set()
    for (path, how), operation in operations(service).items():
        content = operation["responses"].get("200", {}).get("content", {})
        name = content.get("application/json", {}).get("schema", {}).get("$ref", "")
        made = schemas.get(name.rpartition("/")[2], {})
        properties = made.get("properties", {}).values()
        endless = [p for p in properties if p.get("type") == "array" and "maxItems" not in p]
        if how == "get" and endless:
            asked_by = {parameter["name"] for parameter in operation["parameters"]}
            assert {"limit", "cursor"} <= asked_by and "next" in made["required"], path
            lists.add(path)
    assert {"/v1/records", "/v1/misses", "/v1/jobs"} < lists


def test_an_open_service_wants_a_token_where_something_is_written(service):
    for (path, how), operation in operations(service).items():
        writes = how == "post" and path != "/v1/lookup"
        assert ("security" in operation) is (writes or path == "/v1/audit"), path


def test_a_closed_service_wants_one_everywhere_but_for_its_health(store, database, writer):
    with running(database, closed=True) as service:
        for (path, _), operation in operations(service, writer).items():
            assert ("security" in operation) is (path not in OPEN), path
