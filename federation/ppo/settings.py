"""What a training run is told: budget, learning rates, episodes. Frozen, and kept with every checkpoint."""

from __future__ import annotations

import msgspec

from skerry.errors import SettingsError
from twin.fleet.paired import HELD_OUT_SEED

#: The curve of a training run is measured under this seed: neither trained on nor the one that counts.
VALIDATION_SEED = 20_262


class PpoSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe. One update uses `streams × copies` whole episodes."""

    seed: int = 7
    steps: int = 3_000_000  #: decisions to learn from; rates are annealed over exactly these
    devices: tuple[int, int] = (4, 12)  #: fewest and most devices of a training site
    tasks: int = 160  #: decisions in an episode
    streams: int = 16  #: different sites with arrivals in an update
    copies: int = 16  #: of each stream; their mean is the baseline that cancels the arrivals' luck
    discount: float = 0.997  #: per decision
    reward_scale: float = 0.2
    rate: float = 1e-3
    last_rate: float = 0.05  #: share of the rate that is left at the end
    epochs: int = 4
    minibatch: int = 2048  #: decisions
    clip: float = 0.2
    kl_stop: float = 0.03
    entropy: float = 0.004  #: falls to 0
    actor_norm: float = 0.5  #: gradients are clipped to this norm, each network by itself
    critic_norm: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what cannot be trained with.  Raises SettingsError."""
        for name in ("steps", "tasks", "streams", "epochs", "minibatch"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.copies < 2:
            raise SettingsError("copies must be at least 2: an episode is judged by its likes")
        if self.seed in (HELD_OUT_SEED, VALIDATION_SEED):
            raise SettingsError(f"seed {self.seed} draws the scenarios kept for evaluation; choose another")
        low, high = self.devices
        if not 1 <= low <= high:
            raise SettingsError(f"devices must be (fewest, most), not ({low}, {high})")

    @property
    def steps_per_update(self) -> int:
        """Decisions of one update."""
        return self.streams * self.copies * self.tasks

    @property
    def updates(self) -> int:
        """How many updates the budget pays for, at least one."""
        return max(1, self.steps // self.steps_per_update)

    def progress(self, update: int) -> float:
        """Return the share of the updates that is done before this one."""
        return update / self.updates

    def rate_at(self, update: int) -> float:
        """Return the learning rate of an update, falling linearly."""
        return self.rate * (1.0 - (1.0 - self.last_rate) * self.progress(update))

    def entropy_at(self, update: int) -> float:
        """Return the weight of the entropy at an update, falling to 0."""
        return self.entropy * (1.0 - self.progress(update))
