"""horovod.run(): a function on several ranks, through corro.run()."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import corro
from corro.errors import InvalidArgumentError
from horovod.common.settings import stall_warning
from horovod.runner.common.util.hosts import parse_hosts, under_one_name
from horovod.runner.elastic.options import Elastic
from horovod.runner.remote_shell import remote_shell

# Of a launcher that is not here; what they would change is not done silently.
_REFUSED = ("use_mpi", "mpi_args", "executable")
_ELASTIC = tuple(field.name for field in fields(Elastic))
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
        num_proc: the number of ranks; 1, or as many as the hosts have slots. An elastic job begins
            with it, or with min_num_proc.
        hosts: where they run: "a:4,b:4".
        hostfile: the same, in a file.
        ssh_port: of ssh on all hosts.
        ssh_identity_file: key for ssh.
        output_filename: folder for what each rank prints, too: rank.N/stdout and rank.N/stderr.
        network_interfaces: such as "eth0,eth1", or a list; by which hosts reach each other.
        verbose: say what is done.
        options: Horovod's others. min_num_proc, max_num_proc, slots, elastic_timeout, reset_limit,
            cooldown_range and host_discovery_script are of elastic jobs, as horovodrun has them;
            the results are those of the ranks that are there at the end. start_timeout,
            disable_cache and use_gloo change nothing; those of MPI, and executable, raise
            NotImplementedError.

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
        if name not in (*_REFUSED, *_IGNORED, *_ELASTIC):
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
    if hosts:
        hosts = under_one_name(parse_hosts(hosts))
    elastic = Elastic(**{name: options.get(name) for name in _ELASTIC})
    if num_proc is None and (elastic.is_asked_for() or not (hosts or hostfile)):
        num_proc = elastic.min_num_proc or 1
    extra += elastic.options(num_proc or 1, hosts, hostfile)
    try:
        return corro.run(func, args, kwargs, num_proc, hosts, env=env, options=extra)
    except (InvalidArgumentError, TypeError):
        raise
    except Exception as error:
        raise RuntimeError(
            f"Horovod detected that one or more processes exited with non-zero status: {error}"
        ) from error
