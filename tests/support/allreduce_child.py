"""One GPU's part of an all-reduce by PyTorch, for bench_allreduce: by nccl-tests' method, in a process of its own.

Arguments: rank, GPUs, a file that all of them meet in, bytes. For every line on stdin it prints the seconds of a call.
"""

import os
import sys

os.environ |= {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}  # NVLink multicast stays off

import torch
from torch import distributed

WARM_UP, CALLS = 5, 20


def main() -> None:
    rank, count, file, nbytes = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", init_method=f"file://{file}", rank=rank, world_size=count)
    values = torch.empty(nbytes // 4, device="cuda")
    whole = torch.full((1024,), float(rank + 1), device="cuda")
    distributed.all_reduce(whole)
    if whole.unique().tolist() != [count * (count + 1) / 2]:
        raise SystemExit(f"a wrong sum: {whole.unique().tolist()}")
    print(f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}", flush=True)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in sys.stdin:
        values.normal_()  # summed in place, they double with every call
        for _ in range(WARM_UP):
            distributed.all_reduce(values)
        torch.cuda.synchronize()
        begin.record()
        for _ in range(CALLS):
            distributed.all_reduce(values)
        end.record()
        end.synchronize()
        print(begin.elapsed_time(end) * 1e-3 / CALLS, flush=True)
    os._exit(0)  # the last to leave would wait for the others


if __name__ == "__main__":
    main()
