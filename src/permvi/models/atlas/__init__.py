"""Atlases: laws of cells' features for each label, learnt from animals, and matchings by them."""

from permvi.models.atlas.animals import Animal as Animal
from permvi.models.atlas.animals import align_animals as align_animals
from permvi.models.atlas.animals import read_animals as read_animals
from permvi.models.atlas.atlas import Atlas as Atlas
from permvi.models.atlas.matching import AtlasMatching as AtlasMatching
from permvi.models.atlas.relations import Relations as Relations
