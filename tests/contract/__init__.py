"""The contract between programs: txlog, folder, card, marks, names."""
