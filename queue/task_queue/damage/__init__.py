"""A damaged database: noticed, set aside, and its readable rows brought over into a fresh one."""
