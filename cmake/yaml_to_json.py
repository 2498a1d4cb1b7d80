# SPDX-License-Identifier: Apache-2.0
"""yaml_to_json.py IN OUT: the YAML document as compact JSON. A key that occurs twice in a mapping is an error."""

import json
import sys

import yaml


class StrictLoader(yaml.SafeLoader):
    pass


def mapping(loader, node):
    keys = [loader.construct_object(key) for key, _ in node.value]
    twice = {str(key) for key in keys if keys.count(key) > 1}
    if twice:
        raise SystemExit(f"{node.start_mark}: key twice: {', '.join(sorted(twice))}")
    return loader.construct_mapping(node, deep=True)


StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)

with open(sys.argv[1], encoding="utf-8") as source:
    document = yaml.load(source, Loader=StrictLoader)
with open(sys.argv[2], "w", encoding="utf-8") as target:
    json.dump(document, target, ensure_ascii=False, separators=(",", ":"))
