"""PPO training of the actor: whole episodes of the array engine, many copies of each arrival stream.

`architecture` needs numpy alone; the other modules import torch and run only inside a training process.
"""
