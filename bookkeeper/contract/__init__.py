"""The contract between writers, bookkeeper, reaper and consumers: txlog, folder, card, marks."""
