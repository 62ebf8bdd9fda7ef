"""The 3D vision encoder of M3D-CLIP."""
