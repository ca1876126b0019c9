"""Every way of asking, on every engine and control group system: what holds in each."""
