"""What the processes of one router have in common: one memory, one lock, and a bell for each worker."""
