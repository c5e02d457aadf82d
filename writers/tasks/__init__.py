"""Tasks: other processes write data files under names that belong to a writer's next txlog."""
