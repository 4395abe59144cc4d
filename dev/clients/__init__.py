"""Foreign clients and peers around a real gateway process; `dev/test-clients` is the way in."""
