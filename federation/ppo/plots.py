# pyright: reportMissingImports=false
"""The curves of a training run as a PNG. Owns what is drawn; needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from federation.ppo.checkpoint import Checkpoint


def draw_curves(checkpoint: Checkpoint, path: Path) -> None:
    """Write the picture: cost against the rule, reward, entropy, shift of the policy."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(10, 7), layout="constrained")
    steps = checkpoint.settings.steps_per_update / 1e6
    _cost(axes[0][0], checkpoint, steps)
    done = [steps * (i + 1) for i in range(len(checkpoint.history))]
    _line(
        axes[0][1],
        done,
        [one.reward for one in checkpoint.history],
        "reward per decision (other scenarios each)",
    )
    _line(axes[1][0], done, [one.entropy for one in checkpoint.history], "entropy of the decisions, nats")
    _line(
        axes[1][1], done, [one.kl for one in checkpoint.history], "shift of the policy in its last epoch (KL)"
    )
    figure.suptitle(f"seed {checkpoint.settings.seed}, {checkpoint.cpu_s:.0f} s of processor time")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _cost(axis: Any, checkpoint: Checkpoint, steps: float) -> None:
    at = [steps * point.update for point in checkpoint.curve]
    for devices in checkpoint.curve[0].ratio if checkpoint.curve else ():
        axis.plot(
            at, [point.ratio[devices] for point in checkpoint.curve], marker=".", label=f"{devices} devices"
        )
    axis.axhline(1.0, color="grey", linewidth=0.8)
    axis.set_title("cost / min-increase, validation scenarios")
    axis.set_xlabel("million decisions")
    axis.legend()


def _line(axis: Any, at: list[float], values: list[float], title: str) -> None:
    axis.plot(at, values, linewidth=1.0)
    axis.set_title(title)
    axis.set_xlabel("million decisions")
