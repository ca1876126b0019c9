"""Tests of the fake host itself."""
