"""A row's name: the kernel, what of the problem and of the settings is not the default. Other tools' files go by it."""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from workloads.records import Measurement

_FROM_DTYPE = ("math", "out")  # as the operands' type unless told otherwise


def fields(of: msgspec.Struct) -> list[tuple[str, str]]:
    """The fields of a problem or of settings that say something: those without a default, and those that differ from it."""
    told = []
    dtype = getattr(of, "dtype", None) if "dtype" in of.__struct_fields__ else None
    for field in msgspec.structs.fields(of):
        value = getattr(of, field.name)
        usual = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if isinstance(value, dict):
            told += [(name, str(one)) for name, one in sorted(value.items())]
        elif value != (dtype if dtype and field.name in _FROM_DTYPE else usual):
            told.append((field.name, str(value)))
    return told


def row(m: "Measurement", between: str = " ", equals: str = "=") -> str:
    """`matmul/numpy/blas m=64 n=64 k=64 threads=1`: of two different rows never the same."""
    told = fields(m.problem) + fields(m.settings)
    return between.join([m.kernel, *(f"{name}{equals}{value}" for name, value in told)])
