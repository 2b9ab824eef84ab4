"""Fixtures of the harness: a fake GPU, its stream, and what looks at it."""

import types

import fake_cupy
import pytest

from workloads.harness import bound_rows, copy_modes, one_row, telemetry, warming


@pytest.fixture
def gpu(monkeypatch):
    with fake_cupy.installed(monkeypatch) as made:
        made.calls = 0
        yield made


@pytest.fixture
def stream(gpu):
    return copy_modes.gpu_stream()


@pytest.fixture
def seen(monkeypatch):
    """A telemetry that notes when it looks, and nothing to settle for."""
    looks = []
    said = lambda word: lambda *given, **how: looks.append(word)  # noqa: E731
    watch = types.SimpleNamespace(before_block=said("look"), begin=said("begin"), flags=())
    watch.readings = lambda: telemetry.Readings({"gpu_clock_hz": 1.9e9}, watch.flags)
    noted = lambda device, link, framework: looks.append((device, link, framework)) or watch  # noqa: E731
    monkeypatch.setattr(telemetry, "watch", noted)
    monkeypatch.setattr(telemetry, "settle", said("settle"))
    monkeypatch.setattr(one_row, "raised", lambda *given, **how: ())
    monkeypatch.setattr(one_row, "_make_room", lambda row: None)
    monkeypatch.setattr(one_row, "_known", {})
    monkeypatch.setattr(warming, "_warm_threads", 10**6)
    bound_rows.clear()
    yield looks
    bound_rows.clear()
