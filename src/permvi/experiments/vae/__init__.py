"""Variational autoencoders with categorical latent variables (supplement, Table 2 and Figure 5).

Twenty categorical variables of ten values each are relaxed in four ways, trained with several
objectives, and scored as a model with discrete codes.
"""

from permvi.experiments.vae.study import STUDY as STUDY
