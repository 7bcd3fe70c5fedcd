"""``permvi identify`` on simulated recordings of a small network, and how it answers mistakes."""

import csv
import json

import numpy as np
import pytest
from scipy.stats import norm

import permvi as pv
from permvi._cli.identify_files import read_canonical, read_recordings
from permvi._cli.identify_inputs import Positions, identification
from permvi.experiments._worms import simulate_worms
from tests.cli.pages import check_page

M = 20
NAMES = [f"N{k:02d}" for k in range(M)]
WORMS = ("left", "right")


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_csv(path, header, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture(scope="module")
def network():
    rng = np.random.default_rng(3)
    upper = np.triu(rng.random((M, M)) < 0.25, 1)
    adjacency = upper | upper.T
    positions = np.sort(rng.random(M)).round(2)
    worms = simulate_worms(adjacency, positions, rng, num_worms=2, num_steps=800, num_known=4)
    return adjacency, positions, worms


@pytest.fixture
def files(network, tmp_path):
    """The network and two worms in files; the second worm lacks three of the unknown neurons."""
    adjacency, positions, worms = network
    found = {"edges": write_csv(tmp_path / "edges.csv", ["from", "to"], edges_of(adjacency))}
    canonical = list(zip(NAMES, positions, strict=True))
    found["canonical"] = write_csv(tmp_path / "canonical.csv", ["neuron", "x"], canonical)
    places, known, truth = [], [], {}
    for j, worm in enumerate(WORMS):
        unknown = np.flatnonzero(worms.known[j] < 0)
        rows = np.setdiff1d(np.arange(M), unknown[:3] if j else [])
        neurons = [f"{worm[0]}{i}" for i in rows]
        table = worms.recordings[j][:, rows].tolist()
        found[worm] = write_csv(tmp_path / f"{worm}.csv", neurons, table)
        truth[worm] = {n: NAMES[k] for n, k in zip(neurons, worms.truth[j, rows], strict=True)}
        places += [(worm, n, worms.positions[j, i]) for n, i in zip(neurons, rows, strict=True)]
        pairs = zip(neurons, worms.known[j, rows], strict=True)
        known += [(worm, n, NAMES[k]) for n, k in pairs if k >= 0]
    found["positions"] = write_csv(tmp_path / "positions.csv", ["worm", "neuron", "x"], places)
    found["known"] = write_csv(tmp_path / "known.csv", ["worm", "neuron", "identity"], known)
    return found | {"truth": truth}


def regression(adjacency, worms, truth, ridge):
    """Mean, and variance in units of the noise's, of each weight given who is who."""
    found = {}
    for a in range(M):
        inputs = np.flatnonzero(adjacency[a])
        S, r = ridge * np.eye(len(inputs)), np.zeros(len(inputs))
        for j, worm in enumerate(WORMS):
            recorded = [NAMES.index(name) for name in truth[worm].values()]
            if a in recorded:
                y = worms.recordings[j] - worms.recordings[j].mean(axis=0)
                # A neuron that is not recorded drives nobody.
                y = y[:, np.argsort(worms.truth[j])] * np.isin(np.arange(M), recorded)
                S += y[:-1, inputs].T @ y[:-1, inputs]
                r += y[:-1, inputs].T @ y[1:, a]
        inverse = np.linalg.inv(S)
        for b, mean, variance in zip(inputs, inverse @ r, np.diag(inverse), strict=True):
            found[a, b] = mean, variance
    return found


def edges_of(adjacency):
    return [(NAMES[a], NAMES[b]) for a, b in np.argwhere(np.triu(adjacency))]


@pytest.fixture
def identify(run, files):
    """Run on some of the worms with the connectome of the files."""

    def run_identify(worms, *options):
        network = ["--connectome", files["edges"], "--canonical-positions", files["canonical"]]
        return run("identify", *(files[worm] for worm in worms), *network, *options)

    return run_identify


def test_two_worms_of_different_sizes(identify, files, tmp_path, network):
    names = ("fit.nc", "neurons.csv", "weights.csv", "fit.png", "page.html", "all.csv")
    options = ("--save", "--csv", "--weights", "--plot", "--report", "--probabilities")
    out = dict(zip(options, names, strict=True))
    written = [word for option, name in out.items() for word in (option, tmp_path / name)]
    evidence = ["--positions", files["positions"], "--tolerance", 0.3, "--known", files["known"]]
    result = identify(WORMS, *evidence, *written, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert found["method"] == "collapsed"
    assert found["noise_sd"]["learned"]
    neurons = {}
    for worm in found["worms"]:
        truth = files["truth"][worm["worm"]]
        assert [row["neuron"] for row in worm["neurons"]] == list(truth)
        for row in worm["neurons"]:
            neurons[worm["worm"], row["neuron"]] = row
        right = [row["identity"] == truth[row["neuron"]] for row in worm["neurons"]]
        assert all(right)
        recorded = M - sum(identity["p_unrecorded"] for identity in worm["identities"])
        assert recorded == pytest.approx(len(truth), abs=1e-6)
    assert sum(row["known"] for row in neurons.values()) == 8
    shares = dict.fromkeys(neurons, 0.0)
    for row in rows_of(tmp_path / "all.csv"):
        shares[row["worm"], row["neuron"]] += float(row["probability"])
    assert list(shares.values()) == pytest.approx([1.0] * len(neurons))
    # The files say the same as the object.
    rows = rows_of(tmp_path / "neurons.csv")
    assert [(row["worm"], row["neuron"]) for row in rows] == list(neurons)
    for row in rows:
        item = neurons[row["worm"], row["neuron"]]
        assert row["identity"] == item["identity"]
        assert float(row["probability"]) == item["probability"]
        assert row["credible_set"].split("; ") == item["credible_set"]
        assert row["known"] == str(item["known"])
    posterior = pv.load(tmp_path / "fit.nc")
    assert posterior.marginals.shape == (2, M, M)
    assert posterior.settings["worms"] == list(WORMS)
    assert posterior.settings["neurons"] == [list(files["truth"][worm]) for worm in WORMS]
    for j, worm in enumerate(WORMS):
        for i, neuron in enumerate(posterior.settings["neurons"][j]):
            assert posterior.marginals[j, i].max() == neurons[worm, neuron]["probability"]
    weights = {(row["from"], row["to"]): row for row in rows_of(tmp_path / "weights.csv")}
    adjacency, _, worms = network
    assert len(weights) == adjacency.sum()
    ridge = (found["noise_sd"]["value"] / found["weight_sd"]["value"]) ** 2
    expected = regression(adjacency, worms, files["truth"], ridge)
    for (sender, to), row in weights.items():
        mean, variance = expected[NAMES.index(to), NAMES.index(sender)]
        assert float(row["weight"]) == pytest.approx(mean, abs=1e-5)
        sd = found["noise_sd"]["value"] * np.sqrt(variance)
        assert float(row["sd"]) == pytest.approx(sd, rel=1e-4)
    assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")
    for worm in WORMS:
        assert f"{worm}: {len(files['truth'][worm])} recorded neurons" in (
            tmp_path / f"page-{worm}.html"
        ).read_text(encoding="utf-8")


def test_one_worm_in_a_table_and_what_the_model_would_say(identify, files, tmp_path, network):
    known = ["--known", write_csv(tmp_path / "k.csv", ["neuron", "identity"], one_worm(files))]
    options = ["--restarts", 2, "--seed", 5, "--level", 0.9, "--save", tmp_path / "fit.nc"]
    result = identify(["left"], *known, *options)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "Which neuron is it?"
    assert lines[2].split() == [
        *("neuron", "known", "identity", "p", "runner-up", "p", "90", "%", "set")
    ]
    assert [line.split()[0] for line in lines[4 : 4 + M]] == list(files["truth"]["left"])
    assert any(line.startswith("verdict: ") for line in lines)
    scales = {line.split()[0]: line.split()[2:] for line in lines if " sd: " in line}
    assert [scales[name][1] for name in ("noise", "weight")] == ["(learned)"] * 2
    # Unit noise: the mean square of 16,000 normal numbers within four standard errors.
    assert float(scales["noise"][0]) ** 2 == pytest.approx(1, abs=4 * np.sqrt(2 / 16_000))
    # The same from the arrays, in Python.
    adjacency, _, worms = network
    activity = worms.recordings[0] - worms.recordings[0].mean(axis=0)
    order = list(dict.fromkeys(name for edge in edges_of(adjacency) for name in edge))
    place = [NAMES.index(name) for name in order]
    given = np.array([order.index(NAMES[k]) if k >= 0 else -1 for k in worms.known[0]])
    model = pv.models.SharedDynamics(activity, adjacency[np.ix_(place, place)], known=given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("permvi._fit._warn", lambda posteriors: None)
        expected = pv.fit(model, "collapsed", seed=5, num_restarts=2)
    found = pv.load(tmp_path / "fit.nc")
    assert found.labels == (tuple(files["truth"]["left"]), tuple(order))
    np.testing.assert_allclose(found.marginals, expected.marginals, atol=1e-6)


def test_options_of_the_method(identify, files, tmp_path):
    known = ["--known", write_csv(tmp_path / "k.csv", ["neuron", "identity"], one_worm(files))]
    result = identify(["left"], *known, "--option", "num_restarts=2", "--json")
    assert json.loads(result.stdout)["settings"]["num_restarts"] == 2
    refused = identify(["left"], *known, "--option", "restarts=2")
    assert refused.exit_code == 2
    assert "num_restarts" in refused.stderr


def one_worm(files):
    return [
        (row["neuron"], row["identity"]) for row in rows_of(files["known"]) if row["worm"] == "left"
    ]


def test_positions_say_who_is_near_and_how_probable_that_is(files, network):
    _, positions, worms = network
    recordings = read_recordings([files["left"]])
    canonical = read_canonical(str(files["edges"]), files["canonical"], directed=False)
    places = positions[[NAMES.index(name) for name in canonical.names]]
    table = rows_of(files["positions"])
    # A single worm's file does not need to name it.
    short = files["positions"].with_name("short.csv")
    write_csv(short, ["neuron", "x"], [(r["neuron"], r["x"]) for r in table if r["worm"] == "left"])
    model = identification(
        recordings,
        canonical,
        positions=Positions(short, 0.1, (0.05,)),
        weight_sd=0.3,
        noise_sd=1.0,
    ).model
    observed = worms.positions[0][:, None]
    np.testing.assert_array_equal(model.mask, np.abs(observed - places) < 0.1)
    expected = norm(places, 0.05).logpdf(observed) - norm(0, 0.05).logpdf(0)
    np.testing.assert_allclose(model.prior_scores[model.mask], expected[model.mask], atol=1e-9)
    assert (model.weight_scale, model.noise_scale) == (0.3, 1.0)
    assert model.learned == (False, False)


def test_known_neurons_may_be_out_of_place(files):
    recordings = read_recordings([files["left"]])
    canonical = read_canonical(str(files["edges"]), files["canonical"], directed=False)
    table = [row for row in rows_of(files["positions"]) if row["worm"] == "left"]
    neuron, identity = one_worm(files)[0]
    moved = [(r["neuron"], 9 if r["neuron"] == neuron else r["x"]) for r in table]
    path = write_csv(files["positions"].with_name("moved.csv"), ["neuron", "x"], [*moved])
    with pytest.raises(ValueError, match=rf"closer than 0.1 to '{neuron}' of .*left.csv, got none"):
        identification(recordings, canonical, positions=Positions(path, 0.1, None))
    known = write_csv(path.with_name("k.csv"), ["neuron", "identity"], [(neuron, identity)])
    found = identification(recordings, canonical, positions=Positions(path, 0.1, None), known=known)
    i, j = recordings[0].neurons.index(neuron), canonical.names.index(identity)
    assert found.known[0][i] == j
    assert found.model.mask[i, j]


def test_several_coordinates_are_found_by_name(write):
    recording = write("w.csv", "a,b\n0,1\n1,0\n2,5\n")
    edges = write("e.csv", "from,to\nX,Y\n")
    canonical = write("c.csv", "neuron,x,y\nX,0,1\nY,2,5\n")
    positions = write("p.csv", "Neuron;y;x\na;1,5;0,5\nb;4;2\n")
    found = identification(
        read_recordings([recording]),
        read_canonical(str(edges), canonical, directed=False),
        positions=Positions(positions, None, (2.0, 0.5)),
    ).model
    # The standard deviations are those of y and x, in the order of the positions.
    expected = [[-0.5 * (0.25**2 + 1), -0.5 * (1.75**2 + 9)], [-0.5 * (1.5**2 + 16), -0.125]]
    np.testing.assert_allclose(found.prior_scores, expected, atol=1e-12)
    assert found.mask is None


@pytest.mark.parametrize(
    "content",
    [
        "from,to\nA,B\nA,C\nC,C\n",
        "From;To;synapses\nA;B;1,5\nA;C;2\nC;C;1\nB;C;0\n",
        "sender,A,B,C\nA,0,2,1\nB,,0,0\nC,0,0,1\n",
    ],
)
def test_connectomes_as_lists_and_tables(write, content):
    path = str(write("c.csv", content))
    sends = np.array([[0, 1, 1], [0, 0, 0], [0, 0, 1]], bool)
    directed = read_canonical(path, None, directed=True)
    assert directed.names == ("A", "B", "C")
    # W[a, b] is the weight of b in the input of a.
    np.testing.assert_array_equal(directed.support, sends.T)
    both = read_canonical(path, None, directed=False)
    np.testing.assert_array_equal(both.support, sends | sends.T)


def test_neurons_without_edges_come_from_the_canonical_positions(write):
    edges, places = "from,to\nX,Y\n", "neuron,x\nZ,3\nY,2\nX,1\n"
    found = read_canonical(str(write("e.csv", edges)), write("c.csv", places), directed=False)
    assert found.names == ("X", "Y", "Z")
    assert found.support.tolist() == [[False, True, False], [True, False, False], [False] * 3]
    assert found.positions[:, 0].tolist() == [1, 2, 3]
    table = write("t.csv", "n,X,Y\nX,0,1\nY,1,0\n")
    with pytest.raises(ValueError, match=r"c.csv, line 2: expected a neuron of .*t.csv, got 'Z'"):
        read_canonical(str(table), write("c.csv", places), directed=False)


def test_files_may_speak_of_worms_that_are_not_asked_for(identify, files):
    result = identify(["left"], "--known", files["known"])
    assert result.exit_code == 0
    assert result.stderr == (
        f"permvi: {files['known']}: 4 rows are ignored because their worms have no recording: "
        "right.\n"
    )


@pytest.mark.parametrize(
    ("content", "notes"),
    [
        (",a,b\n0,1,2\n1,2,4\n2,3,1\n", []),
        ("time,a,b\n10:00,1,2\n10:05,2,4\n", []),
        ("a,b,time\n1,2,0.0\n2,4,0.1\n2,3,0.2\n", ["column 'time' is taken for a neuron"]),
        (
            ",0,1,2\na,1,2,3\nb,5,4,7\n",
            [
                "the first column has neither name nor numbers, and is ignored",
                "rows are taken for time steps, of which there are fewer than neurons",
            ],
        ),
    ],
)
def test_recordings_that_look_like_something_else(write, content, notes):
    path = write("worm.csv", content)
    (recording,) = read_recordings([path])
    assert recording.notes == tuple(f"{path}: {note}." for note in notes)


def test_recordings_in_every_form(write, tmp_path, rng):
    activity = rng.normal(size=(3, 2))
    text = [[f"{v:.17g}" for v in row] for row in activity]
    forms = {
        "plain.csv": "a,b\n" + "".join(f"{x},{y}\n" for x, y in text),
        "time.csv": "\ufeffTime;a;b\n"
        + "".join(f"{t};{x};{y}\n".replace(".", ",") for t, (x, y) in enumerate(text)),
        "pandas.csv": ",a,b\n" + "".join(f"{t},{x},{y}\n" for t, (x, y) in enumerate(text)),
        "r.csv": "a,b\n" + "".join(f"{t},{x},{y}\n" for t, (x, y) in enumerate(text)),
    }
    paths = [write(name, content) for name, content in forms.items()]
    np.savez(tmp_path / "named.npz", activity=activity, labels=np.array(["a", "b"]))
    np.save(tmp_path / "bare.npy", activity)
    paths += [tmp_path / "named.npz", tmp_path / "bare.npy"]
    for recording in read_recordings(paths):
        assert recording.neurons == (("0", "1") if recording.worm == "bare" else ("a", "b"))
        np.testing.assert_array_equal(recording.activity, activity)


WORM = "a,b\n0,1\n1,0\n2,5\n"
EDGES = "from,to\nX,Y\nY,Z\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "w.csv: expected at least two time steps, got 1"),
        ("a,b\n", "w.csv: expected at least two time steps, got none"),
        ("a,b\n1,2\n3,\n", "line 3, column 2 ('b'): expected a finite number, got an empty cell"),
        ("a,b\n1,2\n3,nan\n", "line 3, column 2 ('b'): expected a number, got 'nan'"),
        ("a,b\n1,2\n3,inf\n", "line 3, column 2 ('b'): expected a finite number, got 'inf'"),
        ("a,b\n1,2\n3,4,5\n", "line 3: expected 2 cells as in the header, got 3"),
        ("a,a\n1,2\n3,4\n", "line 1, column 2: expected a new name, got 'a' as in line 1"),
        ("1.5,2\n1,2\n3,4\n", "line 1: expected a header with the names of the columns"),
        ("a,b\n1,2\n3,2\n", "expected activity that changes, got a constant neuron 'b'"),
        ("a,b,c,d\n1,2,3,4\n4,3,2,1\n", "w.csv: expected at most 3 neurons, as many as"),
    ],
)
def test_mistakes_in_recordings(run, write, content, message):
    edges = write("edges.csv", EDGES)
    result = run("identify", write("w.csv", content), "--connectome", edges)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert message in line


def test_mistakes_in_arrays(run, write, tmp_path):
    edges = write("edges.csv", EDGES)
    arrays = {
        "other.npz": {"traces": np.eye(3)},
        "labels.npz": {"activity": np.eye(3), "labels": np.array(["a", "b"])},
        "twice.npz": {"activity": np.eye(3), "labels": np.array(["a", "b", "a"])},
        "flat.npz": {"activity": np.arange(3)},
        "nan.npz": {"activity": np.array([[1, 2], [3, np.nan]])},
        "objects.npz": {"activity": np.array([{}, {}])},
    }
    for name, content in arrays.items():
        np.savez(tmp_path / name, **content)
    write("broken.npz", "no archive")
    for name, message in {
        "other.npz": "expected an array 'activity', got traces",
        "labels.npz": "expected 3 labels, got shape (2,)",
        "twice.npz": "expected labels that differ, got 'a' twice",
        "flat.npz": "expected real numbers of shape (time, neurons), got dtype int64 and shape",
        "nan.npz": "expected finite numbers, got nan at time step 1, neuron 1",
        "objects.npz": "expected NumPy arrays of numbers or text, got something else",
        "broken.npz": "expected NumPy arrays of numbers or text, got something else",
        "none.npz": "expected a file, got none of that name",
    }.items():
        result = run("identify", tmp_path / name, "--connectome", edges)
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"{name}: {message}" in result.stderr


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("known", "neuron,identity\nc,X\n", "line 2: expected a neuron of {w}, got 'c'"),
        ("known", "neuron,identity\na,Q\n", "line 2: expected a neuron of {edges}, got 'Q'"),
        ("known", "neuron,identity\na,X\na,Y\n", "line 3: expected each neuron of a worm once"),
        ("known", "neuron,identity\nb,X\na,X\n", "line 3: expected each identity once in a worm"),
        ("known", "worm,neuron,identity\nv,a,X\n", "expected rows of the worms 'w', got none"),
        ("known", "neuron,name\na,X\n", "line 1: expected the columns worm (may be left out), ne"),
        ("known", "neuron,identity\na,\n", "line 2, column 2 ('identity'): expected a name, got"),
        ("positions", "neuron,x\na,1\n", "expected a position of each neuron of {w}, got none of"),
        ("positions", "neuron,x\na,1\nb,1\nc,1\n", "line 4: expected a neuron of {w}, got 'c'"),
        ("positions", "neuron,x\na,1\nb,\n", "line 3, column 2 ('x'): expected a finite number"),
        ("positions", "neuron,x\na,1\nb,40\n", "line 3: expected a canonical neuron closer than 1"),
        ("positions", "neuron,x\na,2.8\nb,2.9\n", "{w}: expected an identity for each neuron"),
        ("positions", "neuron,y\na,1\nb,1\n", "expected the coordinates 'x' of the canonical"),
        ("positions", "neuron\na\n", "line 1: expected the columns worm (may be left out), neuron"),
        ("canonical-positions", "neuron,x\nX,1\nY,2\n", "expected a position of each neuron of"),
        ("canonical-positions", "neuron,x\nQ,1\n", "expected a position of each neuron of"),
        ("canonical-positions", "neuron,x\nX,1\nX,2\n", "line 3: expected each neuron once, got"),
        ("connectome", "from,to\nX,Y,Z\n", "line 2: expected 2 cells as in the header, got 3"),
        ("connectome", "n,X,Y\nX,0,1\n", "expected a row 'Y', got none"),
        ("connectome", "n,X,Y\nX,0,0\nY,,0\n", "expected at least one edge, got none"),
    ],
)
def test_mistakes_in_other_files(run, write, option, content, message):
    files = {
        "connectome": write("edges.csv", EDGES),
        "canonical-positions": write("canonical.csv", "neuron,x\nX,0\nY,1\nZ,2\n"),
        "positions": write("places.csv", "neuron,x\na,0\nb,1\n"),
    }
    w, edges = write("w.csv", WORM), files["connectome"]
    path = files[option] = write("other.csv", content)
    options = [word for name, file in files.items() for word in (f"--{name}", file)]
    result = run("identify", w, *options, "--tolerance", 1)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert message.format(w=w, edges=edges) in line
    assert str(path) in line or message.startswith("{w}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tolerance", 1], "--tolerance must go with --positions, got it without"),
        (["--position-sd", 1], "--position-sd must go with --positions, got it without"),
        (["--positions", "p.csv"], "--positions must go with --tolerance or --position-sd"),
        (["--positions", "p.csv", "--tolerance", 0], "--tolerance must be positive, got 0"),
        (["--positions", "p.csv", "--position-sd", "1,-1"], "--position-sd must be positive"),
        (["--positions", "p.csv", "--position-sd", "x"], "--position-sd must be a number or num"),
        (["--positions", "p.csv", "--tolerance", 1], "--canonical-positions must be given with"),
        (["--noise-sd", 0], "--noise-sd must be positive, got 0"),
        (["--weight-sd", -1], "--weight-sd must be positive, got -1"),
        (["--method", "colapsed"], "did you mean 'collapsed'?"),
        (["--method", "fourier"], "model must have"),
        (["--connectome", "none.csv"], "none.csv: expected a CSV file, got no file of that name"),
        (["--plot", "f.gif"], "--plot must end in .png, .pdf, .svg, got 'f.gif'"),
        (["--level", 2], "level must be in (0, 1], got 2"),
        (["v.csv", "--known", "k.csv"], "k.csv: expected a column 'worm' with 2 recordings"),
        (["sub/w.csv"], "expected a file name of its own for each worm, got 'w' again after"),
    ],
)
def test_mistakes_in_options(run, write, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    write("p.csv", "neuron,x\na,0\nb,1\n")
    write("k.csv", "neuron,identity\na,X\n")
    for name in ("v.csv", "sub/w.csv"):
        write(name, WORM)
    network = ["--connectome", write("edges.csv", EDGES)]
    result = run("identify", write("w.csv", WORM), *network, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert message in line


def test_strict_and_quiet(run, write, rng):
    # White noise says nothing about anybody.
    noise = "\n".join(["a,b,c,d"] + [",".join(map(str, row)) for row in rng.normal(size=(30, 4))])
    edges = write("edges.csv", "from,to\nW,X\nX,Y\nY,Z\nW,Y\n")
    result = run("identify", write("w.csv", noise), "--connectome", edges, "--quiet", "--strict")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("permvi: verdict 'do not trust': ")


def test_the_built_in_connectome(write, monkeypatch):
    from permvi.datasets.celegans import Connectome

    chemical, gap = np.zeros((2, 3, 3), int)
    chemical[0, 1] = 2
    gap[1, 2] = gap[2, 1] = 1
    chemical[2, 2] = 4
    worm = Connectome(
        ("A", "B", "C"), np.array([0.1, 0.5, 0.9]), ("H", "M", "T"), np.ones((3, 3)), chemical, gap
    )
    monkeypatch.setattr("permvi.datasets.celegans", lambda: worm)
    both = read_canonical("celegans", None, directed=False)
    np.testing.assert_array_equal(both.support, worm.adjacency)
    np.testing.assert_array_equal(both.positions[:, 0], worm.positions)
    directed = read_canonical("celegans", None, directed=True)
    assert [tuple(map(int, edge)) for edge in np.argwhere(directed.support)] == [
        *((1, 0), (1, 2), (2, 1))
    ]
    # Any name will do for the position along the body.
    path = write("p.csv", "neuron,place\na,0.1\nb,0.52\n")
    model = identification(
        read_recordings([write("w.csv", WORM)]), both, positions=Positions(path, 0.2, None)
    ).model
    np.testing.assert_array_equal(model.mask, [[True, False, False], [False, True, False]])


def test_the_page(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # A thousand draws that are worth a few hundred: standard errors of 0.02.
    assert check_page(run, "identify.md", error=0.07) == 2
