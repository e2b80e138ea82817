"""A fleet in memory that answers instructions: to test rounds and to measure them without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from federation.rounds.service import RoundService
from federation.values import Candidate, Instruction, Reply

#: What a node does with an instruction; None: it never answers. May block.
Answer = Callable[[Instruction], Reply | None]


class MemoryFleet:
    """Courier and roster at once. Nodes answer side by side; one that is cut off answers when it is back.

    Delivers at least once, like the real thing: a node deduplicates by the instruction's id.
    """

    def __init__(self, answers: dict[str, Answer], *, executor: Executor | None = None) -> None:
        """answers: what each node does. executor: where nodes compute; None: the loop's own."""
        self.answers = dict(answers)
        self.nodes = {name: Candidate(name=name, has_opted_in=True) for name in answers}
        self.sent: list[Instruction] = []
        self.withdrawn: list[str] = []
        self.service: RoundService | None = None
        self._executor = executor
        self._loop = asyncio.get_running_loop()
        self._cut_off: dict[str, list[Reply]] = {}
        self._seen: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # --- courier and roster --------------------------------------------------------------------------

    def send(self, instructions: Sequence[Instruction]) -> None:
        """Hand over to the nodes."""
        self._loop.call_soon_threadsafe(self._deliver, list(instructions))

    def withdraw(self, run_id: str, reason: str) -> None:
        """Note it."""
        self.withdrawn.append(run_id)

    def candidates(self) -> list[Candidate]:
        """Return every node."""
        return list(self.nodes.values())

    # --- faults --------------------------------------------------------------------------------------

    def cut_off(self, node: str) -> None:
        """Keep the node's replies back until it is back; what reached it before, it works on."""
        self._cut_off.setdefault(node, [])

    async def come_back(self, node: str) -> None:
        """Let the node's replies go."""
        await self._reply(self._cut_off.pop(node, []))

    async def settle(self) -> None:
        """Return when every node has done what it was told."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    # --- inside --------------------------------------------------------------------------------------

    def _deliver(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            self.sent.append(instruction)
            if instruction.id not in self._seen:
                self._seen.add(instruction.id)
                task = asyncio.create_task(self._handle(instruction))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _handle(self, instruction: Instruction) -> None:
        answer = self.answers[instruction.node]
        reply = await self._loop.run_in_executor(self._executor, answer, instruction)
        if reply is None:
            return
        if instruction.node in self._cut_off:
            self._cut_off[instruction.node].append(reply)
        else:
            await self._reply([reply])

    async def _reply(self, replies: Sequence[Reply]) -> None:
        if self.service is not None and replies:
            await self.service.on_reply(replies)
