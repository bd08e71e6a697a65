// Makes the same run give the same bits, on every device.
#pragma once

namespace tessera {

// Makes every operation of this process give the same bits each time from now on. On a GPU LibTorch takes its
// ways that add up in one order (the backward of flash attention, sums into rows by index), and cuBLAS a
// workspace that allows it (CUBLAS_WORKSPACE_CONFIG=:4096:8, unless that is set); an operation that has no
// such way throws. On the CPU results are so in any case. Call it at the start of a process, before its first
// product on a GPU.
void compute_deterministically();

}  // namespace tessera
