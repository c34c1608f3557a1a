"""The loop, its schedules, its checkpoints, and many accelerators at once."""
