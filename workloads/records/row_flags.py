"""Flags of doubtful rows, raised by the numbers of the row itself when it is measured."""

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
    """Evidence, in words, that the host's clock stopped before the call's work on the GPU was done: the call took less time
    than that work alone; "" without evidence."""
    if "no-wait" in m.flags:
        return "work was left on the device after the call was waited for"
    latency = m.on("host-latency")
    device_work = m.on("device")
    if latency is None or device_work is None or m.settings.cache != "warm":
        return ""
    if not latency.seconds or not device_work.seconds:
        return ""
    host_s = stats.median_of(latency)
    device_s = stats.median_of(device_work)
    if host_s.high >= device_s.low * _TOO_SHORT:
        return ""
    call = units.seconds(host_s.value)
    return f"a call that is waited for takes {call}, its work on the device {units.seconds(device_s.value)}"


def first_call(m: Measurement) -> str:
    """Evidence, in words, that the first sample contains the slow first call of the process (compilation, loading): it is longer
    than the others by about what the first call took more than a later one; "" without evidence."""
    first_call_s = m.phases_s.get("first_call", 0.0)
    processes = len(m.series.get("first_call_s", ()))
    # Several visits or processes: the samples of each begin anew, so that the row's first sample is nothing special.
    if m.visits > 1 or processes > 1:
        return ""
    for samples in m.samples:
        if len(samples.seconds) < 3:
            continue
        first_sample_s = samples.seconds[0]
        median_s = stats.quick_median(samples)
        is_longest = first_sample_s == max(samples.seconds) and first_sample_s > _FIRST * median_s
        extra_s = (first_sample_s - median_s) * samples.calls
        first_call_extra_s = first_call_s - median_s
        if is_longest and 0.5 * first_call_extra_s <= extra_s <= 2 * first_call_extra_s:
            ratio = units.digits(first_sample_s / median_s)
            return f"the first sample is {ratio} times the others, as the first call was"
    return ""


def long_visit(m: Measurement) -> str:
    """Says that the calls in one visit of a row (its samples of one round) took far longer than in the others; "" where none
    did."""
    for samples in m.samples:
        visit_medians_s = sorted(samples.medians.values())
        if len(visit_medians_s) < 3:
            continue
        longest_s = visit_medians_s[-1]
        median_s = statistics.median(visit_medians_s)
        if longest_s > _MANY * median_s:
            times = f"{longest_s / median_s:,.0f}"
            return f"one of {len(visit_medians_s)} visits took {times}x their median ({samples.clock})"
    return ""


def ran_on_cpu(m: Measurement) -> str:
    """Evidence, in words, that the work of a row for the GPU ran on the CPU; "" without evidence."""
    if m.cause == "on-cpu":
        return m.reason
    return "its result lies in the host's memory" if "ran-on-cpu" in m.flags else ""


#: Flag -> the function that gives the evidence for it in words, "" where there is none.
FLAGS = {"no-wait": no_wait, "first-call": first_call, "ran-on-cpu": ran_on_cpu}


def flagged(m: Measurement) -> Measurement:
    """The measurement, with the flags in FLAGS for which its numbers are evidence added to those that it has."""
    raised = [flag for flag, evidence in FLAGS.items() if flag not in m.flags and evidence(m)]
    return replace(m, flags=(*m.flags, *raised)) if raised else m
