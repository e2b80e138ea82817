"""Policy versions and how one of them comes to the whole fleet: registry, rollout, vetting."""
