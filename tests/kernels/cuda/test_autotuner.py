"""The choice of the fastest plan, and its cache."""

import concurrent.futures
import itertools
import json
import shutil
import time

import pytest
from cuda_sources import TENSOR, WARP

from kernels.cuda import autotuner, loader


def candidates(made: list):
    def make(name):
        made.append(name)
        return lambda: name

    return {name: (lambda name=name: make(name)) for name in ("large", "small", "odd")}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(autotuner, "_chosen", {})
    return tmp_path / "crossover" / "tiles.json"


def test_the_fastest_tile_is_stored_on_disk(cache, monkeypatch):
    # the first timings of large and small do not count
    made, times = [], {"large": [0.1, 9.0, *[1.0] * 4], "small": [0.1, *[2.0] * 5], "odd": [0.1, *[5.0] * 4]}

    def seconds(run):
        return times[run()].pop(0)

    def choose(problem, seconds=seconds, text=WARP, of=None):
        return autotuner.fastest("H200", text, problem, of or candidates(made), seconds)

    assert choose("1024") == "large"  # by the median: one round in a busy moment, or a lucky one, does not decide
    assert sorted(made) == ["large", "odd", "small"] and list(json.loads(cache.read_text()).values()) == ["large"]
    assert choose("1024", seconds=None) == "large" and len(made) == 3
    autotuner._chosen.clear()  # as in another process
    assert choose("1024", seconds=None) == "large" and len(made) == 3
    cache.rename(cache.with_suffix(".away"))
    assert choose("1024", seconds=None) == "large"  # in one process nothing is read again
    cache.with_suffix(".away").rename(cache)
    by_name = {"large": 3.0, "small": 2.0, "odd": 4.0}
    assert choose("2048", lambda run: by_name[run()]) == "small"  # another problem chooses for itself
    assert choose("1024", lambda run: by_name[run()], TENSOR) == "small"  # and another source
    fewer = {name: make for name, make in candidates(made).items() if name != "large"}
    assert choose("1024", lambda run: by_name[run()], of=fewer) == "small"
    assert set(json.loads(cache.read_text()).values()) == {"large", "small"}
    monkeypatch.setattr(loader, "FOLDER", shutil.copytree(loader.FOLDER, cache.parent / "kernels"))
    for edited in ("", "matmul/cuda_direct.cu", "matmul/cuda.py", "cuda/rows.cu", "cuda/include/rows.cuh"):
        if edited:  # what candidates are made of
            (loader.FOLDER / edited).write_text("// another")
        made.clear(), autotuner._chosen.clear()
        assert (choose("1024", lambda run: by_name[run()]), len(made)) == (("small", 3) if edited else ("large", 0))


def test_long_calls_are_timed_in_both_orders(cache, monkeypatch):
    clock, order = itertools.count(), []
    monkeypatch.setattr(autotuner.time, "monotonic", lambda: float(next(clock)))  # a second a look: two rounds at least

    def seconds(run):
        order.append(name := run())
        return {"large": 1.0, "small": 0.9, "odd": 1.1}[name] * (0.5 if len(order) <= 2 else 1.0)

    assert autotuner.fastest("H200", WARP, "64", candidates([]), seconds) == "small"
    assert order == ["large", "small", "large", "small", "odd", "odd", "small", "large"]


def test_an_unusable_cache_costs_only_a_tuning(cache):
    cache.parent.mkdir()
    cache.write_text("{ broken")
    by_name = {"large": 3.0, "small": 2.0, "odd": 4.0}
    assert autotuner.fastest("H200", WARP, "64", candidates([]), lambda run: by_name[run()]) == "small"
    assert autotuner.stored_choices()  # and the broken file is replaced
    autotuner._chosen.clear()
    cache.unlink()
    cache.mkdir()
    assert autotuner.fastest("H200", WARP, "64", candidates([]), lambda run: by_name[run()]) == "small"


def test_choices_kept_at_once_are_all_kept(cache, monkeypatch):
    read = autotuner.stored_choices

    def slow():
        found = read()
        time.sleep(0.02)  # long enough for another to read the same
        return found

    monkeypatch.setattr(autotuner, "stored_choices", slow)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: autotuner.store(str(i), "large"), range(4)))
    assert read() == dict.fromkeys("0123", "large")
