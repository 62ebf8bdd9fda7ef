"""Networks that give pictures another look: CycleGAN's, and CUT's projection."""
