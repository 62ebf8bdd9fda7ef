"""Many devices: the mesh, what lies where on it, and programs compiled for machines not at hand."""
