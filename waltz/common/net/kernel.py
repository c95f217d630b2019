"""The operating system's view of a connection, beyond asyncio's."""

import struct
import sys

_INT = struct.Struct("i")


def unacknowledged_bytes(sock: object) -> int:
    """Number of bytes that the kernel has taken for sending, but the peer's kernel has not acknowledged.

    ``sock`` is the socket of a transport. The result is 0 if the number is unknown: not on Linux, no socket, or closed.
    """
    fileno = getattr(sock, "fileno", None)
    if fileno is None or sys.platform != "linux":
        return 0
    import fcntl  # not at the top of the module: Windows lacks both packages
    import termios

    try:
        answer = fcntl.ioctl(fileno(), termios.TIOCOUTQ, bytes(_INT.size))
    except (OSError, ValueError):  # closed in the meantime
        return 0
    (size_bytes,) = _INT.unpack(answer)
    return int(size_bytes)
