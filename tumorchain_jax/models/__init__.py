"""Pure-functional Linen modules. They know no mesh and no data, only logical axis names."""
