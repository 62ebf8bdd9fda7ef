"""Many devices: the mesh, partition rules, and the processes that share them."""
