# pyright: reportMissingImports=false
"""The Flower client: trains with the trainer that the instruction names. Knows nothing of what carries it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from federation.flower.records import ARRAYS, CONFIG, from_record, reply_content
from federation.trainer import TrainerContext, load_trainer
from federation.values import Scalar

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer an instruction with trained parameters, the number of examples and metrics."""
    config: dict[str, Scalar] = dict(message.content[CONFIG])
    trainer = load_trainer(str(config["trainer"]))
    parameters = from_record(message.content[ARRAYS])
    trained, examples, metrics = trainer.train(parameters, config, trainer_context(config, context))
    return Message(reply_content(trained, examples, metrics), reply_to=message)


def trainer_context(config: dict[str, Scalar], context: Context) -> TrainerContext:
    """Return what the trainer is told of this node, from Flower's configuration of it."""
    place = context.node_config
    number, count = int(place.get("partition-id", 0)), int(place.get("num-partitions", 1))
    node = str(place.get("node", f"node-{number}"))
    version, run_seed = int(config["version"]), int(config["seed"])
    # Numbered participants draw by number, so that a simulation repeats what a fleet of the same size does.
    who = str(number) if count > 1 else node
    directory = str(place.get("directory", ""))
    return TrainerContext(
        node=node,
        run_id=str(config["run"]),
        version=version,
        seed=_seed(run_seed, version, who),
        number=number,
        count=count,
        directory=Path(directory) if directory else None,
        extra={key: value for key, value in place.items() if key.startswith("trainer.")},
    )


def _seed(*parts: object) -> int:
    text = "\n".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
