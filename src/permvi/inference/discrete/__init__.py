"""Row-by-row families over matchings with exact probabilities, fitted to any log density."""
