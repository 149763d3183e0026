"""Every published figure: `make evidence` measures on a real node and writes docs/evidence.md."""
