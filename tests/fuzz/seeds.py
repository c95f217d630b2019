"""What fuzzing starts from: the golden vectors of ``tests/data``, and a few files in forms that operators write."""

import json
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.unit.common.wire import (
    test_confirmed_marks,
    test_mark_feed,
    test_refused,
    test_storage_version1,
    test_version5,
    test_write_sessions,
)
from tests.unit.common.wire.vectors import transcript_lines, wire_lines
from waltz.common.wire.client_server import Message
from waltz.common.wire.frames import FRAME_HEADER

DATA = Path(__file__).parents[1] / "data"


def payloads(codec_start: str) -> list[tuple[int, bytes]]:
    """Version and payload of every message vector of the codecs whose names begin so."""
    return [
        (line["version"], bytes.fromhex(line["hex"]))
        for line in wire_lines()
        if line["codec"].startswith(codec_start) and "hex" in line and "version" in line
    ]


def own_payloads() -> list[tuple[int, bytes]]:
    """Version and payload of the golden frames of the messages between clients and servers that only we have."""
    modules = (test_version5, test_write_sessions, test_confirmed_marks, test_mark_feed, test_refused)
    golden: list[tuple[Message, str]] = [pair for module in modules for pair in module.GOLDEN]
    frames = [bytes.fromhex(hex_frame) for _, hex_frame in golden]
    return [(FRAME_HEADER.unpack_from(frame)[1], frame[FRAME_HEADER.size :]) for frame in frames]


def append_many_payload() -> bytes:
    """The golden frame of the appends of many partitions."""
    return test_storage_version1.FRAME[FRAME_HEADER.size :]


def znodes() -> Iterator[tuple[str, bytes]]:
    """Type and bytes of every znode vector."""
    for line in wire_lines():
        if line["codec"] == "zk" and "hex" in line:
            yield line["message"], bytes.fromhex(line["hex"])


def conversations() -> list[bytes]:
    """What each side of each recorded client-server connection sent, the hello included."""
    sides: dict[tuple[str, int, str], list[bytes]] = {}
    for line in transcript_lines():
        if line["link"] == "client-server":
            key = line["link"], line["conn"], line["dir"]
            sides.setdefault(key, []).append(bytes.fromhex(line["frame_hex"]))
    return [b"".join(frames)[:2048] for frames in sides.values()]


@cache
def storage_directory() -> dict[str, bytes]:
    """The files of the original's storage directory, by path inside it."""
    found = {}
    with tarfile.open(DATA / "storage-dir.tar.gz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                found[member.name.removeprefix("./")] = file.read()
    return found


def storage_description() -> tuple[str, int]:
    """Cluster key and number of partitions of that directory."""
    description = json.loads((DATA / "storage-dir.json").read_text())
    return description["clusterKey"], description["numPartitions"]


CONFIGS = [
    (
        b"zookeeper.connectString: localhost:2181\nzookeeper.sessionTimeout: 30000\ncluster.root: /waltz\n"
        b"server.port: 55180\nserver.ssl.keyStore.location: a\nserver.ssl.keyStore.password: b\n"
    ),
    (
        b"zookeeper:\n  connectString: 'localhost:2181'\n  sessionTimeout: '30000'\ncluster: {root: /waltz}\n"
        b"storage:\n  port: 1\n  admin.port: 2\n  directory: /d\n  segment.size.threshold: 1000\n"
    ),
    b"a: &a {x: 1}\nb: &b {p: *a, q: *a}\n<<: *b\n? [1, 2]\n: 2001-12-14t21:59:43.10-05:00\nc: 0x1F\nd: 1:30\n",
    b"a: |\n  text\nb: >-\n  more\nc: !!binary aGVsbG8=\nd: !!set {x, y}\ne: ~\nf: .inf\n--- second\n...\n",
]

TRANSFERS = [
    b"from,to,amount\nalice,bob,1.50\nbob,carol,0.01\n",
    b'\xef\xbb\xbfamount;from,to,amount\r\n1,alice,"b""ob",1e2\r\n\r\n2,\xff,bob,-1\r\n',
    b'from,to,amount\n"a\nb",c,NaN\nx,y,1E+99\n\0,z,00.10\nshort\n',
]

HTTP_REQUESTS = [
    b"GET /metrics?pretty=true HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain;q=0.5, */*\r\n\r\n",
    b"GET /health HTTP/1.0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    b"POST /ping HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
    b"GET http://[::1]:80/ping#x HTTP/1.1\r\naccept: application/json;q=nan\r\n\r\n",
]
