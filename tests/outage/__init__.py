"""Long unavailability: nothing is lost, it is said, and the table recovers by itself."""
