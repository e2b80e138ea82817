"""Hard rules: what a task may not do, whatever could run it. Engines are listed by name in `registry`."""
