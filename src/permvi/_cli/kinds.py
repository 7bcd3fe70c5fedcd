"""Words that options take; nothing heavy is imported for the help to list them."""

# What the numbers in a table of pairs mean: name -> the weight that a pair has in a matching.
KINDS = {
    "scores": "log weights: a pair counts exp(score / temperature)",
    "costs": "a pair counts exp(-cost / temperature)",
    "log-odds": "logarithms of the odds that a pair is a match, each pair judged by itself",
    "probabilities": "that a pair is a match, each pair judged by itself: it counts p / (1 - p)",
    "row-probabilities": "each row is a distribution over labels: a pair counts p",
}
# Those with units of their own, which a temperature scales.
SCALED = ("scores", "costs")
NOISES = ("gaussian", "student_t")
# Asks for the noise's scale to be inferred.
INFER = "infer"
# The connectome that is built in.
CELEGANS = "celegans"
