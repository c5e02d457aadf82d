"""Where lines come from: files, folders and standard input."""
