"""The examples in README and docs/ are right: every block of code, every command in the prose, every link."""
