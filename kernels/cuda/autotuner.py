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
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from kernels.cuda import blocking_kernel, loader

if TYPE_CHECKING:
    import cupy

Name = TypeVar("Name", str, int)

#: Choices of this process by GPU, file, problem and candidates: copying calls bind anew in every mode.
_chosen: dict[tuple, str] = {}
#: Rounds in which all candidates are timed, at most.
_ROUNDS = 5
#: Seconds after which no further round begins.
_ENOUGH_S = 0.3
#: Rounds at least: one in either order.
_LEAST_ROUNDS = 2
#: Timings before the rounds, which do not count: a GPU that has rested runs faster for a tenth of a second.
_WARM_TIMINGS = 2
#: Seconds of the calls in a timing of a short call.
_ROUND_S = 4e-3
#: Most calls in such a timing.
_MOST_CALLS = 50
#: Seconds of a call from which it is timed under load.
_HEAVY_S = 30e-6
#: Seconds of its load before it is timed.
_LOAD_S = 80e-3
#: Seconds of that timing.
_LOADED_S = 20e-3


def folder() -> pathlib.Path:
    """The folder of the stored choices: crossover/ in the user's cache folder (XDG_CACHE_HOME, else ~/.cache)."""
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "crossover"


def stored_choices() -> dict[str, str]:
    """The choices stored on disk: key (GPU, file and problem) -> name of the candidate chosen; empty when there are none or
    they cannot be read."""
    try:
        choices = json.loads((folder() / "tiles.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return choices if isinstance(choices, dict) else {}


def store(key: str, choice: str) -> None:
    """Adds a choice to those on disk, under its key; processes that store at once wait for each other.

    A folder that cannot be written costs the next process its tuning, nothing else. To time all anew, delete the file.
    """
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with open(folder() / "tiles.lock", "w") as lock, tempfile.TemporaryDirectory(dir=folder()) as scratch:
            fcntl.flock(lock, fcntl.LOCK_EX)
            choices = stored_choices() | {key: choice}
            # Others may read meanwhile: a whole file takes the old one's place.
            whole = pathlib.Path(scratch) / "tiles.json"
            whole.write_text(json.dumps(choices, indent=1, sort_keys=True), encoding="utf-8")
            whole.replace(folder() / "tiles.json")
    except OSError:
        pass


def _sources(file: str) -> bytes:
    """The bytes of all sources that candidates of a CUDA file (`matmul/cuda_warp`) may be compiled from: its operation's
    files for CUDA, and those that operations share. Their hash tells whether a stored choice is still good."""
    operation = file.partition("/")[0]
    text = b""
    for pattern in (f"{operation}/cuda*.*", "cuda/*.cu", "cuda/include/*"):
        for path in sorted(loader.FOLDER.glob(pattern)):
            text += path.read_bytes()
    return text


def fastest(
    gpu: str,
    file: str,
    problem: str,
    candidates: Mapping[str, Callable[[], Callable]],
    seconds: Callable[[Callable], float] | None = None,
) -> str:
    """The name of the candidate that takes the least time for the problem on the GPU, from disk where it was timed before.

    gpu, file, problem: words of the key under which a choice is stored. It holds for one problem: whether the last round of
    tiles fills the multiprocessors changes from size to size. It is made anew when the candidates or their sources change.
    candidates: name -> a function that makes (compiles) the call to time.
    seconds: measures the seconds of a call; by default loaded_seconds.
    """
    if len(candidates) == 1:
        return next(iter(candidates))
    choice_of = (gpu, file, problem, *candidates)
    if choice_of in _chosen:
        return _chosen[choice_of]
    version = hashlib.sha256(_sources(file) + "\n".join(candidates).encode()).hexdigest()[:12]
    key = f"{gpu}, {file} {version}, {problem}"
    choice = stored_choices().get(key, "")
    if choice not in candidates:
        with concurrent.futures.ThreadPoolExecutor() as pool:  # their compilations take a second each
            calls = pool.map(lambda make: make(), candidates.values())
            runs = dict(zip(candidates, calls, strict=True))
        choice = fastest_by_rounds(runs, seconds or loaded_seconds)
        store(key, choice)
    _chosen[choice_of] = choice
    return choice


def fastest_by_rounds(runs: Mapping[Name, Callable], seconds: Callable[[Callable], float]) -> Name:
    """The name of the call in `runs` with the least median of its timings by `seconds`; they are timed in rounds whose order
    alternates."""
    names = list(runs)
    for name in names[:_WARM_TIMINGS]:
        seconds(runs[name])
    timings: dict[Name, list[float]] = {name: [] for name in names}
    begin = time.monotonic()
    for number in range(_ROUNDS):
        if number >= _LEAST_ROUNDS and time.monotonic() - begin >= _ENOUGH_S:
            break
        for name in reversed(names) if number % 2 else names:
            timings[name].append(seconds(runs[name]))
    return min(names, key=lambda name: float(np.median(timings[name])))


def tuned(file: str, problem: str, candidates: Mapping[str, Callable[[], Callable]]) -> Callable:
    """The fastest of several calls on this GPU: as chosen before, or timed under load now, when the problem is first met.

    file, problem: words of the key under which the choice is stored.
    candidates: name -> a function that makes (compiles) the call.
    Raises: ValueError where there is none.
    """
    import cupy

    if not candidates:
        raise ValueError("a block of this GPU has too little shared memory for the smallest tiles")
    device = cupy.cuda.Device()
    stream = cupy.cuda.get_current_stream()
    gpu = cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode()

    def bound(make: Callable[[], Callable]) -> Callable:
        """Makes a call in a thread of the autotuner's pool, on the GPU and the stream of the caller."""
        device.use()  # a thread of the pool has no context yet, and the default stream
        with stream:
            return make()

    makers = {name: functools.partial(bound, make) for name, make in candidates.items()}
    return candidates[fastest(gpu, file, problem, makers)]()


def milliseconds(call: Callable, calls: int, stream: "cupy.cuda.Stream") -> float:
    """Milliseconds of `calls` calls one after the other, by CUDA events on `stream`, to which the calls' work goes."""
    import cupy

    begin = cupy.cuda.Event()
    end = cupy.cuda.Event()
    begin.record(stream)
    for _ in range(calls):
        call()
    end.record(stream)
    end.synchronize()
    return cupy.cuda.get_elapsed_time(begin, end)


def device_seconds(run: Callable) -> float:
    """Seconds of a call of `run` on the device, by CUDA events around several that are queued behind a kernel that blocks the
    stream (50 ms at most), so that the host leaves no gap between them."""
    import cupy

    stream = cupy.cuda.get_current_stream()
    run()  # loads its module, which may not happen while the stream is blocked
    stream.synchronize()
    batch = blocking_kernel.batches(stream)
    one_call_s, _ = batch(run, 1)
    calls = min(_MOST_CALLS, round(_ROUND_S / max(one_call_s, 1e-7)))
    if calls <= 1:
        return one_call_s
    all_calls_s, _ = batch(run, calls)
    return all_calls_s / calls


def loaded_seconds(run: Callable) -> float:
    """Seconds of a call of `run` after a while of its own load: a GPU at its power limit slows down, kernels that draw most
    power most. Short calls are timed by device_seconds instead."""
    import cupy

    stream = cupy.cuda.get_current_stream()
    run()
    one_call_s = milliseconds(run, 1, stream) * 1e-3
    if one_call_s < _HEAVY_S:
        return device_seconds(run)
    for _ in range(round(_LOAD_S / one_call_s)):
        run()
    calls = max(1, round(_LOADED_S / one_call_s))
    return milliseconds(run, calls, stream) * 1e-3 / calls
