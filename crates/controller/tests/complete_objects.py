#!/usr/bin/env python3
"""Writes tests/it/complete_objects.jsonl: objects of the Gateway API with every field that there is.

    python3 complete_objects.py "$(go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)"

For each kind that is read, one object has every field of its definition (experimental channel), and
one more for each further value of an enumeration.
"""

import copy
import json
import pathlib
import sys

import yaml

KINDS = ["GatewayClass", "Gateway", "ListenerSet", "HTTPRoute", "GRPCRoute", "ReferenceGrant", "BackendTLSPolicy"]


def complete(schema, path, enumerations):
    """A value with every field of a schema. Notes where enumerations are."""
    if "enum" in schema:
        enumerations.append((path, schema["enum"][1:]))
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        if "properties" in schema:
            return {name: complete(part, path + [name], enumerations) for name, part in schema["properties"].items()}
        return {"key": complete(schema.get("additionalProperties", {"type": "string"}), path + ["key"], enumerations)}
    if kind == "array":
        return [complete(schema["items"], path + [0], enumerations)]
    if kind == "integer":
        return int(schema.get("minimum", 1))
    if kind == "boolean":
        return True
    if path[-1] == "operator":  # of a label selector, whose definition lists no values
        return "In"
    return "1s" if "([0-9]{1,5}(h|m|s|ms))" in schema.get("pattern", "") else "name"


def objects(definition):
    version = next(one for one in definition["spec"]["versions"] if one["name"] == "v1")
    enumerations = []
    spec = complete(version["schema"]["openAPIV3Schema"]["properties"]["spec"], [], enumerations)
    base = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": definition["spec"]["names"]["kind"],
        "metadata": {"name": "complete", "namespace": "test"},
        "spec": spec,
    }
    yield base
    for path, values in enumerations:
        for value in values:
            other = copy.deepcopy(base)
            place = other["spec"]
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
            yield other


def main():
    folder = pathlib.Path(sys.argv[1]) / "config" / "crd" / "experimental"
    found = {}
    for file in sorted(folder.glob("gateway.networking.k8s.io_*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if document and document.get("kind") == "CustomResourceDefinition":
                found[document["spec"]["names"]["kind"]] = document
    target = pathlib.Path(__file__).parent / "it" / "complete_objects.jsonl"
    lines = [json.dumps(one, separators=(",", ":")) for kind in KINDS for one in objects(found[kind])]
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
