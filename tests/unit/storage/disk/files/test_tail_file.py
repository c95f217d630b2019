"""A file whose last bytes may wait in memory."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage.crash_files import CrashFiles
from waltz.storage.disk.files.files import File
from waltz.storage.disk.files.tail_file import TAIL_LIMIT_BYTES, TailFile

PIECES = st.binary(min_size=1, max_size=TAIL_LIMIT_BYTES // 2)
STEPS = st.one_of(
    st.tuples(st.just("append"), PIECES),
    st.tuples(st.just("append"), st.binary(min_size=1, max_size=16)),
    st.tuples(st.just("gap"), PIECES),
    st.tuples(st.just("write"), PIECES),
    st.tuples(st.just("truncate"), st.floats(0, 1)),
    st.tuples(st.just("sync"), st.none()),
    st.tuples(st.just("datasync"), st.none()),
    st.tuples(st.just("discard_cache"), st.none()),
)


def opened(files: CrashFiles) -> tuple[TailFile, File]:
    """The file, and another descriptor that sees what is in it."""
    return TailFile(files.open("/index", create=True)), files.open("/index", create=False)


@given(st.lists(STEPS, max_size=20), st.data())
def test_it_reads_as_if_everything_were_in_the_file(steps: list[tuple[str, object]], data: st.DataObject) -> None:
    file, below = opened(CrashFiles())
    model = bytearray()
    for step, argument in steps:
        size = len(model)
        if step == "truncate":
            assert isinstance(argument, float)
            del model[int(size * argument) :]
            file.truncate(len(model))
        elif isinstance(argument, bytes):
            offset = {"append": size, "gap": size + 10, "write": size // 3}[step]
            model.extend(bytes(max(offset - size, 0)))
            model[offset : offset + len(argument)] = argument
            if step == "write":
                file.write(offset, [argument])
            else:
                file.write_later(offset, argument)
        else:
            getattr(file, step)()
            assert below.read(0, len(model) + 1) == model
        first = data.draw(st.integers(0, len(model)))
        wanted = data.draw(st.integers(0, len(model) + 5))
        assert file.read(first, wanted) == model[first : first + wanted]
        assert file.size() == len(model)


def test_small_pieces_wait_for_the_sync() -> None:
    file, below = opened(CrashFiles())
    for number in range(8):
        file.write_later(number, b"x")
    assert below.size() == 0
    file.sync()
    assert below.read(0, 100) == b"x" * 8


def test_memory_is_bounded() -> None:
    file, below = opened(CrashFiles())
    file.write_later(0, bytes(TAIL_LIMIT_BYTES))
    assert below.size() == 0
    file.write_later(TAIL_LIMIT_BYTES, b"x")
    assert below.size() == TAIL_LIMIT_BYTES + 1


def test_a_failed_write_is_told() -> None:
    files = CrashFiles()
    file, _ = opened(files)
    file.write_later(0, b"x")
    files.fail(OSError(errno.ENOSPC, "full"), operation="write")
    with pytest.raises(OSError, match="full"):
        file.sync()


def test_close_leaves_what_waits() -> None:
    files = CrashFiles()
    file, below = opened(files)
    file.write_later(0, b"x")
    file.close()
    file.close()
    assert below.size() == 0
