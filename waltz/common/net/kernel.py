"""What the operating system says about a connection beside what asyncio tells."""

import struct
import sys

_INT = struct.Struct("i")


def unacknowledged_bytes(sock: object) -> int:
    """Bytes that the kernel has taken for sending and the peer's kernel has not acknowledged.

    ``sock`` is what a transport calls its socket. 0 where that cannot be found out: not on Linux, no socket, or closed.
    """
    fileno = getattr(sock, "fileno", None)
    if fileno is None or sys.platform != "linux":
        return 0
    import fcntl  # not at the top: neither is there on Windows
    import termios

    try:
        answer = fcntl.ioctl(fileno(), termios.TIOCOUTQ, bytes(_INT.size))
    except (OSError, ValueError):  # closed in the meantime
        return 0
    (size_bytes,) = _INT.unpack(answer)
    return int(size_bytes)
