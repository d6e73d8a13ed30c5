"""What everything stands on and that knows nothing of the rest: errors, settings, the clock."""
