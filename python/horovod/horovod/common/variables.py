"""The HOROVOD_* variables that Horovod knows: one that it does not know is a slip."""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Mapping

_OF_RANKS = "RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE HOSTNAME"
_OF_THE_ENGINE = """
    ADASUM_MPI_CHUNK_SIZE AUTOTUNE AUTOTUNE_BAYES_OPT_MAX_SAMPLES AUTOTUNE_GAUSSIAN_PROCESS_NOISE
    AUTOTUNE_LOG AUTOTUNE_STEPS_PER_SAMPLE AUTOTUNE_WARMUP_SAMPLES BATCH_D2D_MEMCOPIES
    CACHE_CAPACITY CCL_CACHE CONTROLLER CPU_OPERATIONS CYCLE_TIME DISABLE_GROUP_FUSION
    DISABLE_NVTX_RANGES DYNAMIC_PROCESS_SETS ELASTIC ELASTIC_TIMEOUT ENABLE_ASYNC_COMPLETION
    ENABLE_XLA_OPS FUSION_THRESHOLD GLOO_IFACE GLOO_RENDEZVOUS_ADDR GLOO_RENDEZVOUS_PORT
    GLOO_TIMEOUT_SECONDS HIERARCHICAL_ALLGATHER HIERARCHICAL_ALLREDUCE LOG_HIDE_TIME LOG_LEVEL
    MPI_THREADS_DISABLE NUM_NCCL_STREAMS SPARK_START_TIMEOUT SPARK_USE_LOCAL_RANK_GPU_INDEX
    STALL_CHECK_DISABLE STALL_CHECK_TIME_SECONDS STALL_SHUTDOWN_TIME_SECONDS START_TIMEOUT
    THREAD_AFFINITY TIMELINE TIMELINE_MARK_CYCLES TORUS_ALLREDUCE
"""
_OF_ITS_BUILD = """
    ALLOW_MIXED_GPU_IMPL BUILD_ARCH_FLAGS BUILD_CUDA_CC_LIST CMAKE CUDA_HOME CUDA_INCLUDE CUDA_LIB
    DEBUG GPU GPU_ALLGATHER GPU_ALLREDUCE GPU_ALLTOALL GPU_BROADCAST GPU_OPERATIONS
    GPU_REDUCESCATTER MPICXX_SHOW NCCL_HOME NCCL_INCLUDE NCCL_LIB NCCL_LINK ROCM_HOME SKIP_COMPILE
    WITHOUT_GLOO WITHOUT_MPI WITHOUT_MXNET WITHOUT_NVTX WITHOUT_PYTORCH WITHOUT_TENSORFLOW
    WITH_GLOO WITH_MPI WITH_MXNET WITH_NVTX WITH_PYTORCH WITH_TENSORFLOW
"""
_PREFIX = "HOROVOD_"
KNOWN = {_PREFIX + name for name in f"{_OF_RANKS} {_OF_THE_ENGINE} {_OF_ITS_BUILD}".split()}

_has_warned = False


def unknown(environment: Mapping[str, str]) -> list[str]:
    """Returns a line for each variable that Horovod does not know."""
    lines = []
    for name in sorted(environment):
        if name.startswith(_PREFIX) and name not in KNOWN:
            near = difflib.get_close_matches(name, KNOWN, 1, 0.8)
            lines.append(f"{name} is not known" + (f"; did you mean {near[0]}?" if near else ""))
    return lines


def warn_of_unknown() -> None:
    """Warns, once in a process, of variables that Horovod does not know."""
    global _has_warned
    if _has_warned:
        return
    _has_warned = True
    for line in unknown(os.environ):
        warnings.warn(f"horovod: {line}", stacklevel=3)
