"""One run: carried out, saved, resumed, compared."""
