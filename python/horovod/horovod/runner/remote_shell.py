"""The ssh that reaches a job's hosts, with Horovod's two options."""

from __future__ import annotations


def remote_shell(port: int | None, identity_file: str | None) -> str:
    """Returns corro's own ssh with a port and a key, for `corro run --rsh`.

    Raises:
        ValueError: the key's path has a space, at which --rsh would cut it.
    """
    words = ["ssh", "-T", "-oBatchMode=yes", "-oForwardAgent=no", "-oConnectTimeout=10"]
    if port:
        words += ["-p", str(port)]
    if identity_file:
        if " " in identity_file:
            raise ValueError(f"ssh identity file {identity_file!r}: a path without spaces, please")
        words += ["-i", identity_file]
    return " ".join(words)
