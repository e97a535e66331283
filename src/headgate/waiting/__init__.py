"""Wait for an instant: in a thread (`sleep`), and in an event loop (`timers`)."""
