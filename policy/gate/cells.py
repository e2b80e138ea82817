"""Cells of blocks: which arm has which block, and how two arms compare within one. Pure arithmetic."""

from __future__ import annotations

import hashlib

from policy.gate.evidence import rank_scores
from policy.gate.settings import GateSettings
from policy.gate.state import Arm, Block, Cell, Stage, Tally

#: What is compared, each by itself.
CHANNELS = ("cost", "missed", "latency")


def open_cell(seed: int, index: int, stage: Stage, settings: GateSettings) -> Cell:
    """Return a cell: its draw depends on seed and index only, so it is the same after a restart."""
    n = {Stage.CANARY: settings.canary_blocks, Stage.PARTIAL: settings.partial_blocks}.get(
        stage, settings.full_blocks
    )
    odd = draw(seed, index, n)
    rarer, other = (Arm.FALLBACK, Arm.CANDIDATE) if stage is Stage.FULL else (Arm.CANDIDATE, Arm.FALLBACK)
    blocks = [Block(arm=rarer if i == odd else other) for i in range(n)]
    return Cell(index=index, stage=stage, odd=odd, blocks=blocks)


def draw(seed: int, index: int, n: int) -> int:
    """Return a uniform number below n made from seed and counter alone."""
    digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=16).digest()
    return int.from_bytes(digest, "big") % n


def harm_scores(cell: Cell, channel: str, grain: float = 0.0) -> tuple[float, float] | None:
    """Return (linear, extreme) scores of the candidate against the fallback, larger is worse for it.

    grain: figures that round to the same multiple of it are equal.
    None when too few of the cell's blocks have figures: whether they do is independent of the draw.
    """
    filled = [i for i, block in enumerate(cell.blocks) if block.tally.tasks > 0]
    if cell.odd not in filled or len(filled) < 2:
        return None
    values = [_mean(cell.blocks[i].tally, channel) for i in filled]
    if grain > 0:
        values = [float(round(value / grain)) for value in values]
    if cell.blocks[cell.odd].arm is Arm.FALLBACK:
        values = [-value for value in values]
    return rank_scores(values, filled.index(cell.odd))


def _mean(tally: Tally, channel: str) -> float:
    return float(getattr(tally, channel)) / tally.tasks
