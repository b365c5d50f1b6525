"""horovod.run(): a function on several ranks, through corro.run()."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import corro
from corro.errors import InvalidArgumentError
from horovod.common.settings import stall_warning
from horovod.runner.remote_shell import remote_shell

# Of an elastic job, or of a launcher that is not here; what they would change is not done silently.
_REFUSED = (
    "min_num_proc",
    "max_num_proc",
    "slots",
    "reset_limit",
    "cooldown_range",
    "host_discovery_script",
    "use_mpi",
    "mpi_args",
    "executable",
)
# They would change nothing: checks are not cached, starting takes less than a second.
_IGNORED = ("start_timeout", "disable_cache", "use_gloo")
_RENAMED = {
    "np": "num_proc",
    "min_np": "min_num_proc",
    "max_np": "max_num_proc",
    "network_interface": "network_interfaces",
}


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    output_filename: str | None = None,
    network_interfaces: str | Sequence[str] | None = None,
    verbose: bool | None = None,
    **options: Any,
) -> list[Any]:
    """Calls a function on several ranks and returns their results by rank.

    Args:
        func: the function; cloudpickle sends it.
        args: its arguments.
        kwargs: its keyword arguments.
        num_proc: the number of ranks; 1, or as many as the hosts have slots.
        hosts: where they run: "a:4,b:4".
        hostfile: the same, in a file.
        ssh_port: of ssh on all hosts.
        ssh_identity_file: key for ssh.
        output_filename: folder for what each rank prints, too: rank.N/stdout and rank.N/stderr.
        network_interfaces: such as "eth0,eth1", or a list; by which hosts reach each other.
        verbose: say what is done.
        options: Horovod's others. start_timeout, disable_cache and use_gloo change nothing; those
            of elastic jobs and MPI, and executable, raise NotImplementedError.

    Raises:
        RuntimeError: a rank has failed; its cause is what corro.run() raises: the rank's exception
            with its traceback, or why no rank was started.
    """
    for old, new in _RENAMED.items():
        if old in options:
            warnings.warn(f"{old} is deprecated, use {new}", DeprecationWarning, stacklevel=2)
            options.setdefault(new, options.pop(old))
    num_proc = options.pop("num_proc", num_proc)
    network_interfaces = options.pop("network_interfaces", network_interfaces)
    if hosts and hostfile:
        raise ValueError("Argument hosts and hostfile only allow one provided.")
    if options.get("use_gloo") and options.get("use_mpi"):
        raise ValueError("Argument use_gloo and use_mpi only allow one set True.")
    for name, value in options.items():
        if name not in (*_REFUSED, *_IGNORED):
            raise TypeError(f"run() got an unexpected keyword argument {name!r}")
        if name in _REFUSED and value:
            raise NotImplementedError(f"horovod.run: {name} is not there; see corro.run")
    extra = ["--hostfile", hostfile] if hostfile else []
    if ssh_port or ssh_identity_file:
        extra += ["--rsh", remote_shell(ssh_port, ssh_identity_file)]
    if output_filename:
        extra += ["--output-dir", output_filename]
    if verbose:
        extra.append("--verbose")
    long_wait = stall_warning(os.environ)
    if long_wait is not None:
        extra += ["--long-wait", f"{long_wait:g}"]
    env = {}
    if isinstance(network_interfaces, str):
        env["NCCL_SOCKET_IFNAME"] = network_interfaces
    elif network_interfaces:
        env["NCCL_SOCKET_IFNAME"] = ",".join(network_interfaces)
    if num_proc is None and not hosts and not hostfile:
        num_proc = 1
    try:
        return corro.run(func, args, kwargs, num_proc, hosts, env=env, options=extra)
    except (InvalidArgumentError, TypeError):
        raise
    except Exception as error:
        raise RuntimeError(
            f"Horovod detected that one or more processes exited with non-zero status: {error}"
        ) from error
