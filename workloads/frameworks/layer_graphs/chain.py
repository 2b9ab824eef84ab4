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
from typing import TYPE_CHECKING, Any

from kernels.tensorflow import calls
from workloads.harness import timing
from workloads.harness.dispatch import Broken, CannotDo
from workloads.records import Samples
from workloads.shared_flags import Limits

if TYPE_CHECKING:
    import tensorflow as tf

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


def copied(arguments: "Sequence[tf.Tensor]", *, fresh: int, copies: int) -> "list[Sequence[tf.Tensor]]":
    """`copies` lists of the arguments of a call: the arguments themselves, then copies of them in memory of their own.

    The first `fresh` arguments are in all of them the same tensors: a step computes these right before the call, so they may be
    in a cache. So are lists of tensors that a loop saved, which cannot be copied.
    """
    import tensorflow

    lists = [arguments]
    for _ in range(copies - 1):
        tensors = list(arguments[:fresh])
        for tensor in arguments[fresh:]:
            is_list = tensor.dtype == tensorflow.variant
            tensors.append(tensor if is_list else tensorflow.raw_ops.DeepCopy(x=tensor))
        lists.append(tensors)
    return lists


def chained(function: Callable, copies: "Sequence[Sequence[tf.Tensor]]", count: int, *, jit: bool) -> Callable:
    """A function without arguments that calls `function(*arguments)` `count` times, one call after the other, in one tf.function.

    copies: lists of the arguments, which the calls take in turn. jit: whether XLA compiles it; then all calls take the first
    list.
    Raises: CannotDo for arguments that a function compiled by XLA cannot take.
    """
    if not jit:
        return _chain_of_operations(function, copies, count)
    import tensorflow

    arguments = copies[0]
    if any(argument.dtype == tensorflow.variant for argument in arguments):
        raise CannotDo("XLA takes no lists that a loop saved, as a recurrent layer's gradients need")
    on_gpu = any(map(calls.on_gpu, arguments))
    return _xla_loop(function, arguments, count) if on_gpu else _xla_linked_calls(function, arguments, count)


def _chain_of_operations(function: Callable, copies: "Sequence[Sequence[tf.Tensor]]", count: int) -> Callable:
    """The chain that is not compiled by XLA, but runs operation by operation.

    A call begins when the results of the one before have been written into variables: TensorFlow's optimizer leaves out no
    assignment, and so no call.
    """
    import tensorflow

    variables: list[list] = []
    for arguments in copies[:count]:
        variables.append([tensorflow.Variable(value) for value in flat(function(*arguments))])

    @tensorflow.function(autograph=False)
    def chain(argument_lists: "list[list[tf.Tensor]]") -> None:
        """All calls; each takes one of the lists of arguments, one list after the other, and sets the variables of that list."""
        assignments: list = []  # of the results of the call before
        for number in range(count):
            copy = number % len(argument_lists)
            with tensorflow.control_dependencies(assignments):
                values = flat(function(*argument_lists[copy]))
            assignments = []
            for variable, value in zip(variables[copy], values, strict=True):
                assignments.append(variable.assign(value, read_value=False))

    return lambda: chain(copies)


def flat(values: Any) -> "list[tf.Tensor]":
    """The tensors in what a function returns: a tensor, None, or lists, tuples and dictionaries of these."""
    import tensorflow

    return [value for value in tensorflow.nest.flatten(values) if tensorflow.is_tensor(value)]


def _xla_linked_calls(function: Callable, arguments: "Sequence[tf.Tensor]", count: int) -> Callable:
    """The chain that XLA compiles for a CPU: calls one after the other, each followed by a loop of one iteration.

    The loop makes the next call's arguments depend on this call's results. The number of iterations is an input: XLA does not
    know that it is 1, so it computes all results before the loop.
    """
    import tensorflow

    zero = tensorflow.constant(0.0)
    index = tensorflow.constant(0)
    iterations = tensorflow.constant(1)

    @tensorflow.function(autograph=False, jit_compile=True)
    def linked(
        tensors: "list[tf.Tensor]", zero: "tf.Tensor", index: "tf.Tensor", iterations: "tf.Tensor"
    ) -> "list[tf.Tensor]":
        """All calls with a loop after each; the results of the last one. zero, index: as in _depending_on."""

        def link(iteration: "tf.Tensor", tensors: "list[tf.Tensor]", values: "list[tf.Tensor]") -> tuple:
            """The body of the loop after a call: makes the next call's arguments depend on this call's results."""
            return iteration + 1, _depending_on(values, tensors, zero=zero, index=index), values

        for _ in range(count):
            values = flat(function(*tensors))
            start = (0, list(tensors), values)
            _, tensors, values = tensorflow.while_loop(lambda iteration, *_: iteration < iterations, link, start)
        return values

    return lambda: linked(list(arguments), zero, index, iterations)


def _xla_loop(function: Callable, arguments: "Sequence[tf.Tensor]", count: int) -> Callable:
    """The chain that XLA compiles for a GPU: one loop of `count` calls, each of which takes arguments that depend on the results
    of the call before. `count` is a constant that XLA knows: else the host would look after each call whether the loop ends."""
    import tensorflow

    zero = tensorflow.constant(0.0)
    index = tensorflow.constant(0)
    first_values = flat(function(*arguments))

    @tensorflow.function(autograph=False, jit_compile=True)
    def loop(
        tensors: "list[tf.Tensor]", values: "list[tf.Tensor]", zero: "tf.Tensor", index: "tf.Tensor"
    ) -> "list[tf.Tensor]":
        """All calls but the one whose results are `values`; the results of the last one. zero, index: as in _depending_on."""

        def one_call(number: "tf.Tensor", tensors: "list[tf.Tensor]", values: "list[tf.Tensor]") -> tuple:
            """The body of the loop: one call, with arguments that depend on the results `values` of the call before."""
            changed = _depending_on(values, tensors, zero=zero, index=index)
            return number + 1, changed, flat(function(*changed))

        start = (0, list(tensors), list(values))
        _, _, last_values = tensorflow.while_loop(lambda number, *_: number < count, one_call, start)
        return last_values

    return lambda: loop(list(arguments), first_values, zero, index)


def _depending_on(
    values: "Sequence[tf.Tensor]", tensors: "Sequence[tf.Tensor]", *, zero: "tf.Tensor", index: "tf.Tensor"
) -> "list[tf.Tensor]":
    """The same tensors, but so that XLA cannot compute them before `values`.

    To the number at `index` of each tensor, `zero` times a number of each value is added. Both are inputs of the compiled
    function: XLA knows neither that `zero` is 0 nor which number it is. Whole numbers and conditions stay as they are.
    """
    import tensorflow

    numbers = [_number_at(value, index) for value in values if value.dtype.is_floating]
    changed = []
    for tensor in tensors:
        if not tensor.dtype.is_floating or not numbers:
            changed.append(tensor)
            continue
        added = tensorflow.add_n([tensorflow.cast(number, "float32") for number in numbers]) * zero
        changed.append(_with_added(tensor, tensorflow.cast(added, tensor.dtype), index))
    return changed


def _number_at(tensor: "tf.Tensor", index: "tf.Tensor") -> "tf.Tensor":
    """The number of a tensor whose index is `index` along every side; the tensor itself where it is a single number."""
    import tensorflow
    from tensorflow.compiler.tf2xla.python import xla

    rank = tensor.shape.rank
    if not rank:
        return tensor
    return tensorflow.reshape(xla.dynamic_slice(tensor, [index] * rank, [1] * rank), ())


def _with_added(tensor: "tf.Tensor", added: "tf.Tensor", index: "tf.Tensor") -> "tf.Tensor":
    """The tensor with `added` added to the number whose index is `index` along every side. XLA changes it in its memory, so that
    nothing is copied."""
    import tensorflow
    from tensorflow.compiler.tf2xla.python import xla

    rank = tensor.shape.rank
    if not rank:
        return tensor + added
    number = tensorflow.reshape(_number_at(tensor, index) + added, [1] * rank)
    return xla.dynamic_update_slice(tensor, number, [index] * rank)


def require_all_calls(function: Callable, arguments: "Sequence[tf.Tensor]", count: int) -> None:
    """Raises Broken where TensorFlow's optimizer leaves operations out of a chain of `count` calls that XLA does not compile.

    Each operation that does work must be in the chain's optimized graph `count` times as often as in that of a single call.
    """
    in_one_call = calls.ran(_chain_of_operations(function, [arguments], count=1))
    in_chain = calls.ran(_chain_of_operations(function, [arguments], count=count))
    lost = []
    for name, number in in_one_call.items():
        if name not in calls.STRUCTURE and in_chain[name] < count * number:
            lost.append(name)
    if lost:
        raise Broken(f"TensorFlow's optimizer left out some of {', '.join(sorted(lost))} in a row of {count} calls")


def timed(
    function: Callable, copies: Sequence[Sequence], *, jit: bool, clock: Callable, limits: Limits, before: Callable
) -> Samples:
    """Times a call of `function(*arguments)` by the difference between a long and a short chain of calls.

    copies: lists of the arguments, which the calls take in turn. jit: whether XLA compiles the chains. clock(chain): returns the
    clock of a chain, a function that gives the seconds of so many runs of it. before: called before each visit.
    Raises: Broken where a call cannot be told from noise; CannotDo.
    """

    def clock_of_chain(count: int) -> timing.Take:
        chain_s = clock(chained(function, copies, count, jit=jit))
        chain_s(1)  # it is traced and compiled now
        return chain_s

    short = clock_of_chain(SHORT)
    short_s = _least_s(short)
    longer = _FEWEST
    if short_s < _LONG_S:
        probe = clock_of_chain(SHORT + _PROBE)
        probe_s = _least_s(probe) - _least_s(short)
        longer = longer_by(probe_s / _PROBE, most=_MOST_COMPILED if jit else _MOST)
    long = clock_of_chain(SHORT + longer)
    return slope_samples(short, long, longer=longer, limits=limits, before=before)


def _least_s(chain_s: timing.Take) -> float:
    """The seconds of a chain: the least of a few runs. chain_s(n): the clock that gives the seconds of n runs."""
    return min(chain_s(1) for _ in range(_PROBES))


def longer_by(call_s: float, most: int = _MOST) -> int:
    """How many calls more than the short chain the long one has, where a call takes call_s seconds: enough for _LONGER_S seconds,
    at most `most`."""
    if call_s <= 0:
        return most
    return min(most, max(_FEWEST, math.ceil(_LONGER_S / call_s)))


def slope_samples(short: timing.Take, long: timing.Take, *, longer: int, limits: Limits, before: Callable) -> Samples:
    """Seconds of a call, one sample a visit: (median of the long chain's seconds - median of the short one's) / `longer`.

    A visit is a round of timing, limits.visit_s seconds long; other rows may be timed between two of them. Both chains run in
    turn within one. short, long: clocks of both chains; each gives the seconds of n runs of its chain. longer: how many calls
    more the long chain has. before: called before each visit. A visit whose difference is not above 0 is lost in noise and left
    out.
    Raises: Broken where fewer than three visits are left.
    """
    pair_s = max(1e-9, short(1) + long(1))
    chains = max(1, round(limits.visit_s / _PAIRS / pair_s))
    if getattr(short, "resets", False):  # the clock empties the caches before each run, which takes longer than the run
        chains = 1
    seconds: list[float] = []
    for _ in timing.rounds(limits):
        before()
        shorts: list[float] = []
        longs: list[float] = []
        for _ in range(_PAIRS):
            shorts.append(short(chains) / chains)
            longs.append(long(chains) / chains)
            is_late = sum(shorts) + sum(longs) > timing.OVERTIME * limits.visit_s  # on a busy host
            if is_late:
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
