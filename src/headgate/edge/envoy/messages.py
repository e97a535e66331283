"""The messages of Envoy's rate limit service, in a private pool: no other library's messages clash with them."""

from __future__ import annotations

from typing import Any, Final

from headgate.wording import requiring

with requiring("headgate.edge.envoy", "protobuf", "google", "serve"):
    from google.protobuf import (
        descriptor_pb2,
        descriptor_pool,
        duration_pb2,
        json_format,
        message_factory,
        wrappers_pb2,
    )
    from google.protobuf.message import DecodeError

PACKAGE: Final = "envoy.service.ratelimit.v3"
_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _FIELD.TYPE_STRING, "uint32": _FIELD.TYPE_UINT32, "bool": _FIELD.TYPE_BOOL, "bytes": _FIELD.TYPE_BYTES,
}  # fmt: skip
_MESSAGES: Final = {
    "Entry": "1 key string, 2 value string",
    "Override": "1 requests_per_unit uint32, 2 unit Unit",
    "Descriptor": "1 entries Entry*, 2 limit Override, 3 hits_addend UInt64, 4 is_negative_hits bool",
    "RateLimitRequest": "1 domain string, 2 descriptors Descriptor*, 3 hits_addend uint32",
    "RateLimit": "3 name string, 1 requests_per_unit uint32, 2 unit Unit",
    "Status": "1 code Code, 2 current_limit RateLimit, 3 limit_remaining uint32, 4 duration_until_reset Duration",
    "Header": "1 key string, 2 value string",
    "RateLimitResponse": "1 overall_code Code, 2 statuses Status*, 3 response_headers_to_add Header*",
}
"""Number, name and type of each field that is used here; `*` marks a list. Other fields are kept out of sight."""
_ENUMS: Final = {"Code": "UNKNOWN OK OVER_LIMIT", "Unit": "UNKNOWN SECOND MINUTE HOUR DAY MONTH YEAR WEEK"}
_KNOWN: Final = {"UInt64": wrappers_pb2, "Duration": duration_pb2}


def _declared() -> descriptor_pb2.FileDescriptorProto:
    """Return the declaration of all messages."""
    file = descriptor_pb2.FileDescriptorProto(name="headgate/envoy.proto", package=PACKAGE, syntax="proto3")
    file.dependency.extend(module.DESCRIPTOR.name for module in _KNOWN.values())
    for name, values in _ENUMS.items():
        enum = file.message_type.add(name=f"{name}s").enum_type.add(name=name)  # in a message: two have UNKNOWN
        for number, value in enumerate(values.split()):
            enum.value.add(name=value, number=number)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for words in fields.split(", "):
            _declare(message, *words.split())
    return file


def _declare(message: descriptor_pb2.DescriptorProto, number: str, name: str, kind: str) -> None:
    field = message.field.add(name=name, number=int(number))
    field.label = _FIELD.LABEL_REPEATED if kind[-1] == "*" else _FIELD.LABEL_OPTIONAL
    kind = kind.rstrip("*")
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    elif kind in _ENUMS:
        field.type, field.type_name = _FIELD.TYPE_ENUM, f".{PACKAGE}.{kind}s.{kind}"
    else:
        known = {"UInt64": ".google.protobuf.UInt64Value", "Duration": ".google.protobuf.Duration"}
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, known.get(kind, f".{PACKAGE}.{kind}")


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    for module in _KNOWN.values():
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(_declared().SerializeToString())
    find = pool.FindMessageTypeByName
    return {name: message_factory.GetMessageClass(find(f"{PACKAGE}.{name}")) for name in _MESSAGES}


_CLASSES: Final = _classes()
RateLimitRequest: Final = _CLASSES["RateLimitRequest"]
RateLimitResponse: Final = _CLASSES["RateLimitResponse"]


def request_from_bytes(data: bytes) -> Any:  # noqa: ANN401 - the class is made at run time
    """Read a request; raise `ValueError` if these bytes are none."""
    try:
        return RateLimitRequest.FromString(data)
    except DecodeError as reason:
        raise ValueError(f"not a RateLimitRequest: {reason}") from None


def request_from_json(text: bytes) -> Any:  # noqa: ANN401
    """Read a request in proto3 JSON; fields that are not known are skipped. Raise `ValueError` if it is none."""
    try:
        return json_format.Parse(text, RateLimitRequest(), ignore_unknown_fields=True)
    except (json_format.ParseError, UnicodeDecodeError, RecursionError) as reason:
        raise ValueError(f"not a RateLimitRequest: {reason}") from None


def response_to_json(response: Any) -> str:  # noqa: ANN401
    """Write a response in proto3 JSON."""
    return str(json_format.MessageToJson(response, indent=None))
