"""`python -m skerry.cli`: the command line without its script."""

from __future__ import annotations

from skerry.cli import main

main()
