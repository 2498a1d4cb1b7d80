# SPDX-License-Identifier: Apache-2.0
"""spec/openapi.yaml, the daemon's routes and its real answers say the same."""

import json
import re
import subprocess

import jsonschema
import pytest
import yaml

from daemon import ROOT, find_program

METHODS = {"get", "put", "post", "delete", "patch"}
NATIVE = re.compile(r"^/(v1(/|$)|healthz$|readyz$|version$|openapi\.json$|metrics$)")


@pytest.fixture(scope="module")
def document():
    return yaml.safe_load((ROOT / "spec/openapi.yaml").read_text())


def resolve(document, node):
    while isinstance(node, dict) and "$ref" in node:
        target = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part.replace("~1", "/").replace("~0", "~")]
        node = target
    return node


def validator(document, schema):
    resolver = jsonschema.RefResolver("", document)
    return jsonschema.Draft202012Validator(schema, resolver=resolver)


def check(document, schema, value, where):
    errors = [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in validator(document, schema).iter_errors(value)]
    assert not errors, f"{where}: {errors[:5]}"


def operations(document):
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method in METHODS:
                yield path, method, operation


def test_document_and_routes_agree(document):
    printed = subprocess.run([find_program(), "internal-routes"], check=True, capture_output=True, text=True).stdout
    served = {(r["method"], r["pattern"]) for r in json.loads(printed) if NATIVE.match(r["pattern"])}
    described = {(method.upper(), path) for path, method, _ in operations(document)}
    assert served - described == set(), "routes without description"
    assert described - served == set(), "descriptions without route"
    assert len(described) > 25


def test_served_document_is_the_one_in_the_repository(document, daemon):
    assert daemon.admin.call("GET", "/openapi.json") == json.loads(json.dumps(document, default=str))


def test_every_schema_is_valid_and_every_reference_leads_somewhere(document):
    for name, schema in document["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema, name
    references = re.findall(r"'\$ref': '([^']+)'", repr(document))
    assert len(references) > 100
    for reference in set(references):
        assert resolve(document, {"$ref": reference}) is not None, reference


def test_operations_are_described_for_users(document):
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    for path, method, operation in operations(document):
        names = set(re.findall(r"{(\w+)}", path))
        declared = [resolve(document, p) for p in document["paths"][path].get("parameters", []) + operation.get("parameters", [])]
        assert {p["name"] for p in declared if p["in"] == "path"} == names, (method, path)
        assert operation["summary"] and "default" in operation["responses"], (method, path)


def contents(document):
    """(where, schema, example) of every request and answer example."""
    for path, method, operation in operations(document):
        bodies = [("request", resolve(document, operation.get("requestBody", {})))]
        bodies += [(status, resolve(document, r)) for status, r in operation["responses"].items()]
        for kind, body in bodies:
            for media in body.get("content", {}).values():
                for name, example in media.get("examples", {}).items():
                    yield f"{method} {path} {kind} {name}", media["schema"], resolve(document, example)["value"]


def test_examples_fit_their_schemas(document):
    seen = 0
    for where, schema, value in contents(document):
        check(document, schema, json.loads(json.dumps(value, default=str)), where)
        seen += 1
    assert seen > 30


def test_error_codes_are_those_of_the_program(document):
    text = (ROOT / "src/base/result.cc").read_text()
    codes = re.findall(r'\{Code::k\w+, "(\w+)"', text)
    assert sorted(document["components"]["schemas"]["ErrorCode"]["enum"]) == sorted(codes)


class Checked:
    """Calls the daemon and checks each answer against the document."""

    def __init__(self, document, api):
        self.document = document
        self.api = api

    def __call__(self, method, pattern, path, **options):
        answer = self.api.request(method, path, **options)
        operation = self.document["paths"][pattern][method.lower()]
        response = resolve(self.document, operation["responses"].get(str(answer.status_code))
                           or operation["responses"]["default"])
        kind = answer.headers["content-type"].split(";")[0]
        assert kind in response["content"], (method, path, answer.status_code, kind)
        if kind == "application/json":
            check(self.document, response["content"][kind]["schema"], answer.json(), f"{method} {path}")
        for name, header in response.get("headers", {}).items():
            if name not in ("Content-Range", "Glovebox-Next-Cursor", "Glovebox-Truncated"):
                assert name in answer.headers, (method, path, name)
        return answer


def test_real_answers_fit_the_document(document, sandbox):
    call = Checked(document, sandbox.api)
    box, root = sandbox.path, "/v1/sandboxes/{id}"
    call("GET", "/v1/sandboxes", "/v1/sandboxes")
    call("GET", root, box)
    call("PATCH", root, box, json={"metadata": {"a": "b"}})
    call("GET", root + "/stats", box + "/stats")
    call("POST", root + "/executions", box + "/executions?wait=true", json={"command": "echo hi; printf '\\377' >&2; kill -9 $$"})
    started = call("POST", root + "/executions", box + "/executions", json={"argv": ["cat"], "stdin": True}).json()
    one = f"{box}/executions/{started['id']}"
    each = root + "/executions/{eid}"
    call("GET", root + "/executions", box + "/executions")
    call("GET", root + "/processes", box + "/processes")
    call("POST", each + "/stdin", one + "/stdin", content=b"text\xff")
    call("GET", each + "/output", one + "/output?wait_ms=5000")
    call("GET", each + "/output", one + "/output?format=raw")
    call("GET", each + "/wait", one + "/wait?timeout_ms=1")
    call("POST", each + "/signal", one + "/signal", json={"signal": "CONT"})
    call("POST", each + "/resize", one + "/resize", json={"cols": 1, "rows": 1})
    call("POST", each + "/kill", one + "/kill")
    call("GET", each, one)
    call("PUT", root + "/files", box + "/files?path=/tmp/f", content=b"x")
    call("GET", root + "/files", box + "/files?path=/tmp/f")
    call("GET", root + "/files", box + "/files?path=/tmp/none")
    call("GET", root + "/files/stat", box + "/files/stat?path=/tmp/f")
    call("GET", root + "/files/list", box + "/files/list?path=/")
    call("POST", root + "/files/mkdir", box + "/files/mkdir", json={"path": "/tmp/d"})
    call("POST", root + "/files/move", box + "/files/move", json={"from": "/tmp/f", "to": "/tmp/g"})
    call("DELETE", root + "/files", box + "/files?path=/tmp/g")
    call("GET", root + "/archive", box + "/archive?path=/tmp")
    call("PUT", root + "/archive", box + "/archive?path=/tmp", content=b"junk")
    for path in ("/v1/templates", "/v1/runtimes", "/v1/keys", "/v1/info", "/healthz", "/readyz", "/version"):
        call("GET", path, path)
    call("GET", "/v1/templates/{name}", "/v1/templates/base")
    call("GET", "/v1/templates/{name}", "/v1/templates/none")
    call("DELETE", root, box)
    call("DELETE", root, box)
    call("GET", root, box)
