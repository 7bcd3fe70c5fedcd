"""How far an answer can be trusted: a search that knows nothing of the fit, and the verdict."""
