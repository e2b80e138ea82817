"""A training run on disk: one file, replaced whole, from which the run goes on as if nothing had happened.

Owns the file. No pickle: arrays travel as a packet, the rest as MessagePack. Needs no torch.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from federation.ppo.architecture import Parameters
from federation.ppo.settings import PpoSettings
from federation.wire import PacketRefused, pack, unpack
from skerry.durable import write_whole
from skerry.errors import PolicyError

CHECKPOINT_FORMAT = 1
CHECKPOINT_NAME = "checkpoint.msgpack"


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """How one update went. reward: mean per decision, unscaled; it moves with the arrivals drawn."""

    reward: float
    entropy: float
    kl: float
    clip_fraction: float
    explained_variance: float
    epochs: int


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One point of the curve. ratio: cost / min-increase's on the validation scenarios, by devices."""

    update: int
    ratio: dict[int, float]


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a run needs. moments: of the optimiser, under names `actor.mean/…`."""

    settings: PpoSettings
    update: int  #: updates done
    cpu_s: float  #: processor seconds used, evaluation of the curve left out
    arrays: bytes  #: packet of actor/…, critic/… and moments
    history: tuple[Figures, ...] = ()
    curve: tuple[Point, ...] = ()
    lineage_parent: str = ""
    code: str = ""
    format: int = CHECKPOINT_FORMAT

    def part(self, prefix: str) -> Parameters:
        """Return the arrays under `prefix/`, in their order."""
        start = f"{prefix}/"
        arrays = unpack(self.arrays)
        return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}  # type: ignore[misc]


def packed(parts: dict[str, Parameters]) -> bytes:
    """Return several groups of arrays as one packet."""
    return pack(
        {f"{prefix}/{name}": array for prefix, group in parts.items() for name, array in group.items()}
    )


def save(directory: Path, checkpoint: Checkpoint) -> None:
    """Replace the run's checkpoint; a kill leaves the old one or the new one."""
    write_whole(directory / CHECKPOINT_NAME, msgspec.msgpack.encode(checkpoint), mode=0o644)


def load(path: Path) -> Checkpoint:
    """Return the checkpoint in a directory, or of a file.  Raises PolicyError."""
    file = path / CHECKPOINT_NAME if path.is_dir() else path
    try:
        found = msgspec.msgpack.decode(file.read_bytes(), type=Checkpoint)
    except FileNotFoundError as error:
        raise PolicyError(f"there is no checkpoint {file}") from error
    except OSError as error:
        raise PolicyError(f"{file} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PolicyError(f"{file} is not a checkpoint: {error}") from error
    if found.format != CHECKPOINT_FORMAT:
        raise PolicyError(f"{file} has format {found.format}, this program knows {CHECKPOINT_FORMAT}")
    try:
        found.part("actor")
    except PacketRefused as error:
        raise PolicyError(f"{file} is damaged: {error}") from error
    return found
