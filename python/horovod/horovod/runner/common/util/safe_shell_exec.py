"""prefix_connection(), which scripts and tests of Horovod import; corro run has its own in C++."""

from __future__ import annotations

import codecs
import os
import re
import time
from typing import Protocol, TextIO

_LINE_END = re.compile("(?<=[\r\n])")


class _Connection(Protocol):
    def fileno(self) -> int: ...
    def close(self) -> None: ...


def prefix_connection(
    src_connection: _Connection,
    dst_stream: TextIO,
    prefix: str | None,
    index: int | None,
    prefix_output_with_timestamp: bool,
) -> None:
    r"""Copies UTF-8 text to a stream, with "[index]<prefix>:" before each line, until its end.

    A line ends with \n or \r; each is written as soon as its end has come. Without an index or a
    prefix nothing is put in front. Blocks; closes the connection.
    """

    def write(line: str) -> None:
        if index is not None and prefix is not None:
            when = time.asctime(time.localtime(time.time())) if prefix_output_with_timestamp else ""
            line = f"{when}[{index}]<{prefix}>:{line}"
        dst_stream.write(line)
        dst_stream.flush()

    decoder = codecs.getincrementaldecoder("utf8")()
    rest = ""
    while piece := os.read(src_connection.fileno(), 65536):
        *lines, rest = _LINE_END.split(rest + decoder.decode(piece))
        for line in lines:
            write(line)
    rest += decoder.decode(b"", final=True)
    if rest:
        write(rest)
    src_connection.close()
