"""End-to-end tests: real programs on this machine, nothing replaced in the product."""
