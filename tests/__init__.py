"""The test suite; a package, so that tests can import each other's helpers."""
