"""One reader per layout of files on disk."""
