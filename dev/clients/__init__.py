"""Foreign clients and peers around a real gateway process. Entry point: `dev/test-clients`."""
