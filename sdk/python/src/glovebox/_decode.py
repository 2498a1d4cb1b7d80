# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import typing
from functools import lru_cache
from typing import Any, Callable, Dict, List, Mapping, Type, TypeVar

from . import types
from .errors import ProtocolError

T = TypeVar("T")
Converter = Callable[[Any], Any]


def decode(cls: Type[T], value: object) -> T:
    """A dataclass from the JSON object it stands for. What this version does not know is left out."""
    if not isinstance(value, Mapping):
        raise ProtocolError(f"the answer is no {cls.__name__}")
    fields = typing.cast("Mapping[str, Any]", value)
    target: Any = cls
    converters = _converters(target)
    try:
        return cls(**{name: converters[name](fields[name]) for name in converters if name in fields})
    except (TypeError, KeyError) as error:
        raise ProtocolError(f"the answer is no {cls.__name__}: {error}") from error


@lru_cache(maxsize=None)
def _converters(cls: Any) -> Dict[str, Converter]:
    hints = typing.get_type_hints(cls, dict(vars(types)))
    return {field.name: _converter(hints[field.name]) for field in dataclasses.fields(cls)}


def _converter(hint: Any) -> Converter:
    arguments = [a for a in typing.get_args(hint) if a is not type(None)]
    if typing.get_origin(hint) is typing.Union and len(arguments) == 1:
        inner = _converter(arguments[0])
        return lambda value: None if value is None else inner(value)
    if typing.get_origin(hint) is list:
        item = _converter(arguments[0])
        return lambda value: [item(part) for part in typing.cast("List[Any]", value)]
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return lambda value: decode(hint, value)
    return lambda value: value
