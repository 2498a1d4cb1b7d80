# SPDX-License-Identifier: Apache-2.0
"""spec/openapi.yaml describes what docs/reference/api.md promises, and its own examples obey its schemas."""

import copy
import pathlib
import re

import pytest
import yaml

jsonschema = pytest.importorskip("jsonschema", reason="needs python3-jsonschema: examples not proven")
ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = yaml.safe_load((ROOT / "spec/openapi.yaml").read_text(encoding="utf-8"))
METHODS = ("get", "put", "post", "patch", "delete")


def resolve(node):
    while "$ref" in node:
        target = DOCUMENT
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def operations():
    for path, item in DOCUMENT["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item, item[method]


def bodies():
    """(where, media type object) of every request and response."""
    for path, method, _, operation in operations():
        where = f"{method.upper()} {path}"
        if "requestBody" in operation:
            for media in resolve(operation["requestBody"])["content"].values():
                yield where + " request", media
        for status, response in operation["responses"].items():
            for media in resolve(response).get("content", {}).values():
                yield f"{where} {status}", media


def validator(schema):
    root = copy.deepcopy(schema)
    root["components"] = DOCUMENT["components"]
    return jsonschema.Draft202012Validator(root)


def examples():
    for where, media in bodies():
        for name, example in media.get("examples", {}).items():
            yield pytest.param(media["schema"], resolve(example)["value"], id=f"{where} {name}")


@pytest.mark.parametrize("schema, value", list(examples()))
def test_examples_obey_their_schemas(schema, value):
    validator(schema).validate(value)


def test_operation_ids_and_tags_are_complete():
    tags = {tag["name"] for tag in DOCUMENT["tags"]}
    ids = [operation["operationId"] for *_, operation in operations()]
    assert len(ids) == len(set(ids))
    for path, method, _, operation in operations():
        assert set(operation["tags"]) <= tags, (path, method)
        assert "default" in operation["responses"], (path, method)


def test_path_parameters_are_declared():
    for path, method, item, operation in operations():
        declared = {
            parameter["name"]
            for parameter in map(resolve, item.get("parameters", []) + operation.get("parameters", []))
            if parameter["in"] == "path"
        }
        assert declared == set(re.findall(r"{(\w+)}", path)), (path, method)


@pytest.mark.parametrize(
    "name, wrong",
    [
        ("CreateSandbox", {"tempalte": "base"}),
        ("CreateSandbox", {"limits": {"cpus": 0}}),
        ("CreateSandbox", {"limits": {"memory": 5}}),
        ("CreateSandbox", {"runtime": "docker"}),
        ("CreateSandbox", {"network": {"egress": "all"}}),
        ("CreateSandbox", {"env": {"A=B": "x"}}),
        ("StartExecution", {}),
        ("StartExecution", {"argv": ["a"], "command": "a"}),
        ("StartExecution", {"argv": []}),
        ("StartExecution", {"argv": ["a"], "stdin": True, "stdin_text": "x"}),
        ("StartExecution", {"argv": ["a"], "stdin_text": "x", "stdin_b64": "eA=="}),
        ("StartExecution", {"argv": ["a"], "pty": {"cols": 0}}),
    ],
)
def test_wrong_requests_are_refused(name, wrong):
    assert list(validator(DOCUMENT["components"]["schemas"][name]).iter_errors(wrong))


def test_requests_refuse_unknown_fields():
    for where, media in bodies():
        schema = resolve(media["schema"])
        if where.endswith("request") and schema.get("type") == "object":
            assert schema["additionalProperties"] is False, where


def test_every_path_of_the_overview_is_described():
    overview = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    described = {(m.upper(), re.sub(r"{\w+}", "{}", p)) for p, m, *_ in operations()}
    found = set()
    for methods, path in re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE)(?:\|\w+)*) ([^\s`]+)", overview):
        path = re.sub(r"[?].*", "", path)
        path = path.replace("…/{eid}", "/v1/sandboxes/{id}/executions/{eid}").replace("…", "/v1/sandboxes/{id}")
        found |= {(method, re.sub(r"{\w+}", "{}", path)) for method in methods.split("|")}
    assert len(found) > 30
    assert found <= described, found - described
