"""Forms of a call whose seconds on CPU and GPU are compared: data resident or copied, waited for or queued, as written."""

import msgspec


class Form(msgspec.Struct, frozen=True):
    """How a kernel is called on both devices: whether its operands are copied, and which clock times it."""

    #: How the GPU's operands are copied: resident (not at all), roundtrip, roundtrip-pinned, roundtrip-pageable.
    mode: str
    #: The clock of the GPU's seconds; the CPU's is always host latency.
    clock: str = "host-latency"
    #: Calls that share one copy.
    reuse: int = 1
    #: Both sides as `a @ b` in Python, the CPU with its library's default threads.
    as_written: bool = False
    #: The framework that runs both sides (tensorflow); empty: libraries called directly.
    framework: str = ""
    #: State of the caches before a call: warm or cold.
    cache: str = "warm"


LATENCY = Form(mode="resident")
THROUGHPUT = Form(mode="resident", clock="host-throughput")
COPIES = (Form(mode="roundtrip"), Form(mode="roundtrip-pinned"), Form(mode="roundtrip-pageable"))
AS_WRITTEN = (Form(mode="resident", as_written=True), Form(mode="roundtrip", as_written=True))
FORMS = (LATENCY, THROUGHPUT, *COPIES, *AS_WRITTEN)
