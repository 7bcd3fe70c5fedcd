# %% [markdown]
# # Tracking: which particle is which?
#
# A film shows particles that diffuse. Detection misses some of them, finds some that are not
# there, and where two come close nobody can tell who is who. permvi links the points of all
# frames together and says how sure it is of every link. The data are simulated, so that the
# truth is known.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import permvi as pv

rng = np.random.default_rng(7)
rows = []
places = rng.uniform(0, 14, size=(12, 2))
for frame in range(15):
    places = places + 0.7 * rng.normal(size=places.shape)
    seen = rng.random(12) > 0.05
    rows += [(frame, x, y, k) for k, (x, y) in enumerate(places) if seen[k]]
    rows += [(frame, *rng.uniform(0, 14, 2), -1) for _ in range(rng.poisson(0.3))]
points = pd.DataFrame(rows, columns=["frame", "x", "y", "truth"])
print(f"{len(points)} points, {(points['truth'] < 0).sum()} of them false")
points.head()

# %% [markdown]
# ## All frames together
#
# Columns are found by name. How far particles move and how often they are missed is not given,
# so it is inferred; `motion="walk"` says that they have no direction.

# %%
found = pv.track(points[["frame", "x", "y"]], motion="walk", seed=0)
print(f"{len(found.tracks)} tracks; verdict: {found.verdict} ({found.reason})")
for name, (mean, sd) in found.summary().items():
    print(f"{name:8} {mean:.3f} ± {sd:.3f}")

# %% [markdown]
# The steps had a standard deviation of 0.7, 5 % of the particles were missed, and there were 0.3
# false points in a frame. Lines are links, drawn fainter the less sure they are; rings are
# points that are likely false.

# %%
table = found.to_frame()
xy = points[["x", "y"]].to_numpy()
figure, ax = plt.subplots(figsize=(5.6, 5.2), layout="constrained")
for point, before in enumerate(found.previous):
    if before >= 0:
        colour = "C0" if table["probability"][point] > 0.9 else "C3"
        ax.plot(*xy[[before, point]].T, color=colour, alpha=float(table["probability"][point]))
ax.scatter(*xy.T, s=6, color="black", zorder=3)
likely_false = table["p_false"] > 0.5
ax.scatter(*xy[likely_false].T, s=60, facecolors="none", edgecolors="black")
ax.set(aspect="equal", title="links; red where p < 0.9")
plt.show()

# %% [markdown]
# ## Which links to look at
#
# These are the least certain links, with the point that it could have been instead.

# %%
doubtful = table.iloc[list(found.doubtful())]
doubtful[
    ["frame", "id", "previous", "probability", "runner_up", "runner_up_probability"]
].head().round(3)

# %% [markdown]
# ## Is it right?
#
# Compare with the truth: a link is right if it joins two successive sightings of one particle.
# The number of wrong links should be near the number that was expected.

# %%
truth = points["truth"].to_numpy()
last: dict[int, int] = {}
right = []
for point, particle in enumerate(truth):
    before = last.get(particle, -1) if particle >= 0 else -1
    if points["frame"][point] > 0:
        right.append(found.previous[point] == before)
    last[particle] = point
print(f"{len(right) - sum(right)} of {len(right)} links are wrong", end="; ")
print(f"{found.expected_switches:.1f} were expected to be")

# %% [markdown]
# ## A decision
#
# The diffusion coefficient needs no links to be certain, but a lineage does. Take only tracks
# all of whose links hold with probability 0.9 or more, and say how many you left out.

# %%
kept = [track for track in found.tracks if track.probability >= 0.9 and len(track.points) > 3]
print(f"kept {len(kept)} of {len(found.tracks)} tracks, {sum(len(t.points) for t in kept)} points")
weakest = min(found.tracks, key=lambda track: track.probability)
begin, end = (
    found.scene.starts[frame] + row for frame, row in (weakest.points[0], weakest.points[-1])
)
print(f"the weakest track has p = {weakest.probability:.2f}, but its first and last point", end=" ")
print(f"are the same particle with p = {found.p_same(begin, end):.2f}")
