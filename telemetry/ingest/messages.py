"""Protobuf messages: of Prometheus remote write 1.0 and 2.0 as far as they are read here.

Numbers and types of the fields are those of ``prometheus.WriteRequest`` and of
``io.prometheus.write.v2.Request``. A message that is only counted, and a text that one series in a
thousand needs, is declared as bytes: that is the same on the wire, and one bad text then costs its
own series instead of the whole request. ``Status`` is ``google.rpc.Status``, in which OTLP says
what is wrong.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

__all__ = ["Label", "Request", "Status", "WriteRequest"]

_BYTES = FieldDescriptorProto.TYPE_BYTES
_DOUBLE = FieldDescriptorProto.TYPE_DOUBLE
_INT32 = FieldDescriptorProto.TYPE_INT32
_INT64 = FieldDescriptorProto.TYPE_INT64
_STRING = FieldDescriptorProto.TYPE_STRING
_UINT32 = FieldDescriptorProto.TYPE_UINT32

#: Messages by name, each with its fields: name, number, a type or a message, repeated or not.
_MESSAGES: dict[str, list[tuple[str, int, FieldDescriptorProto.Type.ValueType | str, bool]]] = {
    "Label": [("name", 1, _BYTES, False), ("value", 2, _BYTES, False)],
    "Sample": [("value", 1, _DOUBLE, False), ("timestamp", 2, _INT64, False)],
    "TimeSeries": [
        ("labels", 1, _BYTES, True),
        ("samples", 2, "Sample", True),
        ("exemplars", 3, _BYTES, True),
        ("histograms", 4, _BYTES, True),
    ],
    "WriteRequest": [("timeseries", 1, "TimeSeries", True)],
    "TimeSeries2": [
        ("labels_refs", 1, _UINT32, True),
        ("samples", 2, "Sample", True),
        ("histograms", 3, _BYTES, True),
        ("exemplars", 4, _BYTES, True),
    ],
    "Request": [("symbols", 4, _BYTES, True), ("timeseries", 5, "TimeSeries2", True)],
    "Status": [("code", 1, _INT32, False), ("message", 2, _STRING, False)],
}
_PACKAGE = "headroom.ingest"


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(
        name="headroom/remote_write.proto", package=_PACKAGE, syntax="proto3"
    )
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for name, number, kind, repeated in fields:
            label = (
                FieldDescriptorProto.LABEL_REPEATED
                if repeated
                else FieldDescriptorProto.LABEL_OPTIONAL
            )
            field = message.field.add(name=name, number=number, label=label)
            if isinstance(kind, str):
                field.type = FieldDescriptorProto.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{kind}"
            else:
                field.type = kind
    return file


_pool = DescriptorPool()
_pool.Add(_file())


def _class_of(name: str) -> Any:
    return GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


Label = _class_of("Label")
WriteRequest = _class_of("WriteRequest")
Request = _class_of("Request")
Status = _class_of("Status")
