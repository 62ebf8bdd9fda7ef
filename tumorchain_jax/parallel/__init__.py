"""Many devices: the mesh, what lies where on it, and the processes that share it."""
