"""Rankings: ballots with ties and gaps, their files, and the Mallows model behind them."""

from permvi.models.rankings.ballots import Ballots as Ballots
from permvi.models.rankings.ballots import Unranked as Unranked
from permvi.models.rankings.model import Rankings as Rankings
