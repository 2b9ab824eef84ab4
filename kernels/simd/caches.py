"""How large this CPU's caches are, for blocks that should stay in them."""

import functools
import pathlib

_CPU = pathlib.Path("/sys/devices/system/cpu/cpu0/cache")


@functools.cache
def second_level_bytes(folder: pathlib.Path = _CPU) -> int:
    """Bytes of a core's second-level cache, as Linux reports them in `folder`; 1 MiB if it does not."""
    for index in folder.glob("index*"):
        if (index / "level").read_text().strip() == "2":
            return int((index / "size").read_text().strip().removesuffix("K")) << 10
    return 1 << 20
