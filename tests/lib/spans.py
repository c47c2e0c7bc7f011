"""Spans of OpenTelemetry in memory, for the tests of traces.

Role: test code, outside the jail. Invariant: the provider is the process's only while a test asks for it, so that the
other tests of the same process run as programs without one do.
"""

import contextlib
import json

import pytest

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry's SDK is not installed")
from opentelemetry import trace  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402

_provider = TracerProvider()  # one: who asked for a tracer before there was a provider keeps the first
_exporter = InMemorySpanExporter()
_provider.add_span_processor(SimpleSpanProcessor(_exporter))


class Spans:
    """The spans that have ended, and a tracer for the test's own."""

    def __init__(self, provider, exporter):
        self.tracer, self._exporter = provider.get_tracer("test"), exporter

    @property
    def all(self):
        return list(self._exporter.get_finished_spans())

    def named(self, name):
        return [s for s in self.all if s.name == name]

    def one(self, name):
        found, = self.named(name)
        return found

    def way(self, name):
        """The names from that span up to the one that has no parent, in one trace."""
        at, names = self.one(name), []
        while at is not None:
            names.append(at.name)
            above = [s for s in self.all if is_child(at, s)]
            assert len(above) == (at.parent is not None), names
            at = above[0] if above else None
        return names

    def text(self):
        """All that would be sent to somebody."""
        return json.dumps([json.loads(s.to_json()) for s in self.all])

    def clear(self):
        self._exporter.clear()


def is_child(span, parent):
    same = span.context.trace_id == parent.context.trace_id
    return same and span.parent is not None and span.parent.span_id == parent.context.span_id


def traceparent(span):
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"


@contextlib.contextmanager
def provided(provider=_provider, exporter=_exporter):
    """Its provider is the process's; by what the SDK itself uses, for setting one by the API can't be undone."""
    before, trace._TRACER_PROVIDER = trace._TRACER_PROVIDER, provider
    exporter.clear()
    try:
        yield Spans(provider, exporter)
    finally:
        trace._TRACER_PROVIDER = before
        exporter.clear()
