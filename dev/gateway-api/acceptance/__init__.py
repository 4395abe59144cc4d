"""Checks of Postern as an implementation of the Gateway API, beyond the conformance suite."""
