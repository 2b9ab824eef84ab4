"""What a measuring process tells its parent, a JSON line each, beside the Measurements that it answers with."""

import msgspec


class Doing(msgspec.Struct, frozen=True, kw_only=True, tag="doing"):
    """What a process does now."""

    #: In words: `importing TensorFlow`, `compiling`.
    words: str
    #: Whether clocks run. What comes before them (import, build, compilation) counts toward no budget.
    timing: bool = False
    #: Seconds that it will take, by the steps timed so far; 0 where that is not known.
    seconds: float = 0.0


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The end of what was ordered."""

    #: Why nothing was measured; "" if something was.
    reason: str = ""
