"""Fair shares of one memory: bounded whatever is asked for, and room for whoever wants little."""

from hypothesis import given, settings
from hypothesis import strategies as st

from waltz.server.store.memory import MIN_SHARE_BYTES, MemoryBudget

MIB = 1 << 20


def fill(budget: MemoryBudget, accounts: int, item_bytes: int, divisor: int = 4) -> list[int]:
    """The given number of greedy accounts take memory in turn; returns the final share of each."""
    greedy = [budget.account(divisor) for _ in range(accounts)]
    hungry = True
    while hungry:
        hungry = False
        for account in greedy:
            if account.admits(item_bytes):
                account.add(item_bytes)
                hungry = True
    return [account.used_bytes for account in greedy]


def test_greedy_accounts_get_equal_parts_and_leave_something() -> None:
    for count in (1, 2, 10, 1000):
        budget = MemoryBudget(1024 * MIB)
        used = fill(budget, count, 100_000)
        fair = 1024 * MIB // (count + 4)
        assert all(fair - 200_000 <= found <= fair + 100_000 for found in used)
        assert budget.used_bytes < budget.limit_bytes
        assert budget.account(4).share_bytes >= fair - 200_000, "for one that comes later"


def test_an_account_that_wants_little_always_gets_it() -> None:
    budget = MemoryBudget(MIB)
    budget.account(1).set(10 * MIB)
    assert budget.free_bytes == 0
    late = budget.account(4)
    assert late.admits(MIN_SHARE_BYTES)
    assert not late.admits(MIN_SHARE_BYTES + 1)
    late.add(MIN_SHARE_BYTES)
    assert not late.exceeded
    late.add(1)
    assert late.exceeded


operations = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["take", "give back", "end"]), st.integers(1, 3 * MIB)), max_size=200
)


@settings(deadline=None)
@given(st.integers(0, 16 * MIB), st.integers(1, 8), operations)
def test_what_was_admitted_is_bounded(limit_bytes: int, divisor: int, steps: list[tuple[int, str, int]]) -> None:
    """Against plain sums: nobody is admitted more than a part of what the others leave, or the least share."""
    budget = MemoryBudget(limit_bytes)
    accounts = [budget.account(divisor) for _ in range(5)]
    used = [0] * 5
    for index, step, size_bytes in steps:
        if step == "take":
            free = max(limit_bytes - sum(used), 0)
            admitted = accounts[index].admits(size_bytes)
            assert admitted == (used[index] + size_bytes <= max(free // divisor, MIN_SHARE_BYTES))
            if admitted:
                accounts[index].add(size_bytes)
                used[index] += size_bytes
        else:
            used[index] = 0 if step == "end" else max(used[index] - size_bytes, 0)
            accounts[index].set(used[index])
        assert [account.used_bytes for account in accounts] == used
        assert budget.used_bytes == sum(used) <= limit_bytes + 5 * MIN_SHARE_BYTES
