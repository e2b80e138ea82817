"""The agent's pure core: events with their moment go in, actions come out. Knows no disk, no process."""
