"""Picks the fastest of several tiles for this GPU by timing them once, and keeps the choice on disk."""

import concurrent.futures
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from kernels.cuda import held, loader

Name = TypeVar("Name", str, int)

_chosen: dict[tuple, str] = {}  # in this process: copying calls bind anew each time
_ROUNDS, _ROUND_S, _MOST_CALLS = 5, 4e-3, 50
_HEAVY_S, _LOAD_S, _LOADED_S = 30e-6, 80e-3, 20e-3  # of a call; of its own load before it is timed; of that timing
_ENOUGH_S, _BOTH_WAYS = 0.3, 2  # of rounds; of them at least so many, one in each order
_RESTED = 2  # timings that do not count: a GPU that has rested runs faster for a tenth of a second


def folder() -> pathlib.Path:
    """The folder of the stored choices: crossover/ in the user's cache folder (XDG_CACHE_HOME, else ~/.cache)."""
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "crossover"


def kept() -> dict[str, str]:
    """GPU, file and problem -> the tiles chosen, as kept on disk; empty when there are none or they cannot be read."""
    try:
        found = json.loads((folder() / "tiles.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def keep(key: str, choice: str) -> None:
    """Adds a choice; processes that keep theirs at once wait for each other. A folder that cannot be written costs the next
    process its tuning, nothing else. To time all anew, delete the file."""
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with open(folder() / "tiles.lock", "w") as lock, tempfile.TemporaryDirectory(dir=folder()) as own:
            fcntl.flock(lock, fcntl.LOCK_EX)  # written beside and put in its place at once: others may read
            written = pathlib.Path(own) / "tiles.json"
            written.write_text(json.dumps(kept() | {key: choice}, indent=1, sort_keys=True), encoding="utf-8")
            written.replace(folder() / "tiles.json")
    except OSError:
        pass


def fastest(
    gpu: str,
    file: str,
    problem: str,
    candidates: Mapping[str, Callable[[], Callable]],
    seconds: Callable[[Callable], float] | None = None,
) -> str:
    """The name of the candidate that takes the least time for the problem on the GPU, from disk where it was timed before.

    candidates: name -> a function that gives the call to time. A choice holds for one problem: whether the last round of tiles
    fills the multiprocessors changes from size to size. It is made anew when the candidates change, or
    a file of what they may be made of: their operation's for CUDA, and the sources that operations share.
    """
    asked, seconds = (gpu, file, problem, *candidates), seconds or loaded_seconds
    if asked in _chosen or len(candidates) == 1:
        return _chosen.get(asked) or next(iter(candidates))
    every = f"{file.partition('/')[0]}/cuda*.*", "cuda/*.cu", "cuda/include/*"
    sources = b"".join(path.read_bytes() for of in every for path in sorted(loader.FOLDER.glob(of)))
    made_of = hashlib.sha256(sources + "\n".join(candidates).encode()).hexdigest()[:12]
    key = f"{gpu}, {file} {made_of}, {problem}"
    if (choice := kept().get(key, "")) not in candidates:
        with concurrent.futures.ThreadPoolExecutor() as pool:  # their compilations take a second each
            runs = dict(zip(candidates, pool.map(lambda make: make(), candidates.values()), strict=True))
        choice = fastest_by_rounds(runs, seconds)
        keep(key, choice)
    _chosen[asked] = choice
    return choice


def fastest_by_rounds(runs: Mapping[Name, Callable], seconds: Callable[[Callable], float]) -> Name:
    """The name of the call with the least median of its timings, in rounds whose order turns around."""
    names = list(runs)
    rounds: list[dict[Name, float]] = []
    for name in names[:_RESTED]:
        seconds(runs[name])
    begin = time.monotonic()
    while len(rounds) < _ROUNDS and (len(rounds) < _BOTH_WAYS or time.monotonic() - begin < _ENOUGH_S):
        order = reversed(names) if len(rounds) % 2 else names
        rounds.append({name: seconds(runs[name]) for name in order})
    return min(runs, key=lambda name: float(np.median([timings[name] for timings in rounds])))


def tuned(file: str, problem: str, candidates: Mapping[str, Callable[[], Callable]]) -> Callable:
    """The fastest of the calls on the GPU at hand, timed under load when the problem is first met there.

    Raises: ValueError where there is none.
    """
    import cupy

    if not candidates:
        raise ValueError("a block of this GPU has too little shared memory for the smallest tiles")
    device, stream = cupy.cuda.Device(), cupy.cuda.get_current_stream()
    gpu = cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode()

    def bound(make: Callable[[], Callable]) -> Callable:
        device.use()  # a thread of the pool has no context yet, and the default stream
        with stream:
            return make()

    makers = {name: functools.partial(bound, make) for name, make in candidates.items()}
    return candidates[fastest(gpu, file, problem, makers)]()


def milliseconds(call: Callable, calls: int, stream) -> float:
    """Milliseconds of `calls` calls one after the other, by CUDA events on the stream that they go to."""
    import cupy

    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record(stream)
    for _ in range(calls):
        call()
    end.record(stream)
    end.synchronize()
    return cupy.cuda.get_elapsed_time(begin, end)


def device_seconds(run: Callable) -> float:
    """Seconds of a call by CUDA events around several that wait in the queue behind a held stream (50 ms at most)."""
    import cupy

    stream = cupy.cuda.get_current_stream()
    run()  # loads its module, which may not happen behind a held stream
    stream.synchronize()
    batch = held.batches(stream)
    one, _ = batch(run, 1)
    calls = min(_MOST_CALLS, round(_ROUND_S / max(one, 1e-7)))
    return batch(run, calls)[0] / calls if calls > 1 else one


def loaded_seconds(run: Callable) -> float:
    """Seconds of a long call after a while of its own load: a GPU at its power limit slows down, hungry kernels most."""
    import cupy

    stream = cupy.cuda.get_current_stream()
    run()
    each = milliseconds(run, 1, stream) * 1e-3
    if each < _HEAVY_S:
        return device_seconds(run)
    for _ in range(round(_LOAD_S / each)):
        run()
    calls = max(1, round(_LOADED_S / each))
    return milliseconds(run, calls, stream) * 1e-3 / calls
