"""Flags that a row's own numbers raise when it is measured."""

import statistics

from msgspec.structs import replace

from analysis import stats, units
from workloads.records import Measurement

# Share of the time on the device below which a waited call took too little. Cooling or heating between two clocks changes their
# ratio by some percent; a missing wait changes it by far more.
_TOO_SHORT = 0.8
_MANY = 10.0  # no visit of a stored row takes as many times its row's median
_FIRST = 2.0  # times the others that a first sample must take to be suspected of holding the first call


def no_wait(m: Measurement) -> str:
    """Evidence in words that a call was not waited for: it took less than its work on the device; "" without."""
    if "no-wait" in m.flags:
        return "work was left on the device after the call was waited for"
    latency = m.on("host-latency")
    device_work = m.on("device")
    if latency is None or device_work is None or m.settings.cache != "warm":
        return ""
    if not latency.seconds or not device_work.seconds:
        return ""
    host = stats.median_of(latency)
    device = stats.median_of(device_work)
    if host.high >= device.low * _TOO_SHORT:
        return ""
    return f"a call that is waited for takes {units.seconds(host.value)}, its work on the device {units.seconds(device.value)}"


def first_call(m: Measurement) -> str:
    """Evidence in words that a first sample holds the first call: it is longer by about as much; "" without."""
    first = m.phases_s.get("first_call", 0.0)
    processes = len(m.series.get("first_call_s", ()))
    # Of several visits or processes a first sample is of the first one, and holds as much of it as the others.
    if m.visits > 1 or processes > 1:
        return ""
    for samples in m.samples:
        if len(samples.seconds) < 3:
            continue
        first_sample = samples.seconds[0]
        median = stats.quick_median(samples)
        is_longest = first_sample == max(samples.seconds) and first_sample > _FIRST * median
        extra = (first_sample - median) * samples.calls
        first_call_extra = first - median
        if is_longest and 0.5 * first_call_extra <= extra <= 2 * first_call_extra:
            return f"the first sample is {units.digits(first_sample / median)} times the others, as the first call was"
    return ""


def long_visit(m: Measurement) -> str:
    """A visit that took far longer than the others, in words; "" without one."""
    for samples in m.samples:
        medians = sorted(samples.medians.values())
        if len(medians) < 3:
            continue
        longest, median = medians[-1], statistics.median(medians)
        if longest > _MANY * median:
            times = f"{longest / median:,.0f}"
            return f"one of {len(medians)} visits took {times}x their median ({samples.clock})"
    return ""


def ran_on_cpu(m: Measurement) -> str:
    """Evidence in words that the work of a GPU row ran on the CPU; "" without."""
    if m.cause == "on-cpu":
        return m.reason
    return "its result lies in the host's memory" if "ran-on-cpu" in m.flags else ""


FLAGS = {"no-wait": no_wait, "first-call": first_call, "ran-on-cpu": ran_on_cpu}


def flagged(m: Measurement) -> Measurement:
    """The measurement with the flags that its own numbers raise."""
    raised = [flag for flag, evidence in FLAGS.items() if flag not in m.flags and evidence(m)]
    return replace(m, flags=(*m.flags, *raised)) if raised else m
