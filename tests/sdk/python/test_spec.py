# SPDX-License-Identifier: Apache-2.0
"""Both SDKs against spec/openapi.yaml: a route that one lacks, a wrong name of a parameter or field, another type fail here."""
import dataclasses
import json
import pathlib
import re
import subprocess
import typing

import pytest
import yaml

import glovebox.errors
import glovebox.types
from glovebox import _routes

ROOT = pathlib.Path(__file__).resolve().parents[3]
SPEC = yaml.safe_load((ROOT / "spec/openapi.yaml").read_text())
NOT_FOR_SDKS = {"/mcp"}  # MCP clients speak for themselves
# The SDKs' names for schemas; None: the object is described where it is used.
SCHEMAS = {
    "SandboxInfo": "Sandbox", "ExecutionInfo": "Execution", "ProcessInfo": "Process", "Change": "FileChange", "ForkSandbox": "Fork", "NetworkState": None,
    "NetworkCheck": None, "Preset": None, "UpdateSandbox": None, "CreateKey": None, "CreateVolume": None}
INLINE = {
    "NetworkState": ("responses", "Network"), "NetworkCheck": ("/v1/network", "get"), "UpdateSandbox": ("/v1/sandboxes/{id}", "patch"),
    "CreateKey": ("/v1/keys", "post"), "CreateVolume": ("/v1/volumes", "post"), "Preset": ("/v1/network/presets", "get")}


def resolve(schema):
    while "$ref" in schema:
        node = SPEC
        for part in schema["$ref"][2:].split("/"):
            node = node[part]
        schema = node
    return schema


def json_schema(holder):
    return resolve(resolve(holder)["content"]["application/json"]["schema"])


def schema_of(name):
    """The schema of an SDK's type; None when the description does not have it."""
    if name in INLINE:
        first, second = INLINE[name]
        if first == "responses":
            return json_schema(SPEC["components"]["responses"][second])
        operation = SPEC["paths"][first][second]
        schema = json_schema(operation["responses"]["200"] if second == "get" else operation["requestBody"])
        return resolve(schema["properties"]["presets"]["items"]) if name == "Preset" else schema
    return SPEC["components"]["schemas"].get(SCHEMAS.get(name, name))


# The SDKs ----------------------------------------------------------------------------------------------------------------------------
def python_shape(hint):
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union:
        real = [a for a in arguments if a is not type(None)]
        inner = python_shape(real[0]) if len(real) == 1 else {"type": "any"}
        return {**inner, "nullable": len(real) < len(arguments)}
    if origin is typing.Literal:
        return {"type": "string", "enum": sorted(arguments), "nullable": False}
    if origin is list:
        return {"type": "array", "item": python_shape(arguments[0]), "nullable": False}
    if dataclasses.is_dataclass(hint) or typing.is_typeddict(hint):
        return {"type": "object", "fields": python_fields(hint), "nullable": False}
    if hint is dict or origin is dict:
        return {"type": "object", "nullable": False}
    return {"type": {str: "string", int: "integer", float: "number", bool: "boolean"}.get(hint, "any"), "nullable": False}


def python_fields(cls):
    hints = typing.get_type_hints(cls)
    if not dataclasses.is_dataclass(cls):
        return {name: {"optional": True, **python_shape(hint)} for name, hint in hints.items()}
    out = {}
    for field in dataclasses.fields(cls):
        has_default = field.default is not dataclasses.MISSING
        shape = python_shape(hints[field.name])
        out[field.name] = {**shape, "optional": has_default, "nullable": shape["nullable"] and not has_default}
    return out


def python_sdk():
    types = {name: python_fields(cls) for name, cls in vars(glovebox.types).items()
             if isinstance(cls, type) and cls.__module__ == "glovebox.types" and re.fullmatch(PUBLIC, name)}
    routes = {re.sub("_(.)", lambda m: m[1].upper(), name.lower()): route._asdict()
              for name, route in vars(_routes).items() if isinstance(route, _routes.Route)}
    return {"types": types, "routes": routes, "codes": list(glovebox.errors.ERROR_CLASSES)}


def typescript_sdk():
    return json.loads(subprocess.run(["node", ROOT / "tests/sdk/describe-types.mjs"], check=True, capture_output=True).stdout)


TYPESCRIPT = typescript_sdk()
PUBLIC = "|".join(TYPESCRIPT["types"])
SDKS = {"python": python_sdk(), "typescript": TYPESCRIPT}
LANGUAGES = pytest.mark.parametrize("language", SDKS)


# The description ---------------------------------------------------------------------------------------------------------------------
def operations():
    for path, item in SPEC["paths"].items():
        for method, operation in item.items():
            if method == "parameters" or path in NOT_FOR_SDKS:
                continue
            parameters = [resolve(p) for p in [*item.get("parameters", []), *operation.get("parameters", [])]]
            body = resolve(operation.get("requestBody", {})).get("content", {}).get("application/json", {}).get("schema", {})
            yield operation["operationId"], {
                "method": method.upper(), "path": path, "query": {p["name"] for p in parameters if p["in"] == "query"},
                "body": set(resolve(body).get("properties", {}))}


OPERATIONS = dict(operations())


@LANGUAGES
def test_every_route_of_the_description_is_there(language):
    routes = SDKS[language]["routes"]
    assert OPERATIONS.keys() - routes.keys() == set()
    assert routes.keys() - OPERATIONS.keys() == set()


@LANGUAGES
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_route_is_as_described(language, name):
    route, described = SDKS[language]["routes"][name], OPERATIONS[name]
    assert (route["method"], route["path"]) == (described["method"], described["path"])
    assert set(route["query"]) == described["query"]
    assert set(route["body"]) == described["body"]


@LANGUAGES
def test_every_route_is_used(language):
    """A route in the table that no method calls is no route."""
    folder, spelled = {
        "python": ("python/src/glovebox/_async", lambda name: "routes." + re.sub("([A-Z])", r"_\1", name).upper()),
        "typescript": ("typescript/src", lambda name: "routes." + name)}[language]
    text = "".join(path.read_text() for path in (ROOT / "sdk" / folder).iterdir() if path.is_file())
    unused = {name for name in SDKS[language]["routes"] if not re.search(re.escape(spelled(name)) + r"\b", text)}
    assert unused == set()


@LANGUAGES
def test_every_error_code_has_a_class(language):
    described = set(SPEC["components"]["schemas"]["ErrorCode"]["enum"])
    assert described - set(SDKS[language]["codes"]) == set()
    assert set(SDKS[language]["codes"]) - described == set()


def compare(where, fields, schema, problems):
    schema = resolve(schema)
    described, required = schema["properties"], set(schema.get("required", []))
    is_request = schema.get("additionalProperties") is False
    for name in described.keys() - fields.keys():
        problems.append(f"{where} lacks {name}")
    for name, field in fields.items():
        if name not in described:
            problems.append(f"{where} has {name}, which is not described")
            continue
        if not is_request and not field["optional"] and name not in required:
            problems.append(f"{where}.{name} may be missing")
        compare_value(f"{where}.{name}", field, described[name], problems)


def compare_value(where, field, schema, problems):
    schema = resolve(schema)
    variants = [resolve(v) for v in schema.get("oneOf", [])]
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else list(types)
    nullable = "null" in types or any(v.get("type") == "null" for v in variants)
    real = [v for v in variants if v.get("type") != "null"]
    if len(real) == 1:
        schema = real[0]
        types = [schema.get("type")]
    elif len(real) > 1:
        return
    if nullable and not field["nullable"] and not field["optional"]:
        problems.append(f"{where} may be null")
    types = [t for t in types if t not in ("null", None)]
    if types and field["type"] != "any" and field["type"] != types[0] and (field["type"], types[0]) != ("number", "integer"):
        problems.append(f"{where} is {types[0]}, not {field['type']}")
    if "enum" in schema and field.get("enum") is not None and set(field["enum"]) != set(schema["enum"]):
        problems.append(f"{where} is one of {sorted(schema['enum'])}, not of {field['enum']}")
    if "properties" in schema and "fields" in field:
        compare(where, field["fields"], schema, problems)
    if types == ["array"] and "item" in field:
        compare_value(where + "[]", field["item"], schema["items"], problems)


@LANGUAGES
def test_fields_are_as_described(language):
    problems, compared = [], 0
    for name, fields in SDKS[language]["types"].items():
        schema = schema_of(name)
        assert schema is not None, f"{name} is not described"
        compare(name, fields, schema, problems)
        compared += 1
    assert problems == [] and compared >= 25
