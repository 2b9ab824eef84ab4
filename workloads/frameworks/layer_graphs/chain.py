"""k calls of a layer in one compiled function, one after the other, and the seconds of one by the slope between two k."""

# Op by op the calls stand in a row. Each waits for the one before by a control dependency, and puts its results into variables,
# which no optimizer may leave out:
#
#     x ---> call ---> y into a variable
#     x ---> call ---> y into a variable      begins when the assignment above is done
#
# A step that passes through more data than the last cache holds finds the weights of a layer, what its forward pass saved and the
# memory of its results outside the cache; what the layer before it just wrote may be in it. So the calls of a chain take turns
# with copies of these, as many as such a step passes through, and the caches are emptied before each chain.
#
# XLA knows no control dependencies, and makes one of equal calls. There a link between two calls changes one number of each input
# by 0 times a number of the result before, in place:
#
#     x ---> call ---> y ---> link ---> x' ---> call ---> y' ---> link ---> ...
#
# On a CPU the link is a loop of one turn, whose number of turns XLA does not know: all of y is there before it begins. The calls
# stand outside, as XLA has its fast convolutions only outside of loops there. On a GPU such a loop would wait for the host; the
# whole chain is one loop, whose number of turns XLA knows. These chains have no copies.

import math
import statistics
from collections.abc import Callable, Sequence

from kernels.tensorflow import calls
from workloads.harness import timing
from workloads.harness.dispatch import Broken, CannotDo
from workloads.records import Samples
from workloads.shared_flags import Limits

#: Calls of the shorter chain.
SHORT = 2
#: Calls by which the longer chain is longer: enough for so many seconds, within these bounds.
_LONGER_S = 4e-3
_FEWEST, _MOST = 2, 64
#: The same of a chain that XLA compiles, which takes longer the longer it is.
_MOST_COMPILED = 16
#: A chain of SHORT calls that takes so many seconds needs no look at how long a call takes.
_LONG_S = 0.1
#: Calls by which a chain is longer that says how long a call takes, and how often it is timed.
_PROBE, _PROBES = 8, 3
#: Copies of arguments that are of use: the calls of the longest chain.
MOST_COPIES = SHORT + _MOST
#: Pairs of a short and a long chain in a visit.
_PAIRS = 5
_FEWEST_VISITS = 3


def copied(arguments: Sequence, *, fresh: int, copies: int) -> list[Sequence]:
    """So many copies of the arguments of a call, but of the first, `fresh` ones. Lists that a loop saved are not copied."""
    import tensorflow

    every = [arguments]
    for _ in range(copies - 1):
        tensors = list(arguments[:fresh])
        for tensor in arguments[fresh:]:
            is_list = tensor.dtype == tensorflow.variant
            tensors.append(tensor if is_list else tensorflow.raw_ops.DeepCopy(x=tensor))
        every.append(tensors)
    return every


def chained(function: Callable, copies: Sequence[Sequence], count: int, *, jit: bool) -> Callable:
    """A call that runs `function(*arguments)` so often, compiled by XLA or op by op. copies: of the arguments, which the calls
    take one after the other; XLA takes the first alone.

    Raises: CannotDo for arguments that a function compiled by XLA cannot take.
    """
    if not jit:
        return _row(function, copies, count)
    import tensorflow

    arguments = copies[0]
    if any(argument.dtype == tensorflow.variant for argument in arguments):
        raise CannotDo("XLA takes no lists that a loop saved, as a recurrent layer's gradients need")
    on_gpu = any(map(calls.on_gpu, arguments))
    return _loop(function, arguments, count) if on_gpu else _linked(function, arguments, count)


def _row(function: Callable, copies: Sequence[Sequence], count: int) -> Callable:
    import tensorflow

    results: list[list] = []
    for arguments in copies[:count]:
        results.append([tensorflow.Variable(value) for value in flat(function(*arguments))])

    @tensorflow.function(autograph=False)
    def row(every):
        after: list = []
        for number in range(count):
            place = number % len(every)
            with tensorflow.control_dependencies(after):
                values = flat(function(*every[place]))
            after = []
            for variable, value in zip(results[place], values, strict=True):
                after.append(variable.assign(value, read_value=False))

    return lambda: row(copies)


def flat(values) -> list:
    """The tensors among a function's results."""
    import tensorflow

    return [value for value in tensorflow.nest.flatten(values) if tensorflow.is_tensor(value)]


def _linked(function: Callable, arguments: Sequence, count: int) -> Callable:
    """The chain on a CPU: calls with a loop of one turn after each."""
    import tensorflow

    zero = tensorflow.constant(0.0)
    place = tensorflow.constant(0)
    turns = tensorflow.constant(1)

    @tensorflow.function(autograph=False, jit_compile=True)
    def linked(tensors, zero, place, turns):
        def link(number, tensors, values):
            return number + 1, _changed(tensors, values, zero, place), values

        for _ in range(count):
            values = flat(function(*tensors))
            start = (0, list(tensors), values)
            _, tensors, values = tensorflow.while_loop(lambda number, *_: number < turns, link, start)
        return values

    return lambda: linked(list(arguments), zero, place, turns)


def _loop(function: Callable, arguments: Sequence, count: int) -> Callable:
    """The chain on a GPU: a loop of calls."""
    import tensorflow

    zero = tensorflow.constant(0.0)
    place = tensorflow.constant(0)
    first = flat(function(*arguments))

    @tensorflow.function(autograph=False, jit_compile=True)
    def loop(tensors, values, zero, place):
        def one_call(number, tensors, values):
            changed = _changed(tensors, values, zero, place)
            return number + 1, changed, flat(function(*changed))

        start = (0, list(tensors), list(values))
        return tensorflow.while_loop(lambda number, *_: number < count, one_call, start)[2]

    return lambda: loop(list(arguments), first, zero, place)


def _changed(tensors: Sequence, values: Sequence, zero, place) -> list:
    """The tensors, one number of each changed by `zero` times a number of each value, at a place that XLA does not know."""
    import tensorflow

    numbers = [_number(value, place) for value in values if value.dtype.is_floating]
    changed = []
    for tensor in tensors:
        if not tensor.dtype.is_floating or not numbers:
            changed.append(tensor)
            continue
        added = tensorflow.add_n([tensorflow.cast(number, "float32") for number in numbers]) * zero
        changed.append(_with_added(tensor, tensorflow.cast(added, tensor.dtype), place))
    return changed


def _number(tensor, place):
    """One number of a tensor."""
    import tensorflow
    from tensorflow.compiler.tf2xla.python import xla

    rank = tensor.shape.rank
    if not rank:
        return tensor
    return tensorflow.reshape(xla.dynamic_slice(tensor, [place] * rank, [1] * rank), ())


def _with_added(tensor, added, place):
    """The tensor with its number at a place increased, in the same memory."""
    import tensorflow
    from tensorflow.compiler.tf2xla.python import xla

    rank = tensor.shape.rank
    if not rank:
        return tensor + added
    number = tensorflow.reshape(_number(tensor, place) + added, [1] * rank)
    return xla.dynamic_update_slice(tensor, number, [place] * rank)


def require_all_calls(function: Callable, arguments: Sequence, count: int) -> None:
    """Raises Broken unless the optimized graph of a row of calls has each operation of a single call so often."""
    single = calls.ran(_row(function, [arguments], 1))
    row = calls.ran(_row(function, [arguments], count))
    lost = [name for name, n in single.items() if name not in calls.STRUCTURE and row[name] < count * n]
    if lost:
        raise Broken(f"TensorFlow's optimizer left out some of {', '.join(sorted(lost))} in a row of {count} calls")


def timed(
    function: Callable, copies: Sequence[Sequence], *, jit: bool, clock: Callable, limits: Limits, before: Callable
) -> Samples:
    """The samples of a call of `function(*arguments)`, of which there are copies. clock(chain): the clock of calls of a chain.

    Raises: Broken where a call cannot be told from noise; CannotDo.
    """

    def chain_clock(count: int) -> timing.Take:
        take = clock(chained(function, copies, count, jit=jit))
        take(1)  # it is traced and compiled now
        return take

    short = chain_clock(SHORT)
    short_s = _least_s(short)
    longer = _FEWEST
    if short_s < _LONG_S:
        long = chain_clock(SHORT + _PROBE)
        probe_s = _least_s(long) - _least_s(short)
        longer = longer_by(probe_s / _PROBE, most=_MOST_COMPILED if jit else _MOST)
    long = chain_clock(SHORT + longer)
    return slope_samples(short, long, longer=longer, limits=limits, before=before)


def _least_s(take: timing.Take) -> float:
    """The seconds of the fastest of a few calls."""
    return min(take(1) for _ in range(_PROBES))


def longer_by(call_s: float, most: int = _MOST) -> int:
    """Calls by which the longer chain is longer, of calls of so many seconds."""
    if call_s <= 0:
        return most
    return min(most, max(_FEWEST, math.ceil(_LONGER_S / call_s)))


def slope_samples(short: timing.Take, long: timing.Take, *, longer: int, limits: Limits, before: Callable) -> Samples:
    """Seconds of a call: in each visit (median of long chains - median of short ones) / `longer`. take(n) of both clocks gives
    the seconds of n chains. Visits that are lost in noise, where that is no time, are left out.

    Raises: Broken where fewer than three visits are left.
    """
    pair_s = max(1e-9, short(1) + long(1))
    chains = max(1, round(limits.visit_s / _PAIRS / pair_s))
    if getattr(short, "resets", False):  # what it does before each chain takes longer than the chain
        chains = 1
    seconds: list[float] = []
    for _ in timing.rounds(limits):
        before()
        shorts: list[float] = []
        longs: list[float] = []
        for _ in range(_PAIRS):
            shorts.append(short(chains) / chains)
            longs.append(long(chains) / chains)
            if sum(shorts) + sum(longs) > timing.OVERTIME * limits.visit_s:
                break
        call_s = (statistics.median(longs) - statistics.median(shorts)) / longer
        if call_s > 0:
            seconds.append(timing.rounded(call_s))
    if len(seconds) < _FEWEST_VISITS:
        raise Broken(f"{longer} more calls take no longer than the noise of a chain of {SHORT}")
    return Samples(
        clock="host-latency",
        seconds=tuple(seconds),
        calls=chains * longer,
        block_sizes=(1,) * len(seconds),
        stop_reason=f"{len(seconds)} visits",
    )
