"""A rule that permits what a test lists, and notes what it was asked."""

from collections.abc import Collection, Iterable

from waltz.common.access import Access, Action, Proof, Right, Rights, Throttle, not_permitted


class Only(Access, Rights):
    """Every principal has exactly these rights, at all partitions or those that are listed."""

    throttle: Throttle | None = None

    def __init__(self, *rights: Right, partition_ids: Collection[int | None] | None = None) -> None:
        self.asked: list[tuple[Right, int | None]] = []
        self.principals: list[str] = []
        self.rights = rights
        self.lenient = self.reduced = False
        self.actions: list[Action] = []
        self._partition_ids = partition_ids

    def rights_of(self, principal: str, proof: Proof = Proof.CERTIFICATE) -> Rights:
        self.principals.append(principal)
        return self

    def owns(self, partition_ids: Collection[int]) -> None: ...

    def refusal(
        self, right: Right, partition_id: int | None, peer: str = "", count: int = 1, *, noted: bool = False
    ) -> str | None:
        self.asked.append((right, partition_id))
        return None if self.permits(right, partition_id) else not_permitted(self.principals[-1], right, partition_id)

    def refusal_everywhere(self, right: Right, peer: str = "") -> str | None:
        return self.refusal(right, None, peer)

    def refusal_anywhere(self, right: Right, peer: str = "") -> str | None:
        return self.refusal(right, None, peer)

    def filtered(self, right: Right, partition_ids: Iterable[int], operation: str, peer: str = "") -> list[int]:
        return [partition_id for partition_id in partition_ids if self.permits(right, partition_id)]

    def acted(self, action: Action) -> None:
        self.actions.append(action)

    def permits(self, right: Right, partition_id: int | None) -> bool:
        return right in self.rights and (self._partition_ids is None or partition_id in self._partition_ids)
