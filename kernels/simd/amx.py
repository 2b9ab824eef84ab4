"""Checks for the instructions that multiply bfloat16, in the CPU and its system, and the set-up of AMX's tiles."""

import ctypes
import functools
import platform

import llvmlite.binding as llvm
import numpy as np

from kernels.problems import Matmul, Peak

#: Size of a tile: 1 KiB.
ROWS = 16
ROW_BYTES = 64
#: Linux's numbers of the request for tiles. Source: Documentation/arch/x86/xstate.rst.
_SYS_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18


def tile_shapes() -> np.ndarray:
    """The 64 bytes that LDTILECFG reads: eight tiles of 16 rows of 64 bytes."""
    config = np.zeros(64, np.uint8)
    config[0] = 1  # palette
    config[16:32].view(np.uint16)[:] = ROW_BYTES
    config[48:56] = ROWS
    return config


def require(problem: Peak | Matmul, *features: str) -> None:
    """Raises ValueError if the arithmetic is not bfloat16 or if this CPU lacks one of the features (LLVM's names)."""
    if problem.math != "bfloat16":
        raise ValueError(f"these instructions multiply bfloat16, not {problem.math}")
    missing = [name for name in features if not llvm.get_host_cpu_features().get(name)]
    if missing:
        raise ValueError(f"this CPU, or its system, has no {' and no '.join(missing)}")


@functools.cache
def tiles_allowed() -> bool:
    """Whether Linux lets this process use AMX's tiles. This call also requests it, which a process must do once."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    return ctypes.CDLL(None).syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) == 0
